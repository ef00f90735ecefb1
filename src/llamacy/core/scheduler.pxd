from libc.stdint cimport int32_t

from llamacy.core.batch cimport Batch
from llamacy.core.context cimport Context
from llamacy.core.sequence cimport Sequence


cdef class Scheduler:
    cdef readonly Context context
    cdef Batch _batch
    cdef int _n_window                  # tokens of a sliding window whose cells other sequences may take, or 0
    cdef list _sequences                # that take part in steps, in the order in which they came
    cdef list _idle                     # that may be emptied to make room
    cdef int _turn                      # which prompt is first in the next batch
    # what the memory was computed with, as of the last look: when this is something else now, nothing of it is used
    cdef unsigned long long _epoch      # of the context
    cdef int _n_edits                   # of the context
    cdef int _n_others                  # how often somebody else was seen to have used it
    cdef object _adapters
    cdef object _control_vector
    cdef tuple _basis
    cdef bint _running                  # inside a step
    cdef double _deadline               # as for context_stop
    cdef volatile int _abort            # set by abort(), cleared when the next one begins


# Run steps until a sequence has a new token.
cdef int32_t scheduler_next_token(Scheduler self, Sequence sequence) except -1
