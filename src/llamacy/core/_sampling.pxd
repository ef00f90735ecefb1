from libc.stdint cimport int32_t

from llamacy.core.context cimport Context
from llamacy.core.sampler cimport SamplerChain
from llamacy.core.sampler_base cimport SamplerBase


# Note what the links do, whenever they change.
cdef int sampling_prepare(SamplerChain self) except -1
cdef void sampling_forget(SamplerChain self) noexcept

# Choose a token for an output row of the last decode; of those that a grammar allows, which is not in the chain. The
# chain, the grammar and the context must have been acquired.
cdef int32_t sampling_pick(SamplerChain self, Context context, int32_t index) except? -2147483648 nogil
cdef int32_t sampling_pick_allowed(
    SamplerChain self, SamplerBase grammar, Context context, int32_t index, bint grammar_first
) except? -2147483648 nogil

cdef int sampling_check_whole(SamplerChain self) except -1 nogil
