from llamacy.core.model cimport Model
from llamacy.core.sampler_base cimport SamplerBase
from llamacy.native.handles cimport llama_sampler


cdef class Sampler(SamplerBase):
    pass


cdef Sampler sampler_wrap(
    llama_sampler* ptr, str kind, dict values, int n_vocab=*, Model model=*, object owned=*, bint clonable=*
)
