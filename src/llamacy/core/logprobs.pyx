# distutils: language = c++
"""How probable tokens were: logarithms of the softmax of rows of logits, and a record of them as long as a text."""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from array import array

from llamacy.errors import ConcurrentUseError, SamplerError

__all__ = ["LogprobRecord", "log_softmax_top"]

cdef extern from "_atomic.h" nogil:
    int llamacy_flag_take(int* flag) noexcept
    void llamacy_flag_give(int* flag) noexcept

cdef extern from "_logprobs.h" nogil:
    int LLAMACY_LOGPROBS_MEMORY
    int LLAMACY_LOGPROBS_TOKEN
    int LLAMACY_LOGPROBS_COUNT
    int LLAMACY_LOGPROBS_NAN
    int llamacy_logprobs(
        const float* row, int32_t n, int32_t chosen, int32_t k, float* out_chosen, int32_t* top_ids,
        float* top_logprobs) noexcept

cdef enum:
    FIRST_CAPACITY = 64


@cython.final
cdef class LogprobRecord:
    """The tokens of a text with their log-probabilities, and with the most probable tokens at each place.

    Works like a sequence of tuples of the token, its log-probability, and arrays of the ids (int32) and
    log-probabilities (float32) of the most probable tokens there: in descending order, equal ones by token id. They are
    copies. Log-probabilities are those of the row as it is, before any sampler.

    Parameters
    ----------
    n_top : int
        How many of the most probable tokens to keep for each token.

    Attributes
    ----------
    n_top : int
        As given.

    Raises
    ------
    ValueError
        `n_top` is negative or above 2,147,483,647.

    Thread safety: one call at a time; a second one raises `ConcurrentUseError`.
    """

    def __cinit__(self, Py_ssize_t n_top=0):
        if not 0 <= n_top <= INT32_MAX:
            raise ValueError(f"n_top is a number of tokens from 0 to {INT32_MAX}, not {n_top}")
        self.n_top = <int>n_top

    def __dealloc__(self):
        free(self._tokens)
        free(self._logprobs)
        free(self._top_ids)
        free(self._top_logprobs)

    def append(self, const float[::1] row not None, Py_ssize_t token):
        """Note a token and what its row said.

        Parameters
        ----------
        row : buffer of float32
            The logits that the token was chosen from, one for each token of the vocabulary; -inf for what is ruled out.
        token : int
            The token.

        Raises
        ------
        SamplerError
            There is no such token, or not `n_top` tokens, in the row; a logit is not a number or infinite; or all are
            ruled out. Nothing was noted.
        """
        _check_row(row.shape[0], token)
        logprob_record_append(self, &row[0], <int32_t>row.shape[0], <int32_t>token)

    def __len__(self):
        return self._n

    def __getitem__(self, Py_ssize_t index):
        cdef Py_ssize_t n_top = self.n_top
        _acquire(self)
        try:
            if index < 0:
                index += self._n
            if not 0 <= index < self._n:
                raise IndexError(f"the record has {self._n} tokens")
            return (
                self._tokens[index],
                self._logprobs[index],
                _int_array(self._top_ids + index * n_top, n_top),
                _float_array(self._top_logprobs + index * n_top, n_top),
            )
        finally:
            llamacy_flag_give(&self._busy)

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __repr__(self):
        return f"<LogprobRecord of {self._n} tokens, n_top={self.n_top}>"

    @property
    def tokens(self):
        """The tokens, as an owned array of int32."""
        _acquire(self)
        try:
            return _int_array(self._tokens, self._n)
        finally:
            llamacy_flag_give(&self._busy)

    @property
    def logprobs(self):
        """Their log-probabilities, as an owned array of float32."""
        _acquire(self)
        try:
            return _float_array(self._logprobs, self._n)
        finally:
            llamacy_flag_give(&self._busy)

    @property
    def sum(self):
        """Sum of their log-probabilities: the logarithm of the probability of the whole text."""
        return logprob_record_sum(self)


def log_softmax_top(const float[::1] row not None, Py_ssize_t token, Py_ssize_t k=0):
    """Return the log-probability of a token in a row of logits, and the most probable tokens with theirs.

    Parameters
    ----------
    row : buffer of float32
        Logits, one for each token of the vocabulary; -inf for what is ruled out.
    token : int
        The token.
    k : int
        How many of the most probable tokens to return.

    Returns
    -------
    tuple of (float, array, array)
        The log-probability; the ids (int32) and the log-probabilities (float32) of the most probable tokens, in
        descending order, equal ones by token id.

    Raises
    ------
    SamplerError
        There is no such token, or not `k` tokens, in the row; a logit is not a number or infinite; or all are ruled
        out.

    Thread safety: releases the GIL.
    """
    cdef int32_t n, c_token = 0, c_k
    cdef float logprob = 0
    cdef int problem
    cdef int[::1] ids
    cdef float[::1] logprobs
    _check_row(row.shape[0], token)
    n = <int32_t>row.shape[0]
    if not 0 <= k <= n:
        raise SamplerError(f"a row of {n} logits has no {k} most probable tokens")
    c_token, c_k = <int32_t>token, <int32_t>k
    top_ids = array("i", bytes(4 * k))
    top_logprobs = array("f", bytes(4 * k))
    ids, logprobs = top_ids, top_logprobs
    with nogil:
        problem = row_logprobs(&row[0], n, c_token, c_k, &logprob, <int32_t*>&ids[0], &logprobs[0])
    if problem:
        logprobs_raise(problem, n, c_token, c_k)
    return logprob, top_ids, top_logprobs


cdef int _check_row(Py_ssize_t n, Py_ssize_t token) except -1:
    if n > INT32_MAX:
        raise SamplerError(f"{n} logits are more than there can be token ids")
    if not 0 <= token < n:
        raise SamplerError(f"there is no token {token} in a row of {n} logits")
    return 0


cdef object _int_array(const int32_t* data, Py_ssize_t n):
    cdef int[::1] view
    result = array("i", bytes(sizeof(int32_t) * n))
    if n:
        view = result
        memcpy(&view[0], data, n * sizeof(int32_t))
    return result


cdef object _float_array(const float* data, Py_ssize_t n):
    cdef float[::1] view
    result = array("f", bytes(sizeof(float) * n))
    if n:
        view = result
        memcpy(&view[0], data, n * sizeof(float))
    return result


cdef int row_logprobs(
    const float* row, int32_t n, int32_t chosen, int32_t k, float* out_chosen, int32_t* top_ids, float* top_logprobs
) noexcept nogil:
    return llamacy_logprobs(row, n, chosen, k, out_chosen, top_ids, top_logprobs)


cdef int logprobs_raise(int problem, int32_t n, int32_t chosen, int32_t k) except -1:
    if problem == LLAMACY_LOGPROBS_MEMORY:
        raise MemoryError()
    if problem == LLAMACY_LOGPROBS_TOKEN:
        raise SamplerError(f"there is no token {chosen} in a row of {n} logits")
    if problem == LLAMACY_LOGPROBS_COUNT:
        raise SamplerError(f"a row of {n} logits has no {k} most probable tokens")
    if problem == LLAMACY_LOGPROBS_NAN:
        raise SamplerError("a logit is not a number or infinite, so there are no probabilities; -inf rules tokens out")
    raise SamplerError("every token is ruled out by a logit of -inf, so there are no probabilities")


cdef int _acquire(LogprobRecord self) except -1 nogil:
    if not llamacy_flag_take(&self._busy):
        with gil:
            raise ConcurrentUseError(f"{self!r} is at work in another thread")
    return 0


cdef int logprob_record_append(LogprobRecord self, const float* row, int32_t n, int32_t token) except -1 nogil:
    cdef Py_ssize_t at
    cdef int problem
    if self.n_top > n:
        with gil:
            logprobs_raise(LLAMACY_LOGPROBS_COUNT, n, token, self.n_top)
    _acquire(self)
    try:
        at = self._n
        if at == self._capacity:
            _grow(self)
        problem = llamacy_logprobs(
            row, n, token, self.n_top, self._logprobs + at, self._top_ids + at * self.n_top,
            self._top_logprobs + at * self.n_top)
        if problem:
            with gil:
                logprobs_raise(problem, n, token, self.n_top)
        self._tokens[at] = token
        self._sum += self._logprobs[at]
        self._n = at + 1
    finally:
        llamacy_flag_give(&self._busy)
    return 0


cdef int _grow(LogprobRecord self) except -1 nogil:
    cdef size_t capacity = 2 * self._capacity if self._capacity else FIRST_CAPACITY
    cdef size_t n_top = capacity * self.n_top
    cdef void* tokens = realloc(self._tokens, capacity * sizeof(int32_t))
    cdef void* logprobs = realloc(self._logprobs, capacity * sizeof(float))
    cdef void* top_ids = realloc(self._top_ids, n_top * sizeof(int32_t)) if n_top else NULL
    cdef void* top_logprobs = realloc(self._top_logprobs, n_top * sizeof(float)) if n_top else NULL
    # what was moved is gone from its old place, whether the others could be moved or not
    if tokens != NULL:
        self._tokens = <int32_t*>tokens
    if logprobs != NULL:
        self._logprobs = <float*>logprobs
    if top_ids != NULL:
        self._top_ids = <int32_t*>top_ids
    if top_logprobs != NULL:
        self._top_logprobs = <float*>top_logprobs
    if tokens == NULL or logprobs == NULL or (n_top and (top_ids == NULL or top_logprobs == NULL)):
        with gil:
            raise MemoryError()
    self._capacity = capacity
    return 0


cdef double logprob_record_sum(LogprobRecord self) noexcept nogil:
    return self._sum
