# distutils: language = c++
"""Route the native log into `logging`.

Lines of llama.cpp and ggml go to the logger ``llamacy.native`` at the level that native code gave them. The level of
that logger is read whenever a model is loaded or a context is created, and by `refresh_level`; lines below it cost
nothing. Nothing is ever written to the process's file descriptors.
"""

from libcpp.deque cimport deque
from libcpp.string cimport string

from llamacy.core._callback cimport stash_exception
from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport llama as c_llama

import atexit
import logging

__all__ = ["refresh_level"]

cdef extern from "_log_lines.h" namespace "llamacy" nogil:
    cppclass log_lines:
        int level
        string line
        deque[string] kept
        log_observer_t observer
        void* observer_data
    log_lines& thread_log_lines()
    bint log_feed(int level, const char* text)

cdef enum:
    OFF = 100

cdef object _logger = logging.getLogger("llamacy.native")
# without it, `logging` would write errors to standard error where nobody has set it up
_logger.addHandler(logging.NullHandler())
cdef int _floor = 3
cdef bint _installed = False


cdef void _forward(int level, const char* line) noexcept with gil:
    try:
        # debug 1, info 2, warn 3, error 4 (enum ggml_log_level) against 10, 20, 30, 40 of `logging`
        _logger.log(10 * level, "%s", line.decode("utf-8", "replace"))
    except BaseException:
        stash_exception()


cdef void _on_log(c_ggml.ggml_log_level level, const char* text, void* user_data) noexcept nogil:
    cdef int line_level
    if not log_feed(<int>level, text):
        return
    line_level = thread_log_lines().level
    if line_level >= _floor and line_level <= 4:
        _forward(line_level, thread_log_lines().line.c_str())


cdef void log_install() noexcept:
    """Take over the native log, once."""
    global _installed
    if _installed:
        return
    _installed = True
    c_llama.llama_log_set(_on_log, NULL)
    refresh_level()
    atexit.register(_stop)


cdef void log_begin():
    """Forget the lines kept so far: those that follow belong to the operation that starts now."""
    thread_log_lines().kept.clear()


cdef void log_observe(log_observer_t observer, void* data) noexcept nogil:
    """Show what this thread logs from here on to `observer` first; NULL ends it."""
    thread_log_lines().observer = observer
    thread_log_lines().observer_data = data


cdef tuple log_take():
    """Return the warnings and errors logged on this thread since `log_begin`, oldest first, and forget them."""
    cdef log_lines* lines = &thread_log_lines()
    cdef size_t i
    taken = tuple([lines.kept[i].c_str().decode("utf-8", "replace") for i in range(lines.kept.size())])
    lines.kept.clear()
    return taken


def refresh_level():
    """Read the level of the logger ``llamacy.native`` again.

    Call it after changing that level while models are loaded; loading a model does it by itself.
    """
    global _floor
    if _floor == OFF:
        return
    level = _logger.getEffectiveLevel()
    if not _logger.isEnabledFor(level):
        level = 50
    _floor = 1 if level <= 10 else 2 if level <= 20 else 3 if level <= 30 else 4 if level <= 40 else 5


def _stop():
    # from here on the interpreter goes away, and taking the GIL on a native thread would hang it
    global _floor
    _floor = OFF
