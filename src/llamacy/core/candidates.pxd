from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t


# llama_token_data and llama_token_data_array, layout for layout, so that using them needs no header of llama.cpp.
ctypedef struct candidate:
    int32_t id
    float logit
    float p

ctypedef struct candidate_array:
    candidate* data
    size_t size
    int64_t selected                    # index in data, or -1
    unsigned char sorted


cdef class Candidates:
    cdef candidate* _base               # the allocation, which _c.data points into
    cdef size_t _capacity
    cdef candidate_array _c
    cdef int _busy                      # 1 while a sampler works on it; taken and given back atomically
    cdef bint _expired                  # was lent to a custom sampler that has returned
    cdef Py_ssize_t _n_exports


cdef Candidates candidates_copy(const candidate_array* array)
cdef int candidates_assign(Candidates self, const candidate_array* array) except -1
cdef int candidates_acquire(Candidates self, int32_t n_vocab) except -1
cdef void candidates_release(Candidates self) noexcept nogil
cdef int candidates_check(candidate_array* array, int32_t n_vocab) noexcept nogil
cdef int candidates_raise(int problem, int32_t n_vocab) except -1
