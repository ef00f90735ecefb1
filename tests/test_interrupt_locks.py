"""Ctrl-C wherever Python answers it, in what takes a lock without waiting: no lock stays taken."""

from __future__ import annotations

import contextlib
import dis
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from llamacy import Embedding, Llama
from llamacy.generate.embed.engine import EmbeddingEngine
from llamacy.generate.loaded import LoadedModel
from llamacy.generate.slots import Slots
from tests.helpers import data
from tests.helpers.locks import is_free

PARAMS = {"n_ctx": 64, "n_threads": 1, "n_threads_batch": 1}
# the loop of Python's interpreter looks for signals when such an instruction has been carried out
ANSWERS = ("CALL", "JUMP_BACKWARD", "RESUME")


class Interrupt:
    """Raises KeyboardInterrupt at the n-th place of some functions where Python answers Ctrl-C.

    A signal could come at the right moment by chance only; the place that a trace function raises at is handled as the
    instruction is that comes next.
    """

    def __init__(self, n: int, *functions) -> None:
        self._left = n
        self._codes = {function.__code__: self._places(function.__code__) for function in functions}

    @property
    def raised(self) -> bool:
        return self._left <= 0

    @staticmethod
    def _places(code) -> set[int]:
        instructions = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
        return {after.offset for before, after in itertools.pairwise(instructions) if before.opname.startswith(ANSWERS)}

    def _trace(self, frame, event, _):
        places = self._codes.get(frame.f_code)
        if places is None:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.raised and frame.f_lasti in places:
            self._left -= 1
            if self.raised:
                raise KeyboardInterrupt
        return self._trace

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_) -> None:
        sys.settrace(None)


@pytest.fixture(autouse=True)
def tracer():
    before = sys.gettrace()
    yield
    sys.settrace(before)


def interrupts(*functions):
    """Yield an `Interrupt` for each place, until one is not reached any more."""
    n = 0
    while True:
        n += 1
        interrupt = Interrupt(n, *functions)
        yield interrupt
        if not interrupt.raised:
            break
    assert n > 3


def in_another_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_close_of_a_llama():
    for interrupt in interrupts(Llama.close):
        llama = Llama(data("llama.gguf"), **PARAMS)
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            llama.close()
        assert is_free(llama._engine.slots.lock)
        in_another_thread(llama.close)
        assert llama.closed


def test_close_of_an_embedding(bert_path):
    for interrupt in interrupts(EmbeddingEngine.close):
        embedding = Embedding(bert_path, n_threads=1, n_threads_batch=1)
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            embedding.close()
        assert is_free(embedding._engine.lock)
        in_another_thread(embedding.close)
        assert embedding.closed


@pytest.mark.parametrize("at_once", [True, False])
def test_end_of_a_stream(closing, at_once):
    llama = closing(Llama(data("llama.gguf"), **PARAMS))
    for interrupt in interrupts(Slots.end):
        stream = llama("the cat", max_tokens=4, temperature=0, stream=True)
        next(stream)
        if not at_once:
            llama("a dog", max_tokens=1)  # takes over, so that there is nothing to end
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            stream.close()
        assert is_free(llama._engine.slots.lock)
        del stream
        in_another_thread(lambda: llama("the cat", max_tokens=1))


def test_change_between_requests(closing):
    llama = closing(Llama(data("llama.gguf"), **PARAMS))
    llama.embed("a")
    lock, embedding = llama._engine.slots.lock, llama._embedding.lock
    changing = LoadedModel._changing.__wrapped__
    for interrupt in interrupts(changing, LoadedModel.set_control_vector):
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            llama.set_control_vector(None)
        assert is_free(lock)
        assert is_free(embedding)
