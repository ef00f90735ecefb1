"""Vectors from a `Llama`, beside what it generates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import Embedding, Llama
from llamacy.errors import ClosedError, ContextLengthError, InvalidBatchError, PoolingError
from tests.helpers import data

THREADS = {"n_threads": 1, "n_threads_batch": 1}
COUNTING = "1, 2, 3, 4, 5, 6, 7,"
TEXTS = ["a b c", "hello", "the end"]


@pytest.fixture
def make_llama(closing: Callable[[Any], Any]) -> Callable[..., Llama]:
    def make(model: Any, **params: Any) -> Llama:
        return closing(Llama(model, **{"n_ctx": 512, **THREADS, **params}))

    return make


def counted(llama: Llama) -> str:
    return llama.create_completion(COUNTING, max_tokens=9, temperature=0)["choices"][0]["text"]


@pytest.mark.parametrize("at_once", [False, True])
def test_generating_embedding_and_generating_do_not_touch_each_other(
    make_llama: Callable[..., Llama], smollm2_model: Any, at_once: bool
) -> None:
    llama = make_llama(smollm2_model, embedding=at_once, pooling_type="mean")
    first, vectors = counted(llama), llama.embed(TEXTS)
    response = llama.create_completion(COUNTING, max_tokens=9, temperature=0)
    assert response["choices"][0]["text"] == first == " 8, 9, 10"
    assert response["usage"]["prompt_tokens_details"]["cached_tokens"] > 10  # the memory was left in place
    np.testing.assert_array_equal(llama.embed(TEXTS), vectors)
    with pytest.raises(ContextLengthError):
        llama.embed("z " * 600)
    assert counted(llama) == first


def test_a_stream_goes_on_after_texts_were_embedded(make_llama: Callable[..., Llama], smollm2_model: Any) -> None:
    llama = make_llama(smollm2_model, pooling_type="mean")
    stream = llama.create_completion(COUNTING, max_tokens=9, temperature=0, stream=True)
    text = next(stream)["choices"][0]["text"]
    llama.embed(TEXTS)
    assert text + "".join(chunk["choices"][0]["text"] for chunk in stream) == " 8, 9, 10"


def test_vectors_are_those_of_an_embedding_but_not_normalised_by_default(
    make_llama: Callable[..., Llama], llama_model: Any
) -> None:
    llama = make_llama(llama_model, pooling_type="last")
    with Embedding(llama_model, n_ctx=512, pooling_type="last", **THREADS) as embedding:
        np.testing.assert_array_equal(llama.embed(TEXTS), embedding.embed(TEXTS, normalize=False))
        np.testing.assert_array_equal(llama.embed(TEXTS, normalize=True), embedding.embed(TEXTS))
        np.testing.assert_array_equal(llama.embed(TEXTS, normalize="l1"), embedding.embed(TEXTS, normalize="l1"))
    assert llama.embed("a", dimensions=4, return_count=True)[0].shape == (4,)


def test_a_model_that_pools_nothing_has_a_vector_for_each_token(
    make_llama: Callable[..., Llama], llama_model: Any
) -> None:
    llama = make_llama(llama_model, embedding=True)
    n_tokens = len(llama.tokenize("a b c"))
    assert llama.embed("a b c").shape == (n_tokens, 64)
    response = llama.create_embedding(["a b c", "d"])
    assert np.shape(response["data"][0]["embedding"]) == (n_tokens, 64)


def test_an_encoder_embeds_and_refuses_to_generate(make_llama: Callable[..., Llama], bert_path: Path) -> None:
    llama = make_llama(bert_path, embedding=True, n_ctx=64)
    with Embedding(bert_path, **THREADS) as embedding:
        np.testing.assert_array_equal(llama.embed(TEXTS, normalize=True), embedding.embed(TEXTS))
    with pytest.raises(InvalidBatchError, match=r"architecture .bert.; embed\(\)"):
        llama.create_completion("a b")
    assert llama.embed("a").shape == (32,)


def test_the_generating_context_puts_out_no_vectors(make_llama: Callable[..., Llama], llama_model: Any) -> None:
    llama = make_llama(llama_model, embedding=True, pooling_type="mean")
    assert not llama.context.embeddings_enabled


def test_a_pooling_that_the_model_can_not_do_is_refused(make_llama: Callable[..., Llama], llama_model: Any) -> None:
    with pytest.raises(PoolingError, match="classification head"):
        make_llama(llama_model, embedding=True, pooling_type="rank")
    llama = make_llama(llama_model, pooling_type="rank")
    with pytest.raises(PoolingError, match="classification head"):
        llama.embed("a")


def test_responses_and_tasks(make_llama: Callable[..., Llama], llama_model: Any) -> None:
    llama = make_llama(llama_model, pooling_type="mean")
    response = llama.create_embedding(["a", "b"], "mine")
    assert (response["model"], len(response["data"])) == ("mine", 2)
    np.testing.assert_allclose(response["data"][1]["embedding"], llama.embed("b"), rtol=1e-5)

    async def both() -> list[Any]:
        return await asyncio.gather(llama.aembed("a"), llama.acreate_embedding("a", normalize=True))

    vector, answer = asyncio.run(both())
    np.testing.assert_array_equal(vector, llama.embed("a"))
    assert np.linalg.norm(answer["data"][0]["embedding"]) == pytest.approx(1)


def test_threads_that_come_first_at_once_make_one_context(make_llama: Callable[..., Llama], llama_model: Any) -> None:
    from llamacy.core._handle import live_handles

    llama = make_llama(llama_model, pooling_type="mean")
    n_contexts = live_handles()["context"]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(llama.embed, ["a"] * 4))
    assert live_handles()["context"] == n_contexts + 1


def test_a_closed_one_frees_both_contexts_and_says_so(llama_model: Any) -> None:
    llama = Llama(llama_model, n_ctx=512, pooling_type="mean", **THREADS)
    llama.embed("a")
    llama.close()
    with pytest.raises(ClosedError):
        llama.embed("a")


def test_an_adapter_of_the_constructor_holds_for_vectors_too(
    make_llama: Callable[..., Llama], llama_model: Any, lora_path: Path
) -> None:
    plain = make_llama(llama_model, pooling_type="mean").embed("a b")
    adapted = make_llama(llama_model, pooling_type="mean", lora_path=lora_path)
    assert not np.allclose(adapted.embed("a b"), plain, atol=1e-3)
    with Embedding(data("llama.gguf"), n_ctx=512, pooling_type="mean", lora_path=lora_path, **THREADS) as embedding:
        np.testing.assert_allclose(embedding.embed("a b", normalize=False), adapted.embed("a b"), atol=1e-6)
