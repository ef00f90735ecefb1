from collections.abc import Iterable, Mapping
from typing import Any

from llamacy.core.sampler_base import SamplerBase
from llamacy.core.vocab import Vocab
from llamacy.types import AnyBuffer, ReasoningTags

__all__ = ["Sampler"]

class Sampler(SamplerBase):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    @staticmethod
    def greedy() -> Sampler: ...
    @staticmethod
    def dist(seed: int | None = ...) -> Sampler: ...
    @staticmethod
    def top_k(k: int) -> Sampler: ...
    @staticmethod
    def top_p(p: float, min_keep: int = 1) -> Sampler: ...
    @staticmethod
    def min_p(p: float, min_keep: int = 1) -> Sampler: ...
    @staticmethod
    def typical(p: float, min_keep: int = 1) -> Sampler: ...
    @staticmethod
    def temp(t: float) -> Sampler: ...
    @staticmethod
    def temp_ext(t: float, delta: float, exponent: float = 1.0) -> Sampler: ...
    @staticmethod
    def xtc(p: float, t: float, min_keep: int = 1, seed: int | None = ...) -> Sampler: ...
    @staticmethod
    def top_n_sigma(n: float) -> Sampler: ...
    @staticmethod
    def mirostat(n_vocab: int, seed: int | None = ..., tau: float = 5.0, eta: float = 0.1, m: int = 100) -> Sampler: ...
    @staticmethod
    def mirostat_v2(seed: int | None = ..., tau: float = 5.0, eta: float = 0.1) -> Sampler: ...
    @staticmethod
    def grammar(
        vocab: Vocab, grammar_str: str, grammar_root: str = "root", *, special: bool | Iterable[int] = True
    ) -> Sampler: ...
    @staticmethod
    def grammar_lazy(
        vocab: Vocab,
        grammar_str: str,
        grammar_root: str = "root",
        *,
        trigger_patterns: Iterable[str] = (),
        trigger_tokens: Iterable[int] = (),
        reasoning: ReasoningTags | None = None,
        special: bool | Iterable[int] = True,
    ) -> Sampler: ...
    @staticmethod
    def penalties(
        n_vocab: int,
        penalty_last_n: int = 64,
        penalty_repeat: float = 1.0,
        penalty_freq: float = 0.0,
        penalty_present: float = 0.0,
    ) -> Sampler: ...
    @staticmethod
    def dry(
        vocab: Vocab,
        dry_multiplier: float,
        dry_base: float = 1.75,
        dry_allowed_length: int = 2,
        dry_penalty_last_n: int = 1024,
        seq_breakers: Iterable[str] = ...,
    ) -> Sampler: ...
    @staticmethod
    def adaptive_p(target: float, decay: float = 0.9, seed: int | None = ...) -> Sampler: ...
    @staticmethod
    def logit_bias(n_vocab: int, logit_bias: Mapping[int, float] | Iterable[tuple[int, float]]) -> Sampler: ...
    @staticmethod
    def infill(vocab: Vocab) -> Sampler: ...
    @staticmethod
    def min_tokens(vocab: Vocab, n: int) -> Sampler: ...
    @staticmethod
    def reasoning_budget(
        vocab: Vocab,
        budget: int,
        *,
        start: str | Iterable[str] = "<think>",
        end: str | Iterable[str] = "</think>",
        message: str = "",
        in_block: bool = False,
        start_within: int = 0,
    ) -> Sampler: ...
    def accept_all(self, tokens: AnyBuffer) -> None: ...
