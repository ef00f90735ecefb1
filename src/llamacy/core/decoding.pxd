# What a context does, as functions that need no GIL.

from libc.stddef cimport size_t

from llamacy.core.batch cimport Batch
from llamacy.core.context cimport Context
from llamacy.native.handles cimport llama_context


cdef llama_context* context_handle(Context self) except NULL nogil
cdef int context_acquire(Context self) except -1 nogil
cdef void context_release(Context self) noexcept nogil
cdef int context_begin(Context self, int n_tokens) except -1 nogil
cdef void context_end(Context self, int interrupt, bint computed) noexcept nogil
cdef void context_forget_outputs(Context self) noexcept nogil
cdef int context_check_encoder(Context self, bint tokens) except -1 nogil
cdef int context_check_decoder(Context self) except -1 nogil
cdef int context_check_output(Context self, int n_tokens, int n_outputs) except -1 nogil
cdef void context_after(Context self, int status, int n_tokens, int n_outputs) noexcept nogil
cdef size_t context_output_bytes(Context self, int rows) noexcept nogil
cdef int context_decode(Context self, Batch batch) except -1 nogil
cdef int context_encode(Context self, Batch batch) except -1 nogil
cdef const float* context_logits_ith(Context self, int i) except NULL nogil
cdef const float* context_embeddings_ith(Context self, int i) except NULL nogil
cdef int context_interrupt_begin(Context self) noexcept nogil
cdef void context_interrupt_end(Context self, int token) noexcept nogil
