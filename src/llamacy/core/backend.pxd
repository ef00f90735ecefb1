from llamacy.native.handles cimport ggml_backend_dev_t, ggml_backend_reg_t, ggml_backend_buffer_type_t


cdef class Device:
    # devices live as long as the process, so there is nothing to free and nothing to hold
    cdef ggml_backend_dev_t _ptr


cdef int backend_initialize() except -1
cdef Device device_wrap(ggml_backend_dev_t dev)
cdef Device device_find(object device)
cdef ggml_backend_buffer_type_t buffer_type_find(object name) except NULL
cdef void* cpu_proc_address(const char* name) noexcept
