# distutils: language = c++
"""What moves states in and out of a context: sizes, copies, and every check before llama.cpp sees the bytes.

All functions but `state_checked_seq` work on a context that the caller has acquired.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._observers cimport observers_changed, observers_replaced
from llamacy.core._status cimport native_error
from llamacy.core.context cimport Context
from llamacy.core.log cimport log_begin
from llamacy.core.model cimport model_handle
from llamacy.native cimport llama as c_llama

from itertools import count
from struct import Struct

from llamacy.errors import StateError
from llamacy.types import ContextType, GgmlType, StateFlags

__all__ = []

cdef extern from "_state_layout.h" namespace "llamacy" nogil:
    cppclass state_shape:
        const char* arch
        bint walk
        bint recurrent
        bint attention
        bint cell_ext
        bint on_device
        int n_caches_min
        int n_caches_max
        uint32_t n_streams
        uint32_t n_seq_max
    const char* state_check(const uint8_t* data, size_t size, const state_shape& shape, cbool& is_empty)

# memories with a layout of their own, for which the checks of llama.cpp have to do
# (src/llama-kv-cache-dsv4.cpp, src/llama-memory-hybrid-idx.cpp)
cdef frozenset _UNKNOWN_LAYOUT = frozenset(("deepseek4", "glm5-next", "qwen4exp"))

# memories with a cache for the indexer beside the attention caches (create_memory of src/llama-model.cpp)
cdef frozenset _INDEXED = frozenset(("deepseek32", "dots3note", "glm-dsa", "hy_v4", "minimax-m3"))

# hybrid models whose multi-token-prediction head has a plain attention cache (create_memory of
# src/llama-model.cpp)
cdef frozenset _PLAIN_HEAD = frozenset(("bailingmoe3", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next"))

# types whose smallest unit is one number
cdef frozenset _PLAIN_TYPES = frozenset((GgmlType.F32, GgmlType.F16, GgmlType.BF16))

# follows the metadata of a state that was left on the device: which save it was
cdef object _device_trailer = Struct("=Q")

cdef object _generations = count(1)


cdef bytes _digest(object saved):
    # imported here: with it comes OpenSSL, and most contexts save nothing on a device
    from hashlib import blake2b

    return blake2b(saved).digest()


cdef int state_checked_seq(Context context, object seq_id) except -1:
    if not 0 <= seq_id < context.n_seq_max:
        raise StateError(
            f"sequence {seq_id} is not in this context: ids are from 0 to {context.n_seq_max - 1} (n_seq_max)"
        )
    return seq_id


cdef size_t state_measure(Context context, int seq_id, uint32_t flags) except? 0:
    return _native_size(context, seq_id, flags) + _trailer_size(flags)


cdef size_t _native_size(Context context, int seq_id, uint32_t flags) except? 0:
    cdef size_t n = 0
    log_begin()
    abort_guard_begin()
    try:
        with nogil:
            if seq_id == STATE_WHOLE:
                n = c_llama.llama_state_get_size(context._ptr)
            else:
                n = c_llama.llama_state_seq_get_size_ext(context._ptr, seq_id, flags)
    except RuntimeError as error:
        raise native_error(StateError, f"the size of the state is not to be had: {error}") from None
    finally:
        abort_guard_end()
    if n == 0:
        raise native_error(StateError, "llama.cpp can't save this state; nothing was changed")
    return n


cdef int _native_get(Context context, int seq_id, uint8_t* data, size_t size, uint32_t flags) except -1:
    cdef size_t n = 0
    log_begin()
    abort_guard_begin()
    try:
        with nogil:
            if seq_id == STATE_WHOLE:
                n = c_llama.llama_state_get_data(context._ptr, data, size)
            else:
                n = c_llama.llama_state_seq_get_data_ext(context._ptr, data, size, seq_id, flags)
    except RuntimeError as error:
        raise native_error(StateError, f"llama.cpp can't save this state: {error}") from None
    finally:
        abort_guard_end()
    if n != size:
        raise native_error(StateError, f"llama.cpp wrote {n} of {size} bytes; nothing was changed")
    return 0


cdef bytes state_fetch(Context context, int seq_id, uint32_t flags):
    cdef size_t n
    state_check_savable(context, flags)
    n = _native_size(context, seq_id, flags)
    data = PyBytes_FromStringAndSize(NULL, n + _trailer_size(flags))
    _write(context, seq_id, <uint8_t*>PyBytes_AS_STRING(data), n, flags)
    return data


cdef size_t state_fetch_into(
    Context context, int seq_id, uint8_t* data, size_t size, uint32_t flags
) except? 0:
    cdef size_t n
    cdef size_t n_all
    state_check_savable(context, flags)
    n = _native_size(context, seq_id, flags)
    n_all = n + _trailer_size(flags)
    if size < n_all:
        raise StateError(f"the state has {n_all} bytes, the buffer room for {size} only; nothing was changed")
    _write(context, seq_id, data, n, flags)
    return n_all


cdef int _write(Context context, int seq_id, uint8_t* data, size_t n, uint32_t flags) except -1:
    cdef bytes trailer
    if not flags & c_llama.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE:
        return _native_get(context, seq_id, data, n, flags)
    before = context._on_device.get(seq_id)
    if before is not None:
        _check_room(context, seq_id, n, flags, before)
        # the save replaces the copy on the device whether it succeeds or not
        context._on_device[seq_id] = (None, *before[1:])
    observers_replaced(context, seq_id)
    _native_get(context, seq_id, data, n, flags)
    generation = next(_generations)
    trailer = _device_trailer.pack(generation)
    memcpy(data + n, <const char*>trailer, len(trailer))
    digest = _digest(<const uint8_t[:n]>data)
    context._on_device[seq_id] = (generation, flags, digest, n, context._n_edits)
    return 0


cdef int _check_room(Context context, int seq_id, size_t n, uint32_t flags, tuple before) except -1:
    """Refuse to save into the buffer of the copy before when that may lie in fewer pieces: llama.cpp aborts then.

    llama_io_write_device takes that buffer again for as many bytes, but each run of cells is padded for itself
    (src/llama-context.cpp). Cells are scattered where several sequences share them, and where some were taken out of
    the middle.
    """
    cdef size_t n_before = before[3]
    kind = context.memory.kind if context.memory is not None else None
    in_one = kind == "recurrent" or (kind == "hybrid" and flags & c_llama.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
    in_one = in_one or not (context._scattered or (context.n_seq_max > 1 and not context._streams))
    if n == n_before and before[4] != context._n_edits and not in_one:
        raise StateError(
            f"sequence {seq_id} was saved on the device before with as many cells, and the memory was changed since: "
            "these cells may be scattered, for which llama.cpp has no room; save it without ON_DEVICE, or clear() "
            "the memory before; nothing was changed"
        )
    return 0


cdef int state_restore(
    Context context, int seq_id, const uint8_t* data, size_t size, uint32_t flags
) except -1:
    cdef size_t n = 0
    cdef state_shape shape
    cdef const char* wrong
    cdef cbool is_empty = False
    cdef bytes arch = context.model.architecture.encode()
    reason = None
    _check_pending(context)
    if flags & c_llama.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE:
        size = _check_on_device(context, data, size, flags)
    _fill_shape(context, &shape, seq_id == STATE_WHOLE, flags)
    if seq_id == STATE_WHOLE:
        shape.arch = arch
    with nogil:
        wrong = state_check(data, size, shape, is_empty)
    if wrong != NULL:
        raise StateError(
            f"these {size} bytes are not a state for this context: {wrong.decode()}; nothing was changed"
        )
    log_begin()
    context._n_edits += 1
    # where the layout is not known here, an assertion of llama.cpp is the last check
    abort_guard_begin()
    try:
        with nogil:
            if seq_id == STATE_WHOLE:
                n = c_llama.llama_state_set_data(context._ptr, data, size)
            else:
                n = c_llama.llama_state_seq_set_data_ext(context._ptr, data, size, seq_id, flags)
    except RuntimeError as error:
        reason = str(error)
    finally:
        abort_guard_end()
    _forget_rollback(context, seq_id)
    if n != size:
        left = _clear(context, seq_id)
        reason = reason or "it is of other K/V types, layers or flash attention, or too long"
        raise native_error(StateError, f"llama.cpp refused the state: {reason}; {left}")
    if is_empty and seq_id != STATE_WHOLE and context._memory != NULL:
        # llama.cpp leaves in place what was there before
        c_llama.llama_memory_seq_rm(context._memory, seq_id, -1, -1)
    if is_empty or not flags & c_llama.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY:
        # the part that can't be cut is all that a partial state replaces: nothing relies on that
        observers_changed(context, seq_id, 0)
    return 0


cdef str _clear(Context context, int seq_id):
    """Take back what a failed restore left behind, which may be any part of it."""
    if context._memory == NULL:
        return "there is no memory to change"
    if seq_id != STATE_WHOLE and c_llama.llama_memory_seq_rm(context._memory, seq_id, -1, -1):
        observers_changed(context, seq_id, 0)
        return f"sequence {seq_id} is empty now"
    c_llama.llama_memory_clear(context._memory, True)
    observers_changed(context, -1, 0)
    return "the memory is empty now"


cdef void _forget_rollback(Context context, int seq_id) noexcept:
    # the snapshots that a recurrent memory can go back to are not in a state: those it has are of what was
    # there before
    if context._n_rollback == NULL:
        return
    for i in range(context.n_seq_max):
        if seq_id == STATE_WHOLE or seq_id == i:
            context._n_rollback[i] = 0


cdef int _fill_shape(Context context, state_shape* shape, bint whole, uint32_t flags) except -1:
    cdef c_llama.llama_model* model = model_handle(context.model)
    cdef bint partial = flags & c_llama.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
    cdef bint windowed = c_llama.llama_model_n_swa(model) > 0
    arch = context.model.architecture
    values = context.params.values
    hybrid = c_llama.llama_model_is_hybrid(model)
    if hybrid and values["ctx_type"] == ContextType.MTP and arch in _PLAIN_HEAD:
        hybrid = False
    shape.walk = arch not in _UNKNOWN_LAYOUT
    shape.on_device = flags & c_llama.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE
    shape.cell_ext = context._mrope
    shape.n_seq_max = context.n_seq_max
    shape.n_streams = 1 if values["kv_unified"] else context.n_seq_max
    shape.recurrent = False
    shape.attention = not c_llama.llama_model_is_recurrent(model)
    if context._memory == NULL:
        shape.n_caches_min = shape.n_caches_max = 0
    elif c_llama.llama_model_is_recurrent(model):
        shape.recurrent = True
        shape.n_caches_min = shape.n_caches_max = 0
    elif hybrid:
        shape.recurrent = True
        shape.n_caches_min = 0 if partial else 1
        shape.n_caches_max = shape.n_caches_min + windowed
    else:
        # a context that reads the cache of another one saves nothing
        shape.n_caches_min = 0 if context._other is not None else 1
        shape.n_caches_max = 3 if arch in _INDEXED else 2 if windowed and not partial else 1
    return 0


cdef int state_check_savable(Context context, uint32_t flags) except -1:
    _check_pending(context)
    if flags & c_llama.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE:
        values = context.params.values
        # llama_io_write_device counts blocks as if they were numbers (src/llama-context.cpp)
        if not {values["type_k"], values["type_v"]} <= _PLAIN_TYPES:
            raise StateError(
                f"a state with K/V types {values['type_k'].name}/{values['type_v'].name} can't be kept on the "
                "device; save it without ON_DEVICE"
            )
    return 0


cdef int _check_pending(Context context) except -1:
    if context._update_pending:
        raise StateError(
            "positions were shifted, or sequences copied, and llama.cpp does the work in the next decode: "
            "decode something before you save or restore; nothing was changed"
        )
    return 0


cdef size_t _check_on_device(Context context, const uint8_t* data, size_t size, uint32_t flags) except? 0:
    """Return the size of the metadata, once it is sure that the data is there: llama.cpp aborts otherwise."""
    cdef int32_t saved_seq_id = -1
    if size < STATE_SEQ_HEADER + <size_t>_device_trailer.size:
        raise StateError("these bytes are not a state that was kept on the device; nothing was changed")
    size -= _device_trailer.size
    memcpy(&saved_seq_id, data + sizeof(uint32_t), sizeof(saved_seq_id))
    generation, = _device_trailer.unpack(<bytes>(data + size)[:_device_trailer.size])
    known = context._on_device.get(saved_seq_id)
    if known is None or generation != known[0]:
        raise StateError(
            f"this state was not saved on the device by this context, or sequence {saved_seq_id} was saved "
            "there again since; nothing was changed"
        )
    if flags != known[1]:
        raise StateError(
            f"this state was saved with {StateFlags(known[1])!r}, not {StateFlags(flags)!r}; "
            "nothing was changed"
        )
    if _digest(<const uint8_t[:size]>data) != known[2]:
        raise StateError("these bytes are not those of the save on the device; nothing was changed")
    return size


cdef size_t _trailer_size(uint32_t flags) noexcept:
    return sizeof(unsigned long long) if flags & c_llama.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE else 0
