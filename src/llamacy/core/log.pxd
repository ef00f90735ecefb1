# Native log lines: kept for errors, and forwarded to `logging`.

# What an observer answers (_log_lines.h): go on, leave this piece out of the log, or throw through the native function
# that logs it.
cdef enum:
    LOG_PASS = 0
    LOG_SWALLOW = 1
    LOG_STOP = 2

ctypedef int (*log_observer_t)(int level, const char* text, void* data) noexcept nogil

cdef void log_install() noexcept
cdef void log_begin()
cdef tuple log_take()
cdef void log_observe(log_observer_t observer, void* data) noexcept nogil
