# States of contexts that the caller has acquired; `state` has what users call.

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from llamacy.core.context cimport Context

cdef extern from "_state_layout.h" namespace "llamacy" nogil:
    const uint32_t STATE_SEQ_MAGIC
    const size_t STATE_SEQ_HEADER       # bytes before the cells of the state of a sequence

cdef enum:
    STATE_WHOLE = -1                    # in place of a sequence id: all sequences


cdef int state_checked_seq(Context context, object seq_id) except -1
cdef size_t state_measure(Context context, int seq_id, uint32_t flags) except? 0
cdef int state_check_savable(Context context, uint32_t flags) except -1
cdef bytes state_fetch(Context context, int seq_id, uint32_t flags)
cdef size_t state_fetch_into(
    Context context, int seq_id, uint8_t* data, size_t size, uint32_t flags
) except? 0
cdef int state_restore(
    Context context, int seq_id, const uint8_t* data, size_t size, uint32_t flags
) except -1
