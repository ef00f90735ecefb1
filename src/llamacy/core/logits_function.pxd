from libc.stdint cimport int32_t

# What works on a row of logits without the GIL: it may change the row, and returns 0, or another number to end the
# generation when it is used as a criterion. The tokens are all of the sequence.
ctypedef int (*logits_function)(
    void* data, const int32_t* tokens, int32_t n_tokens, float* logits, int32_t n_vocab
) noexcept nogil


cdef class LogitsFunction:
    cdef logits_function _function
    cdef void* _data
    cdef object _owner                  # of the data


# Wrap a function; `owner` is kept alive as long as `data` may be used.
cdef LogitsFunction logits_function_wrap(logits_function function, void* data=*, object owner=*)
