# distutils: language = c++
"""Turn failed assertions of native code into exceptions, for the calls that ask for it."""

__all__ = []

cdef extern from "_abort_guard.h" namespace "llamacy" nogil:
    void abort_guard_enter() noexcept
    void abort_guard_leave() noexcept


cdef void abort_guard_begin() noexcept nogil:
    """Guard the native calls that this thread makes until `abort_guard_end`; guards nest."""
    abort_guard_enter()


cdef void abort_guard_end() noexcept nogil:
    abort_guard_leave()
