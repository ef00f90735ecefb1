# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False
"""Code of a user that works on rows of logits from Cython, without the GIL: no include path, nothing linked."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from llamacy.core.logits_function cimport logits_function_wrap


cdef struct numbers:
    int32_t first       # of as many tokens as there are letters
    int32_t n_letters
    int32_t most        # tokens of a whole text
    int32_t n_calls
    int32_t n_vocab


cdef class Letters:
    """Leaves one letter after the other, and ends a text that is long enough."""

    cdef numbers data

    def __cinit__(self, int32_t first, int32_t n_letters, int32_t most):
        self.data.first = first
        self.data.n_letters = n_letters
        self.data.most = most

    @property
    def seen(self):
        """How often it was asked, and how long a row is."""
        return self.data.n_calls, self.data.n_vocab

    def processor(self):
        return logits_function_wrap(leave_one, &self.data, self)

    def criterion(self):
        return logits_function_wrap(is_long, &self.data, self)


cdef int leave_one(
    void* data, const int32_t* tokens, int32_t n_tokens, float* logits, int32_t n_vocab
) noexcept nogil:
    cdef numbers* of = <numbers*>data
    cdef int32_t token = of.first + (tokens[n_tokens - 1] - of.first + 1) % of.n_letters
    cdef int32_t i
    of.n_calls += 1
    of.n_vocab = n_vocab
    for i in range(n_vocab):
        if i != token:
            logits[i] = -INFINITY
    return 0


cdef int is_long(void* data, const int32_t* tokens, int32_t n_tokens, float* logits, int32_t n_vocab) noexcept nogil:
    return n_tokens >= (<numbers*>data).most


def without_data():
    """Return a function that is called without any data."""
    return logits_function_wrap(is_no_data)


cdef int is_no_data(
    void* data, const int32_t* tokens, int32_t n_tokens, float* logits, int32_t n_vocab
) noexcept nogil:
    return data == NULL
