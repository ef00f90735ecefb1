from libc.stdint cimport int32_t

from llamacy.core.candidates cimport Candidates, candidate_array
from llamacy.core.samplers cimport Sampler
from llamacy.native.handles cimport llama_sampler


# A sampler written in Cython or C, which runs without the GIL. `data` is handed to every function.
#
#   name    constant text, required
#   apply   required: change the logits and set `sorted` to 0, move the candidates to keep to the front and lower
#           `size`, or set `selected`; leave at least one candidate, and no logit that is NaN or above 1e8
#   accept  the chosen token, or NULL
#   reset   back to the start, or NULL
#   clone   an independent copy of the data, or NULL: then samplers with data can't be cloned
#   free    free the data, or NULL; called once
#
# None of them may raise, call Python, or keep the pointers it was given.
ctypedef struct sampler_functions:
    const char* name
    void (*apply)(void* data, candidate_array* candidates) noexcept nogil
    void (*accept)(void* data, int32_t token) noexcept nogil
    void (*reset)(void* data) noexcept nogil
    void* (*clone)(const void* data) noexcept nogil
    void (*free)(void* data) noexcept nogil


# Return a sampler that calls the functions, which are copied. It owns `data` when `free` is given, and keeps `owner`
# alive.
cdef Sampler sampler_from_functions(const sampler_functions* functions, void* data, object owner=*)


cdef class CustomSampler(Sampler):
    cdef Candidates _lent               # what the last apply was given, for the next one


cdef llama_sampler* custom_native(CustomSampler self) except NULL
cdef CustomSampler custom_take(llama_sampler* native)
