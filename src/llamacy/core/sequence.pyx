# distutils: language = c++
"""One live conversation: the ledger of its tokens, its place in the memory, and its sampler."""

cimport cython
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from llamacy.core.sampler cimport SamplerChain
from llamacy.core.sampler_base cimport SamplerBase

from array import array

from llamacy.errors import ContextLengthError

__all__ = ["Sequence"]


@cython.no_gc_clear
cdef class Sequence:
    """The tokens of one conversation and how far they are in the memory.

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

    def __dealloc__(self):
        free(self._tokens)

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
        return array("i", [self._tokens[i] for i in range(self._n_tokens)])

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


cdef int sequence_append(Sequence self, int32_t token) except -1 nogil:
    """Add one token; it is pending."""
    if self._n_tokens == self.capacity:
        with gil:
            raise ContextLengthError(
                f"the context of {self.capacity} tokens is full", n_prompt=self._n_tokens + 1, n_ctx=self.capacity
            )
    self._tokens[self._n_tokens] = token
    self._n_tokens += 1
    return 0
