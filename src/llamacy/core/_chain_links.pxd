from llamacy.core.sampler cimport SamplerChain
from llamacy.core.samplers cimport Sampler
from llamacy.native.handles cimport llama_sampler


cdef int links_check_add(SamplerChain self, Sampler sampler) except -1
cdef bint links_select(SamplerChain self) except -1
cdef int links_check_clonable(SamplerChain self) except -1
cdef int links_clone(SamplerChain self, llama_sampler* native, SamplerChain like) except -1
cdef int links_copy(SamplerChain self, llama_sampler* native, SamplerChain source) except -1
cdef void link_mark_closed(Sampler link) noexcept
