"""Arithmetic on rows of float32."""

from libc.math cimport INFINITY, fabs, isfinite, pow, sqrt

__all__ = ["normalize_rows"]


def normalize_rows(float[:, ::1] rows not None, double p=2.0):
    """Divide each row by its p-norm, in place; rows of zeros stay.

    Parameters
    ----------
    rows : writable buffer of float32, (n, d), C order
        The rows.
    p : float
        2 for unit length, 1 for a sum of magnitudes of 1, infinity for a largest magnitude of 1; any number above 0.

    Raises
    ------
    ValueError
        `p` is not above 0.

    Notes
    -----
    Sums are taken in float64, of numbers relative to the largest one, so that nothing overflows or vanishes.

    Thread safety: releases the GIL.
    """
    cdef Py_ssize_t i
    if not p > 0:
        raise ValueError(f"p must be above 0, not {p}")
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        return
    with nogil:
        for i in range(rows.shape[0]):
            _normalize(&rows[i, 0], rows.shape[1], p)


cdef void _normalize(float* row, Py_ssize_t n, double p) noexcept nogil:
    cdef double largest = 0
    cdef double total = 0
    cdef double norm
    cdef Py_ssize_t i
    for i in range(n):
        largest = max(largest, fabs(row[i]))
    if largest == 0 or not isfinite(largest):
        return
    if p == INFINITY:
        norm = largest
    elif p == 2:
        for i in range(n):
            total += (row[i] / largest) * (row[i] / largest)
        norm = largest * sqrt(total)
    elif p == 1:
        for i in range(n):
            total += fabs(row[i])
        norm = total
    else:
        for i in range(n):
            total += pow(fabs(row[i]) / largest, p)
        norm = largest * pow(total, 1 / p)
    for i in range(n):
        row[i] = <float>(row[i] / norm)
