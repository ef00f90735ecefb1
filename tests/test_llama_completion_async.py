"""Requests of an event loop: in turns, cancelled, nested, and with the model closed under them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from llamacy.core.model import Model
from llamacy.errors import ClosedError, InUseError
from llamacy.llama import Llama
from tests.helpers import data, models

ONE = {"n_threads": 1, "n_threads_batch": 1}
PROMPTS = ["the cat", "a dog.", "hello world", "x", "mi fa sol", "two roads"]


@pytest.fixture
def llama(closing):
    return closing(Llama(data("llama.gguf"), n_ctx=128, **ONE))


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory):
    shape = models.LlamaShape(n_vocab=288, n_layer=8, n_embd=256, n_head=8, n_head_kv=4, n_ff=768, n_ctx_train=32768)
    path = models.write_llama(Path(tmp_path_factory.mktemp("slow")) / "slow.gguf", shape)
    with Model(path, load_mode="none") as model:
        yield model


@pytest.fixture
def slow(closing, slow_model):
    return closing(Llama(slow_model, n_ctx=8192, n_ubatch=64, **ONE))


def greedy(llama, prompt="the cat", n=12):
    return llama(prompt, max_tokens=n, temperature=0)["choices"][0]["text"]


async def agreedy(llama, prompt="the cat", n=12):
    return (await llama.acreate_completion(prompt, max_tokens=n, temperature=0))["choices"][0]["text"]


async def streamed(llama, prompt="the cat", n=12):
    chunks = await llama.acreate_completion(prompt, max_tokens=n, temperature=0, stream=True)
    return "".join([chunk["choices"][0]["text"] async for chunk in chunks])


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 60))


def test_many_tasks_at_once_each_get_their_own(llama):
    expected = {prompt: greedy(llama, prompt) for prompt in PROMPTS}

    async def main():
        jobs = [function(llama, prompt) for prompt in PROMPTS * 3 for function in (agreedy, streamed)]
        return await asyncio.gather(*jobs)

    assert run(main) == [expected[prompt] for prompt in PROMPTS * 3 for _ in range(2)]


def test_loop_goes_on_while_a_request_runs(slow):
    async def main():
        request = asyncio.create_task(slow.acreate_completion("x", max_tokens=60, temperature=0, ignore_eos=True))
        n = 0
        while not request.done():
            n += 1
            await asyncio.sleep(0.001)
        return n, await request

    n, result = run(main)
    assert n > 5
    assert result["usage"]["completion_tokens"] == 60


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n_ticks", [0, 1, 2, 5, 50])
def test_cancelled_task_ends_its_request_however_early(slow, stream, n_ticks):
    # before it began, in its prompt, and while it generates: an abort that came too early was lost once
    expected = greedy(slow, n=6)

    async def main():
        async def request():
            result = await slow.acreate_completion(
                [1] + [270] * 1500, max_tokens=None, temperature=0, ignore_eos=True, stream=stream
            )
            if stream:
                async for _ in result:
                    pass

        task = asyncio.create_task(request())
        for _ in range(n_ticks):
            await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await agreedy(slow, n=6)

    assert run(main) == expected
    assert greedy(slow, n=6) == expected


def test_cancelling_a_task_that_waits_leaves_the_one_that_runs_alone(slow):
    async def main():
        first = asyncio.create_task(slow.acreate_completion("x", max_tokens=40, temperature=0, ignore_eos=True))
        second = asyncio.create_task(agreedy(slow))
        await asyncio.sleep(0.02)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        return await first

    result = run(main)
    assert (result["choices"][0]["finish_reason"], result["usage"]["completion_tokens"]) == ("length", 40)


def test_cancelled_task_behind_the_request_of_a_thread_aborts_only_itself(slow):
    running = threading.Event()
    results = []

    def compute():
        results.append(
            slow("x", max_tokens=60, temperature=0, ignore_eos=True, stopping_criteria=lambda *_: running.set())
        )

    thread = threading.Thread(target=compute)
    thread.start()
    running.wait()

    async def main():
        task = asyncio.create_task(slow.acreate_completion("y", max_tokens=None, ignore_eos=True))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
    thread.join()
    assert results[0]["usage"]["completion_tokens"] == 60
    assert greedy(slow, n=3)


def test_timeout_of_asyncio_ends_the_request(slow):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slow.acreate_completion("x", max_tokens=None, ignore_eos=True), 0.1)
        return await agreedy(slow, n=3)

    assert run(main) == greedy(slow, n=3)


@pytest.mark.parametrize("keep", [False, True])
def test_stream_that_a_task_left_does_not_block_its_next_request(llama, keep):
    # waiting for itself, the task would hang for ever
    expected = greedy(llama)

    async def main():
        stream = await llama.acreate_completion("a dog.", max_tokens=60, temperature=0, ignore_eos=True, stream=True)
        async for _ in stream:
            break
        if not keep:
            del stream
        text = await agreedy(llama)
        if keep:
            with pytest.raises(InUseError, match="later request"):
                await anext(stream)
        return text, await streamed(llama)

    assert run(main) == (expected, expected)


def test_streams_of_one_task_in_each_other(llama):
    expected = greedy(llama)

    async def main():
        outer = await llama.acreate_completion("a dog.", max_tokens=60, temperature=0, ignore_eos=True, stream=True)
        with pytest.raises(InUseError, match="later request"):
            async for _ in outer:
                assert await streamed(llama) == expected

    run(main)


def test_stream_of_another_task_is_waited_for(llama):
    expected = greedy(llama)
    order = []

    async def main():
        async def read():
            stream = await llama.acreate_completion("the cat", max_tokens=12, temperature=0, stream=True)
            text = ""
            async for chunk in stream:
                text += chunk["choices"][0]["text"]
                await asyncio.sleep(0.001)
            order.append("stream")
            return text

        async def call():
            await asyncio.sleep(0.005)
            text = await agreedy(llama)
            order.append("call")
            return text

        return await asyncio.gather(read(), call())

    assert run(main) == [expected, expected]
    assert order == ["stream", "call"]


def test_event_loops_one_after_the_other(llama):
    expected = greedy(llama)
    for _ in range(3):
        assert run(lambda: agreedy(llama)) == expected
        assert run(lambda: streamed(llama)) == expected


def test_loop_that_ended_within_a_stream_leaves_the_model_usable(llama):
    expected = greedy(llama)

    async def main():
        stream = await llama.acreate_completion("a dog.", max_tokens=60, ignore_eos=True, stream=True)
        await anext(stream)

    run(main)
    assert run(lambda: agreedy(llama)) == expected
    assert greedy(llama) == expected


def test_errors_come_out(llama):
    async def main():
        with pytest.raises(TypeError, match="did you mean"):
            await llama.acreate_completion("x", temprature=1)
        stream = await llama.acreate_completion("x", temprature=1, stream=True)
        with pytest.raises(TypeError, match="did you mean"):
            await anext(stream)
        return await agreedy(llama)

    assert run(main) == greedy(llama)


def test_close_within_a_stream_and_after():
    async def main():
        llama = Llama(data("llama.gguf"), n_ctx=128, **ONE)
        stream = await llama.acreate_completion("x", max_tokens=60, ignore_eos=True, stream=True)
        await anext(stream)
        llama.close()
        with pytest.raises(ClosedError):
            await anext(stream)
        with pytest.raises(ClosedError):
            await llama.acreate_completion("x")

    run(main)


def test_close_while_a_request_runs_is_refused(slow):
    async def main():
        task = asyncio.create_task(slow.acreate_completion("x", max_tokens=None, ignore_eos=True))
        await asyncio.sleep(0.1)
        with pytest.raises(InUseError):
            slow.close()
        slow.abort()
        return await task

    assert run(main)["choices"][0]["finish_reason"] == "abort"
