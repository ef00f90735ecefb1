# distutils: language = c++
"""The memory of a context: what each sequence holds, and how it can be cut, copied and shifted."""

cimport cython

from llamacy.core._context_life cimport context_head_size
from llamacy.core._observers cimport observers_add, observers_changed, observers_copied
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_acquire, context_handle, context_release
from llamacy.native cimport llama as c_llama

import os

from llamacy.errors import MemoryOperationError
from llamacy.types import GgmlType

__all__ = ["Memory"]

# no position is beyond this, so that sums of two don't overflow
cdef enum:
    POSITION_MAX = 1 << 30

# src/llama-kv-cache.cpp, llama_kv_cache::llama_kv_cache
cdef int _TURNED = 64
cdef str _NOT_TURNED = "LLAMA_ATTN_ROT_DISABLE"

# only this module may make these objects: an empty one would lead native code astray
cdef bint _wrapping = False


@cython.final
@cython.no_gc_clear
cdef class Memory:
    """The memory of a context: a K/V cache, recurrent state, or both. Comes from `Context.memory`.

    Sequence ids are ints from 0 to `n_seq_max` - 1. Ranges of positions are ``[p0, p1)``; negative ends are open. An
    operation that the kind of memory can't do raises `MemoryOperationError` and changes nothing.

    Thread safety: as its context.
    Source: ``llama_memory_*``.
    """

    def __cinit__(self):
        if not _wrapping:
            raise TypeError("a memory belongs to a context: use Context.memory")

    def __repr__(self):
        if self._context._ptr == NULL:
            return "<Memory of a closed context>"
        return f"<Memory {self.kind} n_ctx={self._context.n_ctx} n_seq_max={self.n_seq_max}>"

    @property
    def n_seq_max(self):
        """Number of sequences."""
        return self._context.n_seq_max

    @property
    def kind(self):
        """``"attention"``, ``"swa"`` (attention, sliding in some or all layers), ``"recurrent"`` or ``"hybrid"``."""
        model = self._context.model
        if model.is_recurrent:
            return "recurrent"
        if model.is_hybrid:
            return "hybrid"
        return "swa" if model.n_swa > 0 else "attention"

    @property
    def can_shift(self):
        """Whether positions can be changed by `seq_add` and `seq_div`."""
        context_handle(self._context)
        return _why_not_shift(self) is None

    def observe(self, observer):
        """Tell an object from now on what is done to the memory, right after it was done.

        Its methods are called with the GIL, by the thread that works with the context: ``invalidate(seq_id, from_pos)``
        when a sequence, or each of them (None), may hold something else from a position on; ``inherit(seq_id_src,
        seq_id_dst)`` when a sequence became a copy of another one; ``invalidate_device(seq_id)`` when what was saved of
        a sequence on the device was replaced; ``close()`` when the context is closed. A decode is told only where it
        writes positions that were there already. They must not use the context.

        Parameters
        ----------
        observer : object
            Not kept alive.

        Raises
        ------
        TypeError
            It lacks one of these methods.
        """
        for name in ("invalidate", "inherit", "invalidate_device", "close"):
            if not callable(getattr(observer, name, None)):
                raise TypeError(
                    f"an observer needs the methods that Memory.observe names, and {observer!r} has no {name}()"
                )
        context_handle(self._context)
        observers_add(self._context, observer)

    def clear(self, *, bint data=True):
        """Remove everything.

        Parameters
        ----------
        data : bool
            Also zero the buffers.
        """
        context_acquire(self._context)
        try:
            self._context._n_edits += 1
            self._context._scattered = False
            with nogil:
                c_llama.llama_memory_clear(self._context._memory, data)
            if self._context._n_rollback != NULL:
                for seq_id in range(self._context.n_seq_max):
                    self._context._n_rollback[seq_id] = 0
            observers_changed(self._context, -1, 0)
        finally:
            context_release(self._context)

    def seq_rm(self, int seq_id, int p0=-1, int p1=-1):
        """Remove the positions ``[p0, p1)`` of a sequence.

        Raises
        ------
        MemoryOperationError
            The part can't be removed: recurrent state can only be removed as a whole, or be rolled back by up to
            `Context.n_rs_seq` tokens of the last decode; a sliding window no longer holds what comes before `p0`.
        """
        cdef bint removed
        cdef int last
        _acquire(self, seq_id)
        try:
            last = c_llama.llama_memory_seq_pos_max(self._context._memory, seq_id)
            _check_rm(self, seq_id, p0, p1)
            self._context._n_edits += 1
            removed = c_llama.llama_memory_seq_rm(self._context._memory, seq_id, p0, p1)
            if not removed:
                raise MemoryOperationError(
                    f"positions [{p0}, {p1}) of sequence {seq_id} can't be removed from a {self.kind} memory"
                )
            if p1 < 0 or p1 > max(p0, 0):
                observers_changed(self._context, seq_id, p0)
            if c_llama.llama_memory_seq_pos_max(self._context._memory, seq_id) >= max(p0, 0):
                self._context._scattered = True
            if self._context._n_rollback != NULL:
                _note_rm(self, seq_id, last)
        finally:
            context_release(self._context)

    def seq_cp(self, int seq_id_src, int seq_id_dst, int p0=-1, int p1=-1):
        """Copy the positions ``[p0, p1)`` of a sequence to another, without copying data where memory allows.

        A copy of a whole sequence replaces what the other one holds; a part is added to it.

        Raises
        ------
        MemoryOperationError
            Only whole sequences can be copied: each sequence has a buffer of its own (``kv_unified=False``). Or
            recurrent state was rolled back, and no decode came after.
        """
        _check_seq(self, seq_id_dst)
        _acquire(self, seq_id_src)
        try:
            if seq_id_src != seq_id_dst:
                if self._context._streams and not _is_whole(self, seq_id_src, p0, p1):
                    raise MemoryOperationError(
                        f"positions [{p0}, {p1}) are a part of sequence {seq_id_src}, and only whole sequences can be "
                        "copied here; create the context with kv_unified=True to copy parts"
                    )
                _check_cp(self, seq_id_src, seq_id_dst)
                self._context._n_edits += 1
                if _is_whole(self, seq_id_src, p0, p1):
                    p0 = p1 = -1
                    c_llama.llama_memory_seq_rm(self._context._memory, seq_id_dst, -1, -1)
                with nogil:
                    c_llama.llama_memory_seq_cp(self._context._memory, seq_id_src, seq_id_dst, p0, p1)
                self._context._update_pending |= self._context._streams and self.kind != "recurrent"
                observers_changed(self._context, seq_id_dst, p0)
                if p0 < 0 and p1 < 0:
                    observers_copied(self._context, seq_id_src, seq_id_dst)
        finally:
            context_release(self._context)

    def seq_keep(self, int seq_id):
        """Remove all other sequences."""
        cdef int other
        _acquire(self, seq_id)
        try:
            self._context._n_edits += 1
            c_llama.llama_memory_seq_keep(self._context._memory, seq_id)
            if self._context._streams:
                # llama.cpp looks at the buffer of this sequence only
                for other in range(self._context.n_seq_max):
                    if other != seq_id:
                        c_llama.llama_memory_seq_rm(self._context._memory, other, -1, -1)
            for other in range(self._context.n_seq_max):
                if other != seq_id:
                    observers_changed(self._context, other, 0)
        finally:
            context_release(self._context)

    def seq_add(self, int seq_id, int p0, int p1, int delta):
        """Add `delta` to the positions ``[p0, p1)`` of a sequence; what falls below 0 is removed.

        Raises
        ------
        MemoryOperationError
            This memory can't shift positions.
        """
        _acquire(self, seq_id)
        try:
            _check_shift(self, seq_id, delta)
            self._context._n_edits += 1
            self._context._scattered = True
            c_llama.llama_memory_seq_add(self._context._memory, seq_id, p0, p1, delta)
            if delta != 0 and (p1 < 0 or p1 > max(p0, 0)):
                # what is moved down may come to lie below
                observers_changed(self._context, seq_id, max(p0, 0) + min(delta, 0))
            self._context._update_pending |= self.kind != "recurrent"
        finally:
            context_release(self._context)

    def seq_div(self, int seq_id, int p0, int p1, int d):
        """Divide the positions ``[p0, p1)`` of a sequence by `d`, which must be positive.

        Raises
        ------
        MemoryOperationError
            This memory can't shift positions.
        ValueError
            `d` is not positive.
        """
        if d < 1:
            raise ValueError(f"d must be from 1, not {d}")
        _acquire(self, seq_id)
        try:
            _check_shift(self, seq_id, 0)
            self._context._n_edits += 1
            c_llama.llama_memory_seq_div(self._context._memory, seq_id, p0, p1, d)
            if d != 1 and (p1 < 0 or p1 > max(p0, 0)):
                observers_changed(self._context, seq_id, max(p0, 0) // d)
            self._context._update_pending |= self.kind != "recurrent"
        finally:
            context_release(self._context)

    def seq_pos_min(self, int seq_id):
        """Return the smallest position that a sequence holds, or -1 when it is empty."""
        _acquire(self, seq_id)
        try:
            return c_llama.llama_memory_seq_pos_min(self._context._memory, seq_id)
        finally:
            context_release(self._context)

    def seq_pos_max(self, int seq_id):
        """Return the largest position that a sequence holds, or -1 when it is empty."""
        _acquire(self, seq_id)
        try:
            return c_llama.llama_memory_seq_pos_max(self._context._memory, seq_id)
        finally:
            context_release(self._context)


cdef Memory memory_wrap(Context context):
    global _wrapping
    cdef Memory memory
    _wrapping = True
    try:
        memory = Memory.__new__(Memory)
    finally:
        _wrapping = False
    memory._context = context
    return memory


cdef int _check_seq(Memory self, int seq_id) except -1:
    if not 0 <= seq_id < self._context.n_seq_max:
        raise ValueError(f"sequence ids must be from 0 to {self._context.n_seq_max - 1}, not {seq_id}")
    return 0


cdef int _acquire(Memory self, int seq_id) except -1:
    _check_seq(self, seq_id)
    return context_acquire(self._context)


cdef bint _is_whole(Memory self, int seq_id, int p0, int p1):
    cdef int first = c_llama.llama_memory_seq_pos_min(self._context._memory, seq_id)
    cdef int last = c_llama.llama_memory_seq_pos_max(self._context._memory, seq_id)
    return p0 <= max(first, 0) and (p1 < 0 or p1 > last)


cdef object _why_not_shift(Memory self):
    """Return why positions can't be shifted, or None."""
    cdef Context context = self._context
    if not c_llama.llama_memory_can_shift(context._memory) or context._mrope:
        return f"positions can't be shifted in this {self.kind} memory"
    if self.kind == "recurrent":
        return None  # the types are not those of its state
    type_k = GgmlType(context.params.values["type_k"])
    if type_k == GgmlType.BF16:
        # the CPU has no rotation for it, and aborts in the next decode
        return "positions can't be shifted in a memory with type_k=BF16; use F16 or F32"
    if type_k not in (GgmlType.F16, GgmlType.F32) and not _is_turned(context):
        # build_rope_shift of src/llama-kv-cache.cpp takes it for granted that they are, and reads from NULL
        return (
            f"positions can't be shifted in a memory with type_k={type_k.name}, where the heads are not of one size "
            "that is a multiple of 64; use F16 or F32"
        )
    return None


cdef bint _is_turned(Context context):
    """Return whether llama.cpp turns quantized keys by a Hadamard matrix, as it does by default where they fit one."""
    cdef int size = context_head_size(context.model, "key")
    window = context.model.metadata.get(f"{context.model.architecture}.attention.key_length_swa", "")
    return size > 0 and size % _TURNED == 0 and window in ("", str(size)) and not os.environ.get(_NOT_TURNED)


cdef int _check_shift(Memory self, int seq_id, int delta) except -1:
    cdef int last = c_llama.llama_memory_seq_pos_max(self._context._memory, seq_id)
    reason = _why_not_shift(self)
    if reason is not None:
        raise MemoryOperationError(reason)
    if not -POSITION_MAX < delta < POSITION_MAX - max(last, 0):
        raise ValueError(f"adding {delta} to position {last} leaves the range of positions")
    return 0


cdef void _note_rm(Memory self, int seq_id, int last) noexcept:
    """Note whether a sequence was rolled back, which is possible once between two decodes of it."""
    cdef int left = c_llama.llama_memory_seq_pos_max(self._context._memory, seq_id)
    if left < 0:
        self._context._n_rollback[seq_id] = 0
    elif left < last:
        self._context._n_rollback[seq_id] = -1


cdef int _check_cp(Memory self, int seq_id_src, int seq_id_dst) except -1:
    """Keep rollbacks out of copies: llama.cpp goes on with the snapshots of the wrong sequence."""
    cdef int* n_rollback = self._context._n_rollback
    if n_rollback == NULL:
        return 0
    if n_rollback[seq_id_src] < 0:
        raise MemoryOperationError(
            f"sequence {seq_id_src} was rolled back and can't be copied before the next decode of it"
        )
    if n_rollback[seq_id_dst] < 0:
        c_llama.llama_memory_seq_rm(self._context._memory, seq_id_dst, -1, -1)
    n_rollback[seq_id_src] = n_rollback[seq_id_dst] = 0
    return 0


cdef int _check_rm(Memory self, int seq_id, int p0, int p1) except -1:
    """Refuse removals that llama.cpp reports as done although what is left is not what it should be."""
    cdef Context context = self._context
    cdef int first = c_llama.llama_memory_seq_pos_min(context._memory, seq_id)
    cdef int last = c_llama.llama_memory_seq_pos_max(context._memory, seq_id)
    if last < 0 or p0 > last or (0 <= p1 <= first):
        return 0  # nothing to remove
    # the first position is no border where layers without a window, or recurrent state, reach further back
    if p0 <= (0 if context.n_rs_seq or context.model.n_swa > 0 else first) and (p1 < 0 or p1 > last):
        return 0  # all of it
    if context.n_rs_seq and p0 > 0:
        if last - p0 + 1 > context._n_rollback[seq_id]:
            raise MemoryOperationError(
                f"removing {last - p0 + 1} tokens of sequence {seq_id} needs a rollback of recurrent state, which is "
                f"possible for {context._n_rollback[seq_id]} tokens now; save and restore the state instead"
            )
    elif context.model.n_swa > 0 and p0 > 0:
        # a window of n_swa positions before p0 must still be there, else what follows attends to nothing; with swa_full
        # it always is, but for a sequence whose state was restored: that has the window only
        if first > max(0, p0 - context.model.n_swa):
            raise MemoryOperationError(
                f"the sliding window holds sequence {seq_id} from position {first} only, so it can't go on from {p0}; "
                "clear the sequence, or create the context with swa_full=True"
            )
    return 0
