"""Vectors of texts, against each text decoded alone on a plain context."""

from __future__ import annotations

import base64
import io
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import Embedding
from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.types import PoolingType
from tests.helpers import data, models

THREADS = {"n_threads": 1, "n_threads_batch": 1}
# flash attention computes in float16 from 64 tokens on, other than with fewer; without it, nothing depends on the batch
EXACT = {**THREADS, "flash_attn_type": "disabled", "type_k": "f32", "type_v": "f32"}
TEXTS = ["a b c", "", "hello world", "zzz", "a b c", "übermäßig 東京 🙂", "w x y z " * 6, "q", "lorem ipsum dolor sit"]
GENERATORS = ["llama.gguf", "gemma3.gguf", "mamba.gguf", "rwkv7.gguf", "qwen35.gguf"]


@pytest.fixture
def open_embedding(closing: Callable[[Any], Any]) -> Callable[..., Embedding]:
    def make(path: Path, **params: Any) -> Embedding:
        return closing(Embedding(path, **{**EXACT, **params}))

    return make


@pytest.fixture
def embedding(open_embedding: Callable[..., Embedding], bert_path: Path) -> Embedding:
    return open_embedding(bert_path)


def alone(path: Path, texts: list[Any], pooling: str | None = None) -> list[Any]:
    """Return what the model makes of each text in a context that never sees another one."""
    params = {} if pooling is None else {"pooling_type": pooling}
    made = []
    with Model(path) as model, Context(model, n_ctx=512, n_ubatch=512, embeddings=True, **EXACT, **params) as context:
        for text in texts:
            tokens = model.vocab.tokenize(text) if isinstance(text, str) else array("i", text)
            if context.memory is not None:
                context.memory.clear()
            with Batch(len(tokens)) as batch:
                batch.extend(tokens, 0, logits="all")
                (context.encode if model.has_encoder else context.decode)(batch)
            pooled = context.pooling_type != PoolingType.NONE
            made.append(np.array(context.seq_embeddings() if pooled else context.outputs.all_embeddings()))
    return made


def unit(rows: Any) -> Any:
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize("pooling", [None, "mean", "cls", "last"])
def test_each_text_gets_the_vector_that_it_gets_alone(
    open_embedding: Callable[..., Embedding], bert_path: Path, pooling: str | None
) -> None:
    vectors = open_embedding(bert_path, pooling_type=pooling).embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.flags.owndata or vectors.base.flags.owndata
    np.testing.assert_allclose(vectors, unit(alone(bert_path, TEXTS, pooling)), atol=1e-5)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_models_of_every_kind_of_memory_make_vectors(
    open_embedding: Callable[..., Embedding], name: str, pooling: str
) -> None:
    texts = [text for text in TEXTS if text]
    vectors = open_embedding(data(name), pooling_type=pooling).embed(texts, normalize=False)
    np.testing.assert_allclose(vectors, alone(data(name), texts, pooling), rtol=1e-4, atol=1e-5)


def test_the_encoder_of_an_encoder_and_decoder_makes_vectors(
    open_embedding: Callable[..., Embedding], t5_path: Path
) -> None:
    texts = ["a b", "c d e f"]
    vectors = open_embedding(t5_path, pooling_type="mean").embed(texts)
    np.testing.assert_allclose(vectors, unit(alone(t5_path, texts, "mean")), atol=1e-5)


def test_mean_pooling_is_the_mean_of_the_tokens(open_embedding: Callable[..., Embedding], bert_path: Path) -> None:
    tokens = open_embedding(bert_path, pooling_type="none").embed(TEXTS, normalize=False)
    means = open_embedding(bert_path, pooling_type="mean").embed(TEXTS, normalize=False)
    np.testing.assert_allclose(means, [rows.mean(0, dtype=np.float64) for rows in tokens], atol=1e-6)


def test_without_pooling_each_token_has_a_vector(open_embedding: Callable[..., Embedding], bert_path: Path) -> None:
    embedding = open_embedding(bert_path, pooling_type="none")
    vectors = embedding.embed(TEXTS, normalize=False)
    assert [rows.shape for rows in vectors] == [(len(embedding.tokenize(text)), 32) for text in TEXTS]
    for rows, want in zip(vectors, alone(bert_path, TEXTS, "none"), strict=True):
        np.testing.assert_allclose(rows, want, atol=1e-5)
    assert embedding.embed("a b").shape == (4, 32)
    np.testing.assert_allclose(np.linalg.norm(embedding.embed("a b"), axis=1), 1, rtol=1e-6)


def test_long_texts_of_a_causal_model_are_whole(open_embedding: Callable[..., Embedding]) -> None:
    texts = ["one two three " * 20, "short", "the end " * 25]
    for pooling in ("last", "mean"):
        embedding = open_embedding(data("llama.gguf"), pooling_type=pooling, n_ubatch=128)
        vectors = embedding.embed(texts, normalize=False)
        np.testing.assert_allclose(vectors, alone(data("llama.gguf"), texts, pooling), rtol=1e-4, atol=1e-5)


def test_a_single_text_is_one_row(embedding: Embedding) -> None:
    assert embedding.embed("a b").shape == (32,)
    np.testing.assert_array_equal(embedding.embed(["a b"]), [embedding.embed("a b")])


def test_tokens_are_taken_as_they_are(embedding: Embedding, bert_path: Path) -> None:
    tokens = embedding.tokenize("a b c")
    want = embedding.embed("a b c")
    same = [tokens, tuple(tokens), array("i", tokens), np.array(tokens), np.array(tokens, np.int64)]
    for given in same:
        np.testing.assert_array_equal(embedding.embed(given), want)
    np.testing.assert_allclose(embedding.embed(np.array([tokens] * 2)), [want] * 2, atol=1e-6)
    bare = [[5, 6], [7]]
    np.testing.assert_allclose(embedding.embed(bare), unit(alone(bert_path, bare)), atol=1e-5)


def test_bytes_are_text(embedding: Embedding) -> None:
    np.testing.assert_array_equal(embedding.embed(b"a b"), embedding.embed("a b"))
    assert embedding.embed([b"\xff\xfe", b"a\x00b"]).shape == (2, 32)


def test_an_empty_text_is_what_the_model_puts_around_one(embedding: Embedding) -> None:
    np.testing.assert_allclose(embedding.embed(["", "a"])[0], embedding.embed([2, 3]), atol=1e-6)


def test_an_empty_text_of_a_model_that_puts_nothing_around_is_the_token_that_ends_one(
    micro_path: Path, open_embedding: Callable[..., Embedding]
) -> None:
    embedding = open_embedding(micro_path, pooling_type="last", n_ctx=64)
    first = embedding.model.vocab.bos
    assert first is not None
    np.testing.assert_array_equal(embedding.embed(""), embedding.embed([first]))


def test_no_texts_give_no_rows(embedding: Embedding) -> None:
    assert embedding.embed([]).shape == (0, 32)
    assert list(embedding.embed_batches([])) == []


def test_what_is_spelled_like_a_special_token_is_text(embedding: Embedding) -> None:
    assert not np.allclose(embedding.embed("[SEP]"), embedding.embed([2, 3, 3]), atol=1e-3)


def test_any_iterable_will_do(embedding: Embedding) -> None:
    np.testing.assert_array_equal(embedding.embed(iter(TEXTS)), embedding.embed(TEXTS))
    np.testing.assert_array_equal(embedding.embed(text for text in TEXTS), embedding.embed(TEXTS))


def test_many_texts_of_all_lengths_keep_their_order(embedding: Embedding, bert_path: Path) -> None:
    letters = np.random.default_rng(3).integers(0, 26, (300, 50))
    lengths = np.random.default_rng(4).integers(1, 50, 300)
    texts = [" ".join(chr(97 + c) for c in row[:n]) for row, n in zip(letters, lengths, strict=True)]
    # ggml has another kernel for products of more rows, which rounds elsewhere
    np.testing.assert_allclose(embedding.embed(texts), unit(alone(bert_path, texts)), atol=5e-5)


def test_equal_texts_are_computed_once_and_have_equal_vectors(
    open_embedding: Callable[..., Embedding], bert_path: Path
) -> None:
    texts = ["a b c", "d", "a b c", "e f", "d", "a b c", [2, 3], ""]
    for pooling in ("mean", "none"):
        embedding = open_embedding(bert_path, flash_attn_type="auto", pooling_type=pooling, n_seq_max=1)
        epoch = embedding.context.epoch
        vectors = embedding.embed(texts)
        assert embedding.context.epoch == epoch + 4  # one text in each decode
        for one, other in ((0, 2), (0, 5), (1, 4), (6, 7)):
            np.testing.assert_array_equal(vectors[one], vectors[other])
            assert not np.shares_memory(vectors[one], vectors[other])
        for text, vector in zip(texts, vectors, strict=True):
            np.testing.assert_allclose(vector, embedding.embed(text), atol=1e-6)


def test_flash_attention_makes_nearly_the_same_vectors(
    open_embedding: Callable[..., Embedding], bert_path: Path
) -> None:
    texts = ["a b c d e f g h " * n for n in range(1, 8)] * 8
    fast = open_embedding(bert_path, flash_attn_type="auto").embed(texts)
    assert (fast * open_embedding(bert_path).embed(texts)).sum(1).min() > 0.99999


def test_batches_come_in_order_and_the_texts_are_read_as_needed(
    embedding: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamacy.generate.embed.engine._WINDOW_TEXTS", 4)
    read = 0

    def source() -> Iterator[str]:
        nonlocal read
        for text in TEXTS:
            read += 1
            yield text

    starts, vectors, seen = [], [], []
    for start, rows in embedding.embed_batches(source(), normalize=False):
        starts.append(start)
        vectors.append(rows)
        seen.append(read)
    assert (starts, seen) == ([0, 4, 8], [4, 8, 9])
    np.testing.assert_allclose(np.concatenate(vectors), embedding.embed(TEXTS, normalize=False), atol=1e-5)


def test_a_window_ends_at_so_many_tokens_too(embedding: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamacy.generate.embed.engine._WINDOW_TOKENS", 8)
    # "a b c" makes 5 tokens
    assert [start for start, _ in embedding.embed_batches(["a b c"] * 5)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("normalize", "order"),
    [
        (True, 2), (np.True_, 2), ("l2", 2), (2, 2), (np.float32(2), 2), ("l1", 1), (1.0, 1), (np.int64(1), 1),
        ("max_abs", np.inf), (3, 3), (0.5, 0.5),
    ],
)  # fmt: skip
def test_vectors_are_normalised_as_asked(embedding: Embedding, normalize: Any, order: float) -> None:
    raw = embedding.embed(TEXTS, normalize=False).astype(np.float64)
    want = raw / np.linalg.norm(raw, ord=order, axis=1, keepdims=True)
    np.testing.assert_allclose(embedding.embed(TEXTS, normalize=normalize), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("normalize", [False, np.False_, None, "none", -1])
def test_vectors_are_left_alone_on_request(embedding: Embedding, bert_path: Path, normalize: Any) -> None:
    np.testing.assert_allclose(embedding.embed(TEXTS, normalize=normalize), alone(bert_path, TEXTS), atol=1e-5)


def test_dimensions_are_cut_before_normalising(embedding: Embedding) -> None:
    raw = embedding.embed(TEXTS, normalize=False)
    np.testing.assert_allclose(embedding.embed(TEXTS, dimensions=8), unit(raw[:, :8]), atol=1e-6)
    assert embedding.embed("a", dimensions=32).shape == (32,)
    assert embedding.create_embedding("a", dimensions=5)["data"][0]["embedding"] == pytest.approx(
        embedding.embed("a", dimensions=5).tolist()
    )


def test_a_prompt_goes_before_each_text(open_embedding: Callable[..., Embedding], bert_path: Path) -> None:
    embedding = open_embedding(bert_path, query_prefix="query: ", document_prefix="")
    want = embedding.embed(["query: a b", "query: c"])
    np.testing.assert_array_equal(embedding.embed(["a b", b"c"], prompt="query"), want)
    np.testing.assert_array_equal(embedding.embed(["a b", "c"], prompt="query: "), want)
    np.testing.assert_array_equal(embedding.embed("a b", prompt="document"), embedding.embed("a b"))
    tokens = embedding.tokenize("a b")
    np.testing.assert_array_equal(embedding.embed(tokens, prompt="query"), embedding.embed("a b"))


def test_a_text_that_is_cut_keeps_the_token_that_ends_it(embedding: Embedding) -> None:
    long = " ".join("abcdefghij" * 10)
    tokens = embedding.tokenize(long)
    assert len(tokens) > 64
    want = embedding.embed(tokens[:63] + tokens[-1:])
    np.testing.assert_array_equal(embedding.embed(long, truncate=True), want)
    np.testing.assert_array_equal(embedding.embed(tokens, truncate=True), want)


def test_a_text_that_is_cut_where_the_model_ends_none_keeps_its_beginning(
    open_embedding: Callable[..., Embedding],
) -> None:
    embedding = open_embedding(data("llama.gguf"), pooling_type="last", n_ctx=16)
    tokens = embedding.tokenize("a b c d e f g h i j k l m n o p")
    assert len(tokens) > 16
    np.testing.assert_array_equal(embedding.embed(tokens, truncate=True), embedding.embed(tokens[:16]))


def test_the_number_of_tokens_comes_on_request(embedding: Embedding) -> None:
    vectors, n_tokens = embedding.embed(["a b", "c"], return_count=True)
    assert (vectors.shape, n_tokens) == ((2, 32), 4 + 3)


def test_the_bar_counts_texts(embedding: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    embedding.embed(TEXTS, progress=True)
    assert f"{len(TEXTS)}/{len(TEXTS)}" in stderr.getvalue()
    list(embedding.embed_batches(iter(TEXTS), progress=True))
    assert f"{len(TEXTS)} texts" in stderr.getvalue()


def test_no_bar_writes_nothing(embedding: Embedding, capfd: pytest.CaptureFixture[str]) -> None:
    embedding.embed(TEXTS)
    assert capfd.readouterr() == ("", "")


def test_the_response_is_of_the_shape_of_openai(embedding: Embedding) -> None:
    response = embedding.create_embedding(["a b", "c"], encoding_format="float")
    vectors = embedding.embed(["a b", "c"])
    assert response["object"] == "list"
    assert response["model"] == "tiny-bert"
    assert response["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [(one["object"], one["index"]) for one in response["data"]] == [("embedding", 0), ("embedding", 1)]
    np.testing.assert_array_equal(np.array([one["embedding"] for one in response["data"]], np.float32), vectors)
    encoded = embedding.create_embedding("a b", "mine", encoding_format="base64")
    assert encoded["model"] == "mine"
    text = encoded["data"][0]["embedding"]
    assert isinstance(text, str)
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(text), "<f4"), vectors[0], atol=1e-6)


def test_the_client_of_openai_reads_the_response(embedding: Embedding) -> None:
    from openai.types import CreateEmbeddingResponse

    response = CreateEmbeddingResponse.model_validate(embedding.create_embedding(["a", "b"]), strict=True)
    assert len(response.data) == 2


def test_scores_of_a_head_are_rows_that_nothing_normalises(
    open_embedding: Callable[..., Embedding], model_dir: Path
) -> None:
    path = models.write_bert(model_dir / "labels.gguf", pooling=models.gguf.PoolingType.RANK, n_labels=3)
    embedding = open_embedding(path)
    assert (embedding.n_embd, embedding.pooling_type) == (3, PoolingType.RANK)
    np.testing.assert_allclose(embedding.embed(TEXTS), alone(path, TEXTS), atol=1e-5)


def test_the_context_grows_with_the_longest_text(open_embedding: Callable[..., Embedding]) -> None:
    embedding = open_embedding(data("llama.gguf"), pooling_type="mean", n_batch=64)
    first = embedding.context
    embedding.n_threads_batch = 2
    embedding.embed("a b c")
    assert (embedding.context, first.n_batch) == (first, 64)
    vectors = embedding.embed(["a b " * 80, "c"])
    assert first.closed
    assert embedding.context.n_batch >= len(embedding.tokenize("a b " * 80))
    assert embedding.n_threads_batch == 2
    np.testing.assert_allclose(vectors[1], embedding.embed("c"), atol=1e-5)


def test_equal_calls_give_equal_vectors_whatever_was_computed_before(
    open_embedding: Callable[..., Embedding], model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # batches as large as may be, as with many threads
    monkeypatch.setattr("llamacy.generate.embed.engine.best_tokens", lambda *_: 1e6)
    embedding = open_embedding(models.write_bert(model_dir / "long-context.gguf", n_ctx_train=2048))
    texts = [[number % 26 + 5] * (number + 20) for number in range(60)]
    before = embedding.embed(texts)
    embedding.embed([7] * 1500)
    np.testing.assert_array_equal(embedding.embed(texts), before)


def test_what_it_is_can_be_read(embedding: Embedding) -> None:
    assert (embedding.n_embd, embedding.n_ctx(), embedding.pooling_type) == (32, 64, PoolingType.MEAN)
    assert "n_ctx=64 n_embd=32 pooling_type=MEAN" in repr(embedding)
    embedding.close()
    assert embedding.closed
    assert repr(embedding) == "<Embedding closed>"


def test_a_model_that_is_handed_in_is_shared_and_stays_open(bert_path: Path) -> None:
    with Model(bert_path) as model:
        with Embedding(model, **THREADS) as one, Embedding(model, pooling_type="cls", **THREADS) as other:
            assert not np.allclose(one.embed("a b"), other.embed("a b"))
        assert not model.closed


def test_an_empty_prefix_differs_from_none(open_embedding: Callable[..., Embedding], bert_path: Path) -> None:
    with pytest.raises(ValueError, match="give query_prefix "):
        open_embedding(bert_path, document_prefix="").embed("a", prompt="query")
