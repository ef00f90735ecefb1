# distutils: language = c++
"""The native quantizer, followed and stopped through what it logs.

`llama_model_quantize` takes no callback. It logs one line for each tensor before it begins with it, on the thread that
called it, when no worker thread runs, and it catches exceptions of C++: a log callback that throws there ends it
cleanly.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._callback cimport raise_stashed, stash_exception
from llamacy.core._status cimport native_error
from llamacy.core.log cimport LOG_PASS, LOG_STOP, LOG_SWALLOW, log_begin, log_observe
from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport llama as c_llama

import os
import re

from llamacy.errors import QuantizeCancelledError, QuantizeError
from llamacy.types import GgmlType

__all__ = ["QuantizeRun"]

# "[   1/  47] token_embd.weight                    - [   64,   288,     1,     1], type =    f32, "
cdef object _TENSOR_LINE = re.compile(r"\[ *(\d+)/ *\d+\] (.+?) +- \[([^\]]*)\], type = +(\w+), ")
# "converting to q8_0 .. ", or in a dry run "size =     0.07 MiB ->     0.02 MiB (q8_0)"
cdef object _TYPE_LINE = re.compile(r"converting to (\w+) |-> .*\((\w+)\)")


@cython.final
cdef class QuantizeRun:
    """One run of the native quantizer, as seen through its log."""

    def __cinit__(self, *, bint dry=False, progress=None, int total=0):
        self.dry = dry
        self.progress = progress
        self.total = total
        self.tensors = []


cdef int _observe(int level, const char* text, void* data) noexcept nogil:
    """See how far the quantizer is, in what it logs on the thread that called it."""
    if text[0] == b"[" or text[0] == b"c" or text[0] == b"s":
        return _see(level, text, data)
    return _verdict(level, data)


cdef int _verdict(int level, void* data) noexcept with gil:
    run = <QuantizeRun>data
    # of a dry run, only errors are of interest
    return LOG_SWALLOW if run.stopped or (run.dry and level != c_ggml.GGML_LOG_LEVEL_ERROR) else LOG_PASS


cdef int _see(int level, const char* text, void* data) noexcept with gil:
    run = <QuantizeRun>data
    if run.stopped:
        return LOG_SWALLOW
    try:
        line = text.decode("utf-8", "replace")
        match = _TENSOR_LINE.match(line)
        if match:
            _next_tensor(run, match)
        elif run.tensors:
            match = _TYPE_LINE.search(line)
            if match:
                run.tensors[len(run.tensors) - 1][3] = GgmlType[(match[1] or match[2]).upper()]
    except BaseException:
        stash_exception()
        run.stopped = True
    if run.stopped:
        return LOG_STOP
    return _verdict(level, data)


cdef int _next_tensor(QuantizeRun run, object match) except -1:
    done = int(match[1]) - 1
    name = match[2]
    ne = tuple([int(n) for n in match[3].split(",")])
    kind = GgmlType[match[4].upper()]
    run.tensors.append([name, ne, kind, kind])
    PyErr_CheckSignals()
    if run.progress is not None and run.progress(done, run.total, name) is False:
        run.stopped = True
    return 0


cdef int quantize_run(object source, object target, const void* params, QuantizeRun run) except -1:
    """Quantize with `llama_model_quantize_params`, and raise what went wrong."""
    cdef const char* c_source
    cdef const char* c_target
    cdef unsigned int status = 1
    encoded_source = os.fsencode(source)
    encoded_target = os.fsencode(target)
    c_source = encoded_source
    c_target = encoded_target
    log_begin()
    log_observe(_observe, <void*>run)
    abort_guard_begin()
    try:
        with nogil:
            status = c_llama.llama_model_quantize(
                c_source, c_target, <const c_llama.llama_model_quantize_params*>params
            )
    finally:
        abort_guard_end()
        log_observe(NULL, NULL)
    raise_stashed()
    if run.stopped:
        raise QuantizeCancelledError(f"quantizing {source!r} was stopped by progress; nothing was written")
    if status != 0:
        raise native_error(QuantizeError, f"{source!r} could not be quantized")
    return 0
