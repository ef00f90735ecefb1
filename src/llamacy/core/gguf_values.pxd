# Metadata values of a gguf_context as Python objects, and arrays of native memory as read-only buffers.

from libc.stdint cimport int64_t

from llamacy.native.handles cimport gguf_context


cdef class ExportCount:
    cdef Py_ssize_t n                   # buffers that are alive


cdef object export_array(
    const void* data, bytes format, Py_ssize_t item_bytes, tuple shape, object owner, ExportCount count
)
cdef str c_string(const char* text)
cdef object value_get(const gguf_context* ctx, int64_t index, object owner, ExportCount count)
cdef int value_set(gguf_context* ctx, object key, object value, object type) except -1
cdef bytes key_bytes(object key)
