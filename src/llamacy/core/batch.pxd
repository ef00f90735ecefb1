from libc.stdint cimport int8_t, int32_t


cdef class Batch:
    # columns of llama_batch, owned here; `_c` is the llama_batch that points to them
    cdef void* _c
    cdef int32_t* _token                # NULL for a batch of embeddings
    cdef float* _embd                   # NULL for a batch of tokens
    cdef int32_t* _pos                  # n_pos_per_embd sections of `capacity`, packed to n_tokens for native code
    cdef int32_t* _n_seq_id
    cdef int32_t** _seq_id
    cdef int32_t* _seq_id_data
    cdef int8_t* _logits
    cdef readonly int capacity
    cdef readonly int n_embd
    cdef readonly int n_seq_max
    cdef readonly int n_pos_per_embd
    cdef int _n_tokens
    cdef int _busy                      # decodes that read the batch now


cdef void batch_clear(Batch self) noexcept nogil
cdef int batch_add(Batch self, int32_t token, int32_t pos, int32_t seq_id, bint logits) except -1 nogil
cdef int batch_extend(
    Batch self, const int32_t* tokens, int n_tokens, int32_t pos, int32_t seq_id, bint logits_last
) except -1 nogil
