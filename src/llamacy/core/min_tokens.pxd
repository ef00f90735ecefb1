from libc.stddef cimport size_t
from libc.stdint cimport int32_t

from llamacy.core.vocab cimport Vocab
from llamacy.native.handles cimport llama_sampler


cdef llama_sampler* min_tokens_sampler_new(Vocab vocab, int32_t n) except NULL

# The tokens that a sampler of this kind rules out now, ascending; NULL when it is another one or does nothing any more.
cdef const int32_t* min_tokens_masked(const llama_sampler* sampler, size_t* n) noexcept nogil
