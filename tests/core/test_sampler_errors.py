"""Arguments that samplers refuse, and uses that llama.cpp would abort on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import ClosedError, GrammarError, SamplerError
from tests.helpers import models

NAN, INF = float("nan"), float("inf")
NUMBERS: dict[str, Callable[[float], Sampler]] = {
    "top_p": lambda x: Sampler.top_p(x),
    "min_p": lambda x: Sampler.min_p(x),
    "typical": lambda x: Sampler.typical(x),
    "temp": lambda x: Sampler.temp(x),
    "temp_ext t": lambda x: Sampler.temp_ext(x, 0.5),
    "temp_ext delta": lambda x: Sampler.temp_ext(1.0, x),
    "temp_ext exponent": lambda x: Sampler.temp_ext(1.0, 0.5, x),
    "xtc p": lambda x: Sampler.xtc(x, 0.1),
    "xtc t": lambda x: Sampler.xtc(0.5, x),
    "top_n_sigma": lambda x: Sampler.top_n_sigma(x),
    "mirostat tau": lambda x: Sampler.mirostat(10, 1, x),
    "mirostat eta": lambda x: Sampler.mirostat(10, 1, 5.0, x),
    "mirostat_v2 tau": lambda x: Sampler.mirostat_v2(1, x),
    "mirostat_v2 eta": lambda x: Sampler.mirostat_v2(1, 5.0, x),
    "penalties repeat": lambda x: Sampler.penalties(10, 64, x),
    "penalties freq": lambda x: Sampler.penalties(10, 64, 1.0, x),
    "penalties present": lambda x: Sampler.penalties(10, 64, 1.0, 0.0, x),
    "adaptive_p target": lambda x: Sampler.adaptive_p(x),
    "adaptive_p decay": lambda x: Sampler.adaptive_p(0.5, x),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e39])
def test_number_that_is_not_finite_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match="finite number"):
        NUMBERS[name](value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sampler.top_p(1.1),
        lambda: Sampler.top_p(-0.1),
        lambda: Sampler.top_p(0.5, -1),
        lambda: Sampler.min_p(1.5),
        lambda: Sampler.typical(-0.5),
        lambda: Sampler.temp(1e-35),
        lambda: Sampler.temp_ext(1e-40, 0.0),
        lambda: Sampler.xtc(1.1, 0.1),
        lambda: Sampler.xtc(0.5, -0.1),
        lambda: Sampler.mirostat(0),
        lambda: Sampler.mirostat(10, m=1),
        lambda: Sampler.mirostat(10, tau=-1.0),
        lambda: Sampler.penalties(0),
        lambda: Sampler.penalties(10, -1),
        lambda: Sampler.penalties(10, 1 << 30),
        lambda: Sampler.penalties(10, 64, 0.0),
        lambda: Sampler.penalties(10, 64, -1.0),
        lambda: Sampler.penalties(10, 64, 1e-50),
        lambda: Sampler.adaptive_p(1.5),
        lambda: Sampler.adaptive_p(0.5, 1.0),
        lambda: Sampler.adaptive_p(0.5, -0.1),
        lambda: Sampler.logit_bias(0, {}),
        lambda: Sampler.logit_bias(10, {10: 1.0}),
        lambda: Sampler.logit_bias(10, {-1: 1.0}),
        lambda: Sampler.logit_bias(10, {1: NAN}),
        lambda: Sampler.logit_bias(10, {1: INF}),
        lambda: Sampler.logit_bias(10, {1: 1e30}),
    ],
)
def test_value_out_of_range_is_refused(make: Callable[[], Sampler]) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize(
    "make",
    [
        Sampler.dist,
        Sampler.mirostat_v2,
        lambda seed: Sampler.xtc(0.5, 0.1, seed=seed),
        lambda s: Sampler.mirostat(9, s),
    ],
)
@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_seed_out_of_range_is_refused(make: Callable[[int], Sampler], seed: int) -> None:
    with pytest.raises(ValueError, match=r"2\*\*32 - 1"):
        make(seed)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sampler.top_k("4"),  # type: ignore[arg-type]
        lambda: Sampler.top_k(4.5),  # type: ignore[arg-type]
        lambda: Sampler.temp("1"),  # type: ignore[arg-type]
        lambda: Sampler.dist("1"),  # type: ignore[arg-type]
        lambda: Sampler.logit_bias(10, {"a": 1.0}),  # type: ignore[dict-item]
        lambda: Sampler.grammar(None, "root ::= x"),  # type: ignore[arg-type]
        lambda: Sampler.top_k(4, mystery=1),  # type: ignore[call-arg]
        lambda: Sampler(),
        lambda: SamplerChain(None),  # type: ignore[arg-type]
        lambda: SamplerChain([3]),  # type: ignore[list-item]
        lambda: SamplerChain(wrong=1),  # type: ignore[call-arg]
    ],
)
def test_argument_of_wrong_type_is_refused(make: Callable[[], Sampler]) -> None:
    with pytest.raises(TypeError):
        make()


def test_dry_arguments_are_checked(target_model: Any) -> None:
    vocab = target_model.vocab
    for arguments in (
        {"dry_multiplier": NAN},
        {"dry_multiplier": -1.0},
        {"dry_multiplier": 1.0, "dry_base": 0.5},
        {"dry_multiplier": 1.0, "dry_base": INF},
        {"dry_multiplier": 1.0, "dry_allowed_length": -1},
        {"dry_multiplier": 1.0, "dry_penalty_last_n": -1},
        {"dry_multiplier": 1.0, "dry_penalty_last_n": 1 << 30},
        {"dry_multiplier": 1.0, "seq_breakers": ["\0"]},
        {"dry_multiplier": 1.0, "seq_breakers": [""]},
        {"dry_multiplier": 1.0, "seq_breakers": ["x" * 41]},
    ):
        with pytest.raises(ValueError):
            Sampler.dry(vocab, **arguments)
    with pytest.raises(TypeError, match="not one"):
        Sampler.dry(vocab, 1.0, seq_breakers="abc")


@pytest.mark.parametrize("token", [-1, 10, (1 << 31) - 1, 1 << 31, -(1 << 40), 1 << 60])
def test_accept_of_no_token_is_refused(token: int) -> None:
    # adaptive-p aborts on LLAMA_TOKEN_NULL, the backend on ids outside of the vocabulary
    with Sampler.penalties(10, 64, 1.5) as sampler, pytest.raises(SamplerError, match="no token"):
        sampler.accept(token)
    if not 0 <= token < 1 << 31:
        with Sampler.adaptive_p(0.5) as sampler, pytest.raises(SamplerError, match="no token"):
            sampler.accept(token)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (lambda: Sampler.dist(1), lambda: Sampler.greedy()),
        (lambda: Sampler.top_k(4), lambda: Sampler.top_k(5)),
        # copying a ring buffer of another length would break the count of tokens
        (lambda: Sampler.penalties(10, 64, 1.5), lambda: Sampler.penalties(10, 8, 1.5)),
        (lambda: SamplerChain([Sampler.dist(1)]), lambda: SamplerChain([Sampler.greedy()])),
        (lambda: SamplerChain([Sampler.dist(1)]), lambda: SamplerChain([])),
        (lambda: SamplerChain([Sampler.dist(1)]), lambda: Sampler.dist(1)),
        (lambda: Sampler.dist(1), lambda: SamplerChain([Sampler.dist(1)])),
        (
            lambda: SamplerChain([SamplerChain([Sampler.top_k(4)])]),
            lambda: SamplerChain([SamplerChain([Sampler.top_k(4), Sampler.top_k(4)])]),
        ),
    ],
)
def test_copy_between_different_samplers_is_refused(one: Callable[[], Sampler], two: Callable[[], Sampler]) -> None:
    with one() as a, two() as b, pytest.raises(SamplerError, match="made alike"):
        a.copy_to(b)


def test_model_without_tokenizer_has_no_text_for_samplers(tmp_path: Path, make_model: Any) -> None:
    # llama.cpp aborts when it asks such a vocabulary for the text of a token
    vocab = make_model(models.write_vocab_none(tmp_path / "none.gguf"), vocab_only=True).vocab
    for make in (
        lambda: Sampler.grammar(vocab, 'root ::= "a"'),
        lambda: Sampler.grammar_lazy(vocab, 'root ::= "a"', trigger_patterns=["a"]),
        lambda: Sampler.dry(vocab, 1.0),
        lambda: Sampler.infill(vocab),
    ):
        with pytest.raises(SamplerError, match="no tokenizer"):
            make()


def test_closed_sampler_says_so() -> None:
    sampler = Sampler.top_k(3)
    sampler.close()
    sampler.close()
    assert sampler.closed
    assert repr(sampler) == "<Sampler top_k closed>"
    for use in (
        lambda: sampler.apply(Candidates([1.0])),
        lambda: sampler.accept(1),
        lambda: sampler.allows(1),
        sampler.reset,
        sampler.clone,
        lambda: sampler.name,
        lambda: sampler.seed,
        lambda: sampler.awaiting_trigger,
        lambda: sampler.copy_to(Sampler.top_k(3)),
        lambda: SamplerChain([sampler]),
    ):
        with pytest.raises(ClosedError, match="closed"):
            use()


def test_sampler_never_made_says_so() -> None:
    for cls in (Sampler, SamplerChain):
        made = cls.__new__(cls, None) if cls is SamplerChain else cls.__new__(cls)
        with pytest.raises(ClosedError):
            made.apply(Candidates([1.0]))
        with pytest.raises(ClosedError):
            made.name  # noqa: B018
        made.close()


def test_infinite_logits_inside_of_a_chain_are_noticed() -> None:
    # a penalty that overflows: the probabilities are not numbers, and llama.cpp would pick the last token
    with Sampler.penalties(4, 8, 1.0, -3e38) as penalties, Sampler.dist(1) as dist:
        penalties.accept(2)
        penalties.accept(2)
        with SamplerChain([penalties, dist]) as chain, pytest.raises(SamplerError, match="ruled out"):
            chain.apply(Candidates(np.zeros(4)))


def test_errors_are_of_the_package_and_of_python() -> None:
    assert issubclass(SamplerError, ValueError)
    assert issubclass(GrammarError, ValueError)
    assert issubclass(ClosedError, ValueError)
