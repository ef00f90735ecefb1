"""Streams of tokens and of text, against golden tokens and what Python decodes of their pieces."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.core.stream import TextStream, TokenStream
from llamacy.core.text import TextAssembler
from llamacy.errors import ClosedError, InUseError
from tests.helpers.arch import context_params, golden, model_file

PROMPT = golden("llama")["prompt"]
GREEDY = golden("llama")["greedy"]


class CountedLock:
    def __init__(self):
        self.lock = threading.RLock()
        self.n_taken = 0

    def __enter__(self):
        self.lock.acquire()
        self.n_taken += 1

    def __exit__(self, *exc_info):
        self.lock.release()


@pytest.fixture
def make_stream(make_model, make_context, closing):
    def make(max_tokens, *samplers, lock=None):
        context = make_context(make_model(model_file("llama")), **context_params("llama"))
        scheduler, sequence = closing(Scheduler(context)), Sequence(0, 128)
        sequence.extend(np.array(PROMPT, np.int32))
        sequence.sampler = SamplerChain([*samplers, Sampler.greedy()]) if max_tokens else None
        scheduler.add(sequence)
        stream = TokenStream(
            scheduler, sequence, context.model.vocab, max_tokens, lock=threading.RLock() if lock is None else lock
        )
        return stream, scheduler, sequence

    return make


def text_stream(stream, scheduler, stop=()):
    return TextStream(stream, TextAssembler(scheduler.context.model.vocab, stop))


def text_of(scheduler, tokens):
    vocab = scheduler.context.model.vocab
    return b"".join(vocab.piece(token) for token in tokens).decode("utf-8", "replace")


@pytest.mark.parametrize("n", [1, 7, len(GREEDY)])
def test_tokens_up_to_the_most_end_with_length(make_stream, n):
    stream, _, sequence = make_stream(n)
    assert (stream.n_generated, stream.finish_reason) == (0, None)
    assert list(stream) == GREEDY[:n]
    assert (stream.n_generated, stream.finish_reason) == (n, "length")
    assert sequence.tokens.tolist() == PROMPT + GREEDY[:n]
    assert list(stream) == []


def test_token_that_ends_the_generation_is_the_last_one(make_model, make_stream):
    vocab = make_model(model_file("llama")).vocab
    stream, _, _ = make_stream(8, Sampler.logit_bias(vocab.n_tokens, {vocab.eos: 1000.0}))
    assert list(stream) == [vocab.eos]
    assert (stream.n_generated, stream.finish_reason) == (1, "stop")
    stream, scheduler, _ = make_stream(8, Sampler.logit_bias(vocab.n_tokens, {vocab.eos: 1000.0}))
    assert list(text_stream(stream, scheduler)) == []
    assert (stream.n_generated, stream.finish_reason) == (1, "stop")


def test_no_tokens_computes_the_prompt(make_stream):
    stream, scheduler, sequence = make_stream(0)
    assert list(text_stream(stream, scheduler)) == []
    assert (stream.n_generated, stream.finish_reason) == (0, "length")
    assert sequence.n_past == len(PROMPT)


def test_text_is_that_of_the_tokens(make_stream):
    stream, scheduler, _ = make_stream(len(GREEDY))
    pieces = list(text_stream(stream, scheduler))
    assert "".join(pieces) == text_of(scheduler, GREEDY)
    assert all(pieces)
    assert stream.finish_reason == "length"


def test_stop_string_ends_text_and_tokens(make_stream):
    stream, scheduler, _ = make_stream(len(GREEDY))
    whole = text_of(scheduler, GREEDY)
    stop = whole[5:8]
    assert "".join(text_stream(stream, scheduler, [stop])) == whole[: whole.find(stop)]
    assert stream.finish_reason == "stop"
    assert 0 < stream.n_generated < len(GREEDY)
    assert list(stream) == []


def test_abort_ends_the_stream(make_stream):
    stream, scheduler, _ = make_stream(8)
    text = text_stream(stream, scheduler)
    next(stream)
    scheduler.abort()
    assert list(text) == []
    assert (stream.n_generated, stream.finish_reason) == (1, "abort")


def test_abort_ends_a_stream_of_no_tokens(make_stream):
    stream, scheduler, sequence = make_stream(0)
    scheduler.abort()
    assert list(stream) == []
    assert (sequence.n_past, stream.finish_reason) == (0, "abort")


def test_detached_stream_raises(make_stream):
    stream, scheduler, sequence = make_stream(8)
    next(stream)
    stream.detach()
    with pytest.raises(InUseError, match="later request"):
        next(stream)
    assert len(sequence) == len(PROMPT) + 1
    scheduler.context.close()
    with pytest.raises(ClosedError):
        next(stream)


def test_closed_context_raises(make_stream):
    stream, scheduler, _ = make_stream(8)
    next(stream)
    scheduler.context.close()
    with pytest.raises(ClosedError):
        next(stream)


def test_sequence_that_takes_no_part_raises(make_stream):
    stream, scheduler, sequence = make_stream(8)
    scheduler.remove(sequence)
    with pytest.raises(ValueError, match="takes no part"):
        next(stream)
    assert (stream.n_generated, stream.finish_reason) == (0, None)


def test_lock_is_held_for_each_token(make_stream):
    lock = CountedLock()
    stream, _, _ = make_stream(3, lock=lock)
    assert list(stream) == GREEDY[:3]
    assert lock.n_taken == 3


def test_thread_is_the_one_that_read_last(make_stream):
    stream, _, _ = make_stream(3)
    assert stream.thread == threading.get_ident()
    readers = []

    def read():
        next(stream)
        readers.append(threading.get_ident())

    reader = threading.Thread(target=read)
    reader.start()
    reader.join()
    assert [stream.thread] == readers
    next(stream)
    assert stream.thread == threading.get_ident()


@pytest.mark.parametrize("wrong", [{"scheduler": None}, {"sequence": None}, {"vocab": None}])
def test_stream_of_nothing_raises(make_stream, wrong):
    _, scheduler, sequence = make_stream(3)
    parts = {"scheduler": scheduler, "sequence": sequence, "vocab": scheduler.context.model.vocab, **wrong}
    with pytest.raises(TypeError):
        TokenStream(*parts.values(), 3, lock=threading.RLock())
