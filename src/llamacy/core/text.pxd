from libc.stdint cimport int32_t
from libcpp.vector cimport vector

from llamacy.core.vocab cimport Vocab


cdef struct hidden_span:                # a special token that leaves no text, in the pending bytes
    Py_ssize_t start
    Py_ssize_t size
    int32_t token


cdef class TextAssembler:
    cdef Vocab _vocab
    cdef bint _special
    cdef frozenset _spelled             # special tokens that leave text
    cdef tuple _stops                   # bytes
    cdef Py_ssize_t _longest_stop
    cdef char* _pending                 # bytes that are not out yet
    cdef Py_ssize_t _n_pending
    cdef Py_ssize_t _capacity
    cdef readonly long long n_in        # bytes that came in
    cdef readonly long long n_out       # … and went out
    cdef readonly bint stopped
    cdef readonly object stop           # str that ended the text, or None
    cdef dict _matched                  # special tokens that leave no text but are spelled in these stop strings
    cdef vector[hidden_span] _hidden


cdef str assembler_feed_token(TextAssembler self, int32_t token)
