# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False
"""Code of a user that calls the C API itself, against the headers and libraries that llamacy has."""

from libc.stdint cimport int32_t

from llamacy.native cimport llama as c_llama


def sum_logits(bytes path, const int32_t[::1] tokens):
    """Load a model with the C API, decode, and return the size of the vocabulary and the sum of the last logits."""
    cdef c_llama.llama_model_params model_params = c_llama.llama_model_default_params()
    cdef c_llama.llama_context_params params = c_llama.llama_context_default_params()
    cdef c_llama.llama_model* model
    cdef c_llama.llama_context* context
    cdef c_llama.llama_batch batch
    cdef const char* c_path = path
    cdef const float* row
    cdef double total = 0
    cdef int i, n_vocab, status
    params.n_ctx = 256
    params.n_threads = 1
    params.n_threads_batch = 1
    with nogil:
        model = c_llama.llama_model_load_from_file(c_path, model_params)
    if model == NULL:
        raise OSError(path)
    with nogil:
        context = c_llama.llama_init_from_model(model, params)
        batch = c_llama.llama_batch_init(<int32_t>tokens.shape[0], 0, 1)
        batch.n_tokens = <int32_t>tokens.shape[0]
        for i in range(batch.n_tokens):
            batch.token[i] = tokens[i]
            batch.pos[i] = i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i == batch.n_tokens - 1
        status = c_llama.llama_decode(context, batch)
        n_vocab = c_llama.llama_vocab_n_tokens(c_llama.llama_model_get_vocab(model))
        if status == 0:
            row = c_llama.llama_get_logits_ith(context, -1)
            for i in range(n_vocab):
                total += row[i]
        c_llama.llama_batch_free(batch)
        c_llama.llama_free(context)
        c_llama.llama_model_free(model)
    if status != 0:
        raise RuntimeError(f"llama_decode returned {status}")
    return n_vocab, total
