from libc.stdint cimport int32_t

from llamacy.core.candidates cimport candidate_array
from llamacy.core.model cimport Model
from llamacy.native.handles cimport llama_sampler

cdef enum SamplerState:
    SAMPLER_OPEN
    SAMPLER_CLOSED
    SAMPLER_IN_CHAIN


cdef class SamplerBase:
    cdef llama_sampler* _ptr            # NULL once closed or added to a chain, and for custom samplers outside of one
    cdef object __weakref__
    cdef SamplerState _state
    cdef int _busy                      # 1 while a call runs; taken and given back atomically
    cdef int _n_vocab                   # end of the valid token ids, or 0 when the sampler doesn't care
    cdef bint _clonable
    cdef Model _model                   # whose vocabulary native code points to, or None
    cdef readonly str kind              # "top_k", "grammar", …
    cdef dict _values                   # arguments the sampler was made with
    cdef object _owned                  # what the native sampler points to (samplers of C functions)
    cdef int _release(self) except -1
    cdef bint _same(self, SamplerBase other)
    cdef int _finish_copy(self, SamplerBase source) except -1


cdef llama_sampler* sampler_handle(SamplerBase self) except NULL nogil
cdef int sampler_acquire(SamplerBase self) except -1 nogil
cdef void sampler_release(SamplerBase self) noexcept nogil
cdef int sampler_fill(SamplerBase self, llama_sampler* ptr, SamplerBase like) except -1
cdef int sampler_set_model(SamplerBase self, Model model) except -1
cdef int sampler_accept(SamplerBase self, int32_t token) except -1 nogil
cdef bint sampler_complete(SamplerBase self) except -1 nogil
cdef llama_sampler* sampler_clone(const llama_sampler* ptr) except NULL
cdef int sampler_apply(llama_sampler* ptr, candidate_array* array) except -1 nogil
