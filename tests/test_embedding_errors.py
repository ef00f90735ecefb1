"""What can't be embedded, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import Embedding
from llamacy.core.model import Model
from llamacy.errors import (
    AdapterError,
    ClosedError,
    ContextCreateError,
    ContextLengthError,
    OutputError,
    PoolingError,
    TokenizeError,
)
from tests.helpers import data, models

THREADS = {"n_threads": 1, "n_threads_batch": 1}


@pytest.fixture
def embedding(closing: Callable[[Any], Any], bert_path: Path) -> Embedding:
    return closing(Embedding(bert_path, **THREADS))


def test_a_text_that_is_too_long_is_refused_before_anything_is_computed(embedding: Embedding) -> None:
    epoch = embedding.context.epoch
    with pytest.raises(ContextLengthError, match=r"text 1 has 72 tokens, but at most 64 can be computed") as caught:
        embedding.embed(["a b", "z " * 70, "c"])
    assert (caught.value.n_prompt, caught.value.n_ctx) == (72, 64)
    assert embedding.context.epoch == epoch


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("abc", "several texts, not 'abc'"),
        (b"abc", "several texts, not b'abc'"),
        ([5, 6], r"several texts, not \[5, 6\]"),
        (np.array([5, 6]), "several texts, not array"),
        ({"a": 1}, "give a list, not a dict"),
        ({"a"}, "give a list, not a set"),
        (None, "several of these, not None"),
    ],
)
def test_one_text_and_what_has_no_order_are_no_source_of_batches(
    embedding: Embedding, given: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        embedding.embed_batches(given)


def test_in_batches_the_index_counts_from_the_first_text(embedding: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamacy.generate.embed.engine._WINDOW_TEXTS", 2)
    batches = embedding.embed_batches(["a", "b", "c", "z " * 70])
    assert next(batches)[0] == 0
    with pytest.raises(ContextLengthError, match="text 3 has"):
        next(batches)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (5, TypeError, "a text, token ids, or several"),
        (None, TypeError, "a text, token ids, or several"),
        ({"a": 1}, TypeError, "give a list, not a dict"),
        ({"a", "b"}, TypeError, "give a list, not a set"),
        (["a", 5], TypeError, "text 1: a prompt is a text"),
        (["a", None], TypeError, "text 1"),
        ([1.5], TypeError, "text 0"),
        ([[1, 2], [3, 10**6]], ValueError, "text 1: there is no token 1000000"),
        ([[1, -2]], ValueError, "there is no token -2"),
        ([[1, 2**40]], ValueError, "text 0: a token id must be from 0"),
        ([[]], ValueError, "text 0: the prompt has no tokens"),
        (["b", "a\ud800"], TokenizeError, "text 1: the text has a lone surrogate"),
        (bytearray(b"abc"), TypeError, "text 0: tokens must be ids"),
        (memoryview(b"abc"), TypeError, "text 0: tokens must be ids"),
        (["a", memoryview(b"abc")], TypeError, "text 1: tokens must be ids"),
        (np.zeros((2, 3)), TypeError, "text 0"),
    ],
)
def test_what_is_no_text_is_refused(embedding: Embedding, given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        embedding.embed(given)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"normalize": 0}, ValueError, "normalize=0 is no norm"),
        ({"normalize": -2}, ValueError, "is no norm"),
        ({"normalize": float("nan")}, ValueError, "is no norm"),
        ({"normalize": "L3"}, ValueError, "one of 'none', 'l2', 'l1', 'max_abs'"),
        ({"normalize": []}, TypeError, "the name of a norm"),
        ({"normalize": 10**400}, TypeError, "a number or the name of a norm"),
        ({"dimensions": 0}, ValueError, "dimensions must be from 1"),
        ({"dimensions": 33}, ValueError, "more than the 32"),
        ({"dimensions": 2.0}, TypeError, "dimensions must be an int"),
        ({"prompt": "query"}, ValueError, "give query_prefix "),
        ({"prompt": "dokument"}, ValueError, "did you mean 'document'"),
        ({"prompt": "passage"}, ValueError, "no prompt named 'passage'; names are 'query', 'document'\\. A prefix"),
        ({"prompt": 3}, TypeError, "prompt is a prefix"),
        ({"prompt": "a\ud800: "}, ValueError, "prompt has a lone surrogate at index 1"),
        ({"separator": "\n"}, TypeError, "there is no option 'separator'"),
        ({"lora": {"x": 1}}, AdapterError, "there is no adapter 'x'"),
    ],
)
def test_a_wrong_option_is_refused(
    embedding: Embedding, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        embedding.embed("a", **options)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"pooling_type": "rank"}, PoolingError, "needs a model with a classification head"),
        ({"pooling_type": "max"}, ValueError, "pooling_type"),
        ({"embeddings": False}, ValueError, "embeddings=False is not possible"),
        ({"kv_unified": False}, ValueError, "kv_unified=False is not possible"),
        ({"n_batch": 0}, ValueError, "n_batch must be from 1"),
        ({"n_seq_max": 0}, ValueError, "n_seq_max must be from 1"),
        ({"n_seq_max": 300}, ValueError, "n_seq_max must be from 1 to 256"),
        ({"query_prefix": 3}, TypeError, "query_prefix must be a text"),
        ({"poling_type": "mean"}, TypeError, "did you mean 'pooling_type'"),
    ],
)
def test_a_wrong_parameter_is_refused(
    bert_path: Path, params: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Embedding(bert_path, **THREADS, **params)


def test_a_head_that_the_metadata_only_promises_is_refused(model_dir: Path) -> None:
    path = models.write_bert(model_dir / "promise.gguf", pooling=models.gguf.PoolingType.RANK)
    with pytest.raises(PoolingError, match="needs a model with a classification head"):
        Embedding(path, **THREADS)


def test_scores_have_no_dimensions_to_cut(closing: Callable[[Any], Any], rank_path: Path) -> None:
    with pytest.raises(ValueError, match="scores, not vectors"):
        closing(Embedding(rank_path, **THREADS)).embed("a", dimensions=1)


def test_vectors_of_tokens_have_no_base64(closing: Callable[[Any], Any], bert_path: Path) -> None:
    embedding = closing(Embedding(bert_path, pooling_type="none", **THREADS))
    with pytest.raises(ValueError, match="set pooling_type"):
        embedding.create_embedding("a", encoding_format="base64")
    assert np.shape(embedding.create_embedding("a")["data"][0]["embedding"]) == (3, 32)


def test_an_unknown_encoding_is_refused(embedding: Embedding) -> None:
    with pytest.raises(ValueError, match="'float' or 'base64', not 'hex'"):
        embedding.create_embedding("a", encoding_format="hex")


def test_a_model_without_a_vocabulary_takes_tokens_only(closing: Callable[[Any], Any], vocab_none_path: Path) -> None:
    embedding = closing(Embedding(vocab_none_path, pooling_type="mean", **THREADS))
    assert embedding.embed([1, 2, 3]).ndim == 1
    with pytest.raises(TokenizeError, match="no vocabulary"):
        embedding.embed("a")


def test_numbers_that_are_not_finite_are_an_error(closing: Callable[[Any], Any], lora_path: Path) -> None:
    adapted = {"lora_path": lora_path, "lora_scale": 3e38}
    embedding = closing(Embedding(data("llama.gguf"), pooling_type="mean", **adapted, **THREADS))
    with pytest.raises(OutputError, match=r"vector of text [01] has a number that is not finite"):
        embedding.embed(["a", "b c"])


def test_a_closed_one_says_so(embedding: Embedding) -> None:
    embedding.close()
    embedding.close()
    with pytest.raises(ClosedError):
        embedding.embed("a")


def test_a_model_that_was_closed_is_told(bert_path: Path) -> None:
    with Model(bert_path) as model:
        embedding = Embedding(model, **THREADS)
        model.close()
        with pytest.raises(ClosedError):
            embedding.embed("a")


@pytest.mark.parametrize("name", ["embed", "embed_batches", "create_embedding", "classify"])
def test_an_adapter_that_there_is_not_is_told_without_any_text(
    closing: Callable[[Any], Any], rank_path: Path, name: str
) -> None:
    def texts() -> Any:
        pytest.fail("nothing is read")
        yield

    method = getattr(closing(Embedding(rank_path, **THREADS)), name)
    for given in ([], texts()):
        with pytest.raises(AdapterError, match="there is no adapter 'x'"):
            method(given, lora={"x": 1.0})


def test_it_goes_on_after_an_error(embedding: Embedding) -> None:
    want = embedding.embed("a b")
    with pytest.raises(ContextLengthError):
        embedding.embed("z " * 70)
    np.testing.assert_array_equal(embedding.embed("a b"), want)


def test_a_failure_to_grow_leaves_what_there_was(
    closing: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedding = closing(Embedding(data("llama.gguf"), pooling_type="mean", n_batch=64, **THREADS))
    want, context = embedding.embed("a b"), embedding.context

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise ContextCreateError("no memory")

    monkeypatch.setattr("llamacy.generate.embed.engine.Context", fail)
    with pytest.raises(ContextCreateError):
        embedding.embed("a b " * 80)
    assert embedding.context is context
    np.testing.assert_array_equal(embedding.embed("a b"), want)


def test_a_view_of_the_context_is_not_pulled_away_by_growing(closing: Callable[[Any], Any]) -> None:
    embedding = closing(Embedding(data("llama.gguf"), pooling_type="none", n_batch=64, **THREADS))
    embedding.embed("a b")
    with memoryview(embedding.context.outputs.all_embeddings()), pytest.raises(BufferError):
        embedding.embed("a b " * 80)
    assert len(embedding.embed("a b " * 80)) > 64
