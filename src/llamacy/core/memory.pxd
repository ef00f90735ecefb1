from llamacy.core.context cimport Context


cdef class Memory:
    cdef Context _context               # owns the memory


cdef Memory memory_wrap(Context context)
