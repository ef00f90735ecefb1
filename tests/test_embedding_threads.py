"""Several threads, event loops, and stopping in the middle."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import Embedding
from llamacy.core.model import Model
from llamacy.core.threadpool import ThreadPool
from llamacy.errors import ClosedError, DecodeAbortedError, InUseError
from tests.helpers import data

THREADS = {"n_threads": 1, "n_threads_batch": 1}


@pytest.fixture
def embedding(closing: Callable[[Any], Any], bert_path: Path) -> Embedding:
    return closing(Embedding(bert_path, **THREADS))


@pytest.fixture
def slow(closing: Callable[[Any], Any], smollm2_model: Any) -> Embedding:
    """One that takes seconds for `MANY`."""
    return closing(Embedding(smollm2_model, pooling_type="mean", **THREADS))


MANY = [f"{n}: " + "the quick brown fox jumps over the lazy dog " * 8 for n in range(200)]


def begun(embedding: Embedding) -> None:
    """Wait until it has computed something."""
    epoch = embedding.context.epoch
    while embedding.context.epoch == epoch:
        threading.Event().wait(0.001)


def test_threads_take_turns(embedding: Embedding) -> None:
    texts = [[f"{chr(97 + n)} b c", "d"] for n in range(16)]
    want = [embedding.embed(pair) for pair in texts]
    with ThreadPoolExecutor(8) as pool:
        for made, vectors in zip(pool.map(embedding.embed, texts), want, strict=True):
            np.testing.assert_allclose(made, vectors, atol=1e-6)


def test_abort_stops_what_runs_and_the_next_call_is_right(slow: Embedding) -> None:
    want = slow.embed("a b")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(slow.embed, MANY)
        begun(slow)
        slow.abort()
        with pytest.raises(DecodeAbortedError):
            running.result()
    np.testing.assert_allclose(slow.embed("a b"), want, atol=1e-5)


def test_abort_of_nothing_is_nothing(embedding: Embedding) -> None:
    embedding.abort()
    assert embedding.embed("a").shape == (32,)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_the_call_and_the_next_one_is_right(slow: Embedding) -> None:
    want = slow.embed("a b")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            slow.embed(MANY)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    np.testing.assert_allclose(slow.embed("a b"), want, atol=1e-5)


def test_it_can_not_be_closed_while_it_computes(slow: Embedding) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(slow.embed, MANY)
        begun(slow)
        with pytest.raises(InUseError, match="abort"):
            slow.close()
        slow.abort()
        with pytest.raises(DecodeAbortedError):
            running.result()
    slow.close()


def test_tasks_get_their_vectors(embedding: Embedding) -> None:
    want = embedding.embed(["a b", "c"])

    async def both() -> list[Any]:
        return await asyncio.gather(
            embedding.aembed(["a b", "c"]), embedding.acreate_embedding("a b", dimensions=4), embedding.aembed("c")
        )

    vectors, response, single = asyncio.run(both())
    np.testing.assert_allclose(vectors, want, atol=1e-6)
    assert len(response["data"][0]["embedding"]) == 4
    np.testing.assert_allclose(single, want[1], atol=1e-6)


def test_a_task_that_is_cancelled_stops_its_call_and_no_other(slow: Embedding) -> None:
    want = slow.embed("a b")

    async def main() -> Any:
        long = asyncio.create_task(slow.aembed(MANY))
        short = asyncio.create_task(slow.aembed("a b"))
        await asyncio.to_thread(begun, slow)
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        return await short

    np.testing.assert_allclose(asyncio.run(main()), want, atol=1e-5)


def test_a_task_that_is_cancelled_while_it_waits_computes_nothing(slow: Embedding) -> None:
    async def main() -> None:
        long = asyncio.create_task(slow.aembed(MANY))
        waiting = asyncio.create_task(slow.aembed(MANY))
        await asyncio.to_thread(begun, slow)
        waiting.cancel()
        long.cancel()
        for task in (long, waiting):
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_a_task_that_is_cancelled_while_its_texts_are_read_reads_no_more(embedding: Embedding) -> None:
    reading = threading.Event()

    def endless() -> Iterator[str]:
        while True:
            reading.set()
            yield "a"

    async def main() -> Any:
        task = asyncio.create_task(embedding.aembed(endless()))
        await asyncio.to_thread(reading.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await embedding.aembed("a b")

    assert asyncio.run(main()).shape == (embedding.n_embd,)


def test_between_two_windows_other_calls_may_run(embedding: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamacy.generate.embed.engine._WINDOW_TEXTS", 2)
    batches: Iterator[Any] = embedding.embed_batches(["a", "b", "c"])
    next(batches)
    other = embedding.embed("z z")
    start, vectors = next(batches)
    assert start == 2
    np.testing.assert_allclose(vectors[0], embedding.embed("c"), atol=1e-6)
    np.testing.assert_allclose(embedding.embed("z z"), other, atol=1e-6)


def test_what_shows_the_progress_can_not_embed(embedding: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bar:
        def __init__(self, **_options: Any) -> None: ...

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_exc_info: object) -> None: ...

        def update(self, _n: int) -> None:
            embedding.embed("a")

    monkeypatch.setattr("tqdm.tqdm", Bar)
    with pytest.raises(InUseError):
        embedding.embed(["a b"], progress=True)
    monkeypatch.undo()
    assert embedding.embed("a").shape == (32,)


def test_thread_pools_go_along_when_the_context_grows(closing: Callable[[Any], Any]) -> None:
    embedding = closing(Embedding(data("llama.gguf"), pooling_type="mean", n_batch=64, **THREADS))
    want = embedding.embed("a b " * 80)
    other = closing(Embedding(data("llama.gguf"), pooling_type="mean", n_batch=64, **THREADS))
    pool = ThreadPool(1)
    other.attach_threadpool(pool)
    np.testing.assert_allclose(other.embed("a b " * 80), want, atol=1e-6)
    with pytest.raises(InUseError):
        pool.close()
    other.detach_threadpool()
    other.embed("a")
    pool.close()


def test_it_can_be_pickled(bert_path: Path, closing: Callable[[Any], Any]) -> None:
    embedding = closing(Embedding(bert_path, pooling_type="cls", query_prefix="q: ", **THREADS))
    other = closing(pickle.loads(pickle.dumps(embedding)))
    np.testing.assert_array_equal(other.embed("a b", prompt="query"), embedding.embed("a b", prompt="query"))
    with Model(bert_path) as model, Embedding(model, **THREADS) as shared, pytest.raises(TypeError, match="path"):
        pickle.dumps(shared)


def test_a_task_of_a_closed_one_is_told(bert_path: Path) -> None:
    with Embedding(bert_path, **THREADS) as embedding:
        asyncio.run(embedding.aembed("a"))
    with pytest.raises(ClosedError):
        asyncio.run(embedding.aembed("a"))
