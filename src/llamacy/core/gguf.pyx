# distutils: language = c++
"""GGUF files: metadata as a mapping, tensors as buffers, and writing both."""

cimport cython
from libc.stdint cimport int64_t

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._handle cimport GGUF, handle_closed, handle_opened
from llamacy.core._status cimport native_error, raise_closed
from llamacy.core.gguf_tensors cimport tensor_add, tensor_export
from llamacy.core.gguf_values cimport ExportCount, c_string, key_bytes
from llamacy.core.log cimport log_begin, log_install
from llamacy.native cimport gguf as c_gguf

import mmap
import os

from llamacy._paths import file_name
from llamacy.core._replace import replacing
from llamacy.errors import GgufError

__all__ = ["Gguf"]


@cython.final
@cython.no_gc_clear
cdef class Gguf:
    """A GGUF: metadata and tensors, in a file, in memory or to be written.

    Parameters
    ----------
    path : str or PathLike, optional
        File to open. Tensor data stays in the file and is mapped on demand.
    data : buffer, optional
        Bytes of a whole GGUF instead of a file. They are used in place and stay locked until `close`.

    Without either, the object is empty, to be filled and written.

    Raises
    ------
    OSError
        The file can't be opened or mapped.
    GgufError
        The file is damaged, cut short, or of a version that llama.cpp can't read.

    Lifetime
    --------
    Metadata arrays and tensor data are memoryviews of memory that the object owns and keep the object alive. `close`,
    and changes of the metadata, raise BufferError while any of them is alive. A mapped file must not be shortened by
    another program meanwhile.

    Thread safety: reading from several threads is fine; changes need the callers' own lock.

    Source: ``gguf_init_from_buffer``, ``gguf_init_empty`` and ``gguf_get_*`` of gguf.h.
    """

    def __cinit__(self, path=None, *, data=None):
        if path is not None and data is not None:
            raise TypeError("give a path or data, not both")
        self._exports = ExportCount()
        self._added = []
        self._index = {}
        log_install()
        if path is not None:
            self.path = file_name(path)
            self._source = self._map(self.path)
        elif data is not None:
            self._source = memoryview(data)
            if not self._source.c_contiguous:
                raise ValueError("data must be contiguous")
            self._source = self._source.cast("B")
        try:
            self._ptr = c_gguf.gguf_init_empty() if self._source is None else _parse(self._source, self._name())
            handle_opened(GGUF)
            if self._source is not None:
                self._check_source()
        except BaseException:
            self._release()
            raise

    def __dealloc__(self):
        self._release()

    @staticmethod
    def open(path):
        """Open a file; the same as ``Gguf(path)``."""
        return Gguf(path)

    @staticmethod
    def empty():
        """Return a GGUF without metadata and tensors, to be filled and written; the same as ``Gguf()``."""
        return Gguf()

    @staticmethod
    def from_buffer(data):
        """Read a GGUF that is in memory; the same as ``Gguf(data=data)``."""
        return Gguf(data=data)

    def close(self):
        """Unmap the file and free the metadata. It may be called again.

        Raises
        ------
        BufferError
            A metadata array or tensor data is still in use.
        """
        if self._ptr != NULL and self._exports.n:
            raise BufferError(f"{self._exports.n} arrays of this Gguf are still in use; release them before close()")
        self._release()

    @property
    def closed(self):
        """Whether `close` was called."""
        return self._ptr == NULL

    def __enter__(self):
        gguf_handle(self)
        return self

    def __exit__(self, *exc_info):
        if exc_info[0] is not None and self._exports.n:
            return  # the traceback holds the views; freeing is left to the last of them, and the exception not hidden
        self.close()

    def __repr__(self):
        if self._ptr == NULL:
            return f"<Gguf {self._name()} (closed)>"
        n_keys = c_gguf.gguf_get_n_kv(self._ptr)
        return f"<Gguf {self._name()} ({n_keys} keys, {len(self._index)} tensors)>"

    @property
    def version(self):
        """Version of the file format."""
        return c_gguf.gguf_get_version(gguf_handle(self))

    @property
    def alignment(self):
        """Multiple of bytes at which tensors begin."""
        return c_gguf.gguf_get_alignment(gguf_handle(self))

    @property
    def data_offset(self):
        """Bytes before the tensor data in the file that was read."""
        return c_gguf.gguf_get_data_offset(gguf_handle(self))

    @property
    def metadata(self):
        """`GgufMetadata`, the metadata as a mutable mapping."""
        from llamacy.core.gguf_views import GgufMetadata  # which needs this module

        gguf_handle(self)
        return GgufMetadata(self)

    @property
    def tensors(self):
        """`GgufTensors`, a mapping of tensor names to `TensorInfo`."""
        from llamacy.core.gguf_views import GgufTensors  # which needs this module

        gguf_handle(self)
        return GgufTensors(self)

    def tensor_data(self, name):
        """Return the data of a tensor without copying it.

        Parameters
        ----------
        name : str
            Name of the tensor.

        Returns
        -------
        memoryview
            Read-only and contiguous. For ``numpy.asarray``, or anything else that takes buffers.

        Raises
        ------
        KeyError
            There is no tensor of that name.

        Shapes
        ------
        F32, F16, F64 and the integer types have the shape of `TensorInfo.shape`. BF16 comes as the bits, uint16, in
        that shape. Quantized types come as uint8; the last dimension is the bytes of a row.
        """
        cdef c_gguf.gguf_context* ptr = gguf_handle(self)
        cdef int64_t index = gguf_find_tensor(self, name)
        cdef const unsigned char[::1] raw
        if index < self._n_from_source:
            begin = c_gguf.gguf_get_data_offset(ptr) + c_gguf.gguf_get_tensor_offset(ptr, index)
            return tensor_export(ptr, index, self._bytes + <size_t>begin, self, self._exports)
        added = self._added[index - self._n_from_source]
        raw = added
        return tensor_export(ptr, index, &raw[0], (self, added), self._exports)

    def add_tensor(self, name, data, *, type=None, shape=None):
        """Add a tensor that `write` puts into the file.

        Parameters
        ----------
        name : str
            Name of the tensor, at most 63 bytes.
        data : buffer
            Its data, contiguous. It is not copied, and stays locked until `close`.
        type : GgmlType, optional
            Type of the tensor; seen from the elements of `data` when they are float32, float16, float64 or signed
            integers.
        shape : tuple of int, optional
            Elements in each dimension, the fastest one last, as NumPy counts them; the shape of `data` by default.

        Raises
        ------
        ValueError, TypeError
            Name, type, shape and data don't fit together, or the name is taken.

        Source: ``gguf_add_tensor``.
        """
        cdef c_gguf.gguf_context* ptr = gguf_handle(self)
        if name in self._index:
            raise ValueError(f"there is a tensor {name!r} already")
        view = memoryview(data)
        if not view.c_contiguous:
            raise ValueError(f"the data of {name!r} must be contiguous")
        tensor_add(ptr, name, view, type, shape)
        self._added.append(view.cast("B"))
        self._index[name] = len(self._index)

    def write(self, path):
        """Write metadata and tensors to a file.

        The file appears whole or not at all: it is written beside `path` and then renamed.

        Parameters
        ----------
        path : str or PathLike
            Where to write; a file that is there is replaced.

        Raises
        ------
        OSError
            The file can't be written, with the system's error number.

        Source: ``gguf_get_meta_data``.
        """
        cdef c_gguf.gguf_context* ptr = gguf_handle(self)
        cdef int64_t index
        cdef size_t n_bytes
        cdef size_t alignment = c_gguf.gguf_get_alignment(ptr)
        header = _header(ptr)
        gguf_hold(self)
        try:
            with replacing(path) as temporary, open(temporary, "wb") as file:
                file.write(header)
                for index in range(c_gguf.gguf_get_n_tensors(ptr)):
                    n_bytes = c_gguf.gguf_get_tensor_size(ptr, index)
                    file.write(self._raw(index))
                    file.write(bytes((alignment - n_bytes % alignment) % alignment))
                file.flush()
                os.fsync(file.fileno())
        finally:
            gguf_let_go(self)

    cdef str _name(self):
        return repr(self.path) if self.path is not None else "in memory"

    cdef object _map(self, object path):
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise GgufError(f"{path!r} is empty")
            self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(self._mapping)

    cdef int _check_source(self) except -1:
        """Refuse what the native reader lets pass: names that differ after a NUL, and tensors beyond the end."""
        cdef const unsigned char[::1] view = self._source
        cdef int64_t i
        cdef int64_t n_tensors = c_gguf.gguf_get_n_tensors(self._ptr)
        cdef int64_t n_keys = c_gguf.gguf_get_n_kv(self._ptr)
        cdef size_t size = view.shape[0]
        cdef size_t begin = c_gguf.gguf_get_data_offset(self._ptr)
        cdef size_t offset
        self._bytes = &view[0]
        self._n_from_source = n_tensors
        for i in range(n_tensors):
            self._index[c_string(c_gguf.gguf_get_tensor_name(self._ptr, i))] = i
            offset = begin + c_gguf.gguf_get_tensor_offset(self._ptr, i)
            if offset < begin or offset > size or c_gguf.gguf_get_tensor_size(self._ptr, i) > size - offset:
                name = c_string(c_gguf.gguf_get_tensor_name(self._ptr, i))
                raise GgufError(
                    f"{self._name()} is cut short: it has {size} bytes, and tensor {name!r} begins at byte {offset} "
                    f"and takes {c_gguf.gguf_get_tensor_size(self._ptr, i)}"
                )
        keys = {c_string(c_gguf.gguf_get_key(self._ptr, i)) for i in range(n_keys)}
        if len(keys) != n_keys or "" in keys or len(self._index) != n_tensors:
            raise GgufError(f"{self._name()} is damaged: names hold NUL characters")
        return 0

    cdef object _raw(self, int64_t index):
        """Return the bytes of a tensor."""
        cdef size_t begin
        if index >= self._n_from_source:
            return self._added[index - self._n_from_source]
        begin = c_gguf.gguf_get_data_offset(self._ptr) + c_gguf.gguf_get_tensor_offset(self._ptr, index)
        return self._source[begin : begin + c_gguf.gguf_get_tensor_size(self._ptr, index)]

    cdef void _release(self) noexcept:
        if self._ptr != NULL:
            c_gguf.gguf_free(self._ptr)
            self._ptr = NULL
            handle_closed(GGUF)
        self._bytes = NULL
        self._added = []
        self._source = None
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None


cdef c_gguf.gguf_context* gguf_handle(Gguf self) except NULL:
    if self._ptr == NULL:
        raise_closed("Gguf")
    return self._ptr


cdef int gguf_hold(Gguf self) except -1:
    """Keep other threads from closing or changing it, until `gguf_let_go`: they get a BufferError."""
    gguf_handle(self)
    self._exports.n += 1
    return 0


cdef void gguf_let_go(Gguf self) noexcept:
    self._exports.n -= 1


cdef int64_t gguf_find_tensor(Gguf self, object name) except -1:
    index = self._index.get(name)
    if index is None:
        raise KeyError(name)
    return index


cdef int64_t gguf_find_key(Gguf self, object key) except -1:
    cdef c_gguf.gguf_context* ptr = gguf_handle(self)
    cdef int64_t index = -1
    if isinstance(key, str) and key and "\0" not in key:
        index = c_gguf.gguf_find_key(ptr, key_bytes(key))
    if index < 0:
        raise KeyError(key)
    return index


cdef int gguf_changing(Gguf self) except -1:
    gguf_handle(self)
    if self._exports.n:
        raise BufferError(f"the metadata can't be changed while {self._exports.n} arrays of this Gguf are in use")
    return 0


cdef int gguf_check_alignment(Gguf self, object value) except -1:
    if self._index and value != c_gguf.gguf_get_alignment(self._ptr):
        raise GgufError("general.alignment must be set before tensors are added")
    return 0


cdef int gguf_parse_again(Gguf self) except -1:
    """Let the header say the alignment: a gguf_context takes it from there only, and writes by it."""
    cdef c_gguf.gguf_context* replacement = _parse(_header(self._ptr), "in memory")
    c_gguf.gguf_free(self._ptr)
    self._ptr = replacement
    return 0


cdef c_gguf.gguf_context* _parse(object source, str name) except NULL:
    cdef const unsigned char[::1] view = source
    cdef c_gguf.gguf_context* ptr
    cdef c_gguf.gguf_init_params params
    if view.shape[0] == 0:
        raise GgufError(f"{name} is empty")
    params.no_alloc = True
    params.ctx = NULL
    log_begin()
    abort_guard_begin()
    try:
        with nogil:
            ptr = c_gguf.gguf_init_from_buffer(&view[0], view.shape[0], params)
    except RuntimeError as error:
        raise native_error(GgufError, f"{name} is damaged: {error}") from None
    finally:
        abort_guard_end()
    if ptr == NULL:
        raise native_error(GgufError, f"{name} is not a GGUF file that can be read")
    return ptr


cdef bytes _header(c_gguf.gguf_context* ptr):
    """Return what comes before the tensor data in a file."""
    cdef size_t n_bytes = c_gguf.gguf_get_meta_size(ptr)
    header = bytearray(n_bytes)
    cdef unsigned char[::1] view = header
    c_gguf.gguf_get_meta_data(ptr, &view[0])
    return bytes(header)
