from libc.stdint cimport int32_t

from llamacy.core.candidates cimport candidate
from llamacy.core.vocab cimport Vocab
from llamacy.native.handles cimport llama_sampler


cdef llama_sampler* grammar_sampler_new(
    Vocab vocab, bytes text, bytes root, object patterns, object tokens, object reasoning, object spelled
) except NULL
cdef int grammar_sampler_verdict(llama_sampler* sampler, int32_t token) except -1 nogil
cdef bint grammar_verdict_is_refusal(int verdict) noexcept nogil
cdef int grammar_raise(int verdict, int32_t token) except -1

# Of any sampler: whether it is a grammar, one that awaits its trigger, one whose text is whole and can't go on.
cdef bint grammar_sampler_is_one(llama_sampler* sampler) noexcept nogil
cdef bint grammar_sampler_awaiting(llama_sampler* sampler) noexcept nogil
cdef bint grammar_sampler_complete(llama_sampler* sampler) except -1 nogil

# Of a grammar: fill `data`, which has room for n + 128 candidates, with the `k` highest of a row that it allows, in
# descending order. Returns how many there are, or -1 when a logit is not a number or too large.
cdef int32_t grammar_sampler_top(
    llama_sampler* sampler, candidate* data, const float* logits, int32_t n, int32_t k
) except? -2 nogil

# The same with all that it allows, in any order, but those of -inf; there is room for n.
cdef int32_t grammar_sampler_all(
    llama_sampler* sampler, candidate* data, const float* logits, int32_t n
) except? -2 nogil
