"""Each sampler against its model in NumPy (`sampler_reference`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler
from tests.core import sampler_reference as reference

SIZES = [2, 17, 300, 5000]


def row(n: int, seed: int = 0, spread: float = 3.0) -> Any:
    """Return logits of which no two are equal."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.unique(rng.normal(0, spread, 2 * n).astype(np.float32)))[:n]


def run(sampler: Sampler, logits: Any, ids: Any = None) -> tuple[Any, Any]:
    """Return ids and logits that a sampler leaves."""
    candidates = Candidates(logits, ids)
    with sampler:
        sampler.apply(candidates)
    view = np.asarray(candidates)
    return view["id"].astype(np.int64), view["logit"].astype(np.float64)


def check(left: tuple[Any, Any], expected: tuple[Any, Any], ordered: bool = True) -> None:
    ids, logits = left
    if not ordered:
        order = np.argsort(ids)
        ids, logits = ids[order], logits[order]
        order = np.argsort(expected[0])
        expected = expected[0][order], expected[1][order]
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_allclose(logits, expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("k", [1, 2, 40, 129, 4000, 10000])
def test_top_k_keeps_highest(n: int, k: int) -> None:
    logits = row(n)
    check(run(Sampler.top_k(k), logits), reference.top_k(np.arange(n), logits.astype(float), k))


@pytest.mark.parametrize("k", [0, -1])
def test_top_k_not_positive_keeps_all_in_order(k: int) -> None:
    logits = row(10)
    check(run(Sampler.top_k(k), logits), (np.arange(10), logits.astype(float)))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("min_keep", [0, 1, 20])
def test_top_p_keeps_nucleus(n: int, p: float, min_keep: int) -> None:
    logits = row(n)
    expected = reference.top_p(np.arange(n), logits.astype(float), p, max(min_keep, 1))
    check(run(Sampler.top_p(p, min_keep), logits), expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("p", [0.01, 0.2, 1.0])
@pytest.mark.parametrize("min_keep", [0, 1, 20])
@pytest.mark.parametrize("first", [0, 5000])
def test_min_p_keeps_relative(n: int, p: float, min_keep: int, first: int) -> None:
    # an unsorted array and one that top_k sorted take different paths
    logits = row(n)
    candidates = Candidates(logits)
    if first:
        Sampler.top_k(first).apply(candidates)
    Sampler.min_p(p, min_keep).apply(candidates)
    view = np.asarray(candidates)
    expected = reference.min_p(np.arange(n), logits.astype(float), p, max(min_keep, 1))
    check((view["id"].astype(int), view["logit"].astype(float)), expected, ordered=False)


@pytest.mark.parametrize("n", [2, 17, 300])
@pytest.mark.parametrize("p", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("min_keep", [1, 20])
def test_typical_keeps_expected_information(n: int, p: float, min_keep: int) -> None:
    logits = row(n, spread=1.5)
    expected = reference.typical(np.arange(n), logits.astype(float), p, min(min_keep, n))
    check(run(Sampler.typical(p, min_keep), logits), expected)


@pytest.mark.parametrize("t", [0.1, 0.8, 1.0, 2.5])
def test_temp_divides(t: float) -> None:
    logits = row(50)
    check(run(Sampler.temp(t), logits), (np.arange(50), logits.astype(float) / t))


@pytest.mark.parametrize("t", [0.0, -1.0])
def test_temp_not_positive_leaves_the_highest(t: float) -> None:
    logits = row(50)
    ids, left = run(Sampler.temp(t), logits)
    assert list(ids[np.isfinite(left)]) == [int(logits.argmax())]


@pytest.mark.parametrize(("t", "delta", "exponent"), [(1.0, 0.5, 1.0), (0.8, 0.8, 2.0), (1.5, 3.0, 0.5)])
def test_temp_ext_follows_entropy(t: float, delta: float, exponent: float) -> None:
    logits = row(100)
    ids, scaled = reference.descending(np.arange(100), logits.astype(float))
    expected = scaled / reference.dynamic_temperature(logits.astype(float), t, delta, exponent)
    check(run(Sampler.temp_ext(t, delta, exponent), logits), (ids, expected))


def test_temp_ext_without_delta_is_temp() -> None:
    logits = row(20)
    check(run(Sampler.temp_ext(0.5, 0.0), logits), (np.arange(20), logits.astype(float) / 0.5))


@pytest.mark.parametrize("threshold", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("min_keep", [0, 1, 99])
def test_xtc_excludes_top_choices(threshold: float, min_keep: int) -> None:
    logits = row(100, spread=2)
    expected = reference.xtc(np.arange(100), logits.astype(float), threshold, min_keep)
    check(run(Sampler.xtc(1.0, threshold, min_keep, seed=1), logits), expected)


def test_xtc_throws_dice_of_its_seed() -> None:
    logits = row(20, spread=0.5)
    rng = reference.MersenneTwister(7)
    with Sampler.xtc(0.4, 0.02, seed=7) as sampler:
        for _ in range(50):
            candidates = Candidates(logits)
            sampler.apply(candidates)
            assert (len(candidates) < 20) == (rng.float() <= 0.4)


@pytest.mark.parametrize(("p", "t"), [(0.0, 0.1), (1.0, 0.6)])
def test_xtc_that_is_off_changes_nothing(p: float, t: float) -> None:
    logits = row(20)
    check(run(Sampler.xtc(p, t, seed=1), logits), (np.arange(20), logits.astype(float)))


@pytest.mark.parametrize("n", [0.5, 1.0, 3.0])
def test_top_n_sigma_rules_out_below(n: float) -> None:
    logits = row(200)
    logits[::7] = -np.inf
    check(run(Sampler.top_n_sigma(n), logits), (np.arange(200), reference.top_n_sigma(logits.astype(float), n)))


def test_top_n_sigma_not_positive_changes_nothing() -> None:
    logits = row(20)
    check(run(Sampler.top_n_sigma(0.0), logits), (np.arange(20), logits.astype(float)))


def test_greedy_selects_highest() -> None:
    for seed in range(20):
        logits = row(500, seed)
        candidates = Candidates(logits)
        with Sampler.greedy() as sampler:
            sampler.apply(candidates)
        assert candidates.token == int(logits.argmax())


@pytest.mark.parametrize(
    ("last_n", "repeat", "freq", "present"),
    [(64, 1.3, 0.0, 0.0), (4, 1.0, 0.5, 0.0), (8, 1.0, 0.0, 0.7), (5, 0.8, -0.2, 0.3), (0, 2.0, 1.0, 1.0)],
)
def test_penalties_count_recent_tokens(last_n: int, repeat: float, freq: float, present: float) -> None:
    rng = np.random.default_rng(3)
    history: list[int] = []
    logits = row(10)
    with Sampler.penalties(10, last_n, repeat, freq, present) as sampler:
        for _ in range(30):
            token = int(rng.integers(10))
            sampler.accept(token)
            history.append(token)
            candidates = Candidates(logits)
            sampler.apply(candidates)
            expected = reference.penalties(logits.astype(float), history, last_n, repeat, freq, present)
            np.testing.assert_allclose(candidates.logits, expected, rtol=1e-5, atol=1e-5)


def test_penalties_reset_forgets() -> None:
    logits = row(10)
    with Sampler.penalties(10, 8, 1.5) as sampler:
        sampler.accept(3)
        sampler.reset()
        candidates = Candidates(logits)
        sampler.apply(candidates)
        np.testing.assert_array_equal(candidates.logits, logits)


def test_logit_bias_adds_to_tokens_wherever_they_are() -> None:
    logits = row(10)
    bias = {0: 1.5, 7: -2.0, 4: float("-inf")}
    expected = logits.astype(float)
    for token, value in bias.items():
        expected[token] += value
    check(run(Sampler.logit_bias(10, bias), logits), (np.arange(10), expected))
    shuffled = np.random.default_rng(0).permutation(10).astype(np.int32)
    left = run(Sampler.logit_bias(10, bias.items()), logits[shuffled], shuffled)
    check(left, (shuffled.astype(int), expected[shuffled]))


@pytest.mark.parametrize("breakers", [(), ("\n",), ("c",)])
@pytest.mark.parametrize(("base", "allowed", "last_n"), [(1.75, 2, 64), (2.0, 1, 10), (1.0, 3, 200)])
def test_dry_penalises_going_on_with_repetitions(
    target_model: Any, breakers: tuple[str, ...], base: float, allowed: int, last_n: int
) -> None:
    vocab = target_model.vocab
    letters = [vocab.tokenize(text, add_special=False)[-1] for text in ("a", "b", "c", "d")] + [14]
    breaker_tokens = {14 if text == "\n" else letters[2] for text in breakers}
    rng = np.random.default_rng(1)
    history: list[int] = []
    logits = row(vocab.n_tokens)
    with Sampler.dry(vocab, 0.8, base, allowed, last_n, breakers) as sampler:
        for _ in range(120):
            token = int(letters[rng.choice(5, p=[0.3, 0.3, 0.25, 0.1, 0.05])])
            sampler.accept(token)
            history.append(token)
            candidates = Candidates(logits)
            sampler.apply(candidates)
            expected = reference.dry(logits.astype(float), history, 0.8, base, allowed, last_n, breaker_tokens)
            np.testing.assert_allclose(candidates.logits, expected, rtol=1e-4, atol=1e-4)


def test_dry_penalises_the_token_that_would_repeat(target_model: Any) -> None:
    logits = np.zeros(target_model.vocab.n_tokens)
    with Sampler.dry(target_model.vocab, 1.0, 2.0, 2, 64, ()) as sampler:
        for token in [10, 11, 12, 13, 10, 11, 12]:
            sampler.accept(token)
        candidates = Candidates(logits)
        sampler.apply(candidates)
    # "10 11 12" is followed by 13 before: a repetition of 3 where 2 are allowed
    assert {token: value for token, value, _ in candidates if value} == {13: -2.0}


@pytest.mark.parametrize(("tau", "eta", "m"), [(5.0, 0.1, 100), (2.0, 0.5, 5), (4.0, 0.05, 50)])
def test_mirostat_follows_the_paper(tau: float, eta: float, m: int) -> None:
    model = reference.Mirostat(400, 11, tau, eta, m)
    with Sampler.mirostat(400, 11, tau, eta, m) as sampler:
        for seed in range(60):
            logits = row(400, seed, spread=2)
            candidates = Candidates(logits)
            sampler.apply(candidates)
            assert candidates.token == model.sample(np.arange(400), logits.astype(float))


@pytest.mark.parametrize(("tau", "eta"), [(5.0, 0.1), (2.0, 0.5), (0.0, 0.1)])
def test_mirostat_v2_follows_the_rule(tau: float, eta: float) -> None:
    model = reference.MirostatV2(12, tau, eta)
    with Sampler.mirostat_v2(12, tau, eta) as sampler:
        for seed in range(60):
            logits = row(400, seed, spread=2)
            candidates = Candidates(logits)
            sampler.apply(candidates)
            assert candidates.token == model.sample(np.arange(400), logits.astype(float))


@pytest.mark.parametrize(("target", "decay"), [(0.3, 0.9), (0.6, 0.0), (0.0, 0.99)])
def test_adaptive_p_follows_its_description(target: float, decay: float) -> None:
    model = reference.AdaptiveP(target, decay, 5)
    with Sampler.adaptive_p(target, decay, 5) as sampler:
        for seed in range(60):
            logits = row(50, seed, spread=2)
            candidates = Candidates(logits)
            sampler.apply(candidates)
            token = candidates.token
            assert token is not None
            assert token == model.sample(logits.astype(float))
            sampler.accept(token)


def test_infill_merges_prefixes_and_prefers_end(llama_model: Any) -> None:
    vocab = llama_model.vocab
    a, b = (vocab.tokenize(text, add_special=False)[-1] for text in ("a", "b"))
    with Sampler.infill(vocab) as sampler:
        # the end of generation is likely enough: nothing else is left
        candidates = Candidates(np.log([0.5, 0.3, 0.2]), [a, b, vocab.eos])
        sampler.apply(candidates)
        assert list(candidates.ids) == [vocab.eos]
        # otherwise improbable tokens go, and the end stays
        candidates = Candidates(np.log([0.9, 0.0999, 0.0001]), [a, b, vocab.eos])
        sampler.apply(candidates)
        assert sorted(candidates.ids) == sorted([a, vocab.eos])


@pytest.mark.parametrize(
    ("sampler", "name", "text"),
    [
        (Sampler.greedy(), "greedy", "Sampler.greedy()"),
        (Sampler.dist(4), "dist", "Sampler.dist(seed=4)"),
        (Sampler.top_k(40), "top-k", "Sampler.top_k(k=40)"),
        (Sampler.top_k(0), "?top-k", "Sampler.top_k(k=0)"),
        (Sampler.min_p(0.05), "min-p", "Sampler.min_p(p=0.05, min_keep=1)"),
        (Sampler.temp(1.0), "?temp", "Sampler.temp(t=1.0)"),
        (Sampler.logit_bias(9, {2: 1}), "logit-bias", "Sampler.logit_bias(n_vocab=9, logit_bias={2: 1.0})"),
    ],
)
def test_name_and_repr_say_what_it_is(sampler: Sampler, name: str, text: str) -> None:
    with sampler:
        assert (sampler.name, repr(sampler)) == (name, text)
    assert "closed" in repr(sampler)
