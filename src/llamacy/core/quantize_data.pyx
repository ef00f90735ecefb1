# distutils: language = c++
"""Values of weights that the quantizers of the smallest types can't work with.

They search a grid, and compare sums of squares. When these overflow, no grid point is the best one, and an assertion
fails on a worker thread.
"""

from libc.math cimport fabsf
from libc.stdint cimport uint16_t

from llamacy.core.gguf import Gguf
from llamacy.errors import QuantizeError
from llamacy.types import GgmlType

__all__ = ["VALUE_MAX", "check_values"]

# the sum over a block of importance times weight squared is then far from the largest float
VALUE_MAX = 1e10
cdef float _LIMIT = 1e10
cdef uint16_t _BF16_LIMIT = 0x5015  # the bits of 1e10


def check_values(path, names):
    """Refuse weights that are too large for a grid.

    Parameters
    ----------
    path : str
        GGUF file.
    names : set of str
        Tensors to look at, of those that are in the file.

    Raises
    ------
    QuantizeError
        A weight is not finite, or too large.
    """
    with Gguf(path) as gguf:
        for name, info in gguf.tensors.items():
            if name not in names:
                continue
            data = gguf.tensor_data(name).cast("B")
            if info.type is GgmlType.F32:
                fits = _fits(data.cast("f"))
            elif info.type is GgmlType.BF16:
                fits = _fits_bf16(data.cast("H"))
            else:
                fits = True  # the others reach no such values
            data.release()
            if not fits:
                raise QuantizeError(
                    f"{name!r} has weights that are not finite or beyond {VALUE_MAX:g}, too much for the types that "
                    "search a grid (IQ1, IQ2, IQ3); the file may be damaged"
                )


cdef bint _fits(const float[::1] data) noexcept:
    cdef Py_ssize_t i
    cdef int n_bad = 0
    with nogil:
        for i in range(data.shape[0]):
            n_bad |= not fabsf(data[i]) <= _LIMIT
    return n_bad == 0


cdef bint _fits_bf16(const uint16_t[::1] data) noexcept:
    cdef Py_ssize_t i
    cdef int n_bad = 0
    with nogil:
        for i in range(data.shape[0]):
            n_bad |= (data[i] & 0x7FFF) > _BF16_LIMIT
    return n_bad == 0
