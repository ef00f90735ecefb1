"""Turn native statuses into exceptions that say what failed, what state is left, and what to do."""

from llamacy.core._callback cimport raise_stashed
from llamacy.core.log cimport log_take

from llamacy import errors

# status of llama_decode -> exception, and what the caller should know (include/llama.h, llama_decode)
cdef dict _decode_table = {
    1: (
        errors.MemorySlotError,
        "the memory has no room for this batch and is unchanged; decode fewer tokens, remove sequences, or create the "
        "context with a larger n_ctx",
    ),
    2: (
        errors.DecodeAbortedError,
        "the decode was aborted; micro-batches that had been finished stay in the memory (see Memory.seq_pos_max)",
    ),
    -1: (
        errors.InvalidBatchError,
        "llama.cpp refused the batch and the memory is unchanged; positions must go on from the memory without a gap, "
        "rise within each sequence, and sequence ids must be below n_seq_max",
    ),
}


cdef object native_error(object cls, str message):
    """Return ``cls(message)`` with the native log lines of this thread attached."""
    return cls(message, log=log_take())


cdef int raise_closed(str what) except -1:
    raise errors.ClosedError(f"this {what} is closed")


cdef int raise_decode_status(int status) except -1:
    raise_stashed()
    cls, message = _decode_table.get(status, (None, None))
    if cls is None:
        cls = errors.DecodeFatalError
        message = (
            "llama.cpp failed inside; micro-batches that had been finished stay in the memory, clear it before going on"
        )
    raise cls(f"decode failed with status {status}: {message}", status=status, log=log_take())


cdef int raise_encode_status(int status) except -1:
    raise_stashed()
    raise errors.EncodeError(f"encode failed with status {status}; the memory is unchanged", log=log_take())
