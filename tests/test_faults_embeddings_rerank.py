"""Faults that users of such systems reported: embedding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import Embedding, Llama
from llamacy.errors import ContextLengthError, PoolingError
from tests.helpers import data, models

THREADS = {"n_threads": 1, "n_threads_batch": 1}


@pytest.fixture
def open_embedding(closing: Callable[[Any], Any]) -> Callable[..., Embedding]:
    return lambda path, **params: closing(Embedding(path, **THREADS, **params))


@pytest.fixture(scope="session")
def long_bert_path(model_dir: Path) -> Path:
    """A tiny BERT with 1,024 learned positions."""
    return models.write_bert(model_dir / "long-bert.gguf", n_ctx_train=1024)


@pytest.mark.parametrize("sizes", [{"n_batch": 1024, "n_ubatch": 512}, {"n_batch": 64}, {"n_ubatch": 32}, {}])
def test_er_001_a_text_may_be_longer_than_the_batches(
    open_embedding: Callable[..., Embedding], long_bert_path: Path, sizes: dict[str, int]
) -> None:
    vector = open_embedding(long_bert_path, **sizes).embed([7] * 600)
    assert np.linalg.norm(vector) == pytest.approx(1)
    whole = open_embedding(long_bert_path, n_batch=1024, n_ubatch=1024).embed([7] * 600)
    assert vector @ whole > 0.99999


def test_er_003_a_text_that_is_too_long_is_cut_only_on_request(
    open_embedding: Callable[..., Embedding], long_bert_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedding = open_embedding(long_bert_path, n_ctx=64)
    text = [2] + [7] * 98 + [3]
    with pytest.raises(ContextLengthError, match="has 100 tokens, but at most 64"):
        embedding.embed(text)
    with caplog.at_level("INFO", "llamacy"):
        vector, n_tokens = embedding.embed(text, truncate=True, return_count=True)
    assert n_tokens == 64
    assert "text 0 has 100 tokens and is cut to 64" in caplog.messages
    np.testing.assert_array_equal(vector, embedding.embed([*text[:63], 3]))


@pytest.mark.parametrize("model", ["bert", "llama"])
def test_er_004_a_list_of_any_size_is_one_call(
    open_embedding: Callable[..., Embedding], bert_path: Path, model: str
) -> None:
    path = bert_path if model == "bert" else data("llama.gguf")
    # with random weights, the float16 of flash attention depends on the size of the batch in the fourth digit
    for attention, most in (("disabled", 1e-4), ("auto", 5e-4)):
        embedding = open_embedding(path, pooling_type="mean", flash_attn_type=attention)
        vectors = embedding.embed(["Hello", "World"] * 40)
        assert vectors.shape[0] == 80
        assert not np.allclose(vectors[0], vectors[1], atol=1e-2)
        single = [embedding.embed("Hello"), embedding.embed("World")]
        np.testing.assert_allclose(vectors, single * 40, atol=most)


@pytest.mark.model
def test_er_004_a_list_of_any_size_is_one_call_on_a_real_model(
    open_embedding: Callable[..., Embedding], minilm_path: Path
) -> None:
    embedding = open_embedding(minilm_path)
    single = [embedding.embed("Hello"), embedding.embed("World")]
    np.testing.assert_allclose(embedding.embed(["Hello", "World"] * 40), single * 40, atol=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "none"])
def test_er_006_a_vector_is_read_where_the_pooling_puts_it(
    open_embedding: Callable[..., Embedding], bert_path: Path, pooling: str
) -> None:
    tokens = open_embedding(bert_path, pooling_type="none").embed("hello world", normalize=False)
    vector = open_embedding(bert_path, pooling_type=pooling).embed("hello world", normalize=False)
    want = {"mean": tokens.mean(0), "cls": tokens[0], "last": tokens[-1], "none": tokens}[pooling]
    np.testing.assert_allclose(vector, want, atol=1e-6)


@pytest.mark.parametrize("pooling", ["rank", 4])
def test_er_008_a_pooling_that_the_model_can_not_do_is_refused_when_it_is_loaded(bert_path: Path, pooling: Any) -> None:
    with pytest.raises(PoolingError, match="classification head"):
        Embedding(bert_path, pooling_type=pooling, **THREADS)


def test_er_009_normalised_or_not_is_said_by_each_call(
    open_embedding: Callable[..., Embedding], bert_path: Path
) -> None:
    embedding = open_embedding(bert_path)
    unit, raw = (embedding.embed("some text", normalize=normalize) for normalize in (True, False))
    assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(raw / np.linalg.norm(raw), unit, atol=1e-6)
    assert np.linalg.norm(raw) > 1.5
    assert np.linalg.norm(embedding.embed("some text")) == pytest.approx(1, abs=1e-5)


def test_er_011_every_norm_of_the_documentation_is_one(
    open_embedding: Callable[..., Embedding], bert_path: Path
) -> None:
    embedding = open_embedding(bert_path)
    raw = embedding.embed("t", normalize="none").astype(np.float64)
    for normalize, order in (("l2", 2), ("l1", 1), ("max_abs", np.inf), (4, 4)):
        want = raw / np.linalg.norm(raw, ord=order)
        np.testing.assert_allclose(embedding.embed("t", normalize=normalize), want, rtol=1e-5)


@pytest.mark.parametrize("params", [{"embedding": True}, {"embedding": False}, {"embeddings": True}, {}])
def test_er_012_a_llama_embeds_whatever_it_was_opened_for(
    closing: Callable[[Any], Any], llama_model: Any, params: dict[str, bool]
) -> None:
    llama = closing(Llama(llama_model, n_ctx=256, pooling_type="mean", **params, **THREADS))
    assert llama.embed("x").shape == (64,)
    assert llama.create_completion("a", max_tokens=2)["usage"]["completion_tokens"] > 0
