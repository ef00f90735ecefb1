"""Logits processors and stopping criteria: what they get, what they may do, and what they must not break."""

from __future__ import annotations

import contextlib
import ctypes
import threading

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.logits_function import LogitsFunction
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.errors import ClosedError, ConcurrentUseError
from llamacy.llama import Llama
from tests.helpers import data, toy_tokens

PROMPT = toy_tokens("the cat")
SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.POINTER(ctypes.c_float),
    ctypes.c_int32,
)  # fmt: skip


@pytest.fixture
def llama(closing):
    return closing(Llama(data("llama.gguf"), n_ctx=128, n_threads=1, n_threads_batch=1))


def text_of(result):
    return result["choices"][0]["text"]


@pytest.fixture
def expected(llama):
    return text_of(llama(PROMPT, max_tokens=12, temperature=0))


def test_arrays_are_the_memory_itself(llama):
    seen = []

    def look(input_ids, scores):
        assert (input_ids.dtype, scores.dtype) == (np.int32, np.float32)
        assert scores.shape == (llama.n_vocab(),)
        assert not input_ids.flags.owndata
        assert not scores.flags.owndata
        assert scores.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            input_ids[0] = 5
        np.testing.assert_array_equal(scores, np.asarray(llama.context.logits(-1)))
        seen.append(input_ids.tolist())

    tokens = list(llama.generate(PROMPT, max_tokens=3, temperature=0, logits_processor=look))
    assert seen == [PROMPT + tokens[:n] for n in range(3)]


def test_criterion_sees_the_new_token_and_cannot_write(llama):
    seen = []

    def look(input_ids, scores):
        assert not scores.flags.writeable
        seen.append(input_ids.tolist())
        return len(seen) == 2

    tokens = list(llama.generate(PROMPT, max_tokens=9, temperature=0, stopping_criteria=look))
    assert seen == [PROMPT + tokens[:1], PROMPT + tokens[:2]]
    assert len(tokens) == 2


def only(token):
    def change(input_ids, scores):
        scores[:] = -np.inf
        scores[token] = 0.0

    return change


def returning(token):
    def change(input_ids, scores):
        changed = np.full_like(scores, -np.inf)
        changed[token] = 0.0
        return changed

    return change


@pytest.mark.parametrize("make", [only, returning])
def test_processor_decides(llama, make):
    assert list(llama.generate(PROMPT, max_tokens=3, logits_processor=make(270))) == [270] * 3


def test_several_processors_run_in_their_order(llama):
    assert list(llama.generate(PROMPT, max_tokens=2, logits_processor=[only(270), only(271)])) == [271] * 2
    options = {"logits_processor": (only(270),), "stopping_criteria": [lambda *_: False, lambda ids, _: len(ids) > 9]}
    assert list(llama.generate(PROMPT, max_tokens=9, **options)) == [270]


def test_each_choice_has_its_own_tokens(closing):
    llama = closing(Llama(data("llama.gguf"), n_ctx=128, n_seq_max=2, n_threads=1, n_threads_batch=1))
    seen = []
    llama(["the cat", "a dog"], max_tokens=4, temperature=0, logits_processor=lambda ids, _: seen.append(ids.tolist()))
    first, second = toy_tokens("the cat"), toy_tokens("a dog")
    assert {tuple(ids[: len(first)]) if ids[2] == first[2] else tuple(ids[: len(second)]) for ids in seen} == {
        tuple(first), tuple(second),
    }  # fmt: skip
    assert len(seen) == 8


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"logits_processor": 5}, TypeError, "logits_processor must be callable"),
        ({"logits_processor": [lambda *_: None, "x"]}, TypeError, "logits_processor must be callable"),
        ({"stopping_criteria": 5}, TypeError, "stopping_criteria must be callable"),
        ({"logits_processor": lambda _, scores: scores[:5]}, ValueError, "shape"),
        ({"logits_processor": lambda *_: "x"}, ValueError, "returned shape"),
    ],
)
def test_wrong_callback_raises_and_the_next_request_is_right(llama, expected, options, error, message):
    with pytest.raises(error, match=message):
        llama(PROMPT, max_tokens=4, **options)
    assert text_of(llama(PROMPT, max_tokens=12, temperature=0)) == expected


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_row_without_a_choice_is_an_error(llama, expected, value):
    from llamacy.errors import SamplerError

    def spoil(input_ids, scores):
        scores[:] = value

    with pytest.raises(SamplerError):
        llama(PROMPT, max_tokens=4, logits_processor=spoil)
    assert text_of(llama(PROMPT, max_tokens=12, temperature=0)) == expected


def use_again(llama):
    llama("other", max_tokens=1)


def stream_again(llama):
    next(llama("other", max_tokens=1, stream=True))


def generate_again(llama):
    next(llama.generate([5], max_tokens=1))


def reset(llama):
    llama.reset()


def decode(llama):
    with Batch(2) as batch:
        batch.extend([270], llama.context.memory.seq_pos_max(0) + 1)
        llama.context.decode(batch)


def step(llama):
    llama._engine.slots.scheduler.step()


@pytest.mark.parametrize("use", [use_again, stream_again, generate_again, reset, decode, step])
@pytest.mark.parametrize("name", ["logits_processor", "stopping_criteria"])
@pytest.mark.parametrize("stream", [False, True])
def test_use_of_the_model_that_calls_is_refused_and_nothing_is_mixed_up(llama, expected, use, name, stream):
    def call(input_ids, scores):
        if len(input_ids) > len(PROMPT) + 1:
            use(llama)

    with pytest.raises(ConcurrentUseError):
        result = llama(PROMPT, max_tokens=12, temperature=0, stream=stream, **{name: call})
        list(result)
    assert text_of(llama(PROMPT, max_tokens=12, temperature=0)) == expected


def test_refusal_that_a_callback_survives_changes_nothing(llama, expected):
    def call(input_ids, scores):
        for use in (use_again, reset, step, lambda llama: llama.close()):
            with pytest.raises((ConcurrentUseError, RuntimeError, BufferError)):
                use(llama)
        llama.tokenize("text is no use of the context")

    assert text_of(llama(PROMPT, max_tokens=12, temperature=0, logits_processor=call)) == expected


def test_another_llama_of_the_same_model_may_be_used(llama, expected):
    with Llama(llama.model, n_ctx=128, n_threads=1, n_threads_batch=1) as other:
        texts = []

        def call(input_ids, scores):
            texts.append(text_of(other(PROMPT, max_tokens=12, temperature=0)))

        assert text_of(llama(PROMPT, max_tokens=12, temperature=0, stopping_criteria=call)) == expected
        assert set(texts) == {expected}


def test_edit_of_the_memory_in_a_callback_is_made_good(llama, expected):
    def edit(input_ids, scores):
        llama.context.memory.clear()

    assert text_of(llama(PROMPT, max_tokens=12, temperature=0, stopping_criteria=edit)) == expected
    assert text_of(llama(PROMPT, max_tokens=12, temperature=0)) == expected


def test_abort_in_a_callback_ends_the_request(llama, expected):
    result = llama(PROMPT, max_tokens=12, temperature=0, stopping_criteria=lambda *_: llama.abort())
    assert result["choices"][0]["finish_reason"] == "abort"
    assert text_of(result) == expected[: len(text_of(result))]
    assert text_of(llama(PROMPT, max_tokens=12, temperature=0)) == expected


def test_array_that_was_kept_is_never_dangling():
    llama = Llama(data("llama.gguf"), n_ctx=128, n_threads=1, n_threads_batch=1)
    kept = []
    tokens = list(
        llama.generate(PROMPT, max_tokens=3, temperature=0, logits_processor=lambda *arrays: kept.append(arrays))
    )
    with pytest.raises(BufferError):
        llama.close()
    assert not llama.closed
    assert list(llama.generate(PROMPT, max_tokens=3, temperature=0)) == tokens
    ids = [ids for ids, _ in kept]
    assert all(np.isfinite(scores).all() for _, scores in kept)
    kept.clear()
    llama.close()
    # the tokens belong to the sequence, which lives as long as they are looked at
    assert ids[0].tolist() == PROMPT
    del llama
    assert ids[2].tolist() == PROMPT + tokens[:2]


def test_exception_of_a_callback_comes_out_of_a_with_block():
    class Failure(Exception):
        pass

    def fail(input_ids, scores):
        raise Failure  # its traceback holds the array

    with pytest.raises(Failure), Llama(data("llama.gguf"), n_ctx=64, n_threads=1) as llama:
        llama(PROMPT, logits_processor=fail)
    with contextlib.suppress(BufferError):
        llama.close()


def test_event_stops_after_the_next_token(llama):
    event = threading.Event()
    stream = llama(PROMPT, max_tokens=50, temperature=0, ignore_eos=True, stream=True, stopping_criteria=event)
    for _ in range(5):
        next(stream)
    event.set()
    rest = list(stream)
    assert rest[-1]["choices"][0]["finish_reason"] == "stop"
    assert rest[-1]["usage"]["completion_tokens"] <= 7


# functions of C


def capsule_of(function, name=b"llamacy.logits_function", data=None):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = make(ctypes.cast(function, ctypes.c_void_p), name, None)
    if data is not None:
        set_context = ctypes.pythonapi.PyCapsule_SetContext
        set_context.argtypes = [ctypes.py_object, ctypes.c_void_p]
        set_context(capsule, ctypes.cast(ctypes.pointer(data), ctypes.c_void_p))
    return capsule


NAME = b"llamacy.logits_function"  # the capsule keeps a pointer to it


def test_c_function_changes_the_row_and_gets_its_data(llama):
    calls = []
    number = ctypes.c_int(270)

    @SIGNATURE
    def change(pointer, tokens, n_tokens, logits, n_vocab):
        token = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0]
        calls.append([tokens[i] for i in range(n_tokens)])
        assert n_vocab == llama.n_vocab()
        logits[token] = 1000.0
        return 0

    function = LogitsFunction(capsule_of(change, NAME, number))
    assert list(llama.generate(PROMPT, max_tokens=3, temperature=0, logits_processor=function)) == [270] * 3
    assert calls == [PROMPT + [270] * n for n in range(3)]
    assert "LogitsFunction at 0x" in repr(function)


def test_c_function_as_a_criterion_stops(llama):
    @SIGNATURE
    def enough(pointer, tokens, n_tokens, logits, n_vocab):
        return int(n_tokens >= len(PROMPT) + 4)

    function = LogitsFunction(capsule_of(enough, NAME))
    result = llama(PROMPT, max_tokens=30, temperature=0, ignore_eos=True, stopping_criteria=[function])
    assert result["usage"]["completion_tokens"] == 4
    assert result["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("wrong", [None, 5, object(), "capsule"])
def test_what_is_no_such_capsule_raises(wrong):
    if wrong == "capsule":
        wrong = capsule_of(SIGNATURE(lambda *_: 0), b"another.name")
    with pytest.raises(TypeError, match="PyCapsule named"):
        LogitsFunction(wrong)


# the layer below, where nothing holds the row


@pytest.fixture
def make_scheduled(make_model, make_context, closing):
    def make():
        context = make_context(make_model(), n_ctx=64)
        scheduler, sequence = closing(Scheduler(context)), Sequence(0, 64)
        sequence.extend(np.array(PROMPT, np.int32))
        sequence.sampler = SamplerChain([Sampler.greedy()])
        scheduler.add(sequence)
        return scheduler, sequence

    return make


@pytest.mark.parametrize("attribute", ["processors", "criteria"])
def test_core_callback_that_closes_the_context_is_refused(make_scheduled, attribute):
    scheduler, sequence = make_scheduled()
    setattr(sequence, attribute, [lambda *_: scheduler.context.close()])
    with pytest.raises(BufferError):
        scheduler.next_token(sequence)
    setattr(sequence, attribute, ())
    if attribute == "processors":
        assert scheduler.next_token(sequence) >= 0
    scheduler.context.close()
    with pytest.raises(ClosedError):
        scheduler.step()


def test_core_row_that_was_kept_says_that_it_is_gone(make_scheduled):
    scheduler, sequence = make_scheduled()
    kept = []
    sequence.processors = [lambda _, row: kept.append(row)]
    scheduler.next_token(sequence)
    scheduler.next_token(sequence)
    with pytest.raises(BufferError):
        memoryview(kept[0])
    assert len(memoryview(kept[1])) == scheduler.context.n_vocab
    scheduler.context.close()
    with pytest.raises((BufferError, ClosedError)):
        memoryview(kept[1])
