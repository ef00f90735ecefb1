# One run of the native quantizer.

cdef class QuantizeRun:
    cdef bint dry
    cdef bint stopped
    cdef object progress                # callable, or None
    cdef int total
    cdef list tensors                   # [name, ne, type before, type after] of each tensor begun so far


cdef int quantize_run(object source, object target, const void* params, QuantizeRun run) except -1
