from libc.stdint cimport int32_t

from llamacy.core.scheduler cimport Scheduler
from llamacy.core.sequence cimport Sequence
from llamacy.core.text cimport TextAssembler
from llamacy.core.vocab cimport Vocab


cdef class TokenStream:
    cdef Scheduler _scheduler
    cdef Sequence _sequence
    cdef Vocab _vocab
    cdef object _lock                   # held for every token
    cdef bint _detached
    cdef readonly int n_generated
    cdef readonly str finish_reason     # None while it goes on
    cdef readonly unsigned long thread  # that took the last token


cdef class TextStream:
    cdef TokenStream _tokens
    cdef TextAssembler _assembler


# The next token, or -1 when there are no more.
cdef int32_t stream_next_token(TokenStream self) except -2
