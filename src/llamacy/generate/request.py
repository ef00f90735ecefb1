"""One request at a time on one sequence: who may step it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from llamacy.core.stream import TokenStream
from llamacy.errors import ClosedError, ConcurrentUseError, ContextLengthError

if TYPE_CHECKING:
    from array import array

    from llamacy.core.sampler import Sampler
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
    vocab
        Vocabulary of the model.
    """

    def __init__(self, scheduler: Scheduler, sequence: Sequence, vocab: Vocab) -> None:
        self.scheduler = scheduler
        self.sequence = sequence
        self.lock = threading.RLock()
        self._vocab = vocab
        self._current: TokenStream | None = None

    def begin(
        self,
        tokens: array[int],
        max_tokens: int,
        options: SamplingOptions,
        grammar: Sampler | None = None,
        *,
        grammar_first: bool = False,
    ) -> TokenStream:
        """Start a request: the sequence is emptied and holds the prompt, pending.

        Raises
        ------
        ConcurrentUseError
            Another thread reads a stream.
        ContextLengthError
            The prompt does not fit; the request before is still in place.
        """
        scheduler, sequence = self.scheduler, self.sequence
        with self.lock:
            current = self._current
            if current is not None and current.thread != threading.get_ident() and _is_alive(current.thread):
                raise ConcurrentUseError(
                    "another thread reads a stream of this model; read it to its end or close() it, or give each "
                    "thread a Llama of its own (models can share one Model)"
                )
            if scheduler.context.closed:
                raise ClosedError("this Llama is closed")
            if len(tokens) > sequence.capacity:
                raise ContextLengthError(
                    f"the prompt has {len(tokens)} tokens, but the context has room for {sequence.capacity}; "
                    "shorten it, or use a larger n_ctx",
                    n_prompt=len(tokens),
                    n_ctx=sequence.capacity,
                )
            self.end(current)
            scheduler.reset(sequence)
            sequence.extend(tokens)
            sequence.sampler = options.chain(self._vocab, tokens, n_ctx=sequence.capacity) if max_tokens > 0 else None
            sequence.grammar = grammar
            sequence.grammar_first = grammar_first
            scheduler.add(sequence)
            self._current = TokenStream(scheduler, sequence, self._vocab, max_tokens, lock=self.lock)
            return self._current

    def end(self, stream: TokenStream | None) -> None:
        """End a request; nothing happens when it has ended or another one took its place."""
        with self.lock:
            if stream is not None and self._current is stream:
                self._current = None
                stream.detach()
                self.scheduler.remove(self.sequence)
                self.sequence.sampler = self.sequence.grammar = None


def _is_alive(thread: int) -> bool:
    return any(other.ident == thread for other in threading.enumerate())
