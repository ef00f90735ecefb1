"""Rows of models that samplers must get right whatever they are: ties, numbers that are none, large vocabularies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import SamplerError
from tests.helpers import models

N_VOCAB = 1000


@pytest.fixture
def decode(tmp_path: Path, make_model: Any, make_context: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Return a function that makes a model with an output matrix and returns a context that has decoded a token."""

    def run(change: Callable[[Any], None]) -> Any:
        original = models.llama_tensors

        def changed(shape: models.LlamaShape) -> Any:
            tensors = original(shape)
            change(tensors["output.weight"])
            return tensors

        monkeypatch.setattr(models, "llama_tensors", changed)
        path = models.write_llama(tmp_path / "changed.gguf", models.LlamaShape(n_vocab=N_VOCAB))
        context = make_context(make_model(path))
        batch = Batch(1)
        batch.add(300, 0, logits=True)
        context.decode(batch)
        return context

    return run


def fill(value: float, rows: slice | int = slice(None)) -> Callable[[Any], None]:
    def change(output: Any) -> None:
        output[rows] = value

    return change


CHAINS: dict[str, Callable[[], list[Sampler]]] = {
    "greedy": lambda: [Sampler.greedy()],
    "top_k": lambda: [Sampler.top_k(40), Sampler.dist(1)],
    "large top_k": lambda: [Sampler.top_k(400), Sampler.dist(1)],
    "top_p": lambda: [Sampler.top_p(0.9), Sampler.dist(1)],
    "dist": lambda: [Sampler.dist(1)],
    "mirostat": lambda: [Sampler.mirostat_v2(1)],
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("rows", [slice(None), 999, 0], ids=["all", "last", "first"])
def test_logits_that_are_not_numbers_are_refused(
    decode: Callable[[Any], Any], chain: Callable[[], list[Sampler]], rows: slice | int
) -> None:
    # llama.cpp picks some token without a word, after a sort that may leave the array
    context = decode(fill(float("nan"), rows))
    with SamplerChain(chain()) as sampler:
        for _ in range(2):
            with pytest.raises(SamplerError, match="not a number"):
                sampler.sample(context)
        assert sampler.perf()[0] == 0


def test_equal_logits_are_ordered_by_token(decode: Callable[[Any], Any]) -> None:
    context = decode(fill(0.0))
    with SamplerChain([Sampler.greedy()]) as chain:
        assert chain.sample(context) == 0
    with SamplerChain([Sampler.top_k(10), Sampler.dist(1)]) as chain:
        assert {chain.sample(context) for _ in range(300)} == set(range(10))


def test_ruled_out_logits_are_left_out(decode: Callable[[Any], Any]) -> None:
    context = decode(fill(0.0))
    bias = dict.fromkeys(range(5, N_VOCAB), -np.inf)
    with SamplerChain([Sampler.logit_bias(N_VOCAB, bias), Sampler.top_k(40), Sampler.dist(1)]) as chain:
        assert {chain.sample(context) for _ in range(200)} == set(range(5))


@pytest.mark.parametrize("k", [1, 2, 40, 129, 1024, 1025])
def test_first_link_that_keeps_the_highest_gives_the_same_tokens(micro_model: Any, make_context: Any, k: int) -> None:
    # a top_k at the start is computed from the row; behind a link that does nothing, it is llama.cpp's
    context = make_context(micro_model)
    batch = Batch(20)
    for pos in range(20):
        batch.add(1000 + 37 * pos, pos, logits=True)
    context.decode(batch)
    rest = [Sampler.top_p(0.98), Sampler.min_p(0.01), Sampler.temp(1.3), Sampler.dist(k)]
    with (
        SamplerChain([Sampler.top_k(k), *rest]) as fast,
        SamplerChain([Sampler.temp(1.0), Sampler.top_k(k)]) as full,
        SamplerChain([Sampler.top_k(k)], no_perf=False) as measured,
    ):
        for chain in (full, measured):
            for sampler in (Sampler.top_p(0.98), Sampler.min_p(0.01), Sampler.temp(1.3), Sampler.dist(k)):
                chain.add(sampler)
        for _ in range(5):
            for row in range(20):
                token = fast.sample(context, row)
                assert token == full.sample(context, row) == measured.sample(context, row)
        fast.remove(0).close()
        full.remove(1).close()
        assert [fast.sample(context, row) for row in range(20)] == [full.sample(context, row) for row in range(20)]


def test_greedy_finds_the_highest_of_a_large_vocabulary(micro_model: Any, make_context: Any) -> None:
    context = make_context(micro_model)
    batch = Batch(50)
    for pos in range(50):
        batch.add(500 + 911 * pos, pos, logits=True)
    context.decode(batch)
    with SamplerChain([Sampler.greedy()]) as chain, chain.clone() as clone:
        for row in range(50):
            expected = int(np.asarray(context.outputs.logits(row)).argmax())
            assert chain.sample(context, row) == clone.sample(context, row) == expected
