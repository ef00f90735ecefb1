"""One request at a time on one sequence: who may step it, and what became of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llamacy.errors import ClosedError, ConcurrentUseError, ContextLengthError, DecodeAbortedError, InUseError

if TYPE_CHECKING:
    from array import array

    from llamacy.core.scheduler import Scheduler
    from llamacy.core.sequence import Sequence
    from llamacy.core.vocab import Vocab
    from llamacy.generate.options import SamplingOptions


class Slot:
    """Hands one sequence to one request after the other.

    A request that was left in the middle (a stream that nobody reads on) gives way to the next one of the same thread,
    and to any once it is closed or garbage. While another thread still reads it, a new request is refused.

    Parameters
    ----------
    scheduler, sequence
        What runs, and the sequence that the requests share.
    """

    def __init__(self, scheduler: Scheduler, sequence: Sequence) -> None:
        self.scheduler = scheduler
        self.sequence = sequence
        self.lock = threading.RLock()
        self.current: Request | None = None

    def begin(self, tokens: array[int], options: SamplingOptions | None) -> Request:
        """Start a request: the sequence is emptied and holds the prompt, pending.

        Raises
        ------
        ConcurrentUseError
            Another thread reads a stream.
        ContextLengthError
            The prompt does not fit; the request before is still in place.
        """
        with self.lock:
            current = self.current
            if current is not None and current.thread != threading.get_ident() and current.thread_is_alive():
                raise ConcurrentUseError(
                    "another thread reads a stream of this model; read it to its end or close() it, or give each "
                    "thread a Llama of its own (models can share one Model)"
                )
            self.check_open()
            if len(tokens) > self.sequence.capacity:
                raise ContextLengthError(
                    f"the prompt has {len(tokens)} tokens, but the context has room for {self.sequence.capacity}; "
                    "shorten it, or use a larger n_ctx",
                    n_prompt=len(tokens),
                    n_ctx=self.sequence.capacity,
                )
            self.end(current)
            self.scheduler.reset(self.sequence)
            self.sequence.extend(tokens)
            self.sequence.sampler = None if options is None else options.chain()
            self.scheduler.add(self.sequence)
            self.current = Request(self, len(tokens))
            return self.current

    def check_open(self) -> None:
        """Raise when the context is closed.

        Raises
        ------
        ClosedError
            It is.
        """
        if self.scheduler.context.closed:
            raise ClosedError("this Llama is closed")

    def end(self, request: Request | None) -> None:
        """End a request; nothing happens when it has ended or another one took its place."""
        with self.lock:
            if request is not None and self.current is request:
                self.current = None
                self.scheduler.remove(self.sequence)
                self.sequence.sampler = None


class Request:
    """One request in progress.

    Attributes
    ----------
    n_prompt
        Tokens in the prompt.
    finish_reason
        None while it goes on, then ``"stop"``, ``"length"`` or ``"abort"``.
    """

    def __init__(self, slot: Slot, n_prompt: int) -> None:
        self.n_prompt = n_prompt
        self.finish_reason: str | None = None
        self.thread = threading.get_ident()
        self._slot = slot

    def thread_is_alive(self) -> bool:
        """Return whether the thread that last used the request still runs."""
        return any(thread.ident == self.thread for thread in threading.enumerate())

    def prefill(self) -> None:
        """Compute the prompt and sample nothing."""
        slot = self._slot
        with slot.lock:
            try:
                slot.scheduler.prefill(slot.sequence)
            except DecodeAbortedError:
                self.finish_reason = "abort"

    def tokens(self, max_tokens: int, vocab: Vocab, *, ignore_eos: bool = False) -> Iterator[int]:
        """Generate up to `max_tokens` tokens; ends after a token that ends the generation, which is yielded too.

        Raises
        ------
        InUseError
            A later request took the sequence.
        """
        slot, sequence = self._slot, self._slot.sequence
        next_token, is_eog, lock, get_ident = slot.scheduler.next_token, vocab.is_eog, slot.lock, threading.get_ident
        for _ in range(max_tokens):
            with lock:
                if slot.current is not self:
                    slot.check_open()
                    raise InUseError("a later request took over; a stream must be read before the next one begins")
                self.thread = get_ident()
                try:
                    token = next_token(sequence)
                except DecodeAbortedError:
                    self.finish_reason = "abort"
                    return
                except ValueError:
                    slot.check_open()
                    raise
            if not ignore_eos and is_eog(token):
                self.finish_reason = "stop"
                yield token
                return
            yield token
        if self.finish_reason is None:
            self.finish_reason = "length"

    def end(self) -> None:
        """End the request."""
        self._slot.end(self)
