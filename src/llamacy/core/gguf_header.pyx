# distutils: language = c++
"""Keys and tensor descriptions of a GGUF, without copying arrays: about a millisecond for a large vocabulary."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport gguf as c_gguf

from llamacy.errors import GgufError
from llamacy.types import GgufType

__all__ = ["GgufHeader"]

cdef enum:
    LIST_MAX = 4096     # arrays up to this long are read; longer ones hold tokens, not parameters of layers

# type -> format of the buffer protocol
cdef dict _FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
cdef size_t[13] _SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]


@cython.final
cdef class GgufHeader:
    """What a GGUF says before the tensor data.

    Parameters
    ----------
    data : buffer
        Bytes of the file.

    Attributes
    ----------
    values : dict of str to object
        Scalars, and arrays of at most 4096 numbers as lists; None for other arrays.
    types : dict of str to GgufType
        Type of the value, or of the elements of an array.
    tensors : dict of str to tuple
        Number of the ggml type and the elements in each dimension, the fastest one first.

    Raises
    ------
    GgufError
        The data ends early or breaks the format.
    """

    cdef const unsigned char[::1] _bytes
    cdef size_t _at
    cdef readonly dict values
    cdef readonly dict types
    cdef readonly dict tensors

    def __cinit__(self, const unsigned char[::1] data not None):
        cdef uint64_t _i, n_tensors, n_keys
        self.values = {}
        self.types = {}
        self.tensors = {}
        if data.shape[0] < 24 or bytes(data[:4]) != b"GGUF":
            raise GgufError("not a GGUF file")
        self._bytes = data
        self._at = 8
        try:
            n_tensors = self._u64()
            n_keys = self._u64()
            for _i in range(n_keys):
                self._read_value()
            for _i in range(n_tensors):
                self._read_tensor()
        finally:
            self._bytes = None

    cdef int _need(self, uint64_t n) except -1:
        if n > <uint64_t>self._bytes.shape[0] - self._at:
            raise GgufError(f"the header is cut short at byte {self._at}")
        return 0

    cdef uint32_t _u32(self) except? 4294967295:
        cdef uint32_t value = 0
        self._need(4)
        memcpy(&value, &self._bytes[self._at], 4)
        self._at += 4
        return value

    cdef uint64_t _u64(self) except? 18446744073709551615:
        cdef uint64_t value = 0
        self._need(8)
        memcpy(&value, &self._bytes[self._at], 8)
        self._at += 8
        return value

    cdef str _text(self):
        cdef uint64_t n = self._u64()
        self._need(n)
        text = bytes(self._bytes[self._at : self._at + n]) if n else b""
        self._at += n
        # llama.cpp reads up to the first NUL, too
        return text.partition(b"\0")[0].decode("utf-8", "surrogateescape")

    cdef int _read_value(self) except -1:
        cdef uint32_t kind
        cdef uint64_t n
        key = self._text()
        kind = self._u32()
        if kind == c_gguf.GGUF_TYPE_ARRAY:
            kind = self._u32()
            n = self._u64()
            value = self._array(kind, n)
        elif kind == c_gguf.GGUF_TYPE_STRING:
            value = self._text()
        else:
            value = self._array(kind, 1)[0]
        if kind > c_gguf.GGUF_TYPE_FLOAT64 or kind == c_gguf.GGUF_TYPE_ARRAY:
            raise GgufError(f"{key!r} is of the unknown type {kind}")
        self.values[key] = value
        self.types[key] = GgufType(kind)
        return 0

    cdef object _array(self, uint32_t kind, uint64_t n):
        cdef uint64_t n_bytes
        if kind == c_gguf.GGUF_TYPE_STRING:
            self._skip_texts(n)
            return None
        if kind > c_gguf.GGUF_TYPE_FLOAT64 or _SIZES[kind] == 0 or n > <uint64_t>self._bytes.shape[0]:
            raise GgufError(f"an array of {n} elements of type {kind} at byte {self._at}")
        n_bytes = n * _SIZES[kind]
        self._need(n_bytes)
        values = None
        if n == 0:
            values = []
        elif n <= LIST_MAX:
            values = memoryview(bytes(self._bytes[self._at : self._at + n_bytes])).cast(_FORMATS[kind]).tolist()
        self._at += n_bytes
        return values

    cdef int _skip_texts(self, uint64_t n) except -1:
        """Step over strings, each of which has its length in front."""
        cdef uint64_t _i, n_bytes = 0
        cdef size_t at = self._at
        cdef size_t size = self._bytes.shape[0]
        cdef const unsigned char* data = &self._bytes[0]
        cdef bint ok = True
        with nogil:
            for _i in range(n):
                if size - at < 8:
                    ok = False
                    break
                memcpy(&n_bytes, data + at, 8)
                at += 8
                if n_bytes > size - at:
                    ok = False
                    break
                at += n_bytes
        self._at = at
        if not ok:
            raise GgufError(f"an array of {n} strings is cut short at byte {at}")
        return 0

    cdef int _read_tensor(self) except -1:
        cdef uint32_t n_dims, i
        cdef int64_t ne[4]
        name = self._text()
        n_dims = self._u32()
        if n_dims > c_ggml.GGML_MAX_DIMS:
            raise GgufError(f"tensor {name!r} has {n_dims} dimensions")
        ne[:] = [1, 1, 1, 1]
        for i in range(n_dims):
            ne[i] = <int64_t>self._u64()
        self.tensors[name] = (self._u32(), (ne[0], ne[1], ne[2], ne[3]))
        self._u64()  # offset
        return 0
