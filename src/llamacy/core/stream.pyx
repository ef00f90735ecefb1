# distutils: language = c++
"""What a sequence generates, piece by piece: its tokens, or its text."""

from libc.stdint cimport int32_t

from llamacy.core.decoding cimport context_handle
from llamacy.core.scheduler cimport Scheduler, scheduler_next_token
from llamacy.core.sequence cimport SEQUENCE_GOES_ON, SEQUENCE_STOPPED, Sequence, sequence_begin
from llamacy.core.text cimport TextAssembler, assembler_feed_token
from llamacy.core.vocab cimport Vocab, vocab_is_eog

from llamacy.errors import DecodeAbortedError, InUseError

__all__ = ["TextStream", "TokenStream"]

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef extern from "pythread.h" nogil:
    unsigned long PyThread_get_thread_ident() noexcept


cdef class TokenStream:
    """Iterate over the tokens that a sequence generates.

    A token that ends the generation is the last one, as is one after which the grammar of the sequence lets nothing
    follow.

    Parameters
    ----------
    scheduler : Scheduler
        What carries the sequence forward.
    sequence : Sequence
        It takes part in the steps of the scheduler.
    vocab : Vocab
        Says which tokens end the generation.
    max_tokens : int
        Most tokens to generate. With 0, what is pending is computed and nothing generated.
    lock : context manager
        Held while a token is made, so that whoever holds it finds the sequence between two steps.

    Attributes
    ----------
    n_generated
        Tokens that were read so far. Where several sequences take part in the steps, this one may be further ahead.
    finish_reason
        None while it goes on, then ``"stop"``, ``"length"`` or ``"abort"``.
    thread
        Identifier of the thread that took the last token, at first of the one that made the stream.

    Raises
    ------
    InUseError
        `detach` was called.
    GrammarError
        No token that the grammar allows is left.
    DecodeError
        As for `Scheduler.step`, but that an abort ends the stream.

    Thread safety: one thread at a time.
    """

    def __cinit__(
        self, Scheduler scheduler not None, Sequence sequence not None, Vocab vocab not None, int max_tokens, *, lock
    ):
        self._scheduler = scheduler
        self._sequence = sequence
        self._vocab = vocab
        self._lock = lock
        sequence_begin(sequence, vocab, max(max_tokens, 0))
        self.thread = PyThread_get_thread_ident()

    def __iter__(self):
        return self

    def __next__(self):
        cdef int32_t token = stream_next_token(self)
        if token < 0:
            raise StopIteration
        return token

    @property
    def detached(self):
        """Whether `detach` was called."""
        return self._detached

    def finish(self, str reason):
        """End the stream for a reason of its reader; the sequence takes part in no more steps."""
        if self.finish_reason is None:
            self.finish_reason = reason
            if not self._detached:
                self._sequence._end = SEQUENCE_STOPPED

    def detach(self):
        """Take the sequence away: the stream makes no more tokens."""
        self._detached = True


cdef class TextStream:
    """Iterate over the text that a sequence generates, in pieces that are not empty.

    Parameters
    ----------
    tokens : TokenStream
        Where it comes from. Its finish reason becomes ``"stop"`` at a stop string of the assembler.
    assembler : TextAssembler
        Makes text of the tokens.

    Thread safety: one thread at a time.
    """

    def __cinit__(self, TokenStream tokens not None, TextAssembler assembler not None):
        self._tokens = tokens
        self._assembler = assembler

    def __iter__(self):
        return self

    def __next__(self):
        cdef TokenStream tokens = self._tokens
        cdef TextAssembler assembler = self._assembler
        cdef int32_t token
        while not assembler.stopped:
            token = stream_next_token(tokens)
            # a token that ends the generation leaves no text
            text = assembler_feed_token(assembler, token) if tokens.finish_reason is None else assembler.finish()
            if assembler.stopped:
                tokens.finish("stop")
            if text:
                return text
            if token < 0:
                break
        raise StopIteration


cdef int32_t stream_next_token(TokenStream self) except -2:
    cdef Sequence sequence = self._sequence
    cdef int32_t token
    if self.finish_reason is not None:
        return -1
    if _is_over(self):
        self.finish_reason = "stop" if sequence._end == SEQUENCE_STOPPED else "length"
        return -1
    with self._lock:
        if self._detached:
            context_handle(self._scheduler.context)
            raise InUseError("a later request took over; a stream must be read before the next one begins")
        self.thread = PyThread_get_thread_ident()
        try:
            if sequence._n_max == 0:
                self._scheduler.prefill(sequence)
                self.finish_reason = "length"
                return -1
            if self.n_generated == sequence._n_generated:
                scheduler_next_token(self._scheduler, sequence)
                # a decode of one token doesn't look for Ctrl-C, and it is better raised here than in who reads on
                PyErr_CheckSignals()
        except DecodeAbortedError:
            self.finish_reason = "abort"
            return -1
        except ValueError:
            context_handle(self._scheduler.context)  # when it is closed, that is what to say
            raise
        token = sequence._generated[self.n_generated]
        self.n_generated += 1
        if vocab_is_eog(self._vocab, token):
            self.finish_reason = "stop"
        return token


cdef bint _is_over(TokenStream self) noexcept:
    """Whether the sequence has come to its end, and all that it generated was read."""
    cdef Sequence sequence = self._sequence
    return not self._detached and sequence._end != SEQUENCE_GOES_ON and self.n_generated == sequence._n_generated
