"""Many texts in one decode, against one text in each, read through `Context`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.embedder import Embedder
from llamacy.errors import ClosedError, ContextCreateError, InvalidBatchError, OutputError
from tests.helpers import data

TEXTS = [[2, 7, 9, 3], [2, 3], [2, 11, 12, 13, 14, 15, 3], [2, 7, 9, 3]]
PARAMS = {"n_ctx": 64, "n_batch": 64, "n_ubatch": 64, "n_seq_max": 8, "kv_unified": True, "embeddings": True}


def flat(texts: list[list[int]]) -> tuple[array[int], array[int]]:
    offsets = array("q", [0])
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return array("i", [token for text in texts for token in text]), offsets


def alone(context: Any, text: list[int], *, encode: bool) -> Any:
    """Return what the context puts out for one text in a batch of its own."""
    if context.memory is not None:
        context.memory.clear()
    with Batch(len(text)) as batch:
        batch.extend(text, 0, logits="all")
        (context.encode if encode else context.decode)(batch)
    if context.pooling_type.name == "NONE":
        return np.array(context.outputs.all_embeddings())
    return np.array(context.seq_embeddings(0))


@pytest.fixture(params=["bert", "rank", "t5", "llama.gguf", "gemma3.gguf"])
def model(request: pytest.FixtureRequest, make_model: Callable[..., Any]) -> Any:
    name = request.param
    return make_model(data(name) if "." in name else request.getfixturevalue(f"{name}_path"))


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "none"])
def test_texts_of_one_decode_are_what_each_is_alone(model: Any, make_context: Callable[..., Any], pooling: str) -> None:
    context = make_context(model, **PARAMS, pooling_type=pooling)
    embedder = Embedder(context)
    tokens, offsets = flat(TEXTS)
    chosen = array("i", [2, 0, 3])
    n_tokens = sum(len(TEXTS[text]) for text in chosen)
    out = np.full((len(TEXTS) if pooling != "none" else n_tokens, context.n_embd_out), np.nan, np.float32)
    embedder.run(tokens, offsets, chosen, out)
    want = [alone(context, TEXTS[text], encode=model.has_encoder or context.memory is None) for text in chosen]
    if pooling == "none":
        np.testing.assert_allclose(out, np.concatenate(want), atol=1e-5)
    else:
        np.testing.assert_allclose(out[chosen], want, atol=1e-5)
        assert np.isnan(out[1]).all()  # it was not asked for


def test_scores_of_a_head_are_what_each_text_gets_alone(
    rank_path: Path, make_model: Callable[..., Any], make_context: Callable[..., Any]
) -> None:
    context = make_context(make_model(rank_path), **PARAMS)
    embedder = Embedder(context)
    assert embedder.width == 1
    tokens, offsets = flat(TEXTS)
    out = np.zeros((len(TEXTS), 1), np.float32)
    embedder.run(tokens, offsets, array("i", range(len(TEXTS))), out)
    np.testing.assert_allclose(out, [alone(context, text, encode=True) for text in TEXTS], atol=1e-5)


@pytest.fixture
def embedder(
    bert_path: Path, make_model: Callable[..., Any], make_context: Callable[..., Any], closing: Callable[[Any], Any]
) -> Any:
    return closing(Embedder(make_context(make_model(bert_path), **PARAMS)))


def run(embedder: Embedder, texts: list[list[int]] | None = None, chosen: list[int] | None = None) -> Any:
    texts = TEXTS if texts is None else texts
    tokens, offsets = flat(texts)
    out = np.zeros((len(texts), embedder.width), np.float32)
    embedder.run(tokens, offsets, array("i", range(len(texts)) if chosen is None else chosen), out)
    return out


def test_vectors_outlive_the_next_decode(embedder: Embedder) -> None:
    first = run(embedder)
    kept = first.copy()
    run(embedder, [[2, 20, 21, 3]])
    np.testing.assert_array_equal(first, kept)


def test_nothing_is_computed_for_no_texts(embedder: Embedder) -> None:
    epoch = embedder.context.epoch
    run(embedder, chosen=[])
    assert embedder.context.epoch == epoch


@pytest.mark.parametrize("chosen", [[4], [-1]])
def test_a_text_that_is_not_there_is_refused(embedder: Embedder, chosen: list[int]) -> None:
    with pytest.raises(ValueError, match=r"not one of the 4"):
        run(embedder, chosen=chosen)


@pytest.mark.parametrize("offsets", [[0, 0, 4], [0, 5, 4], [-1, 2, 4], [0, 2, 9]])
def test_bounds_outside_the_tokens_are_refused(embedder: Embedder, offsets: list[int]) -> None:
    out = np.zeros((2, embedder.width), np.float32)
    with pytest.raises(ValueError, match="which is no text"):
        embedder.run(array("i", [2, 7, 9, 3]), array("q", offsets), array("i", [0, 1]), out)


@pytest.mark.parametrize("shape", [(3, 32), (4, 31)])
def test_a_wrong_shape_is_refused(embedder: Embedder, shape: tuple[int, int]) -> None:
    tokens, offsets = flat(TEXTS)
    with pytest.raises(ValueError, match="has the shape"):
        embedder.run(tokens, offsets, array("i", range(4)), np.zeros(shape, np.float32))


@pytest.mark.parametrize("texts", [[[2, 3]] * 9, [[2] + [7] * 40 + [3]] * 2])
def test_more_than_a_decode_takes_is_refused(embedder: Embedder, texts: list[list[int]]) -> None:
    with pytest.raises(InvalidBatchError, match="more than one decode takes"):
        run(embedder, texts)


def test_a_vector_that_was_not_made_is_an_error(embedder: Embedder) -> None:
    embedder.context.embeddings_enabled = False
    with pytest.raises(OutputError, match="left no vector of text 0"):
        run(embedder)


def test_a_context_without_embeddings_is_refused(
    bert_path: Path, make_model: Callable[..., Any], make_context: Callable[..., Any]
) -> None:
    with pytest.raises(ContextCreateError, match="embeddings=True"):
        Embedder(make_context(make_model(bert_path)))


def test_a_closed_embedder_and_a_closed_context_are_told(embedder: Embedder) -> None:
    embedder.close()
    with pytest.raises(ClosedError, match="embedder"):
        run(embedder)
    other = Embedder(embedder.context)
    embedder.context.close()
    with pytest.raises(ClosedError, match="context"):
        run(other)


def test_its_text_tells_what_it_makes(embedder: Embedder) -> None:
    assert repr(embedder).startswith("<Embedder width=32 pooled=True of <Context")
