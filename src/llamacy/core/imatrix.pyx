# distutils: language = c++
"""Importance matrices: how much each input of a tensor matters when it is quantized."""

import os
from collections.abc import Mapping

from llamacy.core.gguf import Gguf
from llamacy.core.quantize_data import VALUE_MAX
from llamacy.errors import QuantizeError

__all__ = ["read_imatrix"]

cdef str _SUMS = ".in_sum2"
cdef str _COUNTS = ".counts"


def read_imatrix(source):
    """Return an importance matrix as float32 values by tensor name.

    Parameters
    ----------
    source : mapping of str to buffer, or path
        Values per tensor, or a GGUF file that llama.cpp's `llama-imatrix` wrote.

    Returns
    -------
    dict of str to memoryview
        One-dimensional, contiguous, float32.

    Raises
    ------
    QuantizeError
        The file is no importance matrix.
    ValueError, TypeError
        Values are not float32, not finite, negative, or beyond 1e10.
    """
    if isinstance(source, Mapping):
        entries = {name: _flat(name, data) for name, data in source.items()}
    elif isinstance(source, (str, bytes, os.PathLike)):
        entries = _from_file(source)
    else:
        raise TypeError(f"an importance matrix must be a mapping or a path, not {type(source).__name__}")
    if not entries:
        raise ValueError("the importance matrix has no entries")
    for name, data in entries.items():
        _check(name, data)
    return entries


cdef object _flat(object name, object data):
    if not isinstance(name, str) or not name or "\0" in name:
        raise TypeError(f"an importance matrix goes by tensor names, not {name!r}")
    view = memoryview(data)
    if view.format.lstrip("@=<") != "f" or not view.c_contiguous or view.nbytes == 0:
        raise TypeError(f"importance of {name!r} must be contiguous float32 values")
    return view.cast("B").cast("f")


cdef int _check(object name, const float[::1] data) except -1:
    """Refuse what makes the quantizers of the smallest types abort: they take square roots of these values."""
    cdef Py_ssize_t i
    cdef float limit = VALUE_MAX
    for i in range(data.shape[0]):
        if not 0 <= data[i] <= limit:
            raise ValueError(f"importance of {name!r} must be from 0 to {limit:g}, but value {i} is {data[i]}")
    return 0


cdef object _from_file(object path):
    """Average what the file has summed up, as load_imatrix() of llama.cpp's tools/quantize does."""
    entries = {}
    with Gguf(path) as gguf:
        names = [name[: len(name) - len(_SUMS)] for name in gguf.tensors if name.endswith(_SUMS)]
        if not names:
            raise QuantizeError(f"{path!r} is no importance matrix: it has no tensor that ends in {_SUMS!r}")
        for name in names:
            counts = gguf.tensors.get(name + _COUNTS)
            sums = gguf.tensors[name + _SUMS]
            if counts is None or counts.type.name != "F32" or sums.type.name != "F32":
                raise QuantizeError(f"{path!r}: {name + _COUNTS!r} and {name + _SUMS!r} must both be there, and be F32")
            if counts.n_bytes // 4 != sums.n_bytes // 4 // sums.ne[0]:
                raise QuantizeError(f"{path!r}: {name + _COUNTS!r} has not one count for each row of {name + _SUMS!r}")
            entries[name] = _averages(
                gguf.tensor_data(name + _SUMS).cast("B").cast("f"),
                gguf.tensor_data(name + _COUNTS).cast("B").cast("f"),
            )
    return entries


cdef object _averages(const float[::1] sums, const float[::1] counts):
    data = bytearray(4 * sums.shape[0])
    averages = memoryview(data).cast("f")
    cdef float[::1] view = averages
    cdef Py_ssize_t n = sums.shape[0] // counts.shape[0] if counts.shape[0] else 0
    cdef Py_ssize_t row, i
    for row in range(counts.shape[0]):
        for i in range(n):
            # a row that calibration never reached counts as even
            view[row * n + i] = sums[row * n + i] / counts[row] if counts[row] > 0 else 1
    return averages
