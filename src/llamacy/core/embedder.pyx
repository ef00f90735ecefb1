# distutils: language = c++
"""Vectors of texts: many texts in one decode, their rows copied out."""

cimport cython
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from llamacy.core.batch cimport Batch, batch_clear, batch_extend
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_acquire, context_release
from llamacy.core.model cimport model_handle
from llamacy.native cimport llama as c_llama

from llamacy.errors import ClosedError, ContextCreateError, InvalidBatchError, OutputError

__all__ = ["Embedder"]


@cython.no_gc_clear
cdef class Embedder:
    """Computes what a context puts out for texts: one vector for each, or one for each of their tokens.

    Parameters
    ----------
    context : Context
        Made with ``embeddings=True``.

    Attributes
    ----------
    context : Context
        As given.
    width : int
        Numbers in a vector: those of an embedding, or one for each label of a classification head.
    pooled : bool
        Whether a text has one vector.

    Raises
    ------
    ContextCreateError
        The context produces no embeddings.

    Lifetime: keeps the context alive.
    Thread safety: one call at a time.
    """

    cdef readonly Context context
    cdef readonly int width
    cdef readonly bint pooled
    cdef bint _encode
    cdef Batch _batch

    def __cinit__(self, Context context not None):
        cdef int pooling
        if not context.embeddings_enabled:
            raise ContextCreateError("vectors of texts need a context that was made with embeddings=True")
        self.context = context
        pooling = c_llama.llama_pooling_type(context._ptr)
        self.pooled = pooling != c_llama.LLAMA_POOLING_TYPE_NONE
        self.width = context.n_embd_out
        if pooling == c_llama.LLAMA_POOLING_TYPE_RANK:
            self.width = c_llama.llama_model_n_cls_out(model_handle(context.model))
        # of an encoder and a decoder, the encoder is what makes vectors
        self._encode = context._has_encoder or context._memory == NULL
        self._batch = Batch(context.n_batch)

    def run(
        self,
        const int32_t[::1] tokens not None,
        const int64_t[::1] offsets not None,
        const int32_t[::1] texts not None,
        float[:, ::1] out not None,
        Py_ssize_t first=0,
    ):
        """Compute texts in one decode, after clearing the memory.

        Parameters
        ----------
        tokens : buffer of int32
            Tokens of all texts, one after the other.
        offsets : buffer of int64
            Where in them each text begins, and where the last one ends.
        texts : buffer of int32
            Indices of the texts to compute.
        out : writable buffer of float32, (n, width), C order
            With pooling, row i becomes the vector of text i; else its rows become those of the tokens of `texts`, one
            text after the other.
        first : int
            What errors call text 0.

        Raises
        ------
        OutputError
            llama.cpp left no vector of a text, or one with a number that is not finite; `out` is not meaningful.
        InvalidBatchError
            The texts are more than one decode takes; nothing was computed.
        ValueError
            An index is out of range, a text has no tokens, or `out` has another shape.
        DecodeError, EncodeError
            As for `Context.decode` and `Context.encode`.

        Lifetime: what is in `out` is a copy.
        Thread safety: releases the GIL while it computes.
        """
        cdef Py_ssize_t n_tokens
        if self._batch._c == NULL:
            raise ClosedError("this embedder is closed")
        n_tokens = self._check(tokens, offsets, texts, out)
        if n_tokens == 0:
            return
        if self.context._memory != NULL:
            self.context.memory.clear(data=False)
        self._fill(tokens, offsets, texts)
        if self._encode:
            self.context.encode(self._batch)
        else:
            self.context.decode(self._batch)
        context_acquire(self.context)
        try:
            if self.pooled:
                self._copy_pooled(texts, out, first)
            else:
                self._copy_tokens(n_tokens, texts, offsets, out, first)
        finally:
            context_release(self.context)

    def close(self):
        """Free the batch; the context stays open.

        Raises
        ------
        InUseError
            It is running in another thread.
        """
        self._batch.close()

    def __repr__(self):
        return f"<Embedder width={self.width} pooled={self.pooled} of {self.context!r}>"

    cdef Py_ssize_t _check(
        self, const int32_t[::1] tokens, const int64_t[::1] offsets, const int32_t[::1] texts, float[:, ::1] out
    ) except -1:
        """Refuse what would read or write out of bounds; returns the number of tokens to compute."""
        cdef Py_ssize_t n_texts = offsets.shape[0] - 1
        cdef Py_ssize_t n_tokens = 0
        cdef Py_ssize_t i
        cdef int64_t begin, end
        for i in range(texts.shape[0]):
            if not 0 <= texts[i] < n_texts:
                raise ValueError(f"text {texts[i]} is not one of the {max(n_texts, 0)}")
            begin, end = offsets[texts[i]], offsets[texts[i] + 1]
            if not 0 <= begin < end <= tokens.shape[0]:
                raise ValueError(
                    f"text {texts[i]} is from token {begin} to {end} of {tokens.shape[0]}, which is no text"
                )
            n_tokens += end - begin
        if out.shape[1] != self.width or out.shape[0] < (n_texts if self.pooled else n_tokens):
            raise ValueError(
                f"out has the shape ({out.shape[0]}, {out.shape[1]}), not "
                f"({n_texts if self.pooled else n_tokens}, {self.width})"
            )
        if n_tokens > self._batch.capacity or texts.shape[0] > self.context.n_seq_max:
            raise InvalidBatchError(
                f"{texts.shape[0]} texts of {n_tokens} tokens are more than one decode takes: {self.context.n_seq_max} "
                f"texts of {self._batch.capacity} tokens"
            )
        return n_tokens

    cdef int _fill(
        self, const int32_t[::1] tokens, const int64_t[::1] offsets, const int32_t[::1] texts
    ) except -1:
        cdef Py_ssize_t i
        cdef int64_t begin
        with nogil:
            batch_clear(self._batch)
            for i in range(texts.shape[0]):
                begin = offsets[texts[i]]
                batch_extend(
                    self._batch, &tokens[begin], <int>(offsets[texts[i] + 1] - begin), 0, <int32_t>i, False
                )
            for i in range(self._batch._n_tokens):
                self._batch._logits[i] = 1
        return 0

    cdef int _copy_pooled(self, const int32_t[::1] texts, float[:, ::1] out, Py_ssize_t first) except -1:
        cdef const float* row = NULL
        cdef Py_ssize_t i
        for i in range(texts.shape[0]):
            if self.context._n_tokens:
                row = c_llama.llama_get_embeddings_seq(self.context._ptr, <int32_t>i)
            self._copy(row, &out[texts[i], 0], first + texts[i])
        return 0

    cdef int _copy_tokens(
        self, Py_ssize_t n_tokens, const int32_t[::1] texts, const int64_t[::1] offsets, float[:, ::1] out,
        Py_ssize_t first,
    ) except -1:
        cdef const float* row = NULL
        cdef Py_ssize_t i
        cdef Py_ssize_t text = 0
        cdef int64_t left = offsets[texts[0] + 1] - offsets[texts[0]]
        for i in range(n_tokens):
            if left == 0:
                text += 1
                left = offsets[texts[text] + 1] - offsets[texts[text]]
            left -= 1
            if i < self.context._n_outputs:
                row = c_llama.llama_get_embeddings_ith(self.context._ptr, <int32_t>i)
            self._copy(row, &out[i, 0], first + texts[text])
        return 0

    cdef int _copy(self, const float* row, float* out, Py_ssize_t text) except -1:
        cdef float zero = 0
        cdef int i
        if row == NULL:
            raise OutputError(f"the decode left no vector of text {text}")
        memcpy(out, row, self.width * sizeof(float))
        for i in range(self.width):
            zero += out[i] * 0
        if not isfinite(zero):
            raise OutputError(
                f"the vector of text {text} has a number that is not finite; the model's weights or the adapters on it "
                "overflow in the precision that it computes in"
            )
        return 0
