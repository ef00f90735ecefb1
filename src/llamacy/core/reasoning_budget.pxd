from libc.stdint cimport int32_t

from llamacy.core.vocab cimport Vocab
from llamacy.native.handles cimport llama_sampler


cdef llama_sampler* budget_sampler_new(Vocab vocab, dict values) except NULL
cdef dict budget_values(object budget, object start, object end, object message, bint in_block, object start_within)

# Of a sampler or chain: the token that its reasoning budget forces now, or -1 when there is none or it forces nothing
# (then it changes no candidate); and whether the block of reasoning that it counts is going on.
cdef int32_t budget_forced_token(llama_sampler* sampler) noexcept nogil
cdef bint budget_in_block(llama_sampler* sampler) noexcept nogil
