from libc.stdint cimport int32_t
from libcpp cimport bool as cbool
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from llamacy.core.context cimport Context
from llamacy.native.handles cimport llama_batch_ext

# what was put into one entry
cdef struct BatchEntry:
    int32_t seq_id                      # the first of its sequences
    int32_t pos                         # the first of its positions, if has_pos
    cbool has_pos
    cbool has_token
    cbool has_embd
    cbool has_state
    cbool output


cdef class ExtendedBatch:
    cdef llama_batch_ext* _ptr          # NULL once closed
    cdef object __weakref__
    cdef readonly Context context
    cdef readonly int capacity
    cdef vector[BatchEntry] _entries    # mirrors the native entries
    cdef vector[pair[int32_t, int32_t]] _shared  # further sequences: index of the entry, sequence id
    cdef int _last_embd                 # entries with an embedding, or with a state, must be filled in order
    cdef int _last_state
    cdef bint _spoiled                  # an entry was left half filled: only clear() helps
    cdef int _busy                      # a call reads the batch now


cdef int batch_ext_check_idle(ExtendedBatch self) except -1
cdef int batch_ext_raise_unusable(ExtendedBatch self) except -1
