# distutils: language = c++
"""LoRA adapters: weights that change what a context computes."""

cimport cython
from libc.float cimport FLT_MAX
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport FILE, SEEK_SET, fclose, fseek, ftell
from libc.stdlib cimport calloc, free

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._handle cimport LORA_ADAPTER, handle_closed, handle_opened
from llamacy.core._status cimport native_error, raise_closed
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_acquire, context_handle, context_release
from llamacy.core.log cimport log_begin
from llamacy.core.model cimport Model, model_adopt, model_disown, model_handle, model_unuse, model_use
from llamacy.native cimport gguf as c_gguf
from llamacy.native cimport llama as c_llama
from llamacy.native cimport llama_ext as c_ext

import os
import threading
import weakref
from types import MappingProxyType

from llamacy._paths import file_name
from llamacy.errors import AdapterError, InUseError
from llamacy.types import GgmlType

__all__ = [
    "LoraAdapter",
    "adapters_get",
    "adapters_set",
]

cdef extern from "<stdio.h>" nogil:
    FILE* fdopen(int fd, const char* mode)

# types that a matrix product and a row lookup take as weights on every backend; llama.cpp does not ask before
# it computes
cdef frozenset _WEIGHT_TYPES = frozenset((
    GgmlType.F32, GgmlType.F16, GgmlType.BF16, GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q5_0, GgmlType.Q5_1,
    GgmlType.Q8_0, GgmlType.Q2_K, GgmlType.Q3_K, GgmlType.Q4_K, GgmlType.Q5_K, GgmlType.Q6_K,
))

# a model's set of adapters has no lock of its own, and loading runs without the GIL
cdef object _lock = threading.RLock()


@cython.no_gc_clear
cdef class LoraAdapter:
    """LoRA weights for one model, from a GGUF file made by llama.cpp's ``convert_lora_to_gguf.py``.

    An adapter changes nothing by itself: `Context.set_adapters` says which ones a context applies, and how
    strongly.

    Parameters
    ----------
    model : Model
        The model that the adapter was trained for.
    source : path or binary file
        The file; of an open one, what follows the current position.

    Raises
    ------
    AdapterError
        There is no such file, it is not a LoRA adapter, or it does not fit the model.

    Lifetime: keeps its model alive; a context keeps the adapters alive that it applies. Closing the model
    closes it.
    Thread safety: may be set on several contexts, in several threads.
    Source: ``llama_adapter_lora_init_from_file_ptr``.
    """

    def __cinit__(self, Model model not None, source):
        model_handle(model)
        if model.vocab_only or model.params.values["no_alloc"]:
            raise AdapterError("the model was loaded without weights, so an adapter has nothing to change")
        self.model = model
        self._contexts = {}
        if isinstance(source, (str, bytes, os.PathLike)):
            self.path = os.fsdecode(source)
            try:
                file = open(file_name(self.path), "rb")
            except OSError as error:
                raise AdapterError(f"{self.path!r} can't be read: {error}") from error
            with file:
                self._ptr = _load(model, file, repr(self.path))
        else:
            self._ptr = _load(model, source, "the adapter")
        handle_opened(LORA_ADAPTER)
        _adopt_first(model, self)

    def __dealloc__(self):
        _free(self)

    def _check_closable(self):
        # asked when the model is closed, which closes all contexts before
        pass

    def close(self):
        """Free the weights.

        Raises
        ------
        InUseError
            A context applies the adapter.
        """
        if self._ptr == NULL:
            return
        users = _users(self)
        if users:
            raise InUseError(f"{len(users)} contexts apply this adapter; take it off, or close, them first")
        _free(self)

    @property
    def closed(self):
        """Whether the adapter is closed."""
        return self._ptr == NULL

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        if self._ptr == NULL:
            return "<LoraAdapter closed>"
        return f"<LoraAdapter {self.metadata.get('general.name', self.path)!r} of {self.model!r}>"

    @property
    def metadata(self):
        """Metadata of the file as a read-only mapping of str to str; arrays are left out.

        Source: ``llama_adapter_meta_key_by_index``, ``llama_adapter_meta_val_str_by_index``.
        """
        cdef c_llama.llama_adapter_lora* ptr = adapter_handle(self)
        return MappingProxyType({
            _meta(ptr, i, False): _meta(ptr, i, True) for i in range(c_llama.llama_adapter_meta_count(ptr))
        })

    @property
    def alora_invocation_tokens(self):
        """Tokens that switch an activated LoRA (aLoRA) on, as a tuple; empty for an ordinary one.

        Whoever evaluates the prompt applies the adapter from these tokens on.

        Source: ``llama_adapter_get_alora_invocation_tokens``.
        """
        cdef c_llama.llama_adapter_lora* ptr = adapter_handle(self)
        cdef const c_llama.llama_token* tokens = c_llama.llama_adapter_get_alora_invocation_tokens(ptr)
        cdef size_t n = c_llama.llama_adapter_get_alora_n_invocation_tokens(ptr)
        return tuple([tokens[i] for i in range(n)])


# contexts

def adapters_set(Context context not None, adapters):
    """Say which LoRA adapters a context applies from the next decode on, and how strongly.

    What the memory holds was computed without them: clear it, or restore a state, to have them applied to a
    prompt from its beginning.

    Parameters
    ----------
    adapters : sequence of (LoraAdapter, float)
        Adapters and their scales, which replace those in use; a scale of 0 leaves an adapter out. Nothing for
        none.

    Raises
    ------
    AdapterError
        An adapter is of another model, or given twice, or a scale is not finite; nothing was changed.
    ClosedError
        An adapter, or the context, is closed.

    Thread safety: one call on a context at a time.
    Source: ``llama_set_adapters_lora``.
    """
    cdef c_llama.llama_adapter_lora** pointers
    cdef float* scales
    cdef size_t n
    pairs = [_checked_pair(context, adapter, scale) for adapter, scale in adapters]
    if len({id(adapter) for adapter, _ in pairs}) != len(pairs):
        raise AdapterError("an adapter is given twice; add up its scales")
    n = len(pairs)
    pointers = <c_llama.llama_adapter_lora**>calloc(n + 1, sizeof(void*))
    scales = <float*>calloc(n + 1, sizeof(float))
    try:
        if pointers == NULL or scales == NULL:
            raise MemoryError
        for i, (adapter, scale) in enumerate(pairs):
            pointers[i] = adapter_handle(adapter)
            scales[i] = scale
        context_acquire(context)
        try:
            c_llama.llama_set_adapters_lora(context._ptr, pointers, n, scales)
            for adapter, _ in context._adapters:
                (<LoraAdapter>adapter)._contexts.pop(id(context), None)
            for adapter, _ in pairs:
                (<LoraAdapter>adapter)._contexts[id(context)] = weakref.ref(context)
            context._adapters = pairs
        finally:
            context_release(context)
    finally:
        free(pointers)
        free(scales)


def adapters_get(Context context not None):
    """Return the LoRA adapters that a context applies, with their scales, as a tuple of pairs."""
    context_handle(context)
    return tuple(context._adapters)


cdef c_llama.llama_adapter_lora* adapter_handle(LoraAdapter self) except NULL:
    if self._ptr == NULL:
        raise_closed("adapter")
    return self._ptr


cdef void _free(LoraAdapter self) noexcept:
    cdef c_llama.llama_adapter_lora* ptr = self._ptr
    if ptr == NULL:
        return
    self._ptr = NULL
    model_disown(self.model, self)
    with _lock:
        c_llama.llama_adapter_lora_free(ptr)
    handle_closed(LORA_ADAPTER)


cdef int _adopt_first(Model model, LoraAdapter adapter) except -1:
    """Let the model close the adapter after everything else: contexts may apply it until they are closed."""
    others = dict(model._children)
    model._children.clear()
    model_adopt(model, adapter)
    model._children.update(others)
    return 0


cdef list _users(LoraAdapter self):
    contexts = [reference() for reference in self._contexts.values()]
    return [context for context in contexts if context is not None and not context.closed]


cdef tuple _checked_pair(Context context, object adapter, object scale):
    if not isinstance(adapter, LoraAdapter):
        raise TypeError(f"adapters must be pairs of a LoraAdapter and a scale, not {type(adapter).__name__}")
    adapter_handle(adapter)
    if (<LoraAdapter>adapter).model is not context.model:
        raise AdapterError(f"{adapter!r} is an adapter of another model than {context!r}")
    number = float(scale)
    if not -FLT_MAX <= number <= FLT_MAX:
        raise AdapterError(f"the scale of an adapter must be a finite number, not {scale}")
    return adapter, number


cdef str _meta(c_llama.llama_adapter_lora* adapter, int i, bint value):
    cdef int32_t n
    cdef bytearray text
    if value:
        n = c_llama.llama_adapter_meta_val_str_by_index(adapter, i, NULL, 0)
    else:
        n = c_llama.llama_adapter_meta_key_by_index(adapter, i, NULL, 0)
    text = bytearray(n + 1)
    if value:
        c_llama.llama_adapter_meta_val_str_by_index(adapter, i, text, n + 1)
    else:
        c_llama.llama_adapter_meta_key_by_index(adapter, i, text, n + 1)
    return text[:n].decode("utf-8", "replace")


# LoRA files

cdef c_llama.llama_adapter_lora* _load(Model model, object file, object name) except NULL:
    cdef FILE* stream = _stream_open(file)
    try:
        c_model = model_use(model)
        try:
            _check_lora(model, stream, name)
            return _lora_init(c_model, stream, name)
        finally:
            model_unuse(model)
    finally:
        fclose(stream)


cdef FILE* _stream_open(object file) except NULL:
    """Return a C stream that stands where a file object stands; each goes its own way afterwards."""
    cdef FILE* stream
    cdef int fd = -1
    try:
        position = file.tell()
        number = file.fileno()
        fd = os.open(f"/dev/fd/{number}", os.O_RDONLY) if os.path.isdir("/dev/fd") else os.dup(number)
    except (OSError, AttributeError):
        import tempfile

        # not backed by a file, as io.BytesIO: put what is left of it into one
        with tempfile.TemporaryFile() as spooled:
            spooled.write(file.read())
            spooled.seek(0)
            fd = os.dup(spooled.fileno())
        position = 0
    stream = fdopen(fd, "rb")
    if stream == NULL:
        os.close(fd)
        raise AdapterError(f"{file!r} can't be read")
    if fseek(stream, position, SEEK_SET) != 0:
        fclose(stream)
        raise AdapterError(f"{file!r} can't be read from position {position}")
    return stream


cdef c_llama.llama_adapter_lora* _lora_init(
    c_llama.llama_model* model, FILE* stream, object name
) except NULL:
    cdef c_llama.llama_adapter_lora* adapter = NULL
    log_begin()
    with _lock:
        abort_guard_begin()
        try:
            with nogil:
                adapter = c_llama.llama_adapter_lora_init_from_file_ptr(model, stream)
        except RuntimeError as error:
            raise native_error(AdapterError, f"llama.cpp can't load {name}: {error}") from None
        finally:
            abort_guard_end()
    if adapter == NULL:
        raise native_error(AdapterError, f"llama.cpp can't load {name} as LoRA adapter of this model")
    return adapter


cdef int _check_lora(Model model, FILE* stream, object name) except -1:
    """Check what llama.cpp aborts over, at once or in the first decode (src/llama-adapter.cpp)."""
    cdef c_gguf.gguf_context* file
    cdef c_gguf.gguf_init_params params
    cdef long start = ftell(stream)
    cdef int64_t i
    params.no_alloc = True
    params.ctx = NULL
    log_begin()
    with nogil:
        file = c_gguf.gguf_init_from_file_ptr(stream, params)
    if file == NULL:
        raise native_error(AdapterError, f"{name} is not a GGUF file")
    try:
        for key in (b"general.type", b"general.architecture", b"adapter.type"):
            _check_key(file, key, c_gguf.GGUF_TYPE_STRING, name)
        _check_key(file, b"adapter.lora.alpha", c_gguf.GGUF_TYPE_FLOAT32, name)
        tensors = {}
        for i in range(c_gguf.gguf_get_n_tensors(file)):
            ne = c_gguf.gguf_get_tensor_ne(file, i)
            tensors[c_gguf.gguf_get_tensor_name(file, i).decode("utf-8", "replace")] = (
                <int>c_gguf.gguf_get_tensor_type(file, i), (ne[0], ne[1], ne[2], ne[3])
            )
        _check_tensors(tensors, c_ext.llama_model_n_expert(model_handle(model)), name)
    finally:
        c_gguf.gguf_free(file)
    if fseek(stream, start, SEEK_SET) != 0:
        raise AdapterError(f"{name} can't be read from position {start}")
    return 0


cdef int _check_key(c_gguf.gguf_context* file, bytes key, int wanted, object name) except -1:
    cdef int64_t index = c_gguf.gguf_find_key(file, key)
    if index >= 0 and c_gguf.gguf_get_kv_type(file, index) != wanted:
        raise AdapterError(f"{name} has a value of the wrong type for {key.decode()}")
    return 0


def _check_tensors(tensors, n_expert, name):
    for tensor, (kind, shape) in tensors.items():
        if not tensor.endswith((".lora_a", ".lora_b")):
            continue
        if kind not in _WEIGHT_TYPES:
            raise AdapterError(f"{tensor} of {name} has the type {kind}, which can't be computed with")
        # experts are looked up by number in each of the two
        n_matrices = n_expert if "_exps." in tensor else 1
        if "_chexps." in tensor or shape[2] != n_matrices or shape[3] != 1:
            raise AdapterError(f"{tensor} of {name} has shape {shape[::-1]}, which does not fit the model")
        pair = tensor.removesuffix(".lora_a")
        if pair != tensor and pair.endswith("token_embd.weight"):
            # here llama.cpp compares the other sides only (llama_adapter_lora_init_impl)
            other = tensors.get(pair + ".lora_b")
            if other is not None and other[1][0] != shape[0]:
                raise AdapterError(f"the two halves of {pair} in {name} have different ranks")
