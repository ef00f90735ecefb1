from libc.stdint cimport int32_t

from llamacy.core.batch cimport Batch
from llamacy.core.context cimport Context
from llamacy.core.sequence cimport Sequence


cdef class Scheduler:
    cdef readonly Context context
    cdef Batch _batch
    cdef list _sequences                # that take part in steps, in the order in which they came
    cdef int _turn                      # which prompt is first in the next batch
    cdef unsigned long long _epoch      # of the context after the last step: another one means another user
    cdef int _n_others                  # how often that was seen
    cdef volatile int _abort            # set by abort(), cleared when the next sequence is added


# Run steps until a sequence has a new token.
cdef int32_t scheduler_next_token(Scheduler self, Sequence sequence) except -1
