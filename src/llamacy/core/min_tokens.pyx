# distutils: language = c++
"""The tokens that end a generation, and the native sampler that rules them out for a while, see _min_tokens.h."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libcpp.vector cimport vector

from llamacy.core.vocab cimport Vocab, vocab_handle
from llamacy.native cimport llama as c_llama

import weakref

__all__ = ["end_tokens"]

cdef extern from "_min_tokens.h" namespace "llamacy" nogil:
    llama_sampler* min_tokens_new(vector[c_llama.llama_token] masked, int32_t n) except +
    const vector[c_llama.llama_token]* c_masked "llamacy::min_tokens_masked"(const llama_sampler* sampler)

# Model -> its end tokens; looking at the whole vocabulary takes long
cdef object _ends = weakref.WeakKeyDictionary()


def end_tokens(Vocab vocab not None):
    """Return all tokens that end a generation (EOS, EOT, …), as an ascending tuple of ids.

    Source: ``llama_vocab_is_eog``.
    """
    cdef const c_llama.llama_vocab* c_vocab = vocab_handle(vocab)
    cdef int32_t token
    found = _ends.get(vocab._model)
    if found is None:
        found = tuple([
            token for token in range(c_llama.llama_vocab_n_tokens(c_vocab))
            if c_llama.llama_vocab_is_eog(c_vocab, token)
        ])
        _ends[vocab._model] = found
    return found


cdef llama_sampler* min_tokens_sampler_new(Vocab vocab, int32_t n) except NULL:
    cdef vector[c_llama.llama_token] masked = end_tokens(vocab)
    return min_tokens_new(masked, n)


cdef const int32_t* min_tokens_masked(const llama_sampler* sampler, size_t* n) noexcept nogil:
    cdef const vector[c_llama.llama_token]* masked = c_masked(sampler)
    n[0] = 0
    if masked == NULL:
        return NULL
    n[0] = masked.size()
    return masked.data()
