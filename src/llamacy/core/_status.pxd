# The one way from a native failure to a Python exception.

cdef object native_error(object cls, str message)
cdef int raise_closed(str what) except -1
cdef int raise_decode_status(int status) except -1
cdef int raise_encode_status(int status) except -1
