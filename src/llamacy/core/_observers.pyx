# distutils: language = c++
"""Tell those who hold something that relies on a memory what is done to it, right after it was done."""

from libc.stdint cimport INT32_MAX
from libc.stdlib cimport malloc

from llamacy.core.context cimport Context
from llamacy.native cimport llama as c_llama

import weakref

__all__ = []


cdef int observers_add(Context self, object observer) except -1:
    cdef int i
    if self._overwritten == NULL:
        self._overwritten = <int*>malloc(self.n_seq_max * sizeof(int))
        if self._overwritten == NULL:
            raise MemoryError
        for i in range(self.n_seq_max):
            self._overwritten[i] = INT32_MAX
    self._observers.append(weakref.ref(observer, self._observers.remove))
    return 0


cdef list _alive(Context self):
    return [observer for observer in [reference() for reference in self._observers] if observer is not None]


cdef int _tell(Context self, str method, tuple arguments) except -1:
    cdef list observers = _alive(self)
    try:
        for observer in observers:
            getattr(observer, method)(*arguments)
    except BaseException:
        # Ctrl-C, most likely: the memory has changed, so who was not told to the end must rely on nothing any more
        for observer in observers:
            observer.invalidate(None, 0)
        raise
    return 0


cdef int observers_changed(Context self, int seq_id, int from_pos) except -1:
    if self._observers:
        _tell(self, "invalidate", (None if seq_id < 0 else seq_id, max(from_pos, 0)))
    return 0


cdef int observers_copied(Context self, int seq_id_src, int seq_id_dst) except -1:
    if self._observers:
        _tell(self, "inherit", (seq_id_src, seq_id_dst))
    return 0


cdef int observers_replaced(Context self, int seq_id) except -1:
    if self._observers:
        _tell(self, "invalidate_device", (seq_id,))
    return 0


cdef void observers_close(Context self) noexcept:
    if self._observers:
        for observer in _alive(self):
            _close(observer)
        self._observers = []


cdef void _close(object observer) noexcept:
    """Close one; what it raises is reported, as the context goes in any case and the others are to be told."""
    observer.close()


cdef void observers_before_write(Context self, int seq_id, int pos) noexcept nogil:
    if self._overwritten != NULL and pos <= c_llama.llama_memory_seq_pos_max(self._memory, seq_id):
        self._overwritten[seq_id] = min(self._overwritten[seq_id], pos)
        self._n_overwritten += 1


cdef int observers_decoded(Context self, int status) except -1 nogil:
    if self._n_overwritten:
        with gil:
            # an invalid batch, or one without room, was not begun
            _tell_overwritten(self, status not in (-1, 1))
    return 0


cdef int _tell_overwritten(Context self, bint written) except -1:
    cdef int seq_id, pos
    self._n_overwritten = 0
    for seq_id in range(self.n_seq_max):
        pos = self._overwritten[seq_id]
        self._overwritten[seq_id] = INT32_MAX
        if written and pos != INT32_MAX:
            observers_changed(self, seq_id, pos)
    return 0
