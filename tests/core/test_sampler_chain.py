"""Chains: order, ownership of links, sampling from a context."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import ClosedError, InUseError, OutputError, SamplerError
from tests.core import sampler_reference as reference


@pytest.fixture
def context(target_model: Any, make_context: Any) -> Any:
    """A context whose last decode has outputs at entries 1 and 3."""
    context = make_context(target_model)
    batch = Batch(8)
    for pos, token in enumerate([1, 265, 270, 281]):
        batch.add(token, pos, logits=pos in (1, 3))
    context.decode(batch)
    return context


def row(context: Any, index: int = -1) -> Any:
    return np.array(context.outputs.logits(index), dtype=np.float64)


def links() -> list[Sampler]:
    return [Sampler.top_k(20), Sampler.top_p(0.9), Sampler.temp(0.7), Sampler.dist(5)]


def test_chain_is_a_sequence_of_its_links() -> None:
    added = links()
    with SamplerChain(added) as chain:
        assert len(chain) == 4
        assert list(chain) == added
        assert chain[0] is added[0]
        assert chain[-1] is added[3]
        assert chain[1:3] == added[1:3]
        assert [link.kind for link in chain] == ["top_k", "top_p", "temp", "dist"]
        assert chain.names == ("top-k", "top-p", "temp", "dist")
        assert chain.name == "chain"
        assert repr(chain) == (
            "SamplerChain([Sampler.top_k(k=20), Sampler.top_p(p=0.9, min_keep=1), Sampler.temp(t=0.7), "
            "Sampler.dist(seed=5)])"
        )
        with pytest.raises(IndexError):
            chain[4]


def test_added_sampler_is_empty_until_it_is_removed() -> None:
    sampler = Sampler.top_k(3)
    with SamplerChain([sampler]) as chain:
        assert sampler.closed
        assert sampler.kind == "top_k"
        assert sampler.values == {"k": 3}
        with pytest.raises(ClosedError, match="belongs to the chain"):
            sampler.apply(Candidates([1.0]))
        with pytest.raises(ClosedError, match="belongs to the chain"):
            chain.add(sampler)
        with pytest.raises(ClosedError, match="belongs to the chain"):
            SamplerChain([sampler])
        sampler.close()
        assert chain.remove(0) is sampler
        assert not sampler.closed
        assert len(chain) == 0
        candidates = Candidates(range(10))
        sampler.apply(candidates)
        assert len(candidates) == 3
        sampler.close()


def test_links_are_closed_with_their_chain() -> None:
    inner = Sampler.greedy()
    nested = SamplerChain([inner])
    chain = SamplerChain([nested])
    chain.close()
    for obj in (inner, nested, chain):
        assert obj.closed
        assert "closed" in repr(obj)
        with pytest.raises(ClosedError, match="closed"):
            obj.reset()
    chain.close()


def test_remove_keeps_the_order_and_the_state() -> None:
    with SamplerChain(links()) as chain:
        removed = chain.remove(-2)
        assert removed.kind == "temp"
        assert chain.names == ("top-k", "top-p", "dist")
        removed.close()
        penalties = Sampler.penalties(10, 8, 2.0)
        penalties.accept(1)
    with SamplerChain([penalties]) as chain:
        chain.accept(2)
        with chain.remove(0) as back:
            candidates = Candidates([4.0, 4.0, 4.0])
            back.apply(candidates)
            assert list(candidates.logits) == [4.0, 2.0, 2.0]
        for index in (0, -1, 5):
            with pytest.raises(IndexError):
                chain.remove(index)


def test_failed_chain_gives_its_samplers_back() -> None:
    samplers = [Sampler.top_k(3), Sampler.greedy(), Sampler.top_k(2)]
    with pytest.raises(SamplerError, match="would change nothing"):
        SamplerChain(samplers)
    assert not any(sampler.closed for sampler in samplers)
    for sampler in samplers:
        sampler.close()


def test_chain_applies_its_links_in_order() -> None:
    logits = np.random.default_rng(0).normal(0, 2, 500).astype(np.float32)
    ids, left = reference.top_k(np.arange(500), logits.astype(float), 20)
    ids, left = reference.top_p(ids, left, 0.9)
    probs = reference.softmax(left / 0.7)
    rng = reference.MersenneTwister(5)
    with SamplerChain(links()) as chain:
        for _ in range(50):
            candidates = Candidates(logits)
            chain.apply(candidates)
            assert list(candidates.ids) == list(ids)
            assert candidates.token == ids[int(np.searchsorted(np.cumsum(probs), rng.double()))]


def test_chain_in_a_chain_works_like_its_links() -> None:
    logits = np.random.default_rng(1).normal(0, 2, 300).astype(np.float32)
    with (
        SamplerChain([Sampler.top_k(20), SamplerChain([Sampler.temp(0.5), Sampler.dist(3)])]) as nested,
        SamplerChain([Sampler.top_k(20), Sampler.temp(0.5), Sampler.dist(3)]) as flat,
        nested.clone() as clone,
    ):
        found = []
        for chain in (nested, flat, clone):
            found.append([])
            for _ in range(20):
                candidates = Candidates(logits)
                chain.apply(candidates)
                found[-1].append(candidates.token)
        assert found[0] == found[1] == found[2]
        assert len(nested[1]) == 2
        assert nested.seed == 3
        with nested.remove(1) as inner:
            assert isinstance(inner, SamplerChain)
            assert inner.names == ("temp", "dist")


def test_chain_cannot_hold_itself() -> None:
    with SamplerChain() as chain, pytest.raises(SamplerError, match="itself"):
        chain.add(chain)
    inner = SamplerChain()
    with SamplerChain([inner]) as outer, pytest.raises(ClosedError):
        inner.add(outer)


@pytest.mark.parametrize("kind", ["greedy", "dist", "mirostat", "mirostat_v2", "adaptive_p", "chain"])
def test_nothing_comes_after_what_picks_the_token(kind: str) -> None:
    make = {
        "greedy": Sampler.greedy,
        "dist": lambda: Sampler.dist(1),
        "mirostat": lambda: Sampler.mirostat(10, 1),
        "mirostat_v2": lambda: Sampler.mirostat_v2(1),
        "adaptive_p": lambda: Sampler.adaptive_p(0.5),
        "chain": lambda: SamplerChain([Sampler.greedy()]),
    }[kind]
    with SamplerChain([make()]) as chain, Sampler.top_k(3) as late:
        with pytest.raises(SamplerError, match="picks the token"):
            chain.add(late)
        assert not late.closed


def test_vocabularies_of_different_size_do_not_go_together() -> None:
    with SamplerChain([Sampler.penalties(10, 8, 1.5)]) as chain, Sampler.logit_bias(11, {1: 1}) as other:
        with pytest.raises(SamplerError, match="11 tokens, but the chain's has 10"):
            chain.add(other)
        with pytest.raises(SamplerError, match="no token 10"):
            chain.accept(10)
        chain.remove(0).close()
        chain.add(other)


def test_sample_chooses_from_the_row_and_accepts(context: Any) -> None:
    with SamplerChain([Sampler.penalties(288, 8, 1.0, 1000.0), Sampler.greedy()], no_perf=False) as chain:
        order = np.argsort(-row(context))
        assert [chain.sample(context) for _ in range(3)] == list(order[:3])
        n, milliseconds = chain.perf()
        assert n == 3
        assert milliseconds > 0
        chain.perf_reset()
        assert chain.perf() == (0, 0.0)


@pytest.mark.parametrize("index", [1, 3, -1, -2])
def test_sample_takes_the_row_of_an_entry(context: Any, index: int) -> None:
    with SamplerChain([Sampler.greedy()]) as chain:
        assert chain.sample(context, index) == int(row(context, index).argmax())
        assert chain.perf() == (1, 0.0)


def test_sample_draws_like_the_reference(context: Any) -> None:
    logits = row(context)
    ids, left = reference.top_k(np.arange(288), logits, 20)
    ids, left = reference.top_p(ids, left, 0.9)
    probs = reference.softmax(left / 0.7)
    rng = reference.MersenneTwister(5)
    with SamplerChain(links()) as chain:
        expected = [ids[int(np.searchsorted(np.cumsum(probs), rng.double()))] for _ in range(30)]
        assert [chain.sample(context) for _ in range(30)] == expected
        chain.reset()
        assert [chain.sample(context) for _ in range(30)] == expected


@pytest.mark.parametrize("index", [0, 2, 4, 100, -3, -100, (1 << 31) - 1, -(1 << 31)])
def test_sample_of_a_row_that_is_no_output_raises(context: Any, index: int) -> None:
    # llama_sampler_sample aborts
    with SamplerChain([Sampler.greedy()]) as chain, pytest.raises(OutputError, match=f"entry {index}"):
        chain.sample(context, index)


def test_candidates_are_made_from_an_output_row(context: Any) -> None:
    candidates = Candidates(context.outputs.logits())
    with SamplerChain([Sampler.greedy()]) as chain:
        chain.apply(candidates)
        assert candidates.token == chain.sample(context)
    np.testing.assert_array_equal(candidates.logits, row(context))


def test_sample_before_any_decode_raises(target_model: Any, make_context: Any) -> None:
    with SamplerChain([Sampler.greedy()]) as chain, pytest.raises(OutputError):
        chain.sample(make_context(target_model))


@pytest.mark.parametrize("make", [list, lambda: [Sampler.top_k(5)], lambda: [SamplerChain()]])
def test_chain_that_picks_nothing_raises(context: Any, make: Any) -> None:
    # llama_sampler_sample aborts
    with SamplerChain(make()) as chain, pytest.raises(SamplerError, match="picks a token"):
        chain.sample(context)


def test_sample_for_another_vocabulary_raises(context: Any) -> None:
    with (
        SamplerChain([Sampler.penalties(10, 8, 1.5), Sampler.greedy()]) as chain,
        pytest.raises(SamplerError, match="vocabulary of 10 tokens, but the context's has 288"),
    ):
        chain.sample(context)


def test_sample_when_everything_is_ruled_out_raises(context: Any) -> None:
    bias = dict.fromkeys(range(288), float("-inf"))
    with (
        SamplerChain([Sampler.logit_bias(288, bias), Sampler.dist(1)]) as chain,
        pytest.raises(SamplerError, match="ruled out"),
    ):
        chain.sample(context)


def test_sample_with_closed_objects_raises(context: Any) -> None:
    chain = SamplerChain([Sampler.greedy()])
    context.close()
    with pytest.raises(ClosedError, match="context is closed"):
        chain.sample(context)
    chain.close()
    with pytest.raises(ClosedError, match="chain sampler is closed"):
        chain.sample(context)


def test_attached_chain_is_sampled_from_what_the_backend_left(context: Any) -> None:
    expected = int(row(context).argmax())
    chain = SamplerChain([Sampler.top_k(5), Sampler.greedy()])
    context.memory.clear()
    context.attach_sampler(0, chain)
    batch = Batch(8)
    for pos, token in enumerate([1, 265, 270, 281]):
        batch.add(token, pos, logits=pos == 3)
    context.decode(batch)
    assert chain.sample(context) == expected
    with pytest.raises(SamplerError, match="run on a backend"):
        chain.apply(Candidates(range(288)))
    with pytest.raises(InUseError):
        chain.remove(0)
    with pytest.raises(InUseError), Sampler.temp(2.0) as late:
        chain.add(late)
    with SamplerChain() as outer, pytest.raises(SamplerError, match="attached"):
        outer.add(chain)
    clone = chain.clone()
    with pytest.raises(SamplerError, match="attached to a context before"):
        context.attach_sampler(0, chain)
    chain.close()
    # closing detached it: the context goes on without
    context.memory.clear()
    context.decode(batch)
    assert clone.sample(context) == expected
    clone.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [Sampler.top_k(1000), Sampler.greedy()], "1000 candidates of 288"),
        (lambda: [Sampler.top_k(5), Sampler.top_k(6)], "6 candidates of 5"),
        (lambda: [Sampler.temp(0.0), Sampler.top_k(2)], "2 candidates of 1"),
        (lambda: [Sampler.logit_bias(1000, {500: 1.0}), Sampler.greedy()], "vocabulary of 1000"),
        (lambda: [SamplerChain([Sampler.top_k(4)]), Sampler.greedy()], "chain inside"),
    ],
)
def test_chain_that_a_backend_would_abort_on_cannot_be_attached(context: Any, make: Any, message: str) -> None:
    with SamplerChain(make()) as chain, pytest.raises(SamplerError, match=message):
        context.attach_sampler(0, chain)


def test_context_closed_before_the_attached_chain(target_model: Any, make_context: Any) -> None:
    context = make_context(target_model)
    chain = SamplerChain([Sampler.top_k(5), Sampler.greedy()])
    context.attach_sampler(0, chain)
    context.close()
    chain.close()
