"""Locks that are taken only where they are free."""

__all__ = ["Attempt"]


cdef class Attempt:
    """Take those of some locks that are free for a block, without waiting.

    ``with Attempt(lock) as taken:`` tells whether all of them are; the block runs either way. What was taken is
    released after it.

    Python answers Ctrl-C between any two calls: in Python code that asks a lock and keeps the answer in a variable, an
    interrupt between the two leaves the lock taken for good. No interrupt comes between the calls of this class.

    Parameters
    ----------
    *locks : threading.Lock or threading.RLock
        What to take, in this order.

    Thread safety: for one block at a time.
    """

    cdef tuple _locks
    cdef list _taken

    def __cinit__(self, *locks):
        self._locks = locks
        self._taken = []

    def __enter__(self):
        if self._taken:
            raise RuntimeError("this attempt has its block already")
        try:
            for lock in self._locks:
                if lock.acquire(False):
                    self._taken.append(lock)
        except BaseException:
            self._release()
            raise
        return len(self._taken) == len(self._locks)

    def __exit__(self, *exc_info):
        self._release()

    cdef int _release(self) except -1:
        while self._taken:
            self._taken.pop().release()
        return 0
