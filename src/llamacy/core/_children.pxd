# What must be closed before its owner: weak references by identity, in the order of creation.

cdef int children_add(dict children, object child) except -1
cdef void children_remove(dict children, object child) noexcept
cdef int children_check(dict children) except -1
cdef int children_close(dict children) except -1
