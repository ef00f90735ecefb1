"""Abort, Ctrl-C, timeouts and closed streams: each ends within a micro-batch, and the next request is right."""

from __future__ import annotations

import gc
import linecache
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llamacy.core.model import Model
from llamacy.errors import ClosedError, ConcurrentUseError, InUseError
from llamacy.llama import Llama
from tests.helpers import data, models
from tests.helpers.process import run_python

ONE = {"n_threads": 1, "n_threads_batch": 1}
LONG = [1] + [261 + index % 26 for index in range(4000)]


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory):
    """A model that takes more than a second for a prompt of 4,000 tokens on one thread."""
    shape = models.LlamaShape(n_vocab=288, n_layer=8, n_embd=256, n_head=8, n_head_kv=4, n_ff=768, n_ctx_train=32768)
    path = models.write_llama(Path(tmp_path_factory.mktemp("slow")) / "slow.gguf", shape)
    with Model(path, load_mode="none") as model:
        yield model


@pytest.fixture
def slow(closing, slow_model):
    return closing(Llama(slow_model, n_ctx=8192, n_ubatch=64, **ONE))


@pytest.fixture
def make_llama(closing):
    def make(**params):
        return closing(Llama(data("llama.gguf"), **{"n_ctx": 256, **ONE} | params))

    return make


def greedy(llama, n=6):
    return llama("the cat", max_tokens=n, temperature=0)["choices"]


def later(seconds, function):
    timer = threading.Timer(seconds, function)
    timer.start()
    return timer


def reasons_of(result):
    return [choice["finish_reason"] for choice in result["choices"]]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("n_seq_max", [1, 3])
@pytest.mark.parametrize("at", ["prefill", "decode"])
@pytest.mark.parametrize("stream", [False, True])
def test_abort_of_another_thread_ends_all_choices(closing, slow_model, n, n_seq_max, at, stream):
    llama = closing(Llama(slow_model, n_ctx=8192, n_ubatch=64, n_seq_max=n_seq_max, **ONE))
    expected = greedy(llama)
    llama.reset()
    started = threading.Event()

    def abort():
        started.wait()
        time.sleep(0.1)
        llama.abort()

    thread = threading.Thread(target=abort)
    thread.start()
    prompt, callback = (LONG, None) if at == "prefill" else ("the cat", lambda *_: started.set())
    if at == "prefill":
        started.set()
    result = llama(
        prompt, max_tokens=None, n=n, temperature=0, ignore_eos=True, stopping_criteria=callback, stream=stream
    )
    if stream:
        chunks = list(result)
        reasons = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]]
        usage = chunks[-1]["usage"]
    else:
        reasons, usage = reasons_of(result), result["usage"]
    thread.join()
    assert reasons == ["abort"] * n
    if at == "prefill":
        assert usage["completion_tokens"] == 0
        # what was computed is kept, whole micro-batches of it, and it is less than all
        assert max(llama.context.memory.seq_pos_max(i) for i in range(n_seq_max)) < len(LONG) - 64
    assert greedy(llama) == expected


def test_abort_after_the_last_token_of_a_wave_ends_the_waves_after_it(make_llama):
    llama = make_llama()
    reasons = []
    for chunk in llama("the cat", n=3, max_tokens=4, temperature=0, stream=True):
        reason = chunk["choices"][0]["finish_reason"]
        if reason is not None:
            reasons.append(reason)
            llama.abort()
    assert reasons == ["length", "abort", "abort"]
    assert llama.context.memory.seq_pos_max(0) < 20
    # its sequences were given back, so that another thread may have them
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(greedy, llama).result() == greedy(llama)


@pytest.mark.parametrize("n_chunks", [0, 1, 3])
def test_abort_between_chunks_of_several_choices(make_llama, n_chunks):
    llama = make_llama(n_seq_max=2)
    expected = greedy(llama)
    stream = llama("the cat", n=3, max_tokens=50, temperature=0, ignore_eos=True, stream=True)
    for _ in range(n_chunks):
        next(stream)
    llama.abort()
    chunks = list(stream)
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]] == ["abort"] * 3
    assert chunks[-1]["usage"]["completion_tokens"] <= n_chunks + 2
    assert greedy(llama) == expected


def test_many_aborts_at_any_time_end_every_request(slow):
    # with the flag cleared at the wrong moment, one of these would go on for 8,000 tokens
    expected = greedy(slow)
    for index in range(5):
        timer = later(0.0007 * index, slow.abort)
        result = slow("the cat", max_tokens=20, temperature=0, ignore_eos=True)
        timer.join()
        assert reasons_of(result)[0] in ("abort", "length")

    def abort_after(seconds):
        # an abort from before the request began would be none of it
        while not slow._engine.slots._streams:
            time.sleep(0)
        time.sleep(seconds)
        slow.abort()

    for index in range(25):
        timer = later(0, lambda seconds=0.0007 * index: abort_after(seconds))
        result = slow("the cat", max_tokens=None, temperature=0, ignore_eos=True)
        timer.join()
        assert reasons_of(result) == ["abort"]
    assert greedy(slow) == expected


@pytest.mark.parametrize("at", ["prefill", "decode"])
@pytest.mark.parametrize("stream", [False, True])
def test_timeout(slow, at, stream):
    expected = greedy(slow)
    slow.reset()
    result = slow(
        LONG if at == "prefill" else "the cat", max_tokens=None, temperature=0, ignore_eos=True, timeout_s=0.3,
        stream=stream,
    )  # fmt: skip
    last = list(result)[-1] if stream else result
    assert reasons_of(last) == ["abort"]
    if at == "prefill":
        assert 0 <= slow.context.memory.seq_pos_max(0) < len(LONG) - 64
    else:
        assert last["usage"]["completion_tokens"] > 0
    # the timeout is not one of the next request
    assert greedy(slow) == expected


def test_timeout_of_no_time_computes_nothing(make_llama):
    llama = make_llama(n_seq_max=2)
    epoch = llama.context.epoch
    result = llama(["a", "b"], n=2, max_tokens=5, timeout_s=0)
    assert reasons_of(result) == ["abort"] * 4
    assert result["usage"]["completion_tokens"] == 0
    assert llama.context.epoch == epoch
    assert reasons_of(llama("a", max_tokens=2, temperature=0, timeout_s=1e10)) == ["length"]


def test_timeout_counts_for_all_waves_together(slow):
    result = slow("the cat", n=50, max_tokens=200, temperature=0, ignore_eos=True, timeout_s=0.4)
    reasons = reasons_of(result)
    assert reasons[-1] == "abort"
    assert len(reasons) == 50
    assert reasons == sorted(reasons, reverse=True)  # lengths, then aborts


@pytest.mark.parametrize("wrong", [-1, float("nan")])
def test_wrong_timeout_raises(make_llama, wrong):
    with pytest.raises(ValueError, match="timeout_s"):
        make_llama()("a", timeout_s=wrong)


def test_ctrl_c_in_a_request_of_several_waves(slow):
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        expected = greedy(slow)
        timer = later(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        result = slow("the cat", n=3, max_tokens=None, temperature=0, ignore_eos=True)
        timer.join()
        assert reasons_of(result) == ["abort"] * 3
        assert greedy(slow) == expected
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_the_prompt_that_choices_share(closing, slow_model):
    llama = closing(Llama(slow_model, n_ctx=8192, n_ubatch=64, n_seq_max=2, **ONE))
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        expected = greedy(llama)
        timer = later(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        result = llama(LONG, n=2, max_tokens=10, temperature=0)
        timer.join()
        assert reasons_of(result) == ["abort"] * 2
        assert greedy(llama) == expected
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("echo", [False, True])
def test_signal_handler_that_raises_nothing_leaves_the_scores_aligned(slow, echo):
    # the step that it interrupts begins again, with rows that were not looked at
    calls = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    prompt = LONG[:1500]
    options = {"max_tokens": 2, "temperature": 0, "echo": echo, "logprobs": 1}
    try:
        timers = [later(0.02 + 0.05 * index, lambda: os.kill(os.getpid(), signal.SIGINT)) for index in range(8)]
        result = slow(prompt, **options)
        for timer in timers:
            timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls
    again = slow(prompt, **options, cache_prompt=False)
    ours, theirs = (each["choices"][0]["logprobs"] for each in (result, again))
    assert ours["tokens"] == theirs["tokens"]
    assert ours["token_logprobs"][1:] == pytest.approx(theirs["token_logprobs"][1:], abs=1e-3)


def test_ctrl_c_in_a_process_of_its_own():
    code = f"""
import os, signal, threading
from llamacy import Llama
with Llama({str(data("llama.gguf"))!r}, n_ctx=512, n_threads=1, n_threads_batch=1) as llama:
    first = llama("the cat", max_tokens=6, temperature=0)["choices"]
    def interrupt(input_ids, scores):
        if len(input_ids) == 20:
            os.kill(os.getpid(), signal.SIGINT)
    reasons = []
    for stream in (False, True):
        try:
            result = llama("the cat", max_tokens=None, temperature=0, ignore_eos=True, stream=stream,
                           logits_processor=interrupt)
            last = list(result)[-1] if stream else result
            reasons.append(last["choices"][0]["finish_reason"])
        except KeyboardInterrupt:  # it came while Python code of the caller ran
            reasons.append("raised")
        assert llama("the cat", max_tokens=6, temperature=0)["choices"] == first
    assert all(reason in ("abort", "raised") for reason in reasons), reasons
print("ok")
"""
    assert run_python(code).stdout == "ok\n"


def test_interrupt_between_any_two_lines_leaves_the_object_usable(make_llama):
    # a KeyboardInterrupt at every line that a request runs through, one after the other
    llama = make_llama(n_seq_max=2)
    expected = greedy(llama)
    folder = str(Path(sys.modules["llamacy.generate"].__file__).parent)

    def interrupted(n, stream):
        n_lines = 0

        def trace(frame, event, _):
            nonlocal n_lines
            if not frame.f_code.co_filename.startswith(folder):
                return None
            if event == "line" and n_lines < 10**9:
                n_lines += 1
                # Python answers no signal where it tells the line of a `with` once more, or that of a `try`
                if n_lines >= n and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(
                    ("with ", "try:")
                ):
                    n_lines = 10**9
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            result = llama("the cat", n=2, max_tokens=2, temperature=0, stream=stream)
            if stream:
                list(result)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return n_lines >= n

    before = sys.gettrace()
    try:
        for stream in (False, True):
            n = 1
            while interrupted(n, stream):
                # another thread may use it at once: nothing is left in place
                with ThreadPoolExecutor(1) as pool:
                    assert pool.submit(greedy, llama, 2).result(timeout=60)[0]["text"] == expected[0]["text"][:2], n
                n += 5
            assert n > 100
    finally:
        sys.settrace(before)
    assert greedy(llama) == expected


def test_closed_stream_gives_way_also_to_other_threads(make_llama):
    llama = make_llama()
    expected = greedy(llama)
    stream = llama("the cat", max_tokens=50, temperature=0, stream=True)
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ConcurrentUseError, match="another thread"):
            pool.submit(greedy, llama).result()
        stream.close()
        assert pool.submit(greedy, llama).result() == expected


def test_stream_that_is_collected_while_another_thread_computes_waits_for_nothing(slow):
    # its end must not wait for the lock, which the request of the other thread holds
    expected = greedy(slow)
    stream = slow("the cat", max_tokens=50, temperature=0, stream=True)
    next(stream)
    slow("a dog", max_tokens=1)  # takes over
    running = threading.Event()

    def compute():
        return slow("x", max_tokens=None, temperature=0, ignore_eos=True, stopping_criteria=lambda *_: running.set())

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(compute)
        running.wait()
        del stream
        gc.collect()
        assert not future.done()
        slow.abort()
        assert reasons_of(future.result()) == ["abort"]
    assert greedy(slow) == expected


def test_close_while_another_thread_generates_is_refused(slow_model):
    llama = Llama(slow_model, n_ctx=8192, n_ubatch=64, **ONE)
    running = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            llama, "x", max_tokens=None, temperature=0, ignore_eos=True, stopping_criteria=lambda *_: running.set()
        )
        running.wait()
        for _ in range(200):
            with pytest.raises(InUseError):
                llama.close()
        llama.abort()
        assert reasons_of(future.result()) == ["abort"]
    llama.close()
    with pytest.raises(ClosedError):
        llama("x")
