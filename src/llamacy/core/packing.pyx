# distutils: language = c++
"""Which texts are computed together, so that all of them take the least time."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from array import array

__all__ = ["plan_packs"]

cdef extern from "_packing.h" nogil:
    void llamacy_order_by_length(const int32_t* lengths, int32_t* order, size_t n) noexcept


def plan_packs(const int32_t[::1] lengths not None, *, int64_t max_tokens, int max_texts, double best_tokens):
    """Share texts out over batches.

    A batch takes a fixed time, a time for each of its tokens, and a time for each pair of its tokens, since attention
    is computed between all of them and masked where they are of different texts. The texts are put in order of their
    length, and that order is cut where the sum over all batches is least.

    Parameters
    ----------
    lengths : buffer of int32
        Tokens of each text.
    max_tokens : int
        Most tokens in a batch; a text that is longer gets one of its own.
    max_texts : int
        Most texts in a batch.
    best_tokens : float
        The size that a batch of many short texts has best, which is where its fixed time equals that of its pairs.

    Returns
    -------
    order : array.array of int32
        Indices of the texts, in the order in which they are computed.
    ends : array.array of int32
        Where in it each batch ends.

    Raises
    ------
    ValueError
        A number is out of range.

    Thread safety: releases the GIL.
    """
    cdef Py_ssize_t n = lengths.shape[0]
    cdef int32_t[::1] order, ends
    cdef int32_t* cuts
    cdef Py_ssize_t n_packs
    if max_tokens < 1 or max_texts < 1 or not best_tokens > 0:
        raise ValueError(
            f"max_tokens and max_texts must be from 1, and best_tokens above 0, not {max_tokens}, {max_texts} and "
            f"{best_tokens}"
        )
    if n >= 2**31:
        raise ValueError(f"{n} texts are too many to be shared out at once")
    ordered = array("i", bytes(4 * n))
    cut = array("i", bytes(4 * n))
    if n == 0:
        return ordered, cut
    order, ends = ordered, cut
    cuts = <int32_t*>malloc((n + 2) * (sizeof(int32_t) + sizeof(double)))
    if cuts == NULL:
        raise MemoryError
    try:
        with nogil:
            llamacy_order_by_length(&lengths[0], &order[0], n)
            n_packs = _cut(&lengths[0], &order[0], n, max_tokens, max_texts, 1 / (best_tokens * best_tokens), cuts,
                           &ends[0])
    finally:
        free(cuts)
    ends = None  # an array that is looked into can't be cut
    del cut[n_packs:]
    return ordered, cut


cdef Py_ssize_t _cut(
    const int32_t* lengths, const int32_t* order, Py_ssize_t n, int64_t max_tokens, int max_texts, double pair,
    int32_t* cuts, int32_t* ends
) noexcept nogil:
    """Find the cheapest way to cut the order, the fixed time of a batch being 1; returns the number of batches."""
    cdef double* least = <double*>(cuts + n + 1 + (n + 1) % 2)
    cdef Py_ssize_t i, j, n_packs
    cdef int64_t n_tokens
    cdef double cost
    least[0] = 0
    for j in range(1, n + 1):
        least[j] = INFINITY
        n_tokens = 0
        i = j - 1
        while i >= 0 and j - i <= max_texts:
            n_tokens += lengths[order[i]]
            if i < j - 1 and n_tokens > max_tokens:
                break
            cost = pair * n_tokens * n_tokens
            if cost >= least[j]:
                break  # more texts only add to it
            if least[i] + 1 + cost < least[j]:
                least[j] = least[i] + 1 + cost
                cuts[j] = <int32_t>i
            i -= 1
    n_packs = 0
    j = n
    while j > 0:
        n_packs += 1
        j = cuts[j]
    j = n
    i = n_packs
    while j > 0:
        i -= 1
        ends[i] = <int32_t>j
        j = cuts[j]
    return n_packs
