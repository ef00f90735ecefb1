from libc.stdint cimport int32_t

from llamacy.core.model cimport Model
from llamacy.native.handles cimport llama_vocab


cdef class Vocab:
    cdef Model _model                   # owns the vocabulary
    cdef const llama_vocab* _ptr        # valid as long as the model is open
    cdef readonly int n_tokens
    cdef str _missing_special           # special token that add_special needs and the model lacks
    cdef object __weakref__


cdef Vocab vocab_wrap(Model model)
cdef const llama_vocab* vocab_handle(Vocab self) except NULL nogil
cdef bint vocab_is_eog(Vocab self, int32_t token) noexcept nogil
cdef int32_t vocab_piece(Vocab self, int32_t token, char* buffer, int32_t size, bint special) except? -2147483648 nogil
