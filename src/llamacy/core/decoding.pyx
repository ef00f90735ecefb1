# distutils: language = c++
"""What a context does, as functions that need no GIL.

The ownership of native memory is decided here: who may run, when the output buffer may move, and which rows are valid.
"""

from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from llamacy.core._observers cimport observers_before_write, observers_changed, observers_decoded
from llamacy.core._status cimport raise_closed, raise_decode_status, raise_encode_status
from llamacy.core.batch cimport Batch
from llamacy.core.context cimport Context
from llamacy.core.log cimport LOG_PASS, LOG_SWALLOW, log_observe
from llamacy.core.threadpool cimport (
    ThreadPool,
    threadpool_end,
    threadpool_hold,
    threadpool_let_go,
    threadpool_try_begin,
)
from llamacy.native cimport llama as c_llama

import threading

from llamacy.errors import ConcurrentUseError, InvalidBatchError, OutputError

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1
    Py_ssize_t PyList_GET_SIZE(PyObject* list) noexcept nogil
    PyObject* PyList_GET_ITEM(PyObject* list, Py_ssize_t i) noexcept nogil

cdef extern from "pythread.h" nogil:
    unsigned long PyThread_get_thread_ident() noexcept

cdef extern from "_interrupt.h" nogil:
    int llamacy_interrupt_begin(volatile int* flag) noexcept
    void llamacy_interrupt_end() noexcept

cdef extern from "_atomic.h" nogil:
    int llamacy_flag_take(int* flag) noexcept
    void llamacy_flag_give(int* flag) noexcept
    void llamacy_count_add(int* count, int n) noexcept

cdef unsigned long _main_thread = threading.main_thread().ident


cdef llama_context* context_handle(Context self) except NULL nogil:
    if self._ptr == NULL:
        with gil:
            raise_closed("context")
    return self._ptr


cdef int context_acquire(Context self) except -1 nogil:
    """Enter the context, which only one call at a time may be in."""
    context_handle(self)
    if not llamacy_flag_take(&self._busy):
        with gil:
            raise ConcurrentUseError(
                "this context is running in another thread; give each thread a context of its own, or wait for it"
            )
    if self._ptr == NULL:  # closed between the two lines above
        llamacy_flag_give(&self._busy)
        with gil:
            raise_closed("context")
    return 0


cdef void context_release(Context self) noexcept nogil:
    llamacy_flag_give(&self._busy)


cdef int context_interrupt_begin(Context self) noexcept nogil:
    """Let Ctrl-C abort what runs now; returns what `context_interrupt_end` wants."""
    if PyThread_get_thread_ident() != _main_thread:
        return 0
    return llamacy_interrupt_begin(&self._stop.abort)


cdef void context_interrupt_end(Context self, int token) noexcept nogil:
    if token:
        llamacy_interrupt_end()


cdef int context_begin(Context self, int n_tokens) except -1 nogil:
    """Enter the context to compute, with all that it computes with; returns what `context_end` wants.

    The context that this one reads from, and its thread pools, must not be at work elsewhere.
    """
    context_acquire(self)
    if self._other is not None and not llamacy_flag_take(&self._other._busy):
        context_release(self)
        with gil:
            raise ConcurrentUseError("the context that this one reads from (ctx_other) is running in another thread")
    if self._threadpool is not None:
        if not threadpool_try_begin(self._threadpool):
            _leave(self)
            with gil:
                raise ConcurrentUseError("the thread pool computes for another context now")
        if self._threadpool_batch is not self._threadpool and not threadpool_try_begin(self._threadpool_batch):
            threadpool_end(self._threadpool)
            _leave(self)
            with gil:
                raise ConcurrentUseError("the thread pool for batches computes for another context now")
    if not _points_to_attached(self):
        with gil:
            _begin_detached(self)
    self._stop.abort = 0
    log_observe(_on_log, <void*>&self._stop.abort)
    return context_interrupt_begin(self) if n_tokens > 1 else 0


cdef void context_end(Context self, int interrupt, bint computed) noexcept nogil:
    """Leave the context; `computed` says that llama.cpp came to the end."""
    context_interrupt_end(self, interrupt)
    log_observe(NULL, NULL)
    if not _points_to_attached(self):
        with gil:
            _end_detached(self, computed)
    _end_pools(self)
    _leave(self)


cdef void _end_pools(Context self) noexcept nogil:
    if self._threadpool is not None:
        threadpool_end(self._threadpool)
        if self._threadpool_batch is not self._threadpool:
            threadpool_end(self._threadpool_batch)


cdef bint _points_to_attached(Context self) noexcept nogil:
    """Tell whether the native side points to the attached pools and to no others, as from the second decode on."""
    cdef PyObject* native = <PyObject*>self._native_pools  # only who is in the context changes it
    cdef Py_ssize_t n = PyList_GET_SIZE(native)
    if self._threadpool is None:
        return n == 0
    if n == 0 or PyList_GET_ITEM(native, 0) != <PyObject*>self._threadpool:
        return False
    if self._threadpool_batch is self._threadpool:
        return n == 1
    return n == 2 and PyList_GET_ITEM(native, 1) == <PyObject*>self._threadpool_batch


cdef list _attached(Context self):
    if self._threadpool is None:
        return []
    if self._threadpool_batch is self._threadpool:
        return [self._threadpool]
    return [self._threadpool, self._threadpool_batch]


cdef int _begin_detached(Context self) except -1:
    """Take the pools that were detached: llama.cpp pauses them now, and a graph whose threads are paused never ends."""
    cdef ThreadPool pool
    attached = _attached(self)
    taken = []
    for pool in self._native_pools:
        if pool in attached:
            continue
        if not threadpool_try_begin(pool):
            _give(taken)
            _end_pools(self)
            _leave(self)
            raise ConcurrentUseError("the thread pool that was detached computes for another context now")
        taken.append(pool)
    return 0


cdef void _end_detached(Context self, bint computed) noexcept:
    """Give them back, and note which pools the native side points to now, or may point to when the end didn't come."""
    cdef ThreadPool pool
    attached = _attached(self)
    before = self._native_pools
    others = [pool for pool in before if pool not in attached]
    self._native_pools = attached if computed else attached + others
    for pool in attached:
        if pool not in before:
            threadpool_hold(pool)
    _give(others)
    if computed:
        for pool in others:
            threadpool_let_go(pool)


cdef void _give(list pools) noexcept:
    cdef ThreadPool pool
    for pool in pools:
        threadpool_end(pool)


cdef void _leave(Context self) noexcept nogil:
    if self._other is not None:
        llamacy_flag_give(&self._other._busy)
    context_release(self)


cdef int context_decode(Context self, Batch batch) except -1 nogil:
    """Compute a batch and store it in the memory; the caller need not hold the GIL."""
    cdef int status = _compute(self, batch, False)
    if status != 0:
        with gil:
            if status == 2:
                PyErr_CheckSignals()
            raise_decode_status(status)
    return 0


cdef int context_encode(Context self, Batch batch) except -1 nogil:
    """Compute a batch without memory; the caller need not hold the GIL."""
    cdef int status = _compute(self, batch, True)
    if status != 0:
        with gil:
            if status == 2:
                PyErr_CheckSignals()
                raise_decode_status(status)
            raise_encode_status(status)
    return 0


cdef int _compute(Context self, Batch batch, bint encode) except? -1000 nogil:
    """Run a batch through the encoder or the decoder; returns the status of llama.cpp."""
    cdef c_llama.llama_batch c
    cdef int n_outputs
    cdef int status = -2
    cdef int32_t* positions = NULL
    cdef int interrupt = context_begin(self, batch._n_tokens)
    llamacy_count_add(&batch._busy, 1)
    try:
        if encode:
            context_check_encoder(self, batch._token != NULL)
        else:
            context_check_decoder(self)
        n_outputs = _check_batch(self, batch, encode or self._memory == NULL)
        c = (<c_llama.llama_batch*>batch._c)[0]
        if batch.n_pos_per_embd > 1 and batch._n_tokens < batch.capacity:
            positions = _packed_positions(batch)
            c.pos = positions
        try:
            if self._overwritten != NULL and not encode:
                _note_writes(self, &c)
            status = c_llama.llama_encode(self._ptr, c) if encode else c_llama.llama_decode(self._ptr, c)
        finally:
            context_after(self, status, c.n_tokens, n_outputs)
            observers_decoded(self, status)
        if status == 0:
            self._encoded |= encode
            if self._n_rollback != NULL and not encode:
                _count_rollback(self, &c)
        elif status not in (1, -1) and not encode:
            _drop_unfinished(self, &c)
    finally:
        free(positions)
        llamacy_count_add(&batch._busy, -1)
        context_end(self, interrupt, status == 0)
    return status


cdef int context_check_output(Context self, int n_tokens, int n_outputs) except -1 nogil:
    """Refuse a decode that breaks a limit which llama.cpp asserts, or that would pull memory away from a view."""
    cdef int rows
    if n_tokens > self.n_batch:
        with gil:
            raise InvalidBatchError(
                f"the batch has {n_tokens} tokens, but n_batch is {self.n_batch}; decode it in parts"
            )
    if n_tokens > self.n_ubatch and not self._causal:
        with gil:
            raise InvalidBatchError(
                f"without causal attention all {n_tokens} tokens are one micro-batch, but n_ubatch is {self.n_ubatch}"
            )
    if n_outputs > self._n_outputs_max:
        with gil:
            raise InvalidBatchError(
                f"the batch has {n_outputs} outputs, but n_outputs_max is {self._n_outputs_max}"
            )
    if self._n_row_exports or self._n_other_exports:
        rows = max(n_outputs, self.n_seq_max)
        if context_output_bytes(self, rows) > self._output_capacity or (
            self._n_other_exports and rows != self._output_rows
        ):
            with gil:
                raise BufferError(
                    f"{n_outputs} output rows need another layout of the output buffer, into which "
                    f"{self._n_row_exports + self._n_other_exports} views look; release them first"
                )
    return 0


cdef void context_after(Context self, int status, int n_tokens, int n_outputs) noexcept nogil:
    """Note what a decode or encode left: the rows of the one before are gone, also when it failed."""
    cdef size_t size
    self.epoch += 1
    self._n_outputs = n_outputs if status == 0 else 0
    self._n_tokens = n_tokens if status == 0 else 0
    if status != -1:
        self._update_pending = False  # llama_context::decode begins with it
    if status != -1 and status != 1:
        self._output_rows = max(n_outputs, self.n_seq_max)
        size = context_output_bytes(self, self._output_rows)
        if size > self._output_capacity:
            self._output_capacity = size


cdef void context_forget_outputs(Context self) noexcept nogil:
    """Note that the rows of the last decode are gone: the output buffer is about to be laid out anew."""
    self.epoch += 1
    self._n_outputs = 0
    self._n_tokens = 0


cdef size_t context_output_bytes(Context self, int rows) noexcept nogil:
    """Return what llama_context::output_reserve asks for; the buffer moves when this exceeds all before."""
    cdef size_t n_floats = <size_t>self.n_vocab * rows
    if self._embeddings or self._t5:
        n_floats += <size_t>self.n_embd_out * rows
    if self._nextn:
        n_floats += <size_t>self.n_embd_out * (rows if self._nextn_masked else self.n_batch)
    n_floats += <size_t>self._n_layer_inputs * self._n_embd * self.n_batch
    if self._n_samplers:
        n_floats += <size_t>(3 * self.n_vocab + 1) * rows
    return n_floats * sizeof(float)


cdef const float* context_logits_ith(Context self, int i) except NULL nogil:
    cdef const float* row = NULL
    context_acquire(self)
    if self._n_outputs and -self._n_outputs <= i < self._n_tokens:
        row = c_llama.llama_get_logits_ith(self._ptr, i)
    context_release(self)
    if row == NULL:
        with gil:
            raise OutputError(f"entry {i} is not an output of the last decode, which has {self._n_outputs}")
    return row


cdef const float* context_embeddings_ith(Context self, int i) except NULL nogil:
    cdef const float* row = NULL
    context_acquire(self)
    if self._n_outputs and -self._n_outputs <= i < self._n_tokens:
        row = c_llama.llama_get_embeddings_ith(self._ptr, i)
    context_release(self)
    if row == NULL:
        with gil:
            raise OutputError(
                f"entry {i} is not an output of the last decode, which has {self._n_outputs}, or the context does not "
                "produce embeddings (embeddings=True)"
            )
    return row


cdef int _on_log(int level, const char* text, void* abort) noexcept nogil:
    """Leave out the errors that llama.cpp logs when it was asked to abort."""
    return LOG_SWALLOW if (<volatile int*>abort)[0] else LOG_PASS


cdef int context_check_encoder(Context self, bint tokens) except -1 nogil:
    """Refuse to encode where llama.cpp would follow a null pointer."""
    if self._memory != NULL and not self._has_encoder:
        with gil:
            raise InvalidBatchError(
                f"models of the architecture {self.model.architecture!r} have no encoder; use decode"
            )
    if self._draft_encoder and tokens:
        with gil:
            raise InvalidBatchError(
                f"the encoder of {self.model.architecture!r} takes features of its target; use an ExtendedBatch"
            )
    return 0


cdef int context_check_decoder(Context self) except -1 nogil:
    """Refuse to decode before the encoder ran, which llama.cpp asserts."""
    if self._encode_first and not self._encoded:
        with gil:
            raise InvalidBatchError("the decoder of this model reads what the encoder left; call encode first")
    return 0


cdef int _check_batch(Context self, Batch batch, bint all_outputs) except -1 nogil:
    """Refuse what llama.cpp aborts on or reads out of bounds for; returns the number of output rows."""
    cdef int n_tokens = batch._n_tokens
    cdef int n_outputs = 0
    cdef int i, j
    if batch._c == NULL or n_tokens == 0:
        with gil:
            if batch._c == NULL:
                raise_closed("batch")
            raise InvalidBatchError("the batch is empty")
    if self._needs_state:
        with gil:
            raise InvalidBatchError(
                "a context for multi-token prediction needs a hidden state with each token, which only an "
                "ExtendedBatch can carry"
            )
    for i in range(n_tokens):
        n_outputs += batch._logits[i] != 0
        if batch._token != NULL and not 0 <= batch._token[i] < self.n_vocab:
            with gil:
                raise InvalidBatchError(
                    f"token {batch._token[i]} at index {i} is not in the vocabulary (0 to {self.n_vocab - 1})"
                )
        if batch._n_seq_id[i] > 1 and self._streams:
            with gil:
                raise InvalidBatchError(
                    f"entry {i} belongs to {batch._n_seq_id[i]} sequences, each of which has a buffer of its own here; "
                    "create the context with kv_unified=True"
                )
        for j in range(batch._n_seq_id[i]):
            if not 0 <= batch._seq_id[i][j] < self.n_seq_max:
                with gil:
                    raise InvalidBatchError(
                        f"sequence {batch._seq_id[i][j]} at index {i} is not below n_seq_max ({self.n_seq_max})"
                    )
        if self.model._n_positions_max and batch._pos[i] >= self.model._n_positions_max:
            with gil:
                raise InvalidBatchError(
                    f"position {batch._pos[i]} at index {i} is past the {self.model._n_positions_max} positions that "
                    f"models of the architecture {self.model.architecture!r} have learned"
                )
    if self._draft_encoder and batch._embd != NULL:
        with gil:
            raise InvalidBatchError("features for a draft model need an ExtendedBatch")
    if batch._embd != NULL and (batch.n_embd != self._n_embd_inp or (batch.n_pos_per_embd == 4) != self._mrope):
        with gil:
            raise InvalidBatchError(
                f"the batch has embeddings of {batch.n_embd} with {batch.n_pos_per_embd} positions each; this model "
                f"takes {self._n_embd_inp} with {4 if self._mrope else 1}"
            )
    if self._embeddings or all_outputs:
        n_outputs = n_tokens
    context_check_output(self, n_tokens, n_outputs)
    if all_outputs and n_tokens > self.n_ubatch:
        with gil:
            raise InvalidBatchError(
                f"the encoder takes all {n_tokens} tokens as one micro-batch, but n_ubatch is {self.n_ubatch}"
            )
    return n_outputs


cdef int32_t* _packed_positions(Batch batch) except NULL nogil:
    """Return the position sections without the gaps of unused capacity."""
    cdef int32_t* packed
    cdef int section
    packed = <int32_t*>malloc(sizeof(int32_t) * batch.n_pos_per_embd * batch._n_tokens)
    if packed == NULL:
        with gil:
            raise MemoryError
    for section in range(batch.n_pos_per_embd):
        memcpy(
            packed + <size_t>section * batch._n_tokens,
            batch._pos + <size_t>section * batch.capacity,
            sizeof(int32_t) * batch._n_tokens,
        )
    return packed


cdef void _note_writes(Context self, const c_llama.llama_batch* c) noexcept nogil:
    cdef int i, j
    for i in range(c.n_tokens):
        for j in range(c.n_seq_id[i]):
            observers_before_write(self, c.seq_id[i][j], c.pos[i])


cdef int _drop_unfinished(Context self, const c_llama.llama_batch* c) except -1 nogil:
    """Empty the sequences of a batch that ended in the middle, where what they hold now is unknown.

    llama.cpp takes the positions of the micro-batch that failed back (llama_context::decode). Recurrent state can't be:
    the memory says that they are there, and the state is one of before, or of after, in each layer.
    """
    cdef int i, j, seq_id
    with gil:
        if not (self.model.is_recurrent or self.model.is_hybrid):
            return 0
        for i in range(c.n_tokens):
            for j in range(c.n_seq_id[i]):
                seq_id = c.seq_id[i][j]
                if c_llama.llama_memory_seq_pos_max(self._memory, seq_id) >= 0:
                    c_llama.llama_memory_seq_rm(self._memory, seq_id, -1, -1)
                    observers_changed(self, seq_id, 0)
                if self._n_rollback != NULL:
                    self._n_rollback[seq_id] = 0
    return 0


cdef void _count_rollback(Context self, const c_llama.llama_batch* c) noexcept nogil:
    """Note how many tokens each sequence can give back.

    llama.cpp keeps snapshots of recurrent state for the last tokens of the last micro-batch only, and restores stale
    ones without complaint beyond that (src/llama-memory-recurrent.cpp).
    """
    cdef int i, j, seq_id, n, tail
    for i in range(self.n_seq_max):
        # a sequence that was rolled back stays so until it is in a batch
        self._n_rollback[i] = min(self._n_rollback[i], 0)
    for i in range(c.n_tokens):
        for j in range(c.n_seq_id[i]):
            self._n_rollback[c.seq_id[i][j]] = max(self._n_rollback[c.seq_id[i][j]], 0) + 1
    for seq_id in range(self.n_seq_max):
        n = self._n_rollback[seq_id]
        if self._embeddings and n > self.n_ubatch:
            # micro-batches are not arranged to keep the tail together when every token is an output
            tail = n % self.n_ubatch
            n = tail if tail else self.n_ubatch
        if n > 0:
            self._n_rollback[seq_id] = min(self.n_rs_seq, n - 1)
