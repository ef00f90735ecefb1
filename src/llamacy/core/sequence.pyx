# distutils: language = c++
"""One live conversation: the ledger of its tokens, its place in the memory, and its sampler."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from libc.stdint cimport INT32_MAX, int32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from llamacy.core.logprobs cimport LogprobRecord
from llamacy.core.sampler cimport SamplerChain
from llamacy.core.sampler_base cimport SamplerBase
from llamacy.core.vocab cimport Vocab, vocab_is_eog

from array import array

from llamacy.errors import ContextLengthError

__all__ = ["Sequence"]

cdef char* _INT32 = "i"  # struct format
cdef Py_ssize_t _ITEM = sizeof(int32_t)


@cython.no_gc_clear
cdef class Sequence:
    """The tokens of one conversation and how far they are in the memory.

    The tokens are exported by the buffer protocol: `numpy.asarray(sequence)` copies nothing. Such a view shows the
    tokens that there were when it was made; after a shift, or when the sequence is used for something else, others.

    Parameters
    ----------
    seq_id : int
        Sequence of the memory that holds it.
    capacity : int
        Most tokens.

    Notes
    -----
    The first `n_past` tokens are in the memory; the others are pending. `Scheduler` moves `n_past`, and only after the
    decode that stored them has succeeded.

    Shapes: int32, (n_tokens,), read-only.
    """

    def __cinit__(self, int seq_id, int capacity):
        if seq_id < 0 or capacity < 1:
            raise ValueError(f"seq_id must be from 0 and capacity from 1, not {seq_id} and {capacity}")
        self._tokens = <int32_t*>malloc(capacity * sizeof(int32_t))
        if self._tokens == NULL:
            raise MemoryError
        self.seq_id = seq_id
        self.capacity = capacity
        self._sampled = -1
        self._n_keep = -1
        self._n_max = -1
        self._n_sound = INT32_MAX
        self._processors = self._criteria = ()

    def __dealloc__(self):
        free(self._tokens)
        free(self._generated)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError("the tokens of a sequence are read-only")
        # the shape of the view, kept in the view itself: the ledger grows
        view.internal = malloc(sizeof(Py_ssize_t))
        if view.internal == NULL:
            raise MemoryError
        (<Py_ssize_t*>view.internal)[0] = self._n_tokens
        view.buf = <void*>self._tokens
        view.obj = self
        view.len = self._n_tokens * _ITEM
        view.itemsize = _ITEM
        view.readonly = 1
        view.ndim = 1
        view.format = _INT32 if flags & PyBUF_FORMAT else NULL
        view.shape = <Py_ssize_t*>view.internal if flags & PyBUF_ND else NULL
        view.strides = &_ITEM if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        view.suboffsets = NULL

    def __releasebuffer__(self, Py_buffer* view):
        free(view.internal)

    def __len__(self):
        return self._n_tokens

    def __repr__(self):
        return f"<Sequence {self.seq_id}: {self._n_past} of {self._n_tokens} tokens in the memory>"

    @property
    def n_past(self):
        """Tokens that are in the memory."""
        return self._n_past

    @property
    def n_pending(self):
        """Tokens that are not in the memory yet."""
        return self._n_tokens - self._n_past

    @property
    def tokens(self):
        """All tokens, a copy as array of int32."""
        return _copied(self._tokens, self._n_tokens)

    @property
    def generated(self):
        """Tokens that were generated, a copy as array of int32; also those that a shift has dropped."""
        return _copied(self._generated, self._n_generated)

    @property
    def sampler(self):
        """`SamplerChain` that picks the next token, or None. May be set."""
        return self._sampler

    @sampler.setter
    def sampler(self, SamplerChain sampler):
        self._sampler = sampler

    @property
    def grammar(self):
        """Grammar `Sampler` that the next tokens obey, or None. May be set; `grammar_first` says how it is applied.

        When its text is whole and nothing can follow, `complete` is true.
        """
        return self._grammar

    @grammar.setter
    def grammar(self, SamplerBase grammar):
        self._grammar = grammar
        self.complete = False

    @property
    def n_keep(self):
        """Tokens at the beginning that stay when the full sequence is shifted, or None: it isn't. May be set.

        A shift drops the older half of the other tokens, so that the generation goes on for ever.
        """
        return None if self._n_keep < 0 else self._n_keep

    @n_keep.setter
    def n_keep(self, n_keep):
        cdef int value = -1 if n_keep is None else n_keep
        if n_keep is not None and not 0 <= value < self.capacity - 1:
            raise ValueError(f"n_keep must be from 0 to {self.capacity - 2}, not {value}")
        self._n_keep = value

    @property
    def processors(self):
        """Tuple of what changes a row of logits before a token is chosen; may be set.

        Each is a `LogitsFunction`, or is called with the sequence and the writable row, `Rows` of shape (n_vocab,).
        """
        return self._processors

    @processors.setter
    def processors(self, processors):
        self._processors = tuple(processors)

    @property
    def criteria(self):
        """Tuple of what is asked after every token whether to stop; may be set.

        Each is a `LogitsFunction`, or is called with the sequence and the row of logits that the token came from.
        """
        return self._criteria

    @criteria.setter
    def criteria(self, criteria):
        self._criteria = tuple(criteria)

    @property
    def logprobs(self):
        """`LogprobRecord` that takes the log-probabilities of what is generated, or None. May be set."""
        return self._logprobs

    @logprobs.setter
    def logprobs(self, LogprobRecord record):
        self._logprobs = record

    @property
    def prompt_logprobs(self):
        """`LogprobRecord` for the pending tokens after the first, each given those before it, or None. May be set.

        It is None again once the record has them all.
        """
        return self._prompt_logprobs

    @prompt_logprobs.setter
    def prompt_logprobs(self, LogprobRecord record):
        self._prompt_logprobs = record
        self._next_scored = self._n_past + 1

    def extend(self, const int32_t[::1] tokens):
        """Add tokens; they are pending.

        Raises
        ------
        ContextLengthError
            They don't fit; nothing was added.
        """
        cdef Py_ssize_t n = tokens.shape[0]
        if n > self.capacity - self._n_tokens:
            raise ContextLengthError(
                f"the prompt has {self._n_tokens + n} tokens, but the context has room for {self.capacity}; shorten "
                "it, or use a larger n_ctx",
                n_prompt=self._n_tokens + n,
                n_ctx=self.capacity,
            )
        if n:
            memcpy(self._tokens + self._n_tokens, &tokens[0], n * sizeof(int32_t))
            self._n_tokens += <int>n


cdef object _copied(const int32_t* tokens, int n):
    copy = array("i", bytes(n * sizeof(int32_t)))
    cdef int32_t[::1] view
    if n:
        view = copy
        memcpy(&view[0], tokens, n * sizeof(int32_t))
    return copy


cdef int sequence_begin(Sequence self, Vocab vocab, int n_max) except -1:
    self._vocab = vocab
    self._n_max = n_max
    self._n_generated = 0
    self._end = SEQUENCE_GOES_ON
    self.n_shifted = 0
    return 0


cdef int sequence_append(Sequence self, int32_t token) except -1 nogil:
    if self._n_tokens == self.capacity:
        with gil:
            raise ContextLengthError(
                f"the context of {self.capacity} tokens is full", n_prompt=self._n_tokens + 1, n_ctx=self.capacity
            )
    if self._n_generated == self._generated_capacity:
        _grow(self)
    self._generated[self._n_generated] = token
    self._n_generated += 1
    self._tokens[self._n_tokens] = token
    self._n_tokens += 1
    if self.complete or (self._vocab is not None and vocab_is_eog(self._vocab, token)):
        self._end = SEQUENCE_STOPPED
    elif 0 <= self._n_max <= self._n_generated:
        self._end = SEQUENCE_AT_LIMIT
    return 0


cdef int _grow(Sequence self) except -1 nogil:
    cdef int capacity = 2 * self._generated_capacity + 64
    cdef int32_t* memory = <int32_t*>realloc(self._generated, capacity * sizeof(int32_t))
    if memory == NULL:
        with gil:
            raise MemoryError
    self._generated = memory
    self._generated_capacity = capacity
    return 0


cdef void sequence_truncate(Sequence self, int n) noexcept nogil:
    self._n_tokens = min(self._n_tokens, n)
    self._n_past = min(self._n_past, n)
    if self._n_past <= self._n_sound:
        self._n_sound = INT32_MAX
    self._sampled = -1
    self._end = SEQUENCE_GOES_ON


cdef void sequence_drop(Sequence self, int first, int n) noexcept nogil:
    memmove(self._tokens + first, self._tokens + first + n, (self._n_tokens - first - n) * sizeof(int32_t))
    self._n_tokens -= n
    self._n_past -= n
    self._n_before = min(self._n_before, max(first, self._n_before - n))
    self.n_shifted += n
    # those behind the gap were computed with what was in it
    self._n_sound = min(self._n_sound, first)


cdef void sequence_forget(Sequence self) noexcept nogil:
    self._n_past = 0
    self._n_sound = INT32_MAX


cdef int sequence_copy(Sequence self, Sequence source) except -1:
    if source._n_tokens > self.capacity:
        raise ContextLengthError(
            f"{source._n_tokens} tokens don't fit a sequence of {self.capacity}",
            n_prompt=source._n_tokens,
            n_ctx=self.capacity,
        )
    memcpy(self._tokens, source._tokens, source._n_tokens * sizeof(int32_t))
    self._n_tokens = source._n_tokens
    self._n_past = source._n_past
    self._n_sound = source._n_sound
    self._n_before = source._n_before
    self._basis_before = source._basis_before
    self._sampled = -1
    return 0
