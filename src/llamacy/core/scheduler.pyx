# distutils: language = c++
"""Run sequences on a context: fill one batch from all of them, decode it, sample each row."""

cimport cython
from libc.stdint cimport int32_t

from llamacy.core._callback cimport has_stashed, raise_stashed
from llamacy.core._context_life cimport context_drop_threadpools
from llamacy.core._status cimport native_error
from llamacy.core.batch cimport Batch, batch_clear, batch_extend
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_decode
from llamacy.core.log cimport log_begin
from llamacy.core.sampler cimport SamplerChain, chain_sample, chain_sample_grammar
from llamacy.core.sampler_base cimport SamplerBase, sampler_complete
from llamacy.core.sequence cimport Sequence, sequence_append

from llamacy.errors import (
    ClosedError,
    ConcurrentUseError,
    DecodeAbortedError,
    DecodeFatalError,
    InvalidBatchError,
    LlamacyError,
    MemoryOperationError,
    MemorySlotError,
)

__all__ = ["Scheduler"]

cdef extern from "_interrupt.h" nogil:
    int LLAMACY_INTERRUPTED


@cython.no_gc_clear
cdef class Scheduler:
    """Steps that carry several sequences forward on one context.

    Parameters
    ----------
    context : Context
        Where they run.

    Notes
    -----
    A step takes one pending token of every sequence that generates, fills the rest of the batch with parts of the
    prompts that are not in the memory yet, decodes it, and samples a token for every sequence that has nothing pending
    any more. The sampled token is appended to its sequence, so it is what that sequence decodes in the next step.

    Cursors move only after the decode succeeded. After an abort or a failure inside they are set to what the memory
    really holds, so that stepping again goes on correctly.

    Thread safety: one thread at a time, but for `abort`.
    """

    def __cinit__(self, Context context not None):
        self.context = context
        self._batch = Batch(context.n_batch)
        self._sequences = []

    def __repr__(self):
        return f"<Scheduler of {len(self._sequences)} sequences on {self.context!r}>"

    def close(self):
        """Free the batch; the context stays open."""
        self._batch.close()
        self._sequences.clear()

    def add(self, Sequence sequence not None):
        """Let a sequence take part in the steps."""
        if sequence not in self._sequences:
            self._sequences.append(sequence)
        self._abort = 0

    def remove(self, Sequence sequence not None):
        """Let a sequence take part no more; its tokens stay in the memory."""
        if sequence in self._sequences:
            self._sequences.remove(sequence)

    def reset(self, Sequence sequence not None):
        """Empty a sequence and its part of the memory."""
        if self.context.memory is not None:
            self.context.memory.seq_rm(sequence.seq_id)
        sequence._n_past = 0
        sequence._n_tokens = 0
        sequence._sampled = -1

    def abort(self):
        """Stop the step that runs now, from any thread; it raises `DecodeAbortedError`, as does the next one."""
        self._abort = 1
        self.context._abort = 1

    def step(self):
        """Run one step.

        Returns
        -------
        list of (Sequence, int)
            Sequences that have a new token, and the token.

        Raises
        ------
        DecodeAbortedError
            `abort` was called.
        DecodeError
            The decode failed; cursors are what the memory holds.
        """
        _run(self)
        return [(sequence, (<Sequence>sequence)._sampled) for sequence in self._sequences
                if (<Sequence>sequence)._sampled >= 0]

    def next_token(self, Sequence sequence not None):
        """Run steps until a sequence has a new token, and return it.

        Raises
        ------
        DecodeAbortedError, DecodeError
            As for `step`.
        ValueError
            The sequence has nothing pending or no sampler, so no token can come.
        """
        return scheduler_next_token(self, sequence)

    def prefill(self, Sequence sequence not None):
        """Run steps until all tokens of a sequence are in the memory.

        Raises
        ------
        ValueError
            The sequence has a sampler, so that it would go on and on.
        """
        if sequence._sampler is not None:
            raise ValueError("a sequence with a sampler generates; set its sampler to None to compute its tokens only")
        while sequence in self._sequences and sequence._n_past < sequence._n_tokens:
            _run(self)


cdef int32_t scheduler_next_token(Scheduler self, Sequence sequence) except -1:
    if sequence not in self._sequences or sequence._sampler is None or sequence._n_tokens == sequence._n_past:
        raise ValueError(f"{sequence!r} takes no part in the steps, or has nothing to go on from")
    while True:
        _run(self)
        if sequence._sampled >= 0:
            return sequence._sampled


cdef int _run(Scheduler self) except -1:
    """Run one step, again when a signal handler that raised nothing interrupted it."""
    cdef Sequence sequence
    cdef object failure = None
    while True:
        log_begin()
        _fill(self)
        if self._abort:
            raise DecodeAbortedError("the step was aborted before it began", status=2)
        try:
            with nogil:
                context_decode(self.context, self._batch)
            break
        except DecodeAbortedError:
            _resync(self)
            if self._abort or self.context._abort != LLAMACY_INTERRUPTED:
                raise
        except (BufferError, ClosedError, ConcurrentUseError, InvalidBatchError, MemoryError, MemorySlotError):
            raise  # nothing was decoded
        except LlamacyError:
            _resync(self)
            raise
        except (IndexError, RuntimeError) as error:
            _resync(self)
            raise native_error(DecodeFatalError, f"decode failed inside: {error}") from None
        except BaseException:
            _resync(self)  # an interrupt that was answered by an exception
            raise
    if self.context._retired_pools:
        context_drop_threadpools(self.context)
    for sequence in self._sequences:
        sequence._n_past += sequence._n_taken
        sequence._n_taken = 0
    for sequence in self._sequences:
        if sequence._row >= 0 and sequence._sampler is not None:
            try:
                _sample(self, sequence)
            except BaseException as error:
                # the rows of the others are as good as gone unless they are sampled now
                failure = failure or error
    if failure is not None:
        _resync(self)
        raise failure
    if has_stashed():
        raise_stashed()
    return 0


cdef int _sample(Scheduler self, Sequence sequence) except -1:
    cdef SamplerChain sampler = sequence._sampler  # held: another thread may take it away
    cdef SamplerBase grammar = sequence._grammar
    cdef bint constrained = grammar is not None
    cdef int32_t token
    with nogil:
        if constrained:
            token = chain_sample_grammar(sampler, grammar, self.context, sequence._row, sequence.grammar_first)
            sequence.complete = sampler_complete(grammar)
        else:
            token = chain_sample(sampler, self.context, sequence._row)
        sequence_append(sequence, token)
    sequence._sampled = token
    return 0


cdef int _fill(Scheduler self) except -1:
    """Put what is pending into the batch: first one token of each sequence that generates, then prompts."""
    cdef Sequence sequence
    cdef Batch batch = self._batch
    cdef int n, space
    batch_clear(batch)
    for sequence in self._sequences:
        sequence._row = -1
        sequence._n_taken = 0
        sequence._sampled = -1
        if sequence._n_tokens - sequence._n_past == 1 and batch._n_tokens < batch.capacity:
            _take(batch, sequence, 1)
    for sequence in self._sequences:
        n = sequence._n_tokens - sequence._n_past
        space = batch.capacity - batch._n_tokens
        if n > 1 and space > 0:
            _take(batch, sequence, min(n, space))
    return 0


cdef int _take(Batch batch, Sequence sequence, int n) except -1:
    """Put the next `n` tokens of a sequence into the batch; the last pending one has its row output."""
    cdef bint last = sequence._n_past + n == sequence._n_tokens and sequence._sampler is not None
    batch_extend(batch, sequence._tokens + sequence._n_past, n, sequence._n_past, sequence.seq_id, last)
    sequence._n_taken = n
    if last:
        sequence._row = batch._n_tokens - 1
    return 0


cdef int _resync(Scheduler self) except -1:
    """Set the cursors to what the memory holds after a step that ended in the middle.

    A sequence whose tokens are all in the memory, but none was sampled, gives its last one back: decoding it again
    brings the row to sample from.
    """
    cdef Sequence sequence
    memory = self.context.memory
    # a part of recurrent state can't be taken back, so what it holds now is unknown
    recurrent = memory is not None and memory.kind in ("recurrent", "hybrid")
    for sequence in self._sequences:
        if sequence._n_taken:
            sequence._n_taken = 0
            if recurrent:
                _forget(memory, sequence)
            elif memory is not None:
                sequence._n_past = memory.seq_pos_max(sequence.seq_id) + 1
        if 0 < sequence._n_tokens == sequence._n_past and sequence._sampled < 0 and sequence._sampler is not None:
            try:
                memory.seq_rm(sequence.seq_id, sequence._n_past - 1)
                sequence._n_past -= 1
            except MemoryOperationError:
                _forget(memory, sequence)
    return 0


cdef int _forget(object memory, Sequence sequence) except -1:
    memory.seq_rm(sequence.seq_id)
    sequence._n_past = 0
    return 0
