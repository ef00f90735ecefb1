# Descriptions of tensors in a gguf_context.

from libc.stdint cimport int64_t

from llamacy.core.gguf_values cimport ExportCount
from llamacy.native.handles cimport gguf_context


cdef object tensor_info(const gguf_context* ctx, int64_t index)
cdef object tensor_export(
    const gguf_context* ctx, int64_t index, const void* data, object owner, ExportCount count
)
cdef int tensor_add(gguf_context* ctx, object name, object view, object type, object shape) except -1
