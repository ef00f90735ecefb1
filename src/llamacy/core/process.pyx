# distutils: language = c++
"""Compute an extended batch on its context."""

from libc.stdint cimport int32_t
from libcpp.vector cimport vector

from llamacy.core._callback cimport has_stashed, raise_stashed
from llamacy.core._observers cimport observers_before_write, observers_decoded
from llamacy.core._status cimport native_error, raise_decode_status, raise_encode_status
from llamacy.core.batch_ext cimport BatchEntry, ExtendedBatch, batch_ext_check_idle, batch_ext_raise_unusable
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport (
    context_after,
    context_begin,
    context_check_decoder,
    context_check_encoder,
    context_check_output,
    context_end,
)
from llamacy.core.log cimport log_begin
from llamacy.native cimport llama as c_llama

from llamacy.errors import DecodeFatalError, EncodeError, InvalidBatchError, LlamacyError

__all__ = ["process"]

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1


def process(ExtendedBatch batch not None, kind="decode"):
    """Compute a batch on its context. Entries stay in the batch; `clear` removes them.

    Parameters
    ----------
    batch : ExtendedBatch
        The batch.
    kind : {"decode", "encode"}
        Whether to store it in the memory, or to run the encoder.

    Raises
    ------
    InvalidBatchError
        The batch breaks a rule; nothing was computed.
    MemorySlotError, DecodeAbortedError, DecodeFatalError, EncodeError
        As for `Context.decode` and `Context.encode`.
    BufferError
        The output buffer would have to move while a view of it is alive; nothing was computed.
    ConcurrentUseError, ClosedError
        Another thread uses the context, or it is closed.

    Thread safety: releases the GIL.
    Source: ``llama_process``.
    """
    cdef bint encode = kind == "encode"
    if kind not in ("decode", "encode"):
        raise ValueError(f'kind must be "decode" or "encode", not {kind!r}')
    batch_ext_check_idle(batch)
    log_begin()
    batch._busy += 1
    try:
        with nogil:
            batch_ext_process(batch, encode)
    except LlamacyError:
        raise
    except (IndexError, RuntimeError) as error:
        cls = EncodeError if encode else DecodeFatalError
        raise native_error(cls, f"{kind} failed inside: {error}") from None
    finally:
        batch._busy -= 1
    if has_stashed():
        raise_stashed()


cdef int batch_ext_process(ExtendedBatch self, bint encode) except -1 nogil:
    """Compute a batch; the caller need not hold the GIL."""
    return _process(self, self.context, encode)


cdef int _process(ExtendedBatch self, Context context, bint encode) except -1 nogil:
    cdef int n_tokens, n_outputs, interrupt
    cdef int status = -2
    interrupt = context_begin(context, <int>self._entries.size())
    try:
        n_outputs = _check(self, context, encode or context._memory == NULL, encode)
        n_tokens = <int>self._entries.size()
        try:
            if context._overwritten != NULL and not encode:
                _note_writes(self, context)
            status = c_llama.llama_process(
                context._ptr,
                c_llama.LLAMA_PROCESS_TYPE_ENCODE if encode else c_llama.LLAMA_PROCESS_TYPE_DECODE,
                self._ptr,
            )
        finally:
            context_after(context, status, n_tokens, n_outputs)
            observers_decoded(context, status)
        if status == 0:
            context._encoded |= encode
            if context._n_rollback != NULL and not encode:
                _count_rollback(self, context)
    finally:
        context_end(context, interrupt, status == 0)
    if status != 0:
        with gil:
            if status == 2:
                PyErr_CheckSignals()
            elif encode:
                raise_encode_status(status)
            raise_decode_status(status)
    return 0


cdef int _check(ExtendedBatch self, Context context, bint all_outputs, bint encode) except -1 nogil:
    """Refuse what llama.cpp aborts on or gets wrong, and fill in positions; returns the number of outputs."""
    cdef int n_tokens = <int>self._entries.size()
    cdef int n_outputs = 0
    cdef int i
    if self._ptr == NULL or self._spoiled or n_tokens == 0:
        with gil:
            batch_ext_raise_unusable(self)
    if encode:
        context_check_encoder(context, self._entries[0].has_token)
    else:
        context_check_decoder(context)
    for i in range(n_tokens):
        n_outputs += self._entries[i].output
        if context._needs_state and not self._entries[i].has_state:
            with gil:
                raise InvalidBatchError(
                    f"entry {i} has no hidden state, which a context for multi-token prediction needs "
                    "(set_embd_state)"
                )
    if context._embeddings or all_outputs:
        n_outputs = n_tokens
    context_check_output(context, n_tokens, n_outputs)
    if all_outputs and n_tokens > context.n_ubatch:
        with gil:
            raise InvalidBatchError(
                f"the encoder takes all {n_tokens} entries at once, but n_ubatch is {context.n_ubatch}"
            )
    _fill_positions(self, context, all_outputs)
    return n_outputs


cdef int _fill_positions(ExtendedBatch self, Context context, bint from_zero) except -1 nogil:
    """Set positions that were left open, and refuse those that llama.cpp takes although they are out of order."""
    cdef vector[int32_t] last
    cdef int32_t[4] positions
    cdef int32_t before
    cdef BatchEntry* entry
    cdef int i
    last.resize(context.n_seq_max, -1)
    positions[1] = positions[2] = positions[3] = 0
    for i in range(<int>self._entries.size()):
        entry = &self._entries[i]
        before = last[entry.seq_id]
        if not entry.has_pos:
            if context._mrope and not entry.has_token:
                with gil:
                    raise InvalidBatchError(f"entry {i} is an embedding without its four positions (set_pos)")
            if before < 0 and not from_zero:
                before = c_llama.llama_memory_seq_pos_max(context._memory, entry.seq_id)
            entry.pos = positions[0] = before + 1
            c_llama.llama_batch_ext_set_pos(self._ptr, i, positions)
        elif entry.pos <= before and not context._mrope:
            with gil:
                raise InvalidBatchError(
                    f"entry {i} has position {entry.pos} in sequence {entry.seq_id}, after position {before}"
                )
        if context.model._n_positions_max and entry.pos >= context.model._n_positions_max:
            with gil:
                raise InvalidBatchError(
                    f"position {entry.pos} of entry {i} is past the {context.model._n_positions_max} positions "
                    f"that models of the architecture {context.model.architecture!r} have learned"
                )
        last[entry.seq_id] = entry.pos
    return 0


cdef void _note_writes(ExtendedBatch self, Context context) noexcept nogil:
    cdef size_t i
    for i in range(self._entries.size()):
        observers_before_write(context, self._entries[i].seq_id, self._entries[i].pos)
    for i in range(self._shared.size()):
        observers_before_write(context, self._shared[i].second, self._entries[self._shared[i].first].pos)


cdef void _count_rollback(ExtendedBatch self, Context context) noexcept nogil:
    """Note how many tokens each sequence can give back; see `_count_rollback` of decoding.pyx."""
    cdef size_t i
    cdef int seq_id, n
    cdef int* counts = context._n_rollback
    for seq_id in range(context.n_seq_max):
        counts[seq_id] = min(counts[seq_id], 0)
    for i in range(self._entries.size()):
        counts[self._entries[i].seq_id] = max(counts[self._entries[i].seq_id], 0) + 1
    for i in range(self._shared.size()):
        counts[self._shared[i].second] = max(counts[self._shared[i].second], 0) + 1
    for seq_id in range(context.n_seq_max):
        n = counts[seq_id]
        if context._embeddings and n > context.n_ubatch:
            n = n % context.n_ubatch or context.n_ubatch
        if n > 0:
            counts[seq_id] = min(context.n_rs_seq, n - 1)
