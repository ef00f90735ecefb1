"""Carry the exception of a Python callback around the native frames between it and the method that led to it."""

from cpython.pythread cimport PyThread_get_thread_ident

import sys

cdef dict _stash = {}
cdef int _n_stashed = 0


cdef void stash_exception() noexcept:
    """Keep the exception being handled for `raise_stashed` on this thread; the first one wins."""
    global _n_stashed
    ident = PyThread_get_thread_ident()
    if ident not in _stash:
        _stash[ident] = sys.exc_info()[1]
        _n_stashed += 1


cdef bint has_stashed() noexcept nogil:
    return _n_stashed != 0


cdef int raise_stashed() except -1:
    """Raise what a callback on this thread left behind, if anything."""
    global _n_stashed
    if _n_stashed == 0:
        return 0
    exception = _stash.pop(PyThread_get_thread_ident(), None)
    if exception is None:
        return 0
    _n_stashed -= 1
    raise exception
