# distutils: language = c++
"""Metadata values of a GGUF as Python objects, and back."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport strlen
from libcpp cimport bool as c_bool
from libcpp.vector cimport vector

from llamacy.native cimport gguf as c_gguf

import math
from array import array
from collections.abc import Iterable

from llamacy.types import GgufType

__all__ = ["ArrayExport", "ExportCount"]

# type -> format of the buffer protocol, bytes of an element, smallest and largest value
cdef dict _NUMBERS = {
    <int>c_gguf.GGUF_TYPE_UINT8: (b"B", 1, 0, 2**8 - 1),
    <int>c_gguf.GGUF_TYPE_INT8: (b"b", 1, -(2**7), 2**7 - 1),
    <int>c_gguf.GGUF_TYPE_UINT16: (b"H", 2, 0, 2**16 - 1),
    <int>c_gguf.GGUF_TYPE_INT16: (b"h", 2, -(2**15), 2**15 - 1),
    <int>c_gguf.GGUF_TYPE_UINT32: (b"I", 4, 0, 2**32 - 1),
    <int>c_gguf.GGUF_TYPE_INT32: (b"i", 4, -(2**31), 2**31 - 1),
    <int>c_gguf.GGUF_TYPE_UINT64: (b"Q", 8, 0, 2**64 - 1),
    <int>c_gguf.GGUF_TYPE_INT64: (b"q", 8, -(2**63), 2**63 - 1),
    <int>c_gguf.GGUF_TYPE_FLOAT32: (b"f", 4, None, None),
    <int>c_gguf.GGUF_TYPE_FLOAT64: (b"d", 8, None, None),
    <int>c_gguf.GGUF_TYPE_BOOL: (b"?", 1, 0, 1),
}

# format and size of a buffer's elements -> type; "l" has 4 or 8 bytes depending on the platform
cdef dict _FORMATS = {(entry[0].decode(), entry[1]): number for number, entry in _NUMBERS.items()}
_FORMATS.update({
    ("l", 4): <int>c_gguf.GGUF_TYPE_INT32,
    ("l", 8): <int>c_gguf.GGUF_TYPE_INT64,
    ("L", 4): <int>c_gguf.GGUF_TYPE_UINT32,
    ("L", 8): <int>c_gguf.GGUF_TYPE_UINT64,
})

cdef char _nothing = 0


@cython.final
cdef class ExportCount:
    """Number of buffers that look into memory of one owner."""


@cython.final
cdef class ArrayExport:
    """Read-only array in memory of a `Gguf`, for `memoryview`, `numpy.asarray` and Cython; it can't be created."""

    cdef const void* _data
    cdef bytes _format
    cdef Py_ssize_t _item_bytes
    cdef int _n_dims
    cdef Py_ssize_t _shape[4]
    cdef Py_ssize_t _strides[4]
    cdef Py_ssize_t _n_bytes
    cdef object _owner
    cdef ExportCount _count

    def __init__(self, *args, **kwargs):
        raise TypeError("arrays of a Gguf are not created by hand")

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("arrays of a Gguf are read-only")
        buffer.buf = <void*>self._data
        buffer.obj = self
        buffer.len = self._n_bytes
        buffer.itemsize = self._item_bytes
        buffer.readonly = 1
        buffer.ndim = self._n_dims
        buffer.format = NULL
        if flags & PyBUF_FORMAT:
            buffer.format = <char*>self._format
        buffer.shape = NULL
        buffer.strides = NULL
        if flags & PyBUF_ND:
            buffer.shape = self._shape
        if (flags & PyBUF_STRIDES) == PyBUF_STRIDES:
            buffer.strides = self._strides
        buffer.suboffsets = NULL
        buffer.internal = NULL
        self._count.n += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._count.n -= 1


cdef object export_array(
    const void* data, bytes format, Py_ssize_t item_bytes, tuple shape, object owner, ExportCount count
):
    """Return a memoryview of native memory that keeps `owner` alive and is counted until it is released."""
    cdef ArrayExport export = ArrayExport.__new__(ArrayExport)
    cdef Py_ssize_t stride = item_bytes
    cdef int i
    export._data = data if data != NULL else &_nothing
    export._format = format
    export._item_bytes = item_bytes
    export._n_dims = <int>len(shape)
    for i in range(export._n_dims - 1, -1, -1):
        export._shape[i] = shape[i]
        export._strides[i] = stride
        stride *= export._shape[i]
    export._n_bytes = stride
    export._owner = owner
    export._count = count
    return memoryview(export)


cdef str c_string(const char* text):
    # what is not UTF-8 comes back as lone surrogates, so that nothing is lost when it is written again
    return text[: strlen(text)].decode("utf-8", "surrogateescape")


cdef object value_get(const c_gguf.gguf_context* ctx, int64_t index, object owner, ExportCount count):
    """Return the value at `index`, which must be in range."""
    cdef c_gguf.gguf_type kind = c_gguf.gguf_get_kv_type(ctx, index)
    if kind == c_gguf.GGUF_TYPE_ARRAY:
        return _array_get(ctx, index, owner, count)
    if kind == c_gguf.GGUF_TYPE_STRING:
        return c_string(c_gguf.gguf_get_val_str(ctx, index))
    if kind == c_gguf.GGUF_TYPE_BOOL:
        return bool(c_gguf.gguf_get_val_bool(ctx, index))
    if kind == c_gguf.GGUF_TYPE_UINT8:
        return c_gguf.gguf_get_val_u8(ctx, index)
    if kind == c_gguf.GGUF_TYPE_INT8:
        return c_gguf.gguf_get_val_i8(ctx, index)
    if kind == c_gguf.GGUF_TYPE_UINT16:
        return c_gguf.gguf_get_val_u16(ctx, index)
    if kind == c_gguf.GGUF_TYPE_INT16:
        return c_gguf.gguf_get_val_i16(ctx, index)
    if kind == c_gguf.GGUF_TYPE_UINT32:
        return c_gguf.gguf_get_val_u32(ctx, index)
    if kind == c_gguf.GGUF_TYPE_INT32:
        return c_gguf.gguf_get_val_i32(ctx, index)
    if kind == c_gguf.GGUF_TYPE_UINT64:
        return c_gguf.gguf_get_val_u64(ctx, index)
    if kind == c_gguf.GGUF_TYPE_INT64:
        return c_gguf.gguf_get_val_i64(ctx, index)
    if kind == c_gguf.GGUF_TYPE_FLOAT32:
        return c_gguf.gguf_get_val_f32(ctx, index)
    return c_gguf.gguf_get_val_f64(ctx, index)


cdef object _array_get(const c_gguf.gguf_context* ctx, int64_t index, object owner, ExportCount count):
    cdef c_gguf.gguf_type kind = c_gguf.gguf_get_arr_type(ctx, index)
    cdef size_t n = c_gguf.gguf_get_arr_n(ctx, index)
    cdef size_t i
    if kind == c_gguf.GGUF_TYPE_STRING:
        return [c_string(c_gguf.gguf_get_arr_str(ctx, index, i)) for i in range(n)]
    format, item_bytes, _, _ = _NUMBERS[<int>kind]
    return export_array(c_gguf.gguf_get_arr_data(ctx, index), format, item_bytes, (n,), owner, count)


cdef bytes key_bytes(object key):
    if not isinstance(key, str):
        raise TypeError(f"a metadata key must be a str, not {type(key).__name__}")
    encoded = key.encode("utf-8", "surrogateescape")
    if not encoded or b"\0" in encoded:
        raise ValueError(f"a metadata key must have characters and no NUL among them, unlike {key!r}")
    return encoded


cdef int value_set(c_gguf.gguf_context* ctx, object key, object value, object type) except -1:
    """Store `value` under `key`; it goes to the end, as gguf_set_val_* does."""
    name = key_bytes(key)
    cdef int64_t known = c_gguf.gguf_find_key(ctx, name)
    cdef int kind
    if type is not None:
        type = GgufType(type)
        if type == GgufType.ARRAY:
            raise ValueError("give the type of the elements; that the value is an array is seen from the value")
    if isinstance(value, (bool, int, float, str)):
        if type is not None:
            kind = type
        else:
            kind = _scalar_type(value, <int>c_gguf.gguf_get_kv_type(ctx, known) if known >= 0 else -1)
        return _scalar_set(ctx, key, name, value, kind)
    if type is None and known >= 0 and c_gguf.gguf_get_kv_type(ctx, known) == c_gguf.GGUF_TYPE_ARRAY:
        return _array_set(ctx, key, name, value, None, <int>c_gguf.gguf_get_arr_type(ctx, known))
    return _array_set(ctx, key, name, value, type, -1)


cdef int _scalar_type(object value, int known) except -1:
    """Return the type of the value that is there when it can hold the new one, else llama.cpp's habit."""
    if isinstance(value, bool):
        return <int>c_gguf.GGUF_TYPE_BOOL
    if isinstance(value, str):
        return <int>c_gguf.GGUF_TYPE_STRING
    if isinstance(value, float):
        return known if known == c_gguf.GGUF_TYPE_FLOAT64 else <int>c_gguf.GGUF_TYPE_FLOAT32
    if known in _NUMBERS and known != c_gguf.GGUF_TYPE_BOOL:
        _, _, low, high = _NUMBERS[known]
        if low is None or low <= value <= high:
            return known
    # counts and sizes are read as u32, and llama.cpp refuses a value of any other type
    for kind in (c_gguf.GGUF_TYPE_UINT32, c_gguf.GGUF_TYPE_INT32, c_gguf.GGUF_TYPE_INT64, c_gguf.GGUF_TYPE_UINT64):
        _, _, low, high = _NUMBERS[<int>kind]
        if low <= value <= high:
            return <int>kind
    raise ValueError(f"{value} does not fit any integer type of GGUF")


cdef int _scalar_set(c_gguf.gguf_context* ctx, object key, bytes name, object value, int kind) except -1:
    cdef const char* c_key = name
    if kind == c_gguf.GGUF_TYPE_STRING:
        if not isinstance(value, str):
            raise TypeError(f"{key} of type STRING must be a str, not {type(value).__name__}")
        text = _text_bytes(key, value)
        c_gguf.gguf_set_val_str(ctx, c_key, <const char*>(<bytes>text))
        return 0
    if isinstance(value, str):
        raise TypeError(f"{key} of type {GgufType(kind).name} must be a number, not a str")
    _check_number(key, value, kind)
    if kind == c_gguf.GGUF_TYPE_BOOL:
        c_gguf.gguf_set_val_bool(ctx, c_key, <c_bool>bool(value))
    elif kind == c_gguf.GGUF_TYPE_UINT8:
        c_gguf.gguf_set_val_u8(ctx, c_key, <uint8_t>value)
    elif kind == c_gguf.GGUF_TYPE_INT8:
        c_gguf.gguf_set_val_i8(ctx, c_key, <int8_t>value)
    elif kind == c_gguf.GGUF_TYPE_UINT16:
        c_gguf.gguf_set_val_u16(ctx, c_key, <uint16_t>value)
    elif kind == c_gguf.GGUF_TYPE_INT16:
        c_gguf.gguf_set_val_i16(ctx, c_key, <int16_t>value)
    elif kind == c_gguf.GGUF_TYPE_UINT32:
        c_gguf.gguf_set_val_u32(ctx, c_key, <uint32_t>value)
    elif kind == c_gguf.GGUF_TYPE_INT32:
        c_gguf.gguf_set_val_i32(ctx, c_key, <int32_t>value)
    elif kind == c_gguf.GGUF_TYPE_UINT64:
        c_gguf.gguf_set_val_u64(ctx, c_key, <uint64_t>value)
    elif kind == c_gguf.GGUF_TYPE_INT64:
        c_gguf.gguf_set_val_i64(ctx, c_key, <int64_t>value)
    elif kind == c_gguf.GGUF_TYPE_FLOAT32:
        c_gguf.gguf_set_val_f32(ctx, c_key, <float>value)
    else:
        c_gguf.gguf_set_val_f64(ctx, c_key, <double>value)
    return 0


cdef int _check_number(object key, object value, int kind) except -1:
    _, _, low, high = _NUMBERS[kind]
    if low is None:
        if kind == c_gguf.GGUF_TYPE_FLOAT32 and math.isfinite(value) and abs(value) > 3.4028235677973366e38:
            raise ValueError(f"{key}: {value} does not fit FLOAT32")
        return 0
    if isinstance(value, float):
        raise TypeError(f"{key} of type {GgufType(kind).name} must be an int, not the float {value}")
    if not low <= value <= high:
        raise ValueError(f"{key}: {value} does not fit {GgufType(kind).name}, which goes from {low} to {high}")
    return 0


cdef bytes _text_bytes(object key, object value):
    encoded = value.encode("utf-8", "surrogateescape")
    if b"\0" in encoded:
        raise ValueError(f"{key} must not hold a NUL character: llama.cpp would read the text up to there only")
    return encoded


cdef int _array_set(
    c_gguf.gguf_context* ctx, object key, bytes name, object value, object type, int known
) except -1:
    cdef vector[const char*] texts
    cdef const unsigned char[::1] raw
    view = _array_view(key, value, type, known)
    if isinstance(view, list):
        for text in view:
            texts.push_back(<const char*>(<bytes>text))
        c_gguf.gguf_set_arr_str(ctx, name, texts.data(), texts.size())
        return 0
    kind, data = view
    item_bytes = _NUMBERS[kind][1]
    if data.nbytes == 0:
        c_gguf.gguf_set_arr_data(ctx, name, <c_gguf.gguf_type><int>kind, NULL, 0)
        return 0
    raw = data.cast("B")
    c_gguf.gguf_set_arr_data(ctx, name, <c_gguf.gguf_type><int>kind, &raw[0], data.nbytes // item_bytes)
    return 0


cdef object _array_view(object key, object value, object type, int known):
    """Return a list of bytes for strings, else element type and a contiguous memoryview."""
    try:
        view = memoryview(value)
    except TypeError:
        view = None
    if view is not None:
        kind = _FORMATS.get((view.format.lstrip("@=<"), view.itemsize))
        if kind is None or view.ndim != 1 or not view.c_contiguous:
            raise TypeError(f"{key}: an array must be one contiguous dimension of numbers, not {view.format!r}")
        if type is None or type == kind:
            if kind != GgufType.BOOL:  # whose bytes may be other than 0 and 1
                return kind, view
        type = kind if type is None else type
        value = view.tolist()
    if not isinstance(value, Iterable):
        raise TypeError(f"{key} must be bool, int, float, str, a sequence of one of them or a buffer, not {value!r}")
    items = list(value)
    kind = type if type is not None else _element_type(key, items, known)
    if kind == GgufType.STRING:
        if not all(isinstance(item, str) for item in items):
            raise TypeError(f"{key}: all elements must be str")
        return [_text_bytes(key, item) for item in items]
    for item in items:
        if not isinstance(item, (bool, int, float)):
            raise TypeError(f"{key}: {item!r} is not an element of an array of {GgufType(kind).name}")
        _check_number(key, item, kind)
    format = _NUMBERS[kind][0].decode()
    return kind, memoryview(array("b" if format == "?" else format, items))


cdef int _element_type(object key, list items, int known) except -1:
    if not items:
        if known < 0:
            raise ValueError(f"{key}: an empty array needs the type of its elements")
        return known
    if all(isinstance(item, str) for item in items):
        return <int>c_gguf.GGUF_TYPE_STRING
    if all(isinstance(item, bool) for item in items):
        return <int>c_gguf.GGUF_TYPE_BOOL
    if not all(isinstance(item, (int, float)) for item in items):
        raise TypeError(f"{key}: the elements of an array must be all str, all bool or all numbers")
    if any(isinstance(item, float) for item in items):
        return known if known == c_gguf.GGUF_TYPE_FLOAT64 else <int>c_gguf.GGUF_TYPE_FLOAT32
    for kind in (known, c_gguf.GGUF_TYPE_INT32, c_gguf.GGUF_TYPE_UINT32, c_gguf.GGUF_TYPE_INT64,
                 c_gguf.GGUF_TYPE_UINT64):
        _, _, low, high = _NUMBERS.get(<int>kind, (None, None, 1, 0))
        if low is None or low <= min(items) and max(items) <= high:
            return <int>kind
    raise ValueError(f"{key}: the numbers do not fit any integer type of GGUF")
