# distutils: language = c++
"""Run sequences on a context: fill one batch from all of them, decode it, sample each row."""

cimport cython
from libc.stdint cimport int32_t

from llamacy.core._callback cimport has_stashed, raise_stashed
from llamacy.core._status cimport native_error
from llamacy.core.batch cimport Batch
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_decode
from llamacy.core.log cimport log_begin
from llamacy.core.sequence cimport (
    Sequence,
    sequence_copy,
    sequence_drop,
    sequence_forget,
    sequence_truncate,
)
from llamacy.core._step cimport step_choose, step_fill, step_record_prompt

from llamacy.errors import (
    ClosedError,
    ConcurrentUseError,
    DecodeAbortedError,
    DecodeFatalError,
    InvalidBatchError,
    LlamacyError,
    MemoryOperationError,
    MemorySlotError,
    StateError,
)

__all__ = ["Scheduler"]

cdef extern from "_interrupt.h" nogil:
    int LLAMACY_INTERRUPTED

cdef extern from "_clock.h" nogil:
    double llamacy_clock() noexcept

cdef double LONG_AGO = 1e-9             # on llamacy_clock()


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
    any more. The sampled token is appended to its sequence, so it is what that sequence decodes in the next step. A
    sequence that has come to its end takes part no more. Prompts take turns, so that none waits for a long one.

    Cursors move only after the decode succeeded. After an abort or a failure inside they are set to what the memory
    really holds, so that stepping again goes on correctly. When somebody else has decoded, or changed the memory or the
    adapters, all tokens of a sequence are computed anew.

    Thread safety: one thread at a time, but for `abort`; a second call raises `ConcurrentUseError`, also one that comes
    from a processor or a criterion.
    """

    def __cinit__(self, Context context not None):
        self.context = context
        self._batch = Batch(context.n_batch)
        self._sequences = []
        self._idle = []
        if context.n_seq_max > 1 and not context._streams and context.memory is not None:
            self._n_window = context.model.n_swa
        _see_others(self)

    def __repr__(self):
        return f"<Scheduler of {len(self._sequences)} sequences on {self.context!r}>"

    @property
    def running(self):
        """Whether a step runs now."""
        return self._running

    @property
    def aborted(self):
        """Whether `abort` was called since the first sequence was added."""
        return bool(self._abort)

    def close(self):
        """Free the batch; the context stays open."""
        self._batch.close()
        self._sequences.clear()

    def add(self, Sequence sequence not None):
        """Let a sequence take part in the steps; when no other one does, an abort from before is over."""
        if not self._sequences:
            self._abort = 0
        if sequence not in self._sequences:
            _see_others(self)
            _check_basis(self, sequence)
            self._sequences.append(sequence)

    def remove(self, Sequence sequence not None):
        """Let a sequence take part no more; its tokens stay in the memory."""
        if sequence in self._sequences:
            self._sequences.remove(sequence)

    def reset(self, Sequence sequence not None):
        """Empty a sequence and its part of the memory."""
        _check_idle(self)
        _unmix(sequence)
        _forget(self, sequence)
        sequence_truncate(sequence, 0)

    def set_idle(self, sequences):
        """Say which sequences take no part and may be emptied, the first one first, when the memory lacks room.

        Parameters
        ----------
        sequences : iterable of Sequence
            In place of those that were named before.
        """
        cdef list idle = list(sequences)
        _check_idle(self)
        for sequence in idle:
            if not isinstance(sequence, Sequence):
                raise TypeError(f"idle are sequences, not {sequence!r:.80}")
        self._idle = idle

    def holds(self, Sequence sequence not None):
        """Return whether the memory still holds the tokens that are not pending, computed as they would be now.

        It does not when somebody else has used the context, or when other adapters were set.
        """
        memory = self.context.memory
        _see_others(self)
        return (
            memory is not None
            and sequence._n_past > 0
            and sequence._basis == self._basis
            and memory.seq_pos_max(sequence.seq_id) == sequence._n_past - 1
        )

    def common(self, Sequence sequence not None, const int32_t[::1] tokens):
        """Return how many of these tokens, from the first on, a sequence has in the memory.

        Those behind a shift don't count: they were computed with tokens that are gone.
        """
        cdef int n = 0
        cdef int most = <int>min(sequence._n_past, sequence._n_sound, tokens.shape[0])
        if not self.holds(sequence):
            return 0
        while n < most and sequence._tokens[n] == tokens[n]:
            n += 1
        return n

    def cut(self, Sequence sequence not None, int n):
        """Let a sequence hold no more than its first tokens, and nothing be pending.

        Returns
        -------
        bool
            False when the memory can't be cut there; nothing was changed.

        Raises
        ------
        ValueError
            The number is negative.
        """
        if n < 0:
            raise ValueError(f"n must be from 0, not {n}")
        _check_idle(self)
        if n < sequence._n_past and not _try_cut(self, sequence, n):
            return False
        sequence_truncate(sequence, n)
        return True

    def replace(self, Sequence sequence not None, restore):
        """Let a function put something else into the memory of a sequence, and the sequence hold that.

        Parameters
        ----------
        sequence : Sequence
            Its pending tokens are dropped.
        restore : callable
            Changes the memory of this sequence only, and returns the tokens that it holds then, a buffer of int32.

        Raises
        ------
        ContextLengthError
            These are more than the sequence can hold; it is empty.
        StateError
            The memory holds something else; the sequence is empty.

        What `restore` raises goes through. The sequence holds what it held before when nothing was changed, and is
        empty otherwise.
        """
        cdef const int32_t[::1] tokens
        memory = self.context.memory
        _check_idle(self)
        _unmix(sequence)
        _see_others(self)
        n_edits = self.context._n_edits
        try:
            tokens = restore()
            sequence_truncate(sequence, 0)
            sequence.extend(tokens)
            sequence._n_past = sequence._n_tokens
            sequence._basis = self._basis
            if memory.seq_pos_max(sequence.seq_id) != sequence._n_past - 1:
                raise StateError(
                    f"the memory holds sequence {sequence.seq_id} up to position "
                    f"{memory.seq_pos_max(sequence.seq_id)}, not {sequence._n_past} tokens"
                )
        except BaseException:
            if self.context._n_edits != n_edits:
                memory.seq_rm(sequence.seq_id)
                sequence_forget(sequence)
                sequence_truncate(sequence, 0)
            raise
        finally:
            self._n_edits = self.context._n_edits

    def resume(self, Sequence sequence not None, const int32_t[::1] tokens):
        """Let a sequence hold these tokens, and keep what the memory has of their beginning.

        At least the last token is pending afterwards: decoding it brings the row to sample from. Where the memory can't
        be cut (recurrent state, a sliding window that has moved on), or holds something else than the ledger says
        (another user of the context, other adapters), the sequence is emptied, and all tokens are pending.

        Returns
        -------
        int
            Tokens that were in the memory already.

        Raises
        ------
        ContextLengthError
            There are more tokens than the sequence can hold; nothing was changed.
        """
        cdef int n
        _check_idle(self)
        if tokens.shape[0] > sequence.capacity:
            sequence.extend(tokens)  # raises
        _unmix(sequence)
        n = min(self.common(sequence, tokens), <int>tokens.shape[0] - 1)
        if n <= 0 or not self.cut(sequence, n):
            self.reset(sequence)
            n = 0
        sequence.extend(tokens[n:])
        return n

    def settle(self, Sequence sequence not None):
        """Drop the pending tokens of a sequence: it holds what is in the memory."""
        _unmix(sequence)
        sequence_truncate(sequence, sequence._n_past)

    def copy(self, Sequence source not None, Sequence target not None):
        """Let a sequence hold what another one holds; where the memory allows, they share it.

        Raises
        ------
        MemoryOperationError
            The memory can't copy the sequence as it is now.
        """
        if source is target:
            return
        self.reset(target)
        if source._n_past and self.context.memory is not None:
            self.context.memory.seq_cp(source.seq_id, target.seq_id)
            self._n_edits = self.context._n_edits
        sequence_copy(target, source)
        target._basis = source._basis

    def set_adapters(self, adapters, sequences=()):
        """Let the context apply these LoRA adapters from the next step on, while some sequences keep what they hold.

        More tokens can follow theirs, computed with the new adapters, until they are settled: from then on they hold
        no more than what the adapters before have computed. When the memory loses these tokens in between, steps raise
        `MemoryOperationError`, as nothing can compute them anew. All other sequences are computed anew, unless these
        adapters have computed what they hold.

        Parameters
        ----------
        adapters : sequence of (LoraAdapter, float)
            As for `Context.set_adapters_lora`.
        sequences : iterable of Sequence
            Those that keep what they hold, where it was computed with the adapters of until now.

        Raises
        ------
        AdapterError, ClosedError
            As for `Context.set_adapters_lora`; nothing was changed.
        """
        cdef Sequence sequence
        cdef tuple pairs = tuple(adapters)
        _check_idle(self)
        _see_others(self)
        if pairs == tuple(self.context._adapters):
            return
        keeping = [sequence for sequence in sequences if sequence._basis == self._basis]
        self.context.set_adapters_lora(pairs)
        _see_others(self)
        for sequence in keeping:
            if sequence._basis_before is None:
                sequence._basis_before = sequence._basis
            sequence._basis = self._basis
            sequence._n_sound = min(sequence._n_sound, sequence._n_past)
            sequence._n_before = sequence._n_past

    def set_timeout(self, timeout_s):
        """Abort the steps that still run after so many seconds from now; None for no limit.

        Raises
        ------
        ValueError
            The time is negative or no number.
        """
        cdef double seconds
        self._deadline = 0
        if timeout_s is not None:
            seconds = timeout_s
            if not seconds >= 0:
                raise ValueError(f"timeout_s must be from 0, not {timeout_s}")
            if seconds < 1e9:
                self._deadline = llamacy_clock() + seconds
        self.context._stop.deadline = self._deadline

    def abort(self):
        """Stop the step that runs now, from any thread; it raises `DecodeAbortedError`, as does the next one."""
        self._abort = 1
        self.context._stop.abort = 1
        if self._running:
            # a decode that is about to begin clears the flag, but not this
            self.context._stop.deadline = LONG_AGO

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


cdef int _check_idle(Scheduler self) except -1:
    if self._running:
        raise ConcurrentUseError(
            "a step runs, which may have called this; a logits processor or stopping criterion can't use what it is "
            "called from"
        )
    return 0


cdef int32_t scheduler_next_token(Scheduler self, Sequence sequence) except -1:
    if sequence not in self._sequences or sequence._sampler is None or sequence._n_tokens == sequence._n_past:
        raise ValueError(f"{sequence!r} takes no part in the steps, or has nothing to go on from")
    while True:
        _run(self)
        if sequence._sampled >= 0:
            return sequence._sampled


cdef int _run(Scheduler self) except -1:
    _check_idle(self)
    self._running = True
    try:
        _step(self)
    finally:
        self._running = False
        self.context._stop.deadline = self._deadline
    return 0


cdef int _step(Scheduler self) except -1:
    """Run one step; again when a signal handler that raised nothing interrupted it, or when room was made for it."""
    cdef Sequence sequence
    cdef object failure = None
    while True:
        log_begin()
        _see_others(self)
        for sequence in self._sequences:
            if sequence._basis is not self._basis:
                _check_basis(self, sequence)
            if sequence._n_past < sequence._n_before:
                raise MemoryOperationError(
                    f"the memory has lost the first {sequence._n_before} tokens of a sequence, which were computed "
                    "with other adapters than those of now; make the request again"
                )
        self._turn = step_fill(self._batch, self._sequences, self._turn)
        if self._abort:
            raise DecodeAbortedError("the step was aborted before it began", status=2)
        if self._deadline != 0 and llamacy_clock() >= self._deadline:
            raise DecodeAbortedError("the time is over", status=2)
        try:
            with nogil:
                context_decode(self.context, self._batch)
            break
        except DecodeAbortedError:
            _resync(self, True)
            if self._abort or self.context._stop.abort != LLAMACY_INTERRUPTED:
                raise
        except MemorySlotError:
            if not _make_room(self):
                raise
        except (BufferError, ClosedError, ConcurrentUseError, InvalidBatchError, MemoryError):
            raise  # nothing was decoded
        except LlamacyError:
            _resync(self, False)
            raise
        except (IndexError, RuntimeError) as error:
            _resync(self, False)
            raise native_error(DecodeFatalError, f"decode failed inside: {error}") from None
        except BaseException:
            _resync(self, True)  # an interrupt that was answered by an exception
            raise
    self._epoch = self.context.epoch
    for sequence in self._sequences:
        if sequence._n_taken and sequence._prompt_logprobs is not None:
            step_record_prompt(self.context, sequence)
        sequence._n_past += sequence._n_taken
        sequence._n_taken = 0
    for sequence in self._sequences:
        if sequence._row >= 0 and sequence._sampler is not None:
            try:
                if sequence._n_tokens == sequence.capacity and sequence._n_keep >= 0:
                    _shift(self, sequence)
                step_choose(self.context, sequence)
            except BaseException as error:
                # the rows of the others are as good as gone unless they are sampled now
                failure = failure or error
    if failure is not None:
        _see_others(self)  # a callback may have used the context
        _resync(self, True)
        raise failure
    if has_stashed():
        raise_stashed()
    return 0


cdef int _shift(Scheduler self, Sequence sequence) except -1:
    """Drop the older half of what a full sequence holds, but not its first `n_keep` tokens."""
    cdef int keep = sequence._n_keep
    cdef int n = (sequence._n_tokens - keep) // 2
    memory = self.context.memory
    _see_others(self)
    memory.seq_rm(sequence.seq_id, keep, keep + n)
    try:
        memory.seq_add(sequence.seq_id, keep + n, -1, -n)
    except BaseException:
        _forget(self, sequence)
        raise
    self._n_edits = self.context._n_edits
    sequence_drop(sequence, keep, n)
    return 0


cdef bint _make_room(Scheduler self) except -1:
    """Empty an idle sequence; return whether there was one that held something."""
    cdef Sequence sequence
    while self._idle:
        sequence = self._idle.pop(0)
        if sequence._n_past and sequence not in self._sequences:
            _forget(self, sequence)
            sequence_truncate(sequence, 0)
            return True
    return False


cdef void _unmix(Sequence sequence) noexcept:
    """Let the adapters of now be those that have computed what is sound of a sequence."""
    if sequence._basis_before is not None:
        sequence._basis = sequence._basis_before
        sequence._basis_before = None
        sequence._n_before = 0


cdef int _check_basis(Scheduler self, Sequence sequence) except -1:
    """Let all tokens of a sequence be computed anew when the memory is not what they were computed in."""
    if sequence._basis != self._basis:
        if sequence._n_past:
            _forget(self, sequence)
        sequence._basis = self._basis
    return 0


cdef int _see_others(Scheduler self) except -1:
    """Notice that somebody else used the context since the last look, or that it computes with other adapters now."""
    cdef Context context = self.context
    cdef bint seen = self._epoch != context.epoch or self._n_edits != context._n_edits
    if seen:
        self._epoch = context.epoch
        self._n_edits = context._n_edits
        self._n_others += 1
    if seen or self._adapters is not context._adapters or self._control_vector is not context._control_vector:
        self._adapters = context._adapters
        self._control_vector = context._control_vector
        self._basis = (self._n_others, tuple(context._adapters), context._control_vector)
    return 0


cdef int _resync(Scheduler self, bint certain) except -1:
    """Set the cursors to what the memory holds after a step that ended in the middle.

    Where that is not certain, the sequences that took part in it are emptied. A sequence whose tokens are all in the
    memory, but none was sampled, gives its last one back: decoding it again brings the row to sample from. So does one
    whose log-probabilities are wanted, with those tokens whose rows were not looked at.
    """
    cdef Sequence sequence
    memory = self.context.memory
    # a part of recurrent state can't be taken back, so what it holds now is unknown
    certain = certain and memory is not None and memory.kind not in ("recurrent", "hybrid")
    self._epoch = self.context.epoch
    for sequence in self._sequences:
        if sequence._n_taken:
            sequence._n_taken = 0
            if certain:
                sequence._n_past = memory.seq_pos_max(sequence.seq_id) + 1
            elif memory is not None:
                _forget(self, sequence)
            if sequence._prompt_logprobs is not None and sequence._n_past >= sequence._next_scored:
                _cut(self, sequence, sequence._next_scored - 1)
        if 0 < sequence._n_tokens == sequence._n_past and sequence._sampled < 0 and sequence._sampler is not None:
            _cut(self, sequence, sequence._n_past - 1)
    return 0


cdef int _cut(Scheduler self, Sequence sequence, int n) except -1:
    """Let no more than the first `n` tokens of a sequence be in the memory: these, or none where it can't be cut."""
    if not _try_cut(self, sequence, n):
        _forget(self, sequence)
    return 0


cdef bint _try_cut(Scheduler self, Sequence sequence, int n) except -1:
    """Let the first `n` tokens of a sequence be in the memory; return False when it can't be cut there."""
    if n and 0 < self._n_window <= sequence._n_past:
        # llama.cpp puts tokens of other sequences where those are that the window has left behind, in any order
        # (llama_kv_cache::find_slot), so that there may be holes that seq_pos_min doesn't tell
        return False
    _see_others(self)
    try:
        self.context.memory.seq_rm(sequence.seq_id, n)
    except MemoryOperationError:
        return False
    finally:
        self._n_edits = self.context._n_edits
    sequence._n_past = n
    return True


cdef int _forget(Scheduler self, Sequence sequence) except -1:
    memory = self.context.memory
    if memory is not None:
        _see_others(self)
        memory.seq_rm(sequence.seq_id)
        self._n_edits = self.context._n_edits
    sequence_forget(sequence)
    return 0
