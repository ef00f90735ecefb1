# Exceptions of Python callbacks that native code called.
#
# A callback must not let an exception pass through C. Its shim catches it and calls `stash_exception`; the method that
# led into native code calls `raise_stashed` when it is back.

cdef void stash_exception() noexcept
cdef bint has_stashed() noexcept nogil
cdef int raise_stashed() except -1
