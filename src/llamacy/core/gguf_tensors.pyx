# distutils: language = c++
"""Tensors of a GGUF: what they are, their data as buffers, and new ones from buffers."""

from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from llamacy.core.gguf_values cimport ExportCount, c_string, export_array, key_bytes
from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport gguf as c_gguf

import math

from llamacy.types import GgmlType, TensorInfo

__all__ = []

# types whose elements a buffer can describe; the bits of a bfloat16 are exported as an unsigned integer
cdef dict _ELEMENTS = {
    <int>c_ggml.GGML_TYPE_F32: b"f",
    <int>c_ggml.GGML_TYPE_F16: b"e",
    <int>c_ggml.GGML_TYPE_BF16: b"H",
    <int>c_ggml.GGML_TYPE_F64: b"d",
    <int>c_ggml.GGML_TYPE_I8: b"b",
    <int>c_ggml.GGML_TYPE_I16: b"h",
    <int>c_ggml.GGML_TYPE_I32: b"i",
    <int>c_ggml.GGML_TYPE_I64: b"q",
}

# format and size of a buffer's elements -> type of the tensor, where the caller gives none
cdef dict _TYPES = {
    ("f", 4): <int>c_ggml.GGML_TYPE_F32,
    ("e", 2): <int>c_ggml.GGML_TYPE_F16,
    ("d", 8): <int>c_ggml.GGML_TYPE_F64,
    ("b", 1): <int>c_ggml.GGML_TYPE_I8,
    ("h", 2): <int>c_ggml.GGML_TYPE_I16,
    ("i", 4): <int>c_ggml.GGML_TYPE_I32,
    ("l", 4): <int>c_ggml.GGML_TYPE_I32,
    ("q", 8): <int>c_ggml.GGML_TYPE_I64,
    ("l", 8): <int>c_ggml.GGML_TYPE_I64,
}


cdef object tensor_info(const c_gguf.gguf_context* ctx, int64_t index):
    """Return the `TensorInfo` of the tensor at `index`, which must be in range."""
    cdef const int64_t* ne = c_gguf.gguf_get_tensor_ne(ctx, index)
    cdef int n_dims = c_ggml.GGML_MAX_DIMS
    while n_dims > 1 and ne[n_dims - 1] == 1:
        n_dims -= 1
    dims = [ne[i] for i in range(n_dims)]
    return TensorInfo(
        name=c_string(c_gguf.gguf_get_tensor_name(ctx, index)),
        type=GgmlType(<int>c_gguf.gguf_get_tensor_type(ctx, index)),
        shape=tuple(dims[::-1]),
        ne=(ne[0], ne[1], ne[2], ne[3]),
        offset=c_gguf.gguf_get_tensor_offset(ctx, index),
        n_bytes=c_gguf.gguf_get_tensor_size(ctx, index),
    )


cdef object tensor_export(
    const c_gguf.gguf_context* ctx, int64_t index, const void* data, object owner, ExportCount count
):
    """Return a memoryview of a tensor's data; quantized rows are rows of bytes."""
    cdef c_ggml.ggml_type kind = c_gguf.gguf_get_tensor_type(ctx, index)
    shape = tensor_info(ctx, index).shape
    if <int>kind in _ELEMENTS:
        return export_array(data, _ELEMENTS[<int>kind], c_ggml.ggml_type_size(kind), shape, owner, count)
    row_bytes = c_ggml.ggml_row_size(kind, shape[len(shape) - 1])
    return export_array(data, b"B", 1, shape[: len(shape) - 1] + (row_bytes,), owner, count)


cdef int tensor_add(c_gguf.gguf_context* ctx, object name, object view, object type, object shape) except -1:
    """Describe a tensor whose data is in the contiguous memoryview `view`."""
    cdef c_ggml.ggml_tensor tensor
    cdef c_ggml.ggml_type kind
    cdef int64_t block
    cdef int i
    encoded = key_bytes(name)
    if len(encoded) >= c_ggml.GGML_MAX_NAME:
        raise ValueError(f"a tensor name has at most {c_ggml.GGML_MAX_NAME - 1} bytes, unlike {name!r}")
    type = _type(name, view, type)
    kind = <c_ggml.ggml_type><int>type
    block = c_ggml.ggml_blck_size(kind)
    dims = _shape(name, view, type, shape, block, c_ggml.ggml_type_size(kind))
    n_bytes = math.prod(dims) // block * c_ggml.ggml_type_size(kind)
    if n_bytes != view.nbytes:
        raise ValueError(
            f"{name!r} of type {type.name} and shape {dims} takes {n_bytes} bytes, but the data has {view.nbytes}"
        )
    memset(&tensor, 0, sizeof(tensor))
    memcpy(tensor.name, <const char*>(<bytes>encoded), len(encoded))
    tensor.type = kind
    for i in range(c_ggml.GGML_MAX_DIMS):
        tensor.ne[i] = dims[len(dims) - 1 - i] if i < len(dims) else 1
    # as ggml_new_tensor_impl() computes them
    tensor.nb[0] = c_ggml.ggml_type_size(kind)
    tensor.nb[1] = tensor.nb[0] * (tensor.ne[0] // block)
    for i in range(2, c_ggml.GGML_MAX_DIMS):
        tensor.nb[i] = tensor.nb[i - 1] * tensor.ne[i - 1]
    c_gguf.gguf_add_tensor(ctx, &tensor)
    return 0


cdef object _type(object name, object view, object type):
    if type is not None:
        return GgmlType(type)
    kind = _TYPES.get((view.format.lstrip("@=<"), view.itemsize))
    if kind is None:
        raise TypeError(
            f"{name!r}: no tensor type has elements of format {view.format!r}; give the type of the tensor"
        )
    return GgmlType(kind)


cdef tuple _shape(object name, object view, object type, object shape, int64_t block, size_t block_bytes):
    """Return the number of elements in each dimension, the fastest one last."""
    if shape is not None:
        dims = tuple([int(n) for n in shape])
    elif view.itemsize == block_bytes and block == 1:
        dims = view.shape or (1,)
    elif view.itemsize == 1 and view.ndim and view.shape[view.ndim - 1] % block_bytes == 0:
        dims = view.shape[: view.ndim - 1] + (view.shape[view.ndim - 1] // block_bytes * block,)
    else:
        raise ValueError(f"{name!r}: the elements of the data are not those of {type.name}; give the shape")
    if not 1 <= len(dims) <= c_ggml.GGML_MAX_DIMS or min(dims) < 1 or dims[len(dims) - 1] % block:
        raise ValueError(
            f"{name!r}: a tensor of type {type.name} has 1 to 4 dimensions of at least one element, and rows of a "
            f"multiple of {block} elements, unlike {dims}"
        )
    return dims
