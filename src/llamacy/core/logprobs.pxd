from libc.stdint cimport int32_t


cdef class LogprobRecord:
    cdef readonly int n_top
    cdef Py_ssize_t _n
    cdef Py_ssize_t _capacity
    cdef int32_t* _tokens
    cdef float* _logprobs
    cdef int32_t* _top_ids              # n_top for each token
    cdef float* _top_logprobs           # … likewise
    cdef double _sum
    cdef int _busy                      # 1 while it grows or is read; taken and given back atomically


# Write the log-probability of the token `chosen` in a row of `n` logits, and the `k` tokens of the highest ones with
# theirs, in descending order, equal ones by token id. Returns 0; or a number for `logprobs_raise`, and writes nothing.
cdef int row_logprobs(
    const float* row, int32_t n, int32_t chosen, int32_t k, float* out_chosen, int32_t* top_ids, float* top_logprobs
) noexcept nogil
cdef int logprobs_raise(int problem, int32_t n, int32_t chosen, int32_t k) except -1

# Note a token and what its row of `n` logits said. The sum is that of the tokens' own log-probabilities.
cdef int logprob_record_append(LogprobRecord self, const float* row, int32_t n, int32_t token) except -1 nogil
cdef double logprob_record_sum(LogprobRecord self) noexcept nogil
