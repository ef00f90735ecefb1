# Parameter structs with everything they point to.
#
# The structs are kept behind `void *` so that this file needs no header of llama.cpp.

cdef class ModelParams:
    cdef void* _c                       # llama_model_params
    cdef void* _devices                 # NULL-terminated array the struct points to
    cdef void* _overrides               # llama_model_kv_override array
    cdef void* _buft_overrides          # llama_model_tensor_buft_override array
    cdef float* _tensor_split
    cdef list _patterns                 # bytes that the buffer type overrides point to
    cdef readonly dict values
    cdef readonly object progress_callback


cdef class ContextParams:
    cdef void* _c                       # llama_context_params
    cdef readonly dict values


cdef int enum_value(object cls, object value, str name) except? -1234567
cdef void* kv_overrides_new(object overrides) except? NULL
cdef object params_make(object cls, dict params, str owner)
