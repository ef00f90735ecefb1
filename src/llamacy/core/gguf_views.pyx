# distutils: language = c++
"""Metadata and tensors of a GGUF as mappings."""

from libc.stdint cimport int64_t

from llamacy.core.gguf cimport (
    Gguf,
    gguf_changing,
    gguf_check_alignment,
    gguf_find_key,
    gguf_find_tensor,
    gguf_handle,
    gguf_parse_again,
)
from llamacy.core.gguf_tensors cimport tensor_info
from llamacy.core.gguf_values cimport c_string, key_bytes, value_get, value_set
from llamacy.native cimport gguf as c_gguf

from collections.abc import Mapping, MutableMapping

from llamacy.types import GgufType

__all__ = ["GgufMetadata", "GgufTensors"]

cdef str _ALIGNMENT = "general.alignment"


class GgufMetadata(MutableMapping):
    """Metadata of a `Gguf`: a mutable mapping of keys to values.

    Values are bool, int, float and str; arrays of numbers are read-only memoryviews of the memory that holds them,
    arrays of strings are lists. Text that is not UTF-8 has lone surrogates (``surrogateescape``), and goes back as it
    was; a text is read up to its first NUL character, as llama.cpp reads it.

    Setting a value by index keeps the type that is there when it can hold the new value. Otherwise int becomes UINT32
    (or the smallest of INT32, INT64, UINT64 that holds it), float FLOAT32; ints in an array become INT32. `set` takes
    the type. A key that is set goes to the end.

    Source: ``gguf_get_val_*``, ``gguf_set_val_*``, ``gguf_set_arr_*`` of gguf.h.
    """

    __slots__ = ("_gguf",)

    def __init__(self, gguf):
        if not isinstance(gguf, Gguf):
            raise TypeError("metadata belongs to a Gguf")
        self._gguf = gguf

    def __getitem__(self, key):
        cdef Gguf gguf = self._gguf
        return value_get(gguf._ptr, gguf_find_key(gguf, key), gguf, gguf._exports)

    def __setitem__(self, key, value):
        self.set(key, value)

    def __delitem__(self, key):
        cdef Gguf gguf = self._gguf
        gguf_changing(gguf)
        gguf_find_key(gguf, key)
        if key == _ALIGNMENT:
            gguf_check_alignment(gguf, c_gguf.GGUF_DEFAULT_ALIGNMENT)
        c_gguf.gguf_remove_key(gguf._ptr, key_bytes(key))
        if key == _ALIGNMENT:
            gguf_parse_again(gguf)

    def __len__(self):
        return c_gguf.gguf_get_n_kv(gguf_handle(self._gguf))

    def __iter__(self):
        cdef c_gguf.gguf_context* ptr = gguf_handle(self._gguf)
        cdef int64_t i
        return iter([c_string(c_gguf.gguf_get_key(ptr, i)) for i in range(c_gguf.gguf_get_n_kv(ptr))])

    def __contains__(self, key):
        try:
            gguf_find_key(self._gguf, key)
        except KeyError:
            return False
        return True

    def __repr__(self):
        return f"<GgufMetadata of {self._gguf!r}>"

    def set(self, key, value, type=None):
        """Set a value, with a type.

        Parameters
        ----------
        key : str
        value : bool, int, float, str, sequence of one of them, or buffer
            A buffer is a one-dimensional array of numbers.
        type : GgufType, optional
            Type of the value, or of the elements of an array.

        Raises
        ------
        TypeError, ValueError
            The value does not fit the type.
        BufferError
            An array of this Gguf is in use.
        """
        cdef Gguf gguf = self._gguf
        gguf_changing(gguf)
        if key == _ALIGNMENT:
            # llama.cpp aborts on anything else
            if isinstance(value, bool) or not isinstance(value, int) or type not in (None, GgufType.UINT32):
                raise TypeError(f"{_ALIGNMENT} must be an int of type UINT32, not {value!r}")
            if not 0 < value < 2**32 or value & (value - 1):
                raise ValueError(f"{_ALIGNMENT} must be a power of two, not {value}")
            gguf_check_alignment(gguf, value)
            type = GgufType.UINT32
        value_set(gguf._ptr, key, value, type)
        if key == _ALIGNMENT:
            gguf_parse_again(gguf)

    def type(self, key):
        """Return the `GgufType` of a value; of the elements, if it is an array."""
        cdef Gguf gguf = self._gguf
        cdef int64_t index = gguf_find_key(gguf, key)
        if c_gguf.gguf_get_kv_type(gguf._ptr, index) == c_gguf.GGUF_TYPE_ARRAY:
            return GgufType(<int>c_gguf.gguf_get_arr_type(gguf._ptr, index))
        return GgufType(<int>c_gguf.gguf_get_kv_type(gguf._ptr, index))


class GgufTensors(Mapping):
    """Tensors of a `Gguf`: a mapping of names to `TensorInfo`, in the order of the file."""

    __slots__ = ("_gguf",)

    def __init__(self, gguf):
        if not isinstance(gguf, Gguf):
            raise TypeError("tensors belong to a Gguf")
        self._gguf = gguf

    def __getitem__(self, name):
        cdef Gguf gguf = self._gguf
        return tensor_info(gguf_handle(gguf), gguf_find_tensor(gguf, name))

    def __len__(self):
        cdef Gguf gguf = self._gguf
        gguf_handle(gguf)
        return len(gguf._index)

    def __iter__(self):
        cdef Gguf gguf = self._gguf
        gguf_handle(gguf)
        return iter(list(gguf._index))

    def __contains__(self, name):
        cdef Gguf gguf = self._gguf
        gguf_handle(gguf)
        return name in gguf._index

    def __repr__(self):
        return f"<GgufTensors of {self._gguf!r}>"
