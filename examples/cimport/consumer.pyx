# distutils: language = c++
# cython: language_level=3
"""Decode and add up logits without the GIL, through the classes of llamacy."""

from libc.stdint cimport int32_t

from llamacy cimport Batch, Context, batch_clear, batch_extend, context_decode, context_logits_ith


def sum_logits(Context context not None, Batch batch not None, const int32_t[::1] tokens):
    """Decode tokens as a new sequence 0, and return the sum of the logits of the last one."""
    cdef double total = 0
    cdef const float* row
    cdef int i
    cdef int n_tokens = <int>tokens.shape[0]
    cdef int n_vocab = context.n_vocab
    if n_tokens == 0:
        raise ValueError("there are no tokens")
    with nogil:
        batch_clear(batch)
        batch_extend(batch, &tokens[0], n_tokens, 0, 0, True)
        context_decode(context, batch)
        row = context_logits_ith(context, -1)
        for i in range(n_vocab):
            total += row[i]
    return total
