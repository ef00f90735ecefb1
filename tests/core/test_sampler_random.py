"""Random samplers: distribution, seeds, clones and resets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler, SamplerChain
from tests.core import sampler_reference as reference

LOGITS = np.log([0.4, 0.3, 0.15, 0.1, 0.04, 0.01]).astype(np.float32)
MAKERS: list[Callable[[int], Sampler]] = [
    lambda seed: Sampler.dist(seed),
    lambda seed: Sampler.xtc(0.5, 0.1, seed=seed),
    lambda seed: Sampler.mirostat(6, seed),
    lambda seed: Sampler.mirostat_v2(seed),
    lambda seed: Sampler.adaptive_p(0.5, 0.9, seed),
    lambda seed: SamplerChain([Sampler.top_k(5), Sampler.dist(seed)]),
]
IDS = ["dist", "xtc", "mirostat", "mirostat_v2", "adaptive_p", "chain"]


def draw(sampler: Sampler, n: int) -> list[tuple[int, int]]:
    """Return what each of `n` draws selected, and how many candidates it left."""
    found = []
    for _ in range(n):
        candidates = Candidates(LOGITS)
        sampler.apply(candidates)
        token = candidates.token
        if token is not None:
            sampler.accept(token)
        found.append((-1 if token is None else token, len(candidates)))
    return found


def tokens(sampler: Sampler, n: int) -> list[int]:
    return [token for token, _ in draw(sampler, n)]


def test_dist_draws_by_probability() -> None:
    n = 20000
    with Sampler.dist(1234) as sampler:
        counts = np.bincount(tokens(sampler, n), minlength=6)
    expected = n * reference.softmax(LOGITS.astype(float))
    # 5 degrees of freedom: a chi-square above 25.7 has a probability of 1e-4
    assert ((counts - expected) ** 2 / expected).sum() < 25.7


def test_dist_draws_what_the_standard_library_would() -> None:
    rng = reference.MersenneTwister(99)
    cumulative = np.cumsum(reference.softmax(LOGITS.astype(float)))
    with Sampler.dist(99) as sampler:
        assert tokens(sampler, 200) == [int(np.searchsorted(cumulative, rng.double())) for _ in range(200)]


def test_dist_leaves_probabilities() -> None:
    candidates = Candidates(LOGITS)
    with Sampler.dist(0) as sampler:
        sampler.apply(candidates)
    np.testing.assert_allclose(candidates.probs, reference.softmax(LOGITS.astype(float)), rtol=1e-6)


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_same_seed_draws_the_same(make: Callable[[int], Sampler]) -> None:
    with make(7) as one, make(7) as two, make(8) as other:
        found = draw(one, 50)
        assert found == draw(two, 50)
        assert found != draw(other, 50)


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_reset_starts_again(make: Callable[[int], Sampler]) -> None:
    with make(7) as sampler:
        found = draw(sampler, 50)
        sampler.reset()
        assert draw(sampler, 50) == found


@pytest.mark.parametrize(
    "make",
    [make for make, name in zip(MAKERS, IDS, strict=False) if name != "adaptive_p"],
    ids=[name for name in IDS if name != "adaptive_p"],
)
def test_clone_goes_on(make: Callable[[int], Sampler]) -> None:
    with make(7) as sampler:
        draw(sampler, 10)
        with sampler.clone() as clone:
            assert draw(clone, 40) == draw(sampler, 40)


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_copy_puts_into_the_same_state(make: Callable[[int], Sampler]) -> None:
    with make(7) as one, make(7) as two:
        draw(two, 5)
        one.copy_to(two)
        assert draw(one, 30) == draw(two, 30)
        if "adaptive_p" not in repr(one):
            two.copy_from(one)
            assert draw(one, 30) == draw(two, 30)


def test_adaptive_p_clone_without_the_selected_token_is_safe() -> None:
    # llama.cpp's clone knows that a token was selected, but not its probability, and would read from nowhere
    with Sampler.adaptive_p(0.5, 0.9, 3) as sampler:
        candidates = Candidates(np.zeros(200000, np.float32))
        sampler.apply(candidates)
        token = candidates.token
        assert token is not None
        with sampler.clone() as clone, SamplerChain([sampler.clone()]) as chain, chain.clone() as chain_clone:
            clone.accept(token)
            chain.accept(token)
            chain_clone.accept(token)
            sampler.copy_to(clone)
            clone.accept(token)


def test_seed_tells_the_one_in_use() -> None:
    with Sampler.dist(5) as sampler:
        assert sampler.seed == 5
    with Sampler.dist() as one, Sampler.dist(None) as two:
        assert one.seed is not None
        assert two.seed is not None
        assert one.seed != two.seed
        with Sampler.dist(one.seed) as again:
            assert tokens(again, 30) == tokens(one, 30)
    with Sampler.xtc(0.5, 0.1, seed=6) as xtc, Sampler.xtc(0.5, 0.1) as unknown, Sampler.top_k(3) as top_k:
        assert (xtc.seed, unknown.seed, top_k.seed) == (6, None, None)
    with SamplerChain([Sampler.top_k(3), Sampler.dist(8)]) as chain:
        assert chain.seed == 8


def test_random_seed_changes_at_reset() -> None:
    with Sampler.dist() as sampler:
        seeds = {sampler.seed}
        for _ in range(5):
            sampler.reset()
            seeds.add(sampler.seed)
        assert len(seeds) > 1


def test_adaptive_p_below_zero_draws_from_the_distribution() -> None:
    rng: Any = reference.MersenneTwister(3)
    probs = reference.softmax(LOGITS.astype(float))
    with Sampler.adaptive_p(-1.0, 0.5, 3) as sampler:
        assert tokens(sampler, 100) == [rng.choice(probs) for _ in range(100)]
