from llamacy.core.context cimport Context


cdef class State:
    cdef Context _context               # whose memory is saved


cdef State state_wrap(Context context)
