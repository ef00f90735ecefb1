cdef class ControlVector:
    cdef float* _data                   # (n_layers, n_embd), C order
    cdef Py_ssize_t[2] _shape
    cdef Py_ssize_t[2] _strides
    cdef readonly int il_start
    cdef readonly int il_end
    cdef readonly object model_hint     # str, or None
