"""Types of the keyword arguments that say how tokens are picked: those of `SamplingOptions`, and their aliases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict


class FurtherSamplingArguments(TypedDict, total=False):
    """All but those that completions name in their signature."""

    temp: float
    dynatemp_range: float
    dynatemp_exponent: float
    typical_p: float
    typical: float
    typ_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    mirostat_mode: int
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_seq_breakers: Iterable[str]
    dry_sequence_breakers: Iterable[str]
    penalty_last_n: int
    repeat_last_n: int
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    present_penalty: float
    logit_bias: Mapping[Any, Any] | Iterable[tuple[Any, Any]] | None
    min_keep: int
    samplers: str | Iterable[str]
    ignore_eos: bool
    min_tokens: int
    suppress_tokens: Iterable[int]
    use_infill: bool
    reasoning_budget: int
    reasoning_budget_message: str | None
    reasoning_start: str | Iterable[str]
    reasoning_end: str | Iterable[str]
    reasoning_start_in_prompt: bool
    reasoning_start_max_tokens: int


class SamplingArguments(FurtherSamplingArguments, total=False):
    """All of them."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None
