from libc.stdint cimport int64_t

from llamacy.core.gguf_values cimport ExportCount
from llamacy.native.handles cimport gguf_context


cdef class Gguf:
    cdef gguf_context* _ptr             # NULL once closed
    cdef object __weakref__
    cdef readonly object path           # str, or None for one that came from no file
    cdef object _mapping                # mmap of the file, or None
    cdef object _source                 # memoryview of all bytes of the file, or None
    cdef const unsigned char* _bytes    # first byte of the source, or NULL
    cdef Py_ssize_t _n_from_source      # tensors that are in the source; those after it were added
    cdef list _added                    # contiguous memoryviews of the tensors that were added
    cdef dict _index                    # tensor name -> tensor id
    cdef ExportCount _exports           # buffers of metadata arrays and tensors that are alive

    cdef str _name(self)
    cdef object _map(self, object path)
    cdef int _check_source(self) except -1
    cdef object _raw(self, int64_t index)
    cdef void _release(self) noexcept


cdef gguf_context* gguf_handle(Gguf self) except NULL
cdef int gguf_hold(Gguf self) except -1
cdef void gguf_let_go(Gguf self) noexcept
cdef int64_t gguf_find_tensor(Gguf self, object name) except -1
cdef int64_t gguf_find_key(Gguf self, object key) except -1
cdef int gguf_changing(Gguf self) except -1
cdef int gguf_check_alignment(Gguf self, object value) except -1
cdef int gguf_parse_again(Gguf self) except -1
