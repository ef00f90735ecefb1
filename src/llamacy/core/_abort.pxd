# A failed native assertion as an error instead of the end of the process.
#
# Between `abort_guard_begin` and `abort_guard_end`, a GGML_ASSERT or GGML_ABORT that fails on this thread throws a C++
# exception: functions that catch exceptions themselves (model load, context creation, quantize) return their error
# value and log the assertion, the others must be declared `except +` and raise RuntimeError. Whatever the failed call
# was working on must be freed or refused from then on. Assertions on other threads still end the process.

cdef void abort_guard_begin() noexcept nogil
cdef void abort_guard_end() noexcept nogil
