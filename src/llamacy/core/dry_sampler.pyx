# distutils: language = c++
"""The native dry sampler, made quickly: llama.cpp looks for the sequence breakers in every token of the vocabulary."""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

from llamacy.core._status cimport native_error
from llamacy.core.log cimport log_begin
from llamacy.core.model cimport model_unuse, model_use
from llamacy.core.vocab cimport Vocab, vocab_handle
from llamacy.native cimport llama as c_llama

import weakref

from llamacy.errors import SamplerError

__all__ = []

cdef enum:
    MAX_BREAKER = 40                    # bytes of a sequence breaker; llama.cpp cuts longer ones
    MAX_PATTERNS = 8                    # kept of each model, while they are small
    MAX_LAST_N_KEPT = 1 << 17

# Model -> dict of arguments to _Pattern, the one used last at the end
cdef object _patterns = weakref.WeakKeyDictionary()


cdef class _Pattern:
    """A sampler to clone. It points to nothing of the model."""
    cdef llama_sampler* ptr

    def __dealloc__(self):
        c_llama.llama_sampler_free(self.ptr)


cdef tuple dry_breakers(object seq_breakers):
    """Return sequence breakers as they were given, checked."""
    if isinstance(seq_breakers, str):
        raise TypeError("seq_breakers is a sequence of texts, not one")
    breakers = tuple(seq_breakers)
    for breaker in breakers:
        encoded = breaker.encode()
        if not 1 <= len(encoded) <= MAX_BREAKER or b"\0" in encoded:
            raise ValueError(f"a sequence breaker has 1 to {MAX_BREAKER} bytes and no NUL, unlike {breaker!r}")
    return breakers


cdef llama_sampler* dry_sampler_new(
    Vocab vocab, float multiplier, float base, int32_t allowed_length, int32_t last_n, tuple breakers
) except NULL:
    cdef _Pattern pattern
    cdef llama_sampler* ptr
    patterns = _patterns.setdefault(vocab._model, {})
    key = (multiplier, base, allowed_length, last_n, breakers)
    pattern = patterns.pop(key, None)
    if pattern is None:
        ptr = _init(vocab, multiplier, base, allowed_length, last_n, [breaker.encode() for breaker in breakers])
        if last_n > MAX_LAST_N_KEPT:
            return ptr
        pattern = _Pattern.__new__(_Pattern)
        pattern.ptr = ptr
        if len(patterns) == MAX_PATTERNS:
            del patterns[next(iter(patterns))]
    patterns[key] = pattern
    return c_llama.llama_sampler_clone(pattern.ptr)


cdef llama_sampler* _init(
    Vocab vocab, float multiplier, float base, int32_t allowed_length, int32_t last_n, list breakers
) except NULL:
    cdef const c_llama.llama_vocab* c_vocab = vocab_handle(vocab)
    cdef llama_sampler* ptr
    cdef size_t i, n = len(breakers)
    cdef const char** c_breakers = <const char**>malloc((n + 1) * sizeof(char*))
    if c_breakers == NULL:
        raise MemoryError()
    try:
        for i in range(n):
            c_breakers[i] = breakers[i]
        model_use(vocab._model)
        try:
            log_begin()
            with nogil:
                ptr = c_llama.llama_sampler_init_dry(c_vocab, multiplier, base, allowed_length, last_n, c_breakers, n)
        finally:
            model_unuse(vocab._model)
    except (IndexError, RuntimeError) as error:
        raise native_error(SamplerError, f"llama.cpp: {error}") from None
    finally:
        free(c_breakers)
    return ptr
