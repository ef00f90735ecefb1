from libc.stdint cimport int32_t

from llamacy.core.vocab cimport Vocab
from llamacy.native.handles cimport llama_sampler


cdef tuple dry_breakers(object seq_breakers)
cdef llama_sampler* dry_sampler_new(
    Vocab vocab, float multiplier, float base, int32_t allowed_length, int32_t last_n, tuple breakers
) except NULL
