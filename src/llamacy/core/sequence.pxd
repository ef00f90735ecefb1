from libc.stdint cimport int32_t

from llamacy.core.sampler cimport SamplerChain
from llamacy.core.sampler_base cimport SamplerBase


cdef class Sequence:
    # the ledger: the tokens that are in the memory, and after them those that go there next
    cdef int32_t* _tokens
    cdef int _n_tokens
    cdef int _n_past                    # tokens that are in the memory
    cdef SamplerChain _sampler
    cdef SamplerBase _grammar
    cdef public bint grammar_first      # mask with the grammar before the sampler chooses
    cdef readonly bint complete         # the grammar is at an end and lets nothing follow
    cdef readonly int seq_id
    cdef readonly int capacity          # tokens that the ledger can hold
    # one step of the scheduler
    cdef int _n_taken                   # tokens in the batch now
    cdef int _row                       # batch index of the row to sample, or -1
    cdef int32_t _sampled               # token that the step gave, or -1


cdef int sequence_append(Sequence self, int32_t token) except -1 nogil
