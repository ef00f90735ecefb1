# Who is told what happens to the memory of a context; each function does nothing when there is nobody.

from llamacy.core.context cimport Context


# Tell an observer from now on; it is not kept alive.
cdef int observers_add(Context self, object observer) except -1

# A sequence, or each of them where it is negative, may hold something else from a position on.
cdef int observers_changed(Context self, int seq_id, int from_pos) except -1

# A sequence is a copy of another one now.
cdef int observers_copied(Context self, int seq_id_src, int seq_id_dst) except -1

# The copy of a sequence on the device was replaced, or is gone.
cdef int observers_replaced(Context self, int seq_id) except -1

# The context is closed.
cdef void observers_close(Context self) noexcept

# A decode is about to write a position; observers_decoded tells of those that were there before.
cdef void observers_before_write(Context self, int seq_id, int pos) noexcept nogil

# A decode has come to its end with a status of llama.cpp.
cdef int observers_decoded(Context self, int status) except -1 nogil
