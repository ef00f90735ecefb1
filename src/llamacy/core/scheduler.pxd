from llamacy.core.batch cimport Batch
from llamacy.core.context cimport Context


cdef class Scheduler:
    cdef readonly Context context
    cdef Batch _batch
    cdef list _sequences                # that take part in steps, in the order in which they came
    cdef volatile int _abort            # set by abort(), cleared when the next sequence is added
