# distutils: language = c++
"""Load a model from wherever it is, and say what is wrong when that fails."""

from libc.stdio cimport FILE, fclose
from libc.stdlib cimport free, malloc
from libcpp cimport bool as cbool

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._callback cimport has_stashed, raise_stashed, stash_exception
from llamacy.core._status cimport native_error
from llamacy.core.gguf cimport Gguf, gguf_handle, gguf_hold, gguf_let_go
from llamacy.core.log cimport log_begin
from llamacy.core.params cimport ModelParams, kv_overrides_new
from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport ggml_backend as c_backend
from llamacy.native cimport llama as c_llama

import os

from llamacy.core import model_checks
from llamacy.core.wordpiece import wordpiece_overrides
from llamacy.errors import LoadCancelledError, ModelFormatError, ModelLoadError, ModelNotFoundError
from llamacy.types import GgmlType

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef extern from "<stdio.h>" nogil:
    FILE* fdopen(int fd, const char* mode)


cdef class _Load:
    # what the callbacks of one load need
    cdef object progress
    cdef object set_tensor
    cdef bint cancelled


cdef llama_model* model_load(object source, object set_tensor, ModelParams params) except NULL:
    """Load from a path, a list of paths (both str), a Gguf with `set_tensor`, or a file object."""
    cdef c_llama.llama_model_params c = (<c_llama.llama_model_params*>params._c)[0]
    cdef c_llama.llama_model* model
    cdef _Load load = _Load()
    cdef void* overrides = NULL
    load.progress = params.progress_callback
    load.set_tensor = set_tensor
    c.progress_callback = _on_progress
    c.progress_callback_user_data = <void*>load
    model_checks.check(
        source, kv_overrides=params.values["kv_overrides"], vocab_only=params.values["vocab_only"]
    )
    own = wordpiece_overrides(source, params.values["kv_overrides"])
    if own is not None:
        overrides = kv_overrides_new(own)
        c.kv_overrides = <c_llama.llama_model_kv_override*>overrides
    log_begin()
    try:
        if isinstance(source, Gguf):
            model = _load_user(source, &c, load)
        elif isinstance(source, str):
            model = _load_path(source, &c)
        elif isinstance(source, list):
            model = _load_splits(source, &c)
        else:
            model = _load_file(source, &c)
    finally:
        free(overrides)  # llama.cpp has copied them
    try:
        raise_stashed()
    except BaseException:
        if model != NULL:
            c_llama.llama_model_free(model)
        raise
    if model == NULL:
        _raise_load_error(source, load.cancelled)
    return model


cdef cbool _on_progress(float progress, void* user_data) noexcept with gil:
    load = <_Load>user_data
    try:
        PyErr_CheckSignals()
        if load.progress is not None and load.progress(progress) is False:
            load.cancelled = True
            return False
        return True
    except BaseException:
        stash_exception()
        return False


cdef void _on_tensor(c_ggml.ggml_tensor* tensor, void* user_data) noexcept with gil:
    cdef const unsigned char[::1] data
    cdef size_t n_bytes = c_ggml.ggml_nbytes(tensor)
    cdef int n_dims = c_ggml.ggml_n_dims(tensor)
    load = <_Load>user_data
    if has_stashed():
        return  # the load has failed already
    try:
        name = tensor.name.decode()
        shape = tuple([tensor.ne[n_dims - 1 - i] for i in range(n_dims)])
        data = memoryview(load.set_tensor(name, GgmlType(<int>tensor.type), shape)).cast("B")
        if data.shape[0] != n_bytes:
            raise ValueError(f"set_tensor returned {data.shape[0]} bytes for {name!r}, which has {n_bytes}")
        if n_bytes:
            c_backend.ggml_backend_tensor_set(tensor, &data[0], 0, n_bytes)
    except BaseException:
        stash_exception()


cdef c_llama.llama_model* _load_path(str path, c_llama.llama_model_params* params) except? NULL:
    cdef c_llama.llama_model* model
    encoded = _checked_path(path)
    cdef const char* c_path = encoded
    with nogil:
        abort_guard_begin()
        try:
            model = c_llama.llama_model_load_from_file(c_path, params[0])
        finally:
            abort_guard_end()
    return model


cdef c_llama.llama_model* _load_splits(list paths, c_llama.llama_model_params* params) except? NULL:
    cdef c_llama.llama_model* model
    cdef size_t n = len(paths)
    encoded = [_checked_path(path) for path in paths]
    cdef const char** c_paths = <const char**>malloc(n * sizeof(char*))
    if c_paths == NULL:
        raise MemoryError
    try:
        for i, path in enumerate(encoded):
            c_paths[i] = <const char*>(<bytes>path)
        with nogil:
            abort_guard_begin()
            try:
                model = c_llama.llama_model_load_from_splits(c_paths, n, params[0])
            finally:
                abort_guard_end()
    finally:
        free(c_paths)
    return model


cdef c_llama.llama_model* _load_file(object file, c_llama.llama_model_params* params) except? NULL:
    """Load from where the file object stands; its position is as before afterwards."""
    cdef c_llama.llama_model* model
    cdef FILE* stream
    position = file.tell()
    fd = os.dup(file.fileno())
    try:
        before = os.lseek(fd, 0, os.SEEK_CUR)
        os.lseek(fd, position, os.SEEK_SET)
        if os.pread(fd, 4, position) != b"GGUF":
            os.lseek(fd, before, os.SEEK_SET)
            raise ModelFormatError(f"no GGUF begins at position {position} of {file!r}")
        stream = fdopen(fd, "rb")
        if stream == NULL:
            raise ModelLoadError(f"{file!r} can't be opened for reading")
    except BaseException:
        os.close(fd)
        raise
    try:
        with nogil:
            abort_guard_begin()
            try:
                model = c_llama.llama_model_load_from_file_ptr(stream, params[0])
            finally:
                abort_guard_end()
                fclose(stream)
    finally:
        # the copy of the descriptor shared its position with the file
        os.lseek(file.fileno(), before, os.SEEK_SET)
    return model


cdef c_llama.llama_model* _load_user(
    Gguf metadata, c_llama.llama_model_params* params, _Load load
) except? NULL:
    cdef c_llama.llama_model* model
    cdef c_llama.gguf_context* ptr = gguf_handle(metadata)
    gguf_hold(metadata)
    try:
        with nogil:
            abort_guard_begin()
            try:
                model = c_llama.llama_model_init_from_user(ptr, _on_tensor, <void*>load, params[0])
            finally:
                abort_guard_end()
    finally:
        gguf_let_go(metadata)
    return model


cdef bytes _checked_path(str path):
    if not os.path.exists(path):
        raise ModelNotFoundError(f"there is no model file {path!r}")
    if not os.path.isfile(path):
        raise ModelFormatError(f"{path!r} is not a file; give the path of a .gguf file")
    magic = b""
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelFormatError(f"{path!r} is not a GGUF file: it begins with {magic!r}")
    return os.fsencode(path)


cdef int _raise_load_error(object source, bint cancelled) except -1:
    if isinstance(source, list):
        source = source[0]
    if cancelled:
        raise LoadCancelledError(f"loading {source!r} was stopped by progress_callback")
    error = native_error(ModelFormatError, f"llama.cpp can't load {source!r}")
    if any("alloc" in line for line in error.log):
        error = ModelLoadError(f"not enough memory for {source!r}", log=error.log)
    raise error
