from libc.stdint cimport int32_t

from llamacy.native.handles cimport llama_sampler, llama_vocab


cdef llama_sampler* grammar_sampler_new(
    const llama_vocab* vocab, bytes text, bytes root, object patterns, object tokens
) except NULL
cdef int grammar_sampler_verdict(llama_sampler* sampler, int32_t token) except -1 nogil
cdef bint grammar_sampler_awaiting(llama_sampler* sampler) noexcept nogil
cdef int grammar_raise(int verdict, int32_t token) except -1
