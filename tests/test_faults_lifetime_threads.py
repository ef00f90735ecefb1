"""Public fault cases of the area lifetime-threads that this part of llamacy reaches."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import (
    Batch,
    ClosedError,
    ConcurrentUseError,
    Context,
    DecodeAbortedError,
    InUseError,
    Llama,
    LoraAdapter,
    Model,
    Sampler,
    SamplerChain,
    ThreadPool,
    live_handles,
)
from tests.helpers import data, models, toy_tokens
from tests.helpers.process import rss_bytes, run_python

ONE_THREAD = {"n_threads": 1, "n_threads_batch": 1}
PROMPTS = ["the cat", "a dog.", "hello world", "once upon a time", "x", "mi fa sol", "eleven", "two roads"]


@pytest.fixture
def llm() -> Iterator[Llama]:
    with Llama(data("target.gguf"), n_ctx=256, **ONE_THREAD) as llm:
        yield llm


@pytest.fixture(scope="module")
def slow_model() -> Iterator[Model]:
    """A model that takes more than a second for a prompt of 4,096 tokens on one thread."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        shape = models.LlamaShape(
            n_vocab=288, n_layer=8, n_embd=256, n_head=8, n_head_kv=4, n_ff=768, n_ctx_train=32768
        )
        path = models.write_llama(Path(folder) / "slow.gguf", shape)
        with Model(path, load_mode="none") as model:
            yield model


def text_of(llm: Llama, prompt: str, max_tokens: int = 24) -> str:
    return llm.create_completion(prompt, max_tokens=max_tokens, temperature=0)["choices"][0]["text"]


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    """What one thread says to each prompt; the models of tests/data are far from near ties."""
    with Llama(data("target.gguf"), n_ctx=256, **ONE_THREAD) as llm:
        return {prompt: text_of(llm, prompt) for prompt in PROMPTS}


# LT-001, LT-012 and LT-014 are in test_import.py for the lower half; here with the class that most people use


@pytest.mark.parametrize("options", [(), ("-X", "dev")], ids=" ".join)
@pytest.mark.parametrize(
    "ending",
    ["", "stream = m.create_completion('x', stream=True); next(stream)", "import builtins; builtins.m = m", "m.me = m"],
)
def test_lt_001_script_that_closes_nothing_ends_quietly(ending: str, options: tuple[str, ...]) -> None:
    done = run_python(
        f"""
from llamacy import Llama
m = Llama({str(data("target.gguf"))!r}, n_ctx=64, n_threads=1, n_threads_batch=1)
m.create_completion("x", max_tokens=4)
{ending}
""",
        options=options,
    )
    assert done.stderr == ""
    assert done.stdout == ""


@pytest.mark.parametrize(
    "argument", ["'/nowhere.gguf'", "path, n_ctx=-1", "path, nonsense=1", "path, n_gpu_layers='x'"]
)
def test_lt_001_failed_constructor_ends_quietly(argument: str) -> None:
    done = run_python(
        f"""
from llamacy import Llama
path = {str(data("target.gguf"))!r}
try:
    Llama({argument})
except (OSError, ValueError, TypeError):
    print("refused")
""",
        options=("-X", "dev"),
    )
    assert done.stdout == "refused\n"
    assert done.stderr == ""


def test_lt_003_close_twice_then_every_use_raises_closed_error(expected: dict[str, str]) -> None:
    llm = Llama(data("target.gguf"), n_ctx=64, **ONE_THREAD)
    stream = llm.create_completion("x", max_tokens=8, stream=True)
    next(stream)
    llm.close()
    llm.close()
    assert llm.closed
    for use in (
        lambda: llm.create_completion("x"),
        lambda: next(llm.create_completion("x", stream=True)),
        lambda: next(llm.generate([1])),
        lambda: llm.tokenize("x"),
        lambda: llm.detokenize([5]),
        lambda: llm.n_vocab(),
        lambda: llm.metadata,
        lambda: next(stream),
    ):
        with pytest.raises(ClosedError):
            use()
    assert repr(llm) == "<Llama closed>"


def test_lt_003_children_of_a_dropped_object_keep_working(expected: dict[str, str]) -> None:
    llm = Llama(data("target.gguf"), n_ctx=256, **ONE_THREAD)
    stream = llm.create_completion("the cat", max_tokens=24, temperature=0, stream=True)
    context, model = llm.context, llm.model
    del llm
    gc.collect()
    assert "".join(chunk["choices"][0]["text"] for chunk in stream) == expected["the cat"]
    del stream
    gc.collect()
    assert context.memory.seq_pos_max(0) > 0
    assert model.vocab.piece(261) == b"a"
    del model
    gc.collect()
    context.memory.clear()


def test_lt_006_everything_owned_is_released_and_a_reload_works(expected: dict[str, str], tmp_path: Path) -> None:
    lora = models.write_lora(tmp_path / "lora.gguf", data("target.gguf"))
    before = live_handles()
    for _ in range(3):
        with Model(data("target.gguf")) as model:
            context = Context(model, n_ctx=64, **ONE_THREAD)
            LoraAdapter(model, lora)
            pool = ThreadPool(1)
            context.attach_threadpool(pool)
            chain = SamplerChain([Sampler.grammar(model.vocab, "root ::= [a-z]+"), Sampler.greedy()])
        assert context.closed
        chain.close()
        pool.close()
        del context, chain, pool
        with Llama(data("target.gguf"), n_ctx=256, **ONE_THREAD) as llm:
            assert text_of(llm, "the cat") == expected["the cat"]
    gc.collect()
    assert live_handles() == before


def test_lt_008_many_short_calls_on_one_object_do_not_grow(llm: Llama) -> None:
    for _ in range(200):
        llm.create_completion("a", max_tokens=1)
    start = rss_bytes()
    for _ in range(2000):
        llm.create_completion("a", max_tokens=1)
    assert rss_bytes() - start < 2 * 2**20


def test_lt_009_threads_on_one_object_take_turns_with_the_right_texts(llm: Llama, expected: dict[str, str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda prompt: (prompt, text_of(llm, prompt)), PROMPTS * 4))
    assert all(text == expected[prompt] for prompt, text in results)


@pytest.mark.parametrize("n_threads", [4, 8])
def test_lt_009_threads_with_contexts_of_their_own_on_one_model(n_threads: int, expected: dict[str, str]) -> None:
    with Model(data("target.gguf")) as model:

        def work(index: int) -> bool:
            with Llama(model, n_ctx=256, **ONE_THREAD) as llm:
                order = PROMPTS[index % 8 :] + PROMPTS[: index % 8]
                return all(text_of(llm, prompt) == expected[prompt] for prompt in order)

        with ThreadPoolExecutor(n_threads) as pool:
            assert all(pool.map(work, range(n_threads)))


def test_lt_009_second_thread_on_a_busy_context_gets_concurrent_use_error(slow_model: Model) -> None:
    with Context(slow_model, n_ctx=4096, n_batch=4096, n_ubatch=64, **ONE_THREAD) as context, Batch(4096) as batch:
        batch.extend([5] * 4096, 0)
        with Batch(1) as other:
            other.add(5, 0)
            errors: list[BaseException | None] = []
            started = threading.Event()

            def decode() -> None:
                started.set()
                try:
                    context.decode(batch)
                    errors.append(None)
                except DecodeAbortedError as error:
                    errors.append(error)

            thread = threading.Thread(target=decode)
            thread.start()
            started.wait()
            time.sleep(0.2)
            for use in (
                lambda: context.decode(other),
                lambda: context.logits(-1),
                lambda: context.memory.clear(),
                lambda: context.set_n_threads(1),
            ):
                with pytest.raises(ConcurrentUseError):
                    use()
            with pytest.raises(InUseError):
                context.close()
            with pytest.raises(InUseError):
                batch.close()
            with pytest.raises(InUseError):
                batch.add(5, 0)
            context.abort()
            thread.join()
            assert isinstance(errors[0], DecodeAbortedError)
            # and the object is as good as before
            context.memory.clear()
            context.decode(other)


def test_lt_009_stream_of_another_thread_is_not_mixed_up(llm: Llama, expected: dict[str, str]) -> None:
    stream = llm.create_completion("the cat", max_tokens=24, temperature=0, stream=True)
    parts = [next(stream)["choices"][0]["text"]]
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConcurrentUseError):
        pool.submit(text_of, llm, "a dog.").result()
    parts += [chunk["choices"][0]["text"] for chunk in stream]
    assert "".join(parts) == expected["the cat"]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(text_of, llm, "a dog.").result() == expected["a dog."]


def test_lt_011_objects_created_used_and_dropped_on_32_threads() -> None:
    done = run_python(
        f"""
import gc, random, threading
from llamacy import Batch, Context, Llama, Model, Sampler, SamplerChain, live_handles
path = {str(data("llama.gguf"))!r}
shared = Model(path)
errors = []
kept = []

def work(number):
    rng = random.Random(number)
    try:
        for _ in range(6):
            model = rng.choice((shared, None)) or Model(path)
            context = Context(model, n_ctx=64, n_batch=16, n_threads=1, n_threads_batch=1)
            batch = Batch(4)
            batch.extend([1, 260, 268, 265], 0)
            context.decode(batch)
            chain = SamplerChain([Sampler.grammar(model.vocab, "root ::= [a-z]+"), Sampler.dist(number)])
            chain.sample(context, -1)
            objects = [model, context, batch, chain, model.vocab, memoryview(context.logits(-1))]
            rng.shuffle(objects)
            kept.append(objects.pop())
            if len(kept) > 20:
                del kept[: rng.randrange(10)]
            if rng.random() < 0.2:
                cycle = [objects]
                cycle.append(cycle)
                del cycle
            del objects, model, context, batch, chain
            if rng.random() < 0.2:
                gc.collect()
    except BaseException as error:
        errors.append(repr(error))

threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
for thread in threads: thread.start()
for thread in threads: thread.join()
kept.clear()
gc.collect()
shared.close()
assert not errors, errors[:3]
assert not any(live_handles().values()), live_handles()
print("fine")
""",
        options=("-X", "faulthandler"),
        timeout=240,
    )
    assert done.stdout == "fine\n"


def _decode_for_ever(context: Context, batch: Batch, started: threading.Event, outcomes: list[str]) -> None:
    try:
        while True:
            context.memory.clear()
            context.decode(batch)
            started.set()
    except (ClosedError, ConcurrentUseError) as error:
        outcomes.append(type(error).__name__)
        started.set()


@pytest.mark.parametrize("target", ["context", "model"])
def test_lt_011_close_races_with_decodes_of_another_thread(target: str) -> None:
    for _ in range(60):
        model = Model(data("llama.gguf"))
        context = Context(model, n_ctx=64, n_batch=16, **ONE_THREAD)
        batch = Batch(1)
        batch.add(5, 0, logits=True)
        outcomes: list[str] = []
        started = threading.Event()

        thread = threading.Thread(target=_decode_for_ever, args=(context, batch, started, outcomes))
        thread.start()
        started.wait()
        victim = context if target == "context" else model
        while not victim.closed:
            with contextlib.suppress(InUseError, ConcurrentUseError):
                victim.close()
        thread.join()
        assert outcomes in (["ClosedError"], ["ConcurrentUseError"])
        model.close()
        batch.close()


def _make_samplers_for_ever(kind: str, model: Model, started: threading.Event, outcomes: list[str]) -> None:
    vocab = model.vocab
    rules = "\n".join(f'r{index} ::= "{"abc" * 20}{index}" | [a-z]* "x"' for index in range(100))
    grammar = "root ::= " + " | ".join(f"r{index}" for index in range(100)) + "\n" + rules
    try:
        while True:
            started.set()
            time.sleep(0)  # or the other thread only ever sees the model at work
            if kind == "grammar":
                Sampler.grammar(vocab, grammar).close()
            elif kind == "dry":
                Sampler.dry(vocab, 0.8, seq_breakers=["\n", "ab", "c d"] * 20).close()
            else:
                Context(model, n_ctx=64, **ONE_THREAD).close()
    except ClosedError as error:
        outcomes.append(type(error).__name__)


@pytest.mark.parametrize("kind", ["grammar", "dry", "context"])
def test_lt_011_close_of_the_model_races_with_what_is_made_from_it(kind: str) -> None:
    for index in range(30):
        model = Model(data("llama.gguf"))
        outcomes: list[str] = []
        started = threading.Event()
        thread = threading.Thread(target=_make_samplers_for_ever, args=(kind, model, started, outcomes))
        thread.start()
        started.wait()
        time.sleep(index * 1e-4)
        while not model.closed:
            with contextlib.suppress(InUseError, ConcurrentUseError):
                model.close()
        thread.join()
        assert outcomes == ["ClosedError"]


@pytest.mark.parametrize("verbose", [False, True])
def test_lt_012_loads_where_standard_streams_have_no_fileno(verbose: bool) -> None:
    done = run_python(
        f"""
import io, sys
real, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), io.StringIO()
from llamacy import Llama
with Llama({str(data("target.gguf"))!r}, n_ctx=64, n_threads=1, verbose={verbose}) as llm:
    llm.create_completion("x", max_tokens=2)
    real.write(str(len(sys.stderr.getvalue()) > 0))
"""
    )
    assert done.stdout == str(verbose)
    assert done.stderr == ""


@pytest.mark.parametrize("verbose", [False, True])
def test_lt_014_two_completions_with_stderr_closed(verbose: bool) -> None:
    done = run_python(
        f"""
import os
os.close(2)
from llamacy import Llama
with Llama({str(data("target.gguf"))!r}, n_ctx=64, n_threads=1, verbose={verbose}) as llm:
    for _ in range(2):
        print(llm.create_completion("x", max_tokens=2, temperature=0)["usage"]["completion_tokens"])
"""
    )
    assert done.stdout == "2\n2\n"


def test_lt_015_abort_from_another_thread_during_a_long_prompt(slow_model: Model) -> None:
    n_prompt = 20_000
    with Llama(slow_model, n_ctx=n_prompt + 100, n_batch=512, n_ubatch=128, **ONE_THREAD) as llm:
        first = llm.create_completion("the cat", max_tokens=6, temperature=0)["choices"][0]["text"]
        prompt = [1] + [261 + index % 26 for index in range(n_prompt - 1)]
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(llm.create_completion, prompt, max_tokens=8)
            time.sleep(0.2)
            llm.abort()
            result = running.result()
        assert result["choices"][0]["finish_reason"] == "abort"
        assert result["choices"][0]["text"] == ""
        # far from the end: the rest of the prompt was not waited for
        assert llm.context.memory.seq_pos_max(0) < n_prompt // 2
        assert llm.create_completion("the cat", max_tokens=6, temperature=0)["choices"][0]["text"] == first


def test_lt_015_abort_between_tokens_of_a_stream(llm: Llama, expected: dict[str, str]) -> None:
    stream = llm.create_completion("the cat", max_tokens=24, temperature=0, stream=True)
    parts = [next(stream)["choices"][0]["text"] for _ in range(3)]
    llm.abort()
    rest = list(stream)
    assert rest[-1]["choices"][0]["finish_reason"] == "abort"
    assert len(rest) <= 2
    text = "".join(parts) + "".join(chunk["choices"][0]["text"] for chunk in rest)
    assert expected["the cat"].startswith(text)
    assert text_of(llm, "the cat") == expected["the cat"]


def test_lt_015_abort_with_nothing_running_does_nothing(llm: Llama, expected: dict[str, str]) -> None:
    llm.abort()
    assert text_of(llm, "the cat") == expected["the cat"]


@pytest.fixture
def interrupt() -> Iterator[Callable[[float], None]]:
    """Return a function that sends SIGINT to this process after some seconds."""
    if sys.platform == "win32":
        pytest.skip("signals")
    timers: list[threading.Timer] = []

    def send_after(seconds: float) -> None:
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        timers.append(timer)
        timer.start()

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield send_after
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGINT, before)


def test_lt_016_ctrl_c_during_a_prefill_of_4096_tokens(slow_model: Model, interrupt: Callable[[float], None]) -> None:
    prompt = [1] + [261 + index % 26 for index in range(4095)]
    with Context(slow_model, n_ctx=4096, n_batch=4096, n_ubatch=64, **ONE_THREAD) as context, Batch(4096) as batch:
        batch.extend(prompt, 0)
        interrupt(0.15)
        with pytest.raises(KeyboardInterrupt):
            context.decode(batch)
        last = context.memory.seq_pos_max(0)
        assert last < 4095 - 64, "the whole prompt was decoded before Ctrl-C was answered"
        # what was finished are whole micro-batches, and the rest can be decoded after them
        assert (last + 1) % 64 == 0
        batch.clear()
        batch.extend(prompt[last + 1 : last + 201], last + 1)
        context.decode(batch)
        resumed = np.array(context.logits(-1))
        context.memory.clear()
        batch.clear()
        batch.extend(prompt[: last + 201], 0)
        context.decode(batch)
        np.testing.assert_allclose(resumed, np.array(context.logits(-1)), atol=2e-2)


def test_lt_016_ctrl_c_during_the_prompt_of_a_completion(slow_model: Model, interrupt: Callable[[float], None]) -> None:
    with Llama(slow_model, n_ctx=4096, n_ubatch=64, **ONE_THREAD) as llm:
        first = llm.create_completion("the cat", max_tokens=6, temperature=0)
        interrupt(0.15)
        aborted = llm.create_completion([1] + [261 + index % 26 for index in range(4000)], max_tokens=8)
        assert aborted["choices"][0]["finish_reason"] == "abort"
        again = llm.create_completion("the cat", max_tokens=6, temperature=0)
        assert again["choices"] == first["choices"]


@pytest.mark.parametrize("stream", [False, True])
def test_lt_016_ctrl_c_during_generation(slow_model: Model, interrupt: Callable[[float], None], stream: bool) -> None:
    with Llama(slow_model, n_ctx=8192, **ONE_THREAD) as llm:
        first = llm.create_completion("the cat", max_tokens=6, temperature=0)
        interrupt(0.2)
        result = llm.create_completion("the cat", max_tokens=8000, temperature=0, stream=stream)
        last = list(result)[-1] if stream else result
        assert last["choices"][0]["finish_reason"] == "abort"
        assert last["usage"]["completion_tokens"] < 8000
        assert last["timings"]["predicted_ms"] > 0
        again = llm.create_completion("the cat", max_tokens=6, temperature=0)
        assert again["choices"] == first["choices"]


def test_lt_016_signal_handler_that_raises_nothing_does_not_stop_the_call(
    slow_model: Model, interrupt: Callable[[float], None]
) -> None:
    calls: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: calls.append(number))
    with Llama(slow_model, n_ctx=2048, n_ubatch=64, **ONE_THREAD) as llm:
        interrupt(0.1)
        prompt = [1] + [261 + index % 26 for index in range(2000)]
        result = llm.create_completion(prompt, max_tokens=4, temperature=0)
        again = llm.create_completion(prompt, max_tokens=4, temperature=0)
    assert calls == [signal.SIGINT]
    assert result["usage"]["completion_tokens"] == 4
    assert again["choices"] == result["choices"]


def test_lt_016_python_handler_is_in_place_after_every_call(llm: Llama) -> None:
    before = signal.getsignal(signal.SIGINT)
    text_of(llm, "the cat")
    assert signal.getsignal(signal.SIGINT) is before
    done = run_python(
        f"""
import os, signal
from llamacy import Llama
with Llama({str(data("target.gguf"))!r}, n_ctx=64, n_threads=1, n_threads_batch=1) as llm:
    llm.create_completion("hello world", max_tokens=2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    llm.create_completion("hello world", max_tokens=2)
    os.kill(os.getpid(), signal.SIGINT)
    print("ignored")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    llm.create_completion("hello world", max_tokens=2)
    os.kill(os.getpid(), signal.SIGINT)
""",
        check=False,
    )
    assert done.stdout == "" or done.stdout == "ignored\n"
    assert done.returncode == -signal.SIGINT


def test_lt_018_another_thread_stops_a_stream_on_a_condition(llm: Llama) -> None:
    enough = threading.Event()

    def watch() -> None:
        enough.wait()
        llm.abort()
        stopped.set()

    stopped = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    n_after = 0
    n_seen = 0
    for chunk in llm.create_completion("the cat", max_tokens=200, temperature=0, stream=True):
        if stopped.is_set() and chunk["choices"][0]["finish_reason"] is None:
            n_after += 1
        n_seen += 1
        if n_seen == 5:
            enough.set()
            stopped.wait()
    watcher.join()
    assert n_seen < 10
    assert n_after <= 1
    assert chunk["choices"][0]["finish_reason"] == "abort"


def _break(llm: Llama) -> None:
    for _ in llm.create_completion("hello world", max_tokens=24, stream=True):
        break


def _drop(llm: Llama) -> None:
    stream = llm.create_completion("hello world", max_tokens=24, stream=True)
    next(stream)
    del stream


def _never_start(llm: Llama) -> None:
    llm.create_completion("hello world", max_tokens=24, stream=True)


def _raise(llm: Llama) -> None:
    with contextlib.suppress(ZeroDivisionError):
        for _ in llm.create_completion("hello world", max_tokens=24, stream=True):
            raise ZeroDivisionError


def _close(llm: Llama) -> None:
    stream = llm.create_completion("hello world", max_tokens=24, stream=True)
    next(stream)
    stream.close()


def _throw(llm: Llama) -> None:
    stream = llm.create_completion("hello world", max_tokens=24, stream=True)
    next(stream)
    with contextlib.suppress(ZeroDivisionError):
        stream.throw(ZeroDivisionError)


def _close_in_another_thread(llm: Llama) -> None:
    stream = llm.create_completion("hello world", max_tokens=24, stream=True)
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(stream.close).result()


def _close_in_a_task(llm: Llama) -> None:
    async def main() -> None:
        stream = llm.create_completion("hello world", max_tokens=24, stream=True)
        next(stream)
        await asyncio.to_thread(next, stream)
        await asyncio.to_thread(stream.close)

    asyncio.run(main())


def _drop_in_a_cycle(llm: Llama) -> None:
    stream = llm.create_completion("hello world", max_tokens=24, stream=True)
    next(stream)
    cycle: list[Any] = [stream]
    cycle.append(cycle)


def _leave_in_dead_thread(llm: Llama) -> None:
    kept: list[Any] = []

    def work() -> None:
        kept.append(llm.create_completion("hello world", max_tokens=24, stream=True))
        next(kept[0])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "abandon",
    [
        _break, _drop, _never_start, _raise, _close, _throw, _close_in_another_thread, _close_in_a_task,
        _drop_in_a_cycle, _leave_in_dead_thread,
    ],
)  # fmt: skip
@pytest.mark.parametrize("in_other_thread", [False, True])
def test_lt_019_next_call_works_after_a_stream_was_abandoned(
    llm: Llama, expected: dict[str, str], abandon: Callable[[Llama], None], in_other_thread: bool
) -> None:
    abandon(llm)
    if in_other_thread:
        gc.collect()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(text_of, llm, "the cat").result() == expected["the cat"]
    assert text_of(llm, "the cat") == expected["the cat"]


def test_lt_019_close_with_a_stream_open_frees_everything() -> None:
    before = live_handles()
    llm = Llama(data("target.gguf"), n_ctx=64, **ONE_THREAD)
    stream = llm.create_completion("hello world", max_tokens=24, stream=True)
    next(stream)
    llm.close()
    with pytest.raises(ClosedError):
        next(stream)
    del stream, llm
    gc.collect()
    assert live_handles() == before


def test_stream_in_asyncio_task_with_thread_per_step(llm: Llama, expected: dict[str, str]) -> None:
    async def main() -> str:
        stream = llm.create_completion("the cat", max_tokens=24, temperature=0, stream=True)
        parts = []
        while (chunk := await asyncio.to_thread(next, stream, None)) is not None:
            parts.append(chunk["choices"][0]["text"])
        return "".join(parts)

    assert asyncio.run(main()) == expected["the cat"]


def test_gil_is_free_during_a_long_decode(slow_model: Model) -> None:
    # the main thread counts while another one decodes
    with Context(slow_model, n_ctx=2048, n_batch=2048, n_ubatch=512, **ONE_THREAD) as context, Batch(2048) as batch:
        batch.extend([5] * 2048, 0)
        thread = threading.Thread(target=context.decode, args=(batch,))
        thread.start()
        counted = 0
        while thread.is_alive():
            counted += 1
            time.sleep(0.001)
        thread.join()
    assert counted > 20


def test_reentrant_use_from_a_callback_is_refused_or_works(llm: Llama, expected: dict[str, str]) -> None:
    # a finalizer that runs in the middle of a call may call again
    class Late:
        def __del__(self) -> None:
            with contextlib.suppress(ConcurrentUseError):
                llm.tokenize("hello")

    late: Any = Late()
    late.me = late
    del late
    stream = llm.create_completion("the cat", max_tokens=24, temperature=0, stream=True)
    parts = []
    for chunk in stream:
        parts.append(chunk["choices"][0]["text"])
        gc.collect()
    assert "".join(parts) == expected["the cat"]


def test_json_of_results_is_plain(llm: Llama) -> None:
    result = llm.create_completion("the cat", max_tokens=3)
    assert json.loads(json.dumps(result)) == result
    assert result["usage"]["prompt_tokens"] == len(toy_tokens("the cat"))
