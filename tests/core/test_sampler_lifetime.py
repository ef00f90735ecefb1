"""What samplers keep alive, and what closes them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from llamacy.core._handle import live_handles
from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import ClosedError, SamplerError
from tests.helpers import data
from tests.helpers.process import rss_bytes, run_python


def vocabulary_samplers(vocab: Any) -> list[Sampler]:
    return [Sampler.grammar(vocab, 'root ::= "a"'), Sampler.dry(vocab, 1.0), Sampler.infill(vocab)]


def test_samplers_of_a_vocabulary_keep_its_model_alive(make_model: Any) -> None:
    model = make_model("target.gguf", vocab_only=True)
    samplers = vocabulary_samplers(model.vocab)
    alive = weakref.ref(model)
    with SamplerChain(samplers) as chain, chain.clone() as clone:
        del model, samplers
        gc.collect()
        assert alive() is not None
        for one in (chain, clone):
            one.apply(Candidates(np.zeros(288)))


def test_closing_a_model_closes_samplers_of_its_vocabulary(make_model: Any) -> None:
    model = make_model("target.gguf", vocab_only=True)
    single = vocabulary_samplers(model.vocab)
    chain = SamplerChain([SamplerChain(vocabulary_samplers(model.vocab)), Sampler.greedy()])
    clone = chain.clone()
    independent = SamplerChain([Sampler.top_k(3)])
    model.close()
    for closed in (*single, chain, clone):
        assert closed.closed
        with pytest.raises(ClosedError):
            closed.reset()
    independent.reset()
    independent.close()


def test_removed_link_is_closed_with_its_model_and_the_chain_is_not(make_model: Any) -> None:
    model = make_model("target.gguf", vocab_only=True)
    chain = SamplerChain([Sampler.grammar(model.vocab, 'root ::= "a"'), Sampler.greedy()])
    link = chain.remove(0)
    model.close()
    assert link.closed
    assert not chain.closed
    chain.close()


def test_samplers_of_two_models_do_not_go_together(make_model: Any) -> None:
    one, two = make_model("target.gguf", vocab_only=True), make_model("target.gguf", vocab_only=True)
    with (
        SamplerChain([Sampler.infill(one.vocab)]) as chain,
        Sampler.infill(two.vocab) as other,
        pytest.raises(SamplerError, match="another model"),
    ):
        chain.add(other)


def test_sampler_of_a_closed_model_cannot_be_made(make_model: Any) -> None:
    model = make_model("target.gguf", vocab_only=True)
    vocab = model.vocab
    model.close()
    for make in (
        lambda: Sampler.grammar(vocab, 'root ::= "a"'),
        lambda: Sampler.dry(vocab, 1.0),
        lambda: Sampler.infill(vocab),
    ):
        with pytest.raises(ClosedError):
            make()


def test_handles_are_counted_and_come_back() -> None:
    before = live_handles()["sampler"]
    samplers = [Sampler.top_k(3), Sampler.temp(0.5), Sampler.greedy()]
    assert live_handles()["sampler"] == before + 3
    chain = SamplerChain(samplers)
    assert live_handles()["sampler"] == before + 1
    clone = chain.clone()
    link = chain.remove(0)
    assert live_handles()["sampler"] == before + 3
    for one in (chain, clone, link):
        one.close()
        one.close()
    assert live_handles()["sampler"] == before


def test_samplers_that_are_dropped_are_freed() -> None:
    before = live_handles()
    for _ in range(1000):
        chain = SamplerChain([SamplerChain([Sampler.penalties(10, 64, 1.5)]), Sampler.dist(1)])
        chain.clone()
        chain.remove(0)
        Sampler.mirostat(10)
    del chain
    gc.collect()
    assert live_handles() == before


def test_failed_constructor_leaves_nothing(target_model: Any) -> None:
    before = live_handles()
    for _ in range(100):
        with pytest.raises(ValueError):
            Sampler.top_p(2.0)
        with pytest.raises(ValueError):
            Sampler.grammar(target_model.vocab, "root ::= (")
        with pytest.raises(TypeError):
            SamplerChain([Sampler.greedy(), None])  # type: ignore[list-item]
    gc.collect()
    assert live_handles() == before


def test_values_are_a_copy() -> None:
    with SamplerChain([Sampler.top_k(3), Sampler.greedy()]) as chain:
        chain[0].values["k"] = 100
        assert chain[0].values == {"k": 3}


def test_samplers_alive_at_exit_are_silent() -> None:
    code = """if True:
        from llamacy.core.model import Model
        from llamacy.core.sampler import Candidates, CustomSampler, Sampler, SamplerChain
        class Mine(CustomSampler):
            def apply(self, candidates): pass
            def clone(self): return Mine()
        model = Model(%r, vocab_only=True)
        mine = Mine()
        chain = SamplerChain([Sampler.grammar(model.vocab, 'root ::= "a"'), mine, Sampler.greedy()])
        mine.cycle = chain
        clone = chain.clone()
        candidates = Candidates(range(288))
        chain.apply(candidates)
        view = memoryview(candidates)
    """
    done = run_python(code % str(data("target.gguf")))
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.soak
def test_soak_of_samplers_does_not_grow(target_model: Any) -> None:
    def cycle() -> None:
        chain = SamplerChain(
            [
                Sampler.grammar(target_model.vocab, 'root ::= ("a" | "b")* "c"'),
                Sampler.penalties(288, 64, 1.1),
                Sampler.top_k(40),
                Sampler.dist(1),
            ]
        )
        candidates = Candidates(np.zeros(288))
        chain.apply(candidates)
        chain.accept(candidates.token)
        chain.clone().close()
        chain.close()

    for _ in range(2000):
        cycle()
    before = rss_bytes()
    for _ in range(10000):
        cycle()
    assert rss_bytes() - before < 8 << 20
