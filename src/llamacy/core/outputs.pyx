# distutils: language = c++
"""Views of logits and embeddings where llama.cpp keeps them, without a copy."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE

from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy

from llamacy.core.context cimport Context
from llamacy.core.decoding cimport (
    context_acquire,
    context_embeddings_ith,
    context_logits_ith,
    context_release,
)
from llamacy.core.model cimport model_handle
from llamacy.native cimport llama as c_llama
from llamacy.native cimport llama_ext as c_ext

from array import array

from llamacy.errors import LlamacyError, OutputError
from llamacy.types import PoolingType

__all__ = ["Outputs", "Rows"]

cdef char* _FLOAT = "f"  # struct format

# only this module may make these objects: an empty one would lead native code astray
cdef bint _wrapping = False


@cython.final
@cython.no_gc_clear
cdef class Rows:
    """Rows of float32 that live in the output buffer of a `Context`, exported by the buffer protocol.

    They are read-only, but for the row that a processor of logits gets.

    `numpy.asarray(rows)` copies nothing and sees the memory that llama.cpp writes. While such a view is alive, a decode
    that fits the output buffer goes ahead and the view then shows what that decode wrote; a decode that has to move the
    buffer, and `Context.close`, raise `BufferError`. `copy` returns memory of its own.

    Shapes: float32, (n,) for one row, (n_rows, n) for several, C order, read-only.
    Lifetime: keeps the context alive.
    Source: ``llama_get_logits_ith`` and its relatives.
    """

    def __cinit__(self):
        if not _wrapping:
            raise TypeError("output rows come from a context, for instance Context.logits()")

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE and not self._writable:
            raise BufferError("output rows are read-only")
        try:
            context_acquire(self._context)  # a decode of another thread may be moving the memory
        except LlamacyError as error:
            raise BufferError(str(error)) from None
        if self._epoch != self._context.epoch:
            context_release(self._context)
            raise BufferError("these rows are of an earlier decode; ask the context for them again")
        self._n_exports += 1
        if self._logits:
            self._context._n_row_exports += 1
        else:
            self._context._n_other_exports += 1
        context_release(self._context)
        view.buf = <void*>self._data
        view.obj = self
        view.len = self._shape[0] * self._strides[0]
        view.itemsize = sizeof(float)
        view.readonly = not self._writable
        view.ndim = self._ndim
        view.format = NULL
        view.shape = NULL
        view.strides = NULL
        if flags & PyBUF_FORMAT:
            view.format = _FLOAT
        if flags & PyBUF_ND:
            view.shape = self._shape
        if flags & PyBUF_STRIDES == PyBUF_STRIDES:
            view.strides = self._strides
        view.suboffsets = NULL
        view.internal = NULL

    def __releasebuffer__(self, Py_buffer* view):
        self._n_exports -= 1
        if self._logits:
            self._context._n_row_exports -= 1
        else:
            self._context._n_other_exports -= 1

    def copy(self):
        """Return the numbers in memory of their own, as a memoryview of the same shape."""
        with memoryview(self) as view:
            return memoryview(bytearray(view)).cast("f", self.shape)

    @property
    def shape(self):
        """Shape as a tuple."""
        return tuple([self._shape[i] for i in range(self._ndim)])

    def __len__(self):
        return self._shape[0]

    def __repr__(self):
        return f"<Rows float32 {self.shape} of {self._context!r}>"


@cython.final
@cython.no_gc_clear
cdef class Outputs:
    """What the last decode of a context put out; comes from `Context.outputs`.

    Rows are views of llama.cpp's memory (`Rows`). Entries are named by their index in the batch; negative numbers count
    output rows from the end.

    Thread safety: as its context.
    """

    def __cinit__(self):
        if not _wrapping:
            raise TypeError("outputs belong to a context: use Context.outputs")

    def __len__(self):
        """Return the number of output rows."""
        return self._context._n_outputs

    def __repr__(self):
        return f"<Outputs {self._context._n_outputs} rows of {self._context!r}>"

    def logits(self, int index=-1):
        """Return the logits of one entry of the last batch.

        Parameters
        ----------
        index : int
            Index in the batch; negative counts output rows from the end.

        Returns
        -------
        Rows
            View of llama.cpp's memory.

        Shapes: float32, (n_vocab,), read-only.

        Raises
        ------
        OutputError
            The entry was not an output.

        Lifetime: see `Rows`.
        Source: ``llama_get_logits_ith``.
        """
        return row_view(self._context, context_logits_ith(self._context, index), self._context.n_vocab, True)

    def all_logits(self):
        """Return the logits of all outputs of the last batch, in their order.

        Shapes: float32, (n_outputs, n_vocab), read-only.

        Raises
        ------
        OutputError
            The last decode had no output, or samplers on the backend kept the logits there.

        Source: ``llama_get_logits``.
        """
        cdef int n_rows = max(self._context._n_outputs, 1)
        if self._context._samplers:
            raise OutputError("with samplers attached to the context, rows are not whole; see sampled_logits")
        # the rows of all outputs follow the first one
        return rows_view(
            self._context, context_logits_ith(self._context, -n_rows), n_rows, self._context.n_vocab, True
        )

    def embeddings(self, int index=-1):
        """Return the embedding of one entry of the last batch.

        Shapes: float32, (n_embd_out,), read-only.

        Raises
        ------
        OutputError
            The entry was not an output, or the context does not produce embeddings.

        Source: ``llama_get_embeddings_ith``.
        """
        return row_view(self._context, context_embeddings_ith(self._context, index), self._context.n_embd_out, False)

    def all_embeddings(self):
        """Return the embeddings of all outputs of the last batch, in their order.

        Shapes: float32, (n_outputs, n_embd_out), read-only.

        Source: ``llama_get_embeddings``.
        """
        cdef int n_rows = max(self._context._n_outputs, 1)
        return rows_view(
            self._context, context_embeddings_ith(self._context, -n_rows), n_rows, self._context.n_embd_out, False
        )

    def seq_embeddings(self, int seq_id=0):
        """Return the pooled embedding of a sequence of the last batch.

        Returns
        -------
        memoryview
            An owned copy: llama.cpp frees the original at the next decode.

        Shapes: float32, (n_embd_out,), or (n_cls_out,) with ``PoolingType.RANK``.

        Raises
        ------
        OutputError
            The sequence was not in the last batch, or the context does not pool.

        Source: ``llama_get_embeddings_seq``.
        """
        cdef const float* data
        cdef Py_ssize_t n = self._context.n_embd_out
        cdef float[::1] copy
        context_acquire(self._context)
        try:
            data = c_llama.llama_get_embeddings_seq(self._context._ptr, seq_id)
            if data == NULL or self._context._n_tokens == 0:
                raise OutputError(f"the last decode left no pooled embedding of sequence {seq_id}")
            if self._context.pooling_type == PoolingType.RANK:
                n = c_llama.llama_model_n_cls_out(model_handle(self._context.model))
            owner = array("f", bytes(4 * n))
            copy = owner
            memcpy(&copy[0], data, n * sizeof(float))
        finally:
            context_release(self._context)
        return memoryview(owner)

    def nextn(self, index=None):
        """Return the rows that multi-token prediction reads.

        Parameters
        ----------
        index : int, optional
            Entry of the last batch; all rows by default.

        Shapes: float32, (n_embd_out,) or (n_rows, n_embd_out), read-only. Rows are those of the outputs, or of all
        tokens, as `set_embeddings_nextn` said.

        Raises
        ------
        OutputError
            They were not switched on, or there is no such row.

        Source: ``llama_get_embeddings_nextn_ith``.
        """
        cdef const float* data
        cdef int n_rows = self._context._n_outputs if self._context._nextn_masked else self._context._n_tokens
        context_acquire(self._context)
        try:
            if not self._context._nextn or n_rows == 0:
                raise OutputError("the last decode left no nextn rows; see set_embeddings_nextn")
            if index is None:
                data = c_ext.llama_get_embeddings_nextn(self._context._ptr)
            elif not self._context._nextn_masked and not 0 <= index < n_rows:
                raise OutputError(f"row {index} is not one of the {n_rows} of the last decode")
            else:
                data = c_ext.llama_get_embeddings_nextn_ith(self._context._ptr, index)
            if data == NULL:
                raise OutputError(f"entry {index} of the last batch was not an output")
        finally:
            context_release(self._context)
        if index is None:
            return rows_view(self._context, data, n_rows, self._context.n_embd_out, False)
        return row_view(self._context, data, self._context.n_embd_out, False)

    def layer_inputs(self, int layer):
        """Return the inputs of one layer for all tokens of the last batch.

        Shapes: float32, (n_tokens, n_embd), read-only.

        Raises
        ------
        OutputError
            They were not switched on for this layer, or the last decode failed.

        Source: ``llama_get_embeddings_layer_inp``.
        """
        cdef const float* data
        context_acquire(self._context)
        try:
            if layer not in self._context._layer_inputs or self._context._n_tokens == 0:
                raise OutputError(f"the last decode left no inputs of layer {layer}; see set_embeddings_layer_inp")
            data = c_ext.llama_get_embeddings_layer_inp(self._context._ptr, layer)
        finally:
            context_release(self._context)
        return rows_view(
            self._context, data, self._context._n_tokens, c_llama.llama_model_n_embd(self._context.model._ptr), False
        )

    def sampled_token(self, int index=-1):
        """Return the token that the backend sampled for an entry of the last batch, or None.

        Source: ``llama_get_sampled_token_ith``.
        """
        cdef int32_t token
        context_acquire(self._context)
        try:
            _check_row(self._context, index)
            token = c_llama.llama_get_sampled_token_ith(self._context._ptr, index)
        finally:
            context_release(self._context)
        return None if token < 0 else token

    def sampled_logits(self, int index=-1):
        """Return the logits of the candidates that the backend left for an entry, or None.

        Shapes: float32, (n_candidates,), parallel to `sampled_candidates`, read-only.

        Source: ``llama_get_sampled_logits_ith``.
        """
        cdef const float* data
        cdef uint32_t n
        context_acquire(self._context)
        try:
            _check_row(self._context, index)
            data = c_llama.llama_get_sampled_logits_ith(self._context._ptr, index)
            n = c_llama.llama_get_sampled_logits_count_ith(self._context._ptr, index)
        finally:
            context_release(self._context)
        return None if data == NULL else row_view(self._context, data, n, False)

    def sampled_probs(self, int index=-1):
        """Return the probabilities of the candidates that the backend left for an entry, or None.

        Shapes: float32, (n_candidates,), parallel to `sampled_candidates`, read-only.

        Source: ``llama_get_sampled_probs_ith``.
        """
        cdef const float* data
        cdef uint32_t n
        context_acquire(self._context)
        try:
            _check_row(self._context, index)
            data = c_llama.llama_get_sampled_probs_ith(self._context._ptr, index)
            n = c_llama.llama_get_sampled_probs_count_ith(self._context._ptr, index)
        finally:
            context_release(self._context)
        return None if data == NULL else row_view(self._context, data, n, False)

    def sampled_candidates(self, int index=-1):
        """Return the ids of the candidates that the backend left for an entry, as array of int32 (a copy), or None.

        Source: ``llama_get_sampled_candidates_ith``.
        """
        cdef const int32_t* data
        cdef uint32_t n
        context_acquire(self._context)
        try:
            _check_row(self._context, index)
            data = c_llama.llama_get_sampled_candidates_ith(self._context._ptr, index)
            n = c_llama.llama_get_sampled_candidates_count_ith(self._context._ptr, index)
            return None if data == NULL or n == 0 else array("i", [data[i] for i in range(n)])
        finally:
            context_release(self._context)


cdef Outputs outputs_wrap(Context context):
    global _wrapping
    cdef Outputs outputs
    _wrapping = True
    try:
        outputs = Outputs.__new__(Outputs)
    finally:
        _wrapping = False
    outputs._context = context
    return outputs


cdef Rows row_view(Context context, const float* data, Py_ssize_t n_columns, bint logits):
    global _wrapping
    cdef Rows rows
    _wrapping = True
    try:
        rows = Rows.__new__(Rows)
    finally:
        _wrapping = False
    rows._context = context
    rows._epoch = context.epoch
    rows._data = data
    rows._shape[0] = n_columns
    rows._strides[0] = sizeof(float)
    rows._ndim = 1
    rows._logits = logits
    return rows


cdef Rows writable_row_view(Context context, float* logits):
    cdef Rows rows = row_view(context, logits, context.n_vocab, True)
    rows._writable = True
    return rows


cdef Rows rows_view(Context context, const float* data, Py_ssize_t n_rows, Py_ssize_t n_columns, bint logits):
    global _wrapping
    cdef Rows rows
    _wrapping = True
    try:
        rows = Rows.__new__(Rows)
    finally:
        _wrapping = False
    rows._context = context
    rows._epoch = context.epoch
    rows._data = data
    rows._shape[0] = n_rows
    rows._shape[1] = n_columns
    rows._strides[0] = n_columns * sizeof(float)
    rows._strides[1] = sizeof(float)
    rows._ndim = 2
    rows._logits = logits
    return rows


cdef int _check_row(Context context, int index) except -1:
    """Refuse an index that is no output row."""
    if context._n_outputs == 0 or not -context._n_outputs <= index < context._n_tokens:
        raise OutputError(f"entry {index} is not an output of the last decode, which has {context._n_outputs}")
    return 0
