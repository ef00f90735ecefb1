# distutils: language = c++
"""Saved states: the memory of a context, or of one sequence, as bytes or as a file.

A state is what llama.cpp writes: the cells of the memory and their tensor data. Logits, embeddings, samplers,
adapters and threads are not in it; after a restore, decode the next token to have logits. The architecture,
the K/V types, flash attention and the number of streams (`n_seq_max` unless `kv_unified`) must be the same in
the context that takes it; `n_ctx` may differ. A state carries no checksum: bytes that were damaged inside
tensor data restore without complaint.
"""

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._state cimport (
    STATE_SEQ_HEADER,
    STATE_SEQ_MAGIC,
    STATE_WHOLE,
    state_check_savable,
    state_checked_seq,
    state_fetch,
    state_fetch_into,
    state_measure,
    state_restore,
)
from llamacy.core._status cimport native_error
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_acquire, context_release
from llamacy.core.log cimport log_begin
from llamacy.native cimport llama as c_llama

import os
from array import array
from mmap import ACCESS_COPY, mmap
from struct import Struct

from llamacy._paths import file_name
from llamacy.core._replace import replacing
from llamacy.errors import StateError
from llamacy.types import StateFlags

__all__ = ["State"]

# magic, version, number of tokens: what both kinds of files begin with
cdef object _file_header = Struct("=III")
cdef object _seq_header = Struct("=Ii")

# only this module may make these objects: an empty one would lead native code astray
cdef bint _wrapping = False


@cython.final
@cython.no_gc_clear
cdef class State:
    """Saves and restores the memory of a context, or of one sequence; comes from `Context.state`.

    Thread safety: releases the GIL; one call on a context at a time.
    Source: ``llama_state_*``.
    """

    def __cinit__(self):
        if not _wrapping:
            raise TypeError("states belong to a context: use Context.state")

    def __repr__(self):
        return f"<State of {self._context!r}>"

    def size(self):
        """Return the size of the state of a context in bytes, as it is now.

        Source: ``llama_state_get_size``.
        """
        cdef Context context = self._context
        context_acquire(context)
        try:
            return state_measure(context, STATE_WHOLE, 0)
        finally:
            context_release(context)

    def get(self):
        """Return the state of a context: all its sequences.

        Returns
        -------
        bytes
            Written in place by llama.cpp.

        Raises
        ------
        StateError
            It can't be saved as it is; nothing was changed.

        Thread safety: releases the GIL; one call on a context at a time.
        Source: ``llama_state_get_data``.
        """
        cdef Context context = self._context
        context_acquire(context)
        try:
            return state_fetch(context, STATE_WHOLE, 0)
        finally:
            context_release(context)

    def get_into(self, buffer):
        """Write the state of a context into memory of the caller.

        Parameters
        ----------
        buffer : writable buffer
            At least `size` bytes.

        Returns
        -------
        int
            Number of bytes written.

        Raises
        ------
        StateError
            The buffer is too small, or the state can't be saved as it is; nothing was changed.

        Source: ``llama_state_get_data``.
        """
        cdef Context context = self._context
        return _get_into(context, STATE_WHOLE, buffer, 0)

    def set(self, data):
        """Replace the memory of a context by a saved state.

        Parameters
        ----------
        data : buffer
            What `get` returned.

        Raises
        ------
        StateError
            The bytes are not a state that this context can take. What was found before anything was touched left
            the memory as it was; otherwise the memory is empty: the message says which.

        Thread safety: releases the GIL; one call on a context at a time.
        Source: ``llama_state_set_data``.
        """
        cdef Context context = self._context
        cdef const uint8_t[::1] view = _bytes(data)
        context_acquire(context)
        try:
            state_restore(context, STATE_WHOLE, &view[0] if view.shape[0] else NULL, view.shape[0], 0)
        finally:
            context_release(context)

    def save_file(self, path, tokens=()):
        """Write the state of a context to a file, along with the tokens that led to it.

        Parameters
        ----------
        path : path
            Replaced as a whole once everything is written.
        tokens : buffer of int32, or sequence of int
            Kept in the file for whoever loads it.

        Raises
        ------
        StateError
            The file can't be written, or the state can't be saved as it is; an older file is left alone.

        Thread safety: releases the GIL; one call on a context at a time.
        Source: ``llama_state_save_file``, whose format this is.
        """
        cdef Context context = self._context
        _save_file(context, STATE_WHOLE, path, tokens)

    def load_file(self, path, n_token_capacity=None):
        """Replace the memory of a context by the state in a file.

        Parameters
        ----------
        path : path
            What `save_file`, or llama.cpp, wrote.
        n_token_capacity : int, optional
            Most tokens to accept; any number by default.

        Returns
        -------
        array.array
            The tokens, as int32.

        Raises
        ------
        StateError
            As for `set`; also when more tokens are in it, or it can't be read.
        FileNotFoundError
            There is no such file.

        Source: ``llama_state_load_file``, whose format this is.
        """
        cdef Context context = self._context
        return _load_file(context, STATE_WHOLE, path, n_token_capacity)

    def seq_size(self, seq_id, flags=StateFlags.NONE):
        """Return the size of the state of a sequence in bytes, as it is now.

        Source: ``llama_state_seq_get_size_ext``.
        """
        cdef Context context = self._context
        cdef int c_seq_id = state_checked_seq(context, seq_id)
        cdef uint32_t c_flags = _flags(flags)
        context_acquire(context)
        try:
            return state_measure(context, c_seq_id, c_flags)
        finally:
            context_release(context)

    def seq_get(self, seq_id, flags=StateFlags.NONE):
        """Return the state of a sequence.

        Parameters
        ----------
        seq_id : int
            The sequence.
        flags : StateFlags
            ``PARTIAL_ONLY`` leaves out what can be cut back to an earlier position: only the sliding-window cache
            or the recurrent state is saved, and it can be restored only while the rest of the sequence is still
            in place. Models without either save everything. ``ON_DEVICE`` keeps the tensor data where it is: one
            copy for each sequence, which the next such save of it replaces and which lasts until the context is
            closed, and bytes that only this context can restore.

        Returns
        -------
        bytes
            Written in place by llama.cpp.

        Raises
        ------
        StateError
            The state can't be saved as it is, or not on the device; nothing was changed. On the device it can't when
            the memory was changed since the save before and the sequence has as many cells as then.

        Thread safety: releases the GIL; one call on a context at a time.
        Source: ``llama_state_seq_get_data_ext``.
        """
        cdef Context context = self._context
        cdef int c_seq_id = state_checked_seq(context, seq_id)
        cdef uint32_t c_flags = _flags(flags)
        context_acquire(context)
        try:
            return state_fetch(context, c_seq_id, c_flags)
        finally:
            context_release(context)

    def seq_get_into(self, seq_id, buffer, flags=StateFlags.NONE):
        """Write the state of a sequence into memory of the caller.

        Parameters
        ----------
        seq_id, flags
            As for `seq_get`.
        buffer : writable buffer
            At least `seq_size` bytes.

        Returns
        -------
        int
            Number of bytes written.

        Raises
        ------
        StateError
            The buffer is too small, or as for `seq_get`; nothing was changed.

        Source: ``llama_state_seq_get_data_ext``.
        """
        cdef Context context = self._context
        return _get_into(context, state_checked_seq(context, seq_id), buffer, _flags(flags))

    def seq_set(self, seq_id, data, flags=StateFlags.NONE):
        """Replace a sequence by a saved state, which may be that of another sequence or context.

        Parameters
        ----------
        seq_id : int
            The sequence to replace.
        data : buffer
            What `seq_get` returned.
        flags : StateFlags
            Those that it was saved with.

        Raises
        ------
        StateError
            The bytes are not a state that this sequence can take. What was found before anything was touched left
            the sequence as it was; otherwise the sequence is empty: the message says which.

        Thread safety: releases the GIL; one call on a context at a time.
        Source: ``llama_state_seq_set_data_ext``.
        """
        cdef Context context = self._context
        cdef int c_seq_id = state_checked_seq(context, seq_id)
        cdef uint32_t c_flags = _flags(flags)
        cdef const uint8_t[::1] view = _bytes(data)
        context_acquire(context)
        try:
            state_restore(context, c_seq_id, &view[0] if view.shape[0] else NULL, view.shape[0], c_flags)
        finally:
            context_release(context)

    def seq_save_file(self, path, seq_id, tokens=()):
        """Write the state of a sequence to a file, along with its tokens.

        Parameters
        ----------
        path : path
            Replaced as a whole once everything is written.
        seq_id : int
            The sequence.
        tokens : buffer of int32, or sequence of int
            Kept in the file for whoever loads it.

        Raises
        ------
        StateError
            As for `save_file`.

        Source: ``llama_state_seq_save_file``, whose format this is.
        """
        cdef Context context = self._context
        _save_file(context, state_checked_seq(context, seq_id), path, tokens)

    def seq_load_file(self, path, dest_seq_id, n_token_capacity=None):
        """Replace a sequence by the state in a file.

        Parameters
        ----------
        path : path
            What `seq_save_file`, or llama.cpp, wrote.
        dest_seq_id : int
            The sequence to replace.
        n_token_capacity : int, optional
            Most tokens to accept; any number by default.

        Returns
        -------
        array.array
            The tokens, as int32.

        Raises
        ------
        StateError
            As for `seq_set`; also when more tokens are in it, or it can't be read.
        FileNotFoundError
            There is no such file.

        Source: ``llama_state_seq_load_file``, whose format this is.
        """
        cdef Context context = self._context
        return _load_file(context, state_checked_seq(context, dest_seq_id), path, n_token_capacity)


cdef State state_wrap(Context context):
    global _wrapping
    cdef State state
    _wrapping = True
    try:
        state = State.__new__(State)
    finally:
        _wrapping = False
    state._context = context
    return state


cdef size_t _get_into(Context context, int seq_id, object buffer, uint32_t flags) except? 0:
    cdef uint8_t[::1] view = memoryview(buffer).cast("B")
    context_acquire(context)
    try:
        return state_fetch_into(context, seq_id, &view[0] if view.shape[0] else NULL, view.shape[0], flags)
    finally:
        context_release(context)


cdef int _save_file(Context context, int seq_id, object path, object tokens) except -1:
    cdef const int32_t[::1] ids = _ints(tokens)
    cdef const int32_t* c_ids = &ids[0] if ids.shape[0] else NULL
    cdef size_t n_ids = ids.shape[0]
    cdef size_t n
    cdef cbool saved = False
    cdef bytes encoded
    cdef const char* c_path
    target = os.fsdecode(path)
    context_acquire(context)
    try:
        state_check_savable(context, 0)
        n = state_measure(context, seq_id, 0) + _file_header.size + 4 * n_ids
        if seq_id != STATE_WHOLE:
            n -= STATE_SEQ_HEADER
        with replacing(target) as partial:
            encoded = os.fsencode(partial)
            c_path = encoded
            log_begin()
            abort_guard_begin()
            try:
                with nogil:
                    if seq_id == STATE_WHOLE:
                        saved = c_llama.llama_state_save_file(context._ptr, c_path, c_ids, n_ids)
                    else:
                        saved = 0 != c_llama.llama_state_seq_save_file(
                            context._ptr, c_path, seq_id, c_ids, n_ids
                        )
            finally:
                abort_guard_end()
            # what does not fit on the disk may be lost without a word when llama.cpp closes the file
            if not saved or os.path.getsize(partial) != n:
                raise native_error(StateError, f"{target!r} could not be written; the disk may be full")
    except OSError as error:
        raise StateError(f"{target!r} can't be written: {error}") from error
    finally:
        context_release(context)
    return 0


cdef object _load_file(Context context, int seq_id, object path, object n_token_capacity):
    cdef uint8_t[::1] view
    cdef size_t size, start
    cdef bytes header
    name = os.fsdecode(path)
    mapping = _map_file(name)
    try:
        view = mapping
        size = view.shape[0]
        tokens = _read_tokens(mapping, seq_id == STATE_WHOLE, name, n_token_capacity)
        start = _file_header.size + 4 * len(tokens)
        if seq_id != STATE_WHOLE:
            # the file leaves out the header that the state of a sequence has in memory: it takes the place of
            # what comes before, in this process only
            start -= STATE_SEQ_HEADER
            header = _seq_header.pack(STATE_SEQ_MAGIC, seq_id)
            memcpy(&view[start], <const char*>header, STATE_SEQ_HEADER)
        context_acquire(context)
        try:
            state_restore(context, seq_id, &view[start], size - start, 0)
        finally:
            context_release(context)
    finally:
        view = None
        mapping.close()
    return tokens


def _map_file(name):
    try:
        with open(file_name(name), "rb") as file:
            if os.fstat(file.fileno()).st_size < _file_header.size:
                raise StateError(f"{name!r} is too short for a state file; nothing was changed")
            return mmap(file.fileno(), 0, access=ACCESS_COPY)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StateError(f"{name!r} can't be read: {error}") from error


def _read_tokens(mapping, bint whole, name, n_token_capacity):
    magic, version, n = _file_header.unpack_from(mapping)
    wanted = (
        (c_llama.LLAMA_SESSION_MAGIC, c_llama.LLAMA_SESSION_VERSION)
        if whole
        else (c_llama.LLAMA_STATE_SEQ_MAGIC, c_llama.LLAMA_STATE_SEQ_VERSION)
    )
    kind = "a whole context" if whole else "a sequence"
    if magic != wanted[0]:
        raise StateError(f"{name!r} is not a file with the state of {kind}; nothing was changed")
    if version != wanted[1]:
        raise StateError(
            f"{name!r} has format version {version}, this llama.cpp reads {wanted[1]}; nothing was changed"
        )
    if n > (len(mapping) - _file_header.size) // 4:
        raise StateError(f"{name!r} ends before its {n} tokens do; nothing was changed")
    if n_token_capacity is not None and n > n_token_capacity:
        raise StateError(
            f"{name!r} has {n} tokens, more than the {n_token_capacity} asked for; nothing was changed"
        )
    tokens = array("i")
    tokens.frombytes(mapping[_file_header.size:_file_header.size + 4 * n])
    return tokens


cdef uint32_t _flags(object flags) except? 0xFFFFFFFF:
    # StateFlags itself takes any number
    if flags not in (0, 1, 2, 3):
        raise ValueError(f"flags must be made of PARTIAL_ONLY and ON_DEVICE, not {flags!r}")
    return flags


cdef object _bytes(object data):
    return memoryview(data).cast("B")


cdef object _ints(object tokens):
    try:
        view = memoryview(tokens)
    except TypeError:
        return array("i", tokens)
    return tokens if view.format == "i" and view.contiguous else array("i", view.tolist())
