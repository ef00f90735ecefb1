# distutils: language = c++
"""Control vectors: directions that are added to the hidden state between layers."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from libc.math cimport isfinite
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from llamacy.core._status cimport native_error
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_acquire, context_handle, context_release
from llamacy.core.log cimport log_begin, log_install
from llamacy.core.model cimport model_handle
from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport gguf as c_gguf
from llamacy.native cimport llama as c_llama

import os
from array import array

from llamacy._paths import file_name
from llamacy.errors import AdapterError

__all__ = ["ControlVector", "control_vector_get", "control_vector_set"]


@cython.final
cdef class ControlVector:
    """Directions that are added to the hidden state after layers.

    Parameters
    ----------
    data : buffer of float32, or rows of numbers
        One direction a row. The first row belongs to layer 1: layer 0 never has one.
    il_start, il_end : int
        First and last layer that the vector is applied to; all rows by default.
    model_hint : str, optional
        Architecture that it was made for.

    Raises
    ------
    AdapterError
        The shape is wrong, a number is not finite, or a layer has no row.

    Shapes: float32, (n_layers, n_embd), C order; the vector exports its copy by the buffer protocol,
    read-only.
    Lifetime: llama.cpp copies the numbers when the vector is set on a context.
    """

    def __cinit__(self, data, il_start=1, il_end=None, *, model_hint=None):
        cdef const float[:, ::1] rows = _rows(data)
        cdef size_t n = <size_t>rows.shape[0] * <size_t>rows.shape[1]
        cdef size_t i
        if n == 0:
            raise AdapterError(f"a control vector needs rows and columns, not the shape {data!r}")
        last = rows.shape[0] if il_end is None else il_end
        if not 1 <= il_start <= last <= rows.shape[0]:
            raise AdapterError(
                f"layers {il_start} to {last} were asked for; there are directions for 1 to {rows.shape[0]}"
            )
        self._data = <float*>malloc(n * sizeof(float))
        if self._data == NULL:
            raise MemoryError
        memcpy(self._data, &rows[0, 0], n * sizeof(float))
        for i in range(n):
            if not isfinite(self._data[i]):
                raise AdapterError(f"row {i // rows.shape[1]} has a number that is not finite")
        self._shape[0] = rows.shape[0]
        self._shape[1] = rows.shape[1]
        self._strides[0] = rows.shape[1] * sizeof(float)
        self._strides[1] = sizeof(float)
        self.il_start = il_start
        self.il_end = last
        self.model_hint = model_hint

    def __dealloc__(self):
        free(self._data)

    @staticmethod
    def from_gguf(path, *, double scale=1.0, il_start=1, il_end=None):
        """Read a control vector from a GGUF file, whose tensors are ``direction.1``, ``direction.2`` and so on.

        Parameters
        ----------
        path : path
            The file.
        scale : float
            What to multiply the directions by.
        il_start, il_end : int
            As for the class.

        Returns
        -------
        ControlVector

        Raises
        ------
        AdapterError
            There is no such file, or it is not a control vector.
        """
        name = os.fsdecode(path)
        data, n_embd, hint = _read_directions(name)
        if scale != 1.0:
            data = array("f", [scale * value for value in data])
        rows = memoryview(data).cast("B").cast("f", (len(data) // n_embd, n_embd))
        return ControlVector(rows, il_start, il_end, model_hint=hint)

    @property
    def n_layers(self):
        """Number of rows: directions for the layers 1 to `n_layers`."""
        return self._shape[0]

    @property
    def n_embd(self):
        """Width of a row."""
        return self._shape[1]

    def __repr__(self):
        return f"<ControlVector of {self.n_embd} for layers {self.il_start} to {self.il_end}>"

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError("a control vector is read-only")
        view.buf = self._data
        view.obj = self
        view.len = self._shape[0] * self._strides[0]
        view.itemsize = sizeof(float)
        view.readonly = 1
        view.ndim = 2
        view.format = <char*>b"f" if flags & PyBUF_FORMAT else NULL
        view.shape = &self._shape[0] if flags & PyBUF_ND else NULL
        view.strides = &self._strides[0] if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL


def control_vector_set(Context context not None, ControlVector vector):
    """Add a control vector from the next decode on, in place of the one in use; None takes it off.

    Parameters
    ----------
    vector : ControlVector or None
        As wide as the model, with directions for no more layers than it has.

    Raises
    ------
    AdapterError
        The vector does not fit the model; nothing was changed.

    Thread safety: one call on a context at a time.
    Source: ``llama_set_adapter_cvec``.
    """
    cdef c_llama.llama_model* model = model_handle(context.model)
    cdef int n_embd = c_llama.llama_model_n_embd(model)
    cdef int n_layers = c_llama.llama_model_n_layer(model) - 1
    cdef size_t n = 0
    cdef float* data = NULL
    cdef int32_t status
    if vector is not None:
        if vector._shape[1] != n_embd:
            raise AdapterError(f"the control vector has width {vector._shape[1]}, the model {n_embd}")
        if vector._shape[0] > n_layers:
            raise AdapterError(
                f"the control vector has directions for the layers 1 to {vector._shape[0]}, the model has "
                f"layers up to {n_layers}"
            )
        # llama.cpp leaves rows that are not given as an earlier vector set them
        n = <size_t>n_layers * n_embd
        data = <float*>calloc(n, sizeof(float))
        if data == NULL:
            raise MemoryError
        memcpy(data, vector._data, vector._shape[0] * vector._strides[0])
    try:
        context_acquire(context)
        try:
            log_begin()
            if vector is None:
                status = c_llama.llama_set_adapter_cvec(context._ptr, NULL, 0, n_embd, 0, 0)
            else:
                status = c_llama.llama_set_adapter_cvec(
                    context._ptr, data, n, n_embd, vector.il_start, vector.il_end
                )
            if status != 0:
                raise native_error(AdapterError, f"llama.cpp refuses {vector!r}")
            context._control_vector = vector
        finally:
            context_release(context)
    finally:
        free(data)


def control_vector_get(Context context not None):
    """Return the `ControlVector` that a context adds, or None."""
    context_handle(context)
    return context._control_vector


cdef object _rows(object data):
    try:
        view = memoryview(data)
    except TypeError:
        rows = [array("f", row) for row in data]
        if not rows or any([len(row) != len(rows[0]) for row in rows]):
            raise AdapterError("the rows of a control vector must have the same width") from None
        view = memoryview(b"".join(row.tobytes() for row in rows)).cast("f", (len(rows), len(rows[0])))
    if view.ndim != 2 or view.format != "f" or not view.c_contiguous:
        raise AdapterError(
            f"a control vector needs float32 of shape (n_layers, n_embd) in C order, not {view.format!r} of "
            f"{view.shape}"
        )
    return view


cdef tuple _read_directions(object name):
    """Return the directions of a file as array of float32, their width, and the architecture they are for."""
    cdef c_gguf.gguf_context* file
    cdef c_ggml.ggml_context* data = NULL
    cdef c_gguf.gguf_init_params params
    cdef c_ggml.ggml_tensor* tensor
    cdef int64_t i
    cdef bytes encoded
    cdef const char* c_path
    try:
        encoded = os.fsencode(file_name(name))
        with open(name, "rb"):
            pass
    except OSError as error:
        raise AdapterError(f"{name!r} can't be read: {error}") from error
    c_path = encoded
    params.no_alloc = False
    params.ctx = &data
    log_install()
    log_begin()
    with nogil:
        file = c_gguf.gguf_init_from_file(c_path, params)
    if file == NULL:
        raise native_error(AdapterError, f"{name!r} is not a GGUF file")
    try:
        if _string(file, b"general.architecture") != "controlvector":
            raise AdapterError(f"{name!r} is not a control vector")
        rows = {}
        for i in range(c_gguf.gguf_get_n_tensors(file)):
            tensor = c_ggml.ggml_get_tensor(data, c_gguf.gguf_get_tensor_name(file, i))
            layer, row = _read_direction(tensor, name)
            rows[layer] = row
        widths = {len(row) for row in rows.values()}
        if len(widths) != 1:
            raise AdapterError(f"{name!r} has no directions, or directions of different widths")
        n_embd = widths.pop()
        empty = array("f", bytes(4 * n_embd))
        directions = array("f")
        for layer in range(1, max(rows) + 1):
            directions += rows.get(layer, empty)
        return directions, n_embd, _string(file, b"controlvector.model_hint")
    finally:
        c_gguf.gguf_free(file)
        c_ggml.ggml_free(data)


cdef tuple _read_direction(c_ggml.ggml_tensor* tensor, object name):
    text = tensor.name.decode("utf-8", "replace")
    prefix, _, number = text.partition(".")
    if prefix != "direction" or not number.isdecimal() or not 1 <= int(number) <= 2**16:
        raise AdapterError(f"{name!r} has a tensor {text!r}, which is not a direction of a layer from 1")
    if tensor.type != c_ggml.GGML_TYPE_F32 or c_ggml.ggml_n_dims(tensor) != 1 or tensor.ne[0] < 1:
        raise AdapterError(f"{text} of {name!r} is not a row of float32")
    row = array("f")
    row.frombytes((<const char*>tensor.data)[:tensor.ne[0] * sizeof(float)])
    return int(number), row


cdef str _string(c_gguf.gguf_context* file, bytes key):
    cdef int64_t index = c_gguf.gguf_find_key(file, key)
    if index < 0 or c_gguf.gguf_get_kv_type(file, index) != c_gguf.GGUF_TYPE_STRING:
        return None
    return c_gguf.gguf_get_val_str(file, index).decode("utf-8", "replace")
