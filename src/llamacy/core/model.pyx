# distutils: language = c++
"""Models: weights, vocabulary and metadata of a GGUF file."""

cimport cython
from libc.stdint cimport int32_t, uint32_t

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._children cimport children_add, children_close, children_remove
from llamacy.core._handle cimport MODEL, handle_closed, handle_opened
from llamacy.core._loading cimport model_load
from llamacy.core._status cimport native_error, raise_closed
from llamacy.core.backend cimport backend_initialize, device_wrap
from llamacy.core.gguf cimport Gguf
from llamacy.core.log cimport log_begin
from llamacy.core.params cimport ModelParams, params_make
from llamacy.core.vocab cimport vocab_wrap
from llamacy.native cimport llama as c_llama
from llamacy.native cimport llama_ext as c_ext

import os
import weakref
from array import array
from types import MappingProxyType

from llamacy.core._architectures import LEARNED_POSITIONS
from llamacy.core._replace import replacing
from llamacy.core.log import refresh_level
from llamacy.core.params import ModelParams as _ModelParams
from llamacy.errors import GgufError, InUseError, ModelFormatError, ModelSaveError
from llamacy.types import FileType, RopeType

__all__ = ["Model"]

# architectures that llama_model_saver_supports_arch (src/llama-model-saver.cpp) refuses with an assertion
cdef frozenset _NOT_SAVABLE = frozenset(["gemma3n", "bitnet", "t5", "apertus", "step35", "clef"])

# architectures of which llama_model_saver leaves out metadata that the loader insists on (target_layers)
cdef frozenset _SAVED_INCOMPLETE = frozenset(["dflash", "eagle3"])

# characters of a model's name in its description
cdef int _NAME_SHOWN = 60


@cython.no_gc_clear
cdef class Model:
    """A model: weights, vocabulary and metadata.

    Parameters
    ----------
    source : path, sequence of paths, open file, or Gguf
        A GGUF file (of a split model, its first part); all parts of a split model, in order; a file opened for binary
        reading, in which a GGUF begins at the current position; or metadata alone, with `set_tensor`.
    set_tensor : callable, optional
        With a `Gguf` as source: called as ``set_tensor(name, type, shape)`` for each tensor of the architecture;
        returns a bytes-like object with its data. Shapes are in NumPy order.
    **params
        As for `ModelParams`.

    Raises
    ------
    ModelNotFoundError
        There is no such file.
    ModelFormatError
        The file is not a GGUF model that this llama.cpp can load.
    ModelLoadError
        Another reason, in most cases memory.
    LoadCancelledError
        The progress callback returned False.

    Lifetime: contexts, adapters and samplers made from a model keep it alive. `close` closes them first.
    Thread safety: all methods but `close` may be called from several threads at once.
    Source: ``llama_model_load_from_file`` and its relatives.
    """

    def __cinit__(self, source, *, set_tensor=None, **params):
        cdef ModelParams checked = params_make(_ModelParams, params, "Model")
        self._children = {}
        self.params = checked
        self.vocab_only = checked.values["vocab_only"]
        if (set_tensor is not None) != isinstance(source, Gguf):
            raise TypeError("set_tensor and a Gguf as source go together")
        backend_initialize()
        refresh_level()
        if isinstance(source, (str, bytes, os.PathLike)):
            self.path = source = os.fsdecode(source)
            self._one_path = True
        elif not isinstance(source, Gguf) and not hasattr(source, "fileno"):
            source = _several_paths(source)
            if not source:
                raise ValueError("a split model needs at least one path")
            self.path = source[0]
        self._repacks = not isinstance(source, Gguf)  # llama_model_init_from_user doesn't
        self._ptr = model_load(source, set_tensor, checked)
        handle_opened(MODEL)
        self.architecture = _meta(self._ptr, b"general.architecture") or ""
        if self.architecture in LEARNED_POSITIONS:
            self._n_positions_max = c_llama.llama_model_n_ctx_train(self._ptr)

    def __dealloc__(self):
        _free(self)

    def close(self):
        """Free the model, and before it everything that was made from it.

        Raises
        ------
        InUseError, BufferError
            Another thread works with the model or a context of it, or a view of output is alive; nothing was closed.
        """
        if self._ptr != NULL:
            if self._n_uses:
                raise InUseError("another thread works with the model now")
            children_close(self._children)
            if self._n_uses or self._children:  # begun while the children were closed
                raise InUseError("another thread works with the model now")
            _free(self)

    @property
    def closed(self):
        """Whether the model is closed."""
        return self._ptr == NULL

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        if self._ptr == NULL:
            return "<Model closed>"
        return f"<Model {self.description!r} {self.size_bytes / 2**20:.1f} MiB, n_ctx_train={self.n_ctx_train}>"

    @property
    def vocab(self):
        """The `Vocab` of the model."""
        model_handle(self)
        # it holds the model, so the model can't hold it: the two would keep each other alive for ever
        vocab = None if self._vocab is None else self._vocab()
        if vocab is None:
            vocab = vocab_wrap(self)
            self._vocab = weakref.ref(vocab)
        return vocab

    # metadata

    @property
    def metadata(self):
        """Metadata of the file as a read-only mapping of str to str; arrays are left out (see `Gguf` for them)."""
        cdef c_llama.llama_model* ptr = model_handle(self)
        cdef int i
        return MappingProxyType({
            _meta_key(ptr, i): _meta_value(ptr, i) for i in range(c_llama.llama_model_meta_count(ptr))
        })

    def chat_template(self, name=None):
        """Return the chat template of that name, or the default one; None when the model has none.

        Source: ``llama_model_chat_template``.
        """
        cdef c_llama.llama_model* ptr = model_handle(self)
        cdef bytes encoded = (name or "").encode()
        cdef const char* text
        if name is None:
            text = c_llama.llama_model_chat_template(ptr, NULL)
        else:
            text = c_llama.llama_model_chat_template(ptr, encoded)
        return None if text == NULL else text.decode("utf-8", "replace")

    @property
    def chat_templates(self):
        """Chat templates of the file by name; the default one is ``"default"``."""
        prefix = "tokenizer.chat_template"
        return {
            key[len(prefix) + 1:] or "default": value
            for key, value in self.metadata.items()
            if key == prefix or key.startswith(prefix + ".")
        }

    @property
    def name(self):
        """Name of the model (``general.name``), or None."""
        return _meta(model_handle(self), b"general.name")

    @property
    def description(self):
        """Name, architecture, number of parameters and quantization in a few words.

        A model without a name goes by that of its file. The parameters are counted: ``llama_model_desc`` tells the
        size of the best known model with as many layers, which for SmolLM2-135M is 256M.
        """
        name = " ".join((self.name or "").split()) or os.path.splitext(os.path.basename(self.path or ""))[0]
        if len(name) > _NAME_SHOWN:
            name = name[:_NAME_SHOWN - 1] + "…"
        count = f"{_short_count(self.n_params)} parameters" if self.n_params else ""
        ftype = self.ftype
        return ", ".join(filter(None, (name, self.architecture, count, None if ftype is None else ftype.name)))

    @property
    def ftype(self):
        """`FileType` of the file, told by its tensors where the file doesn't say; None where it has no name here."""
        value = <int>c_llama.llama_model_ftype(model_handle(self)) & ~<int>c_llama.LLAMA_FTYPE_GUESSED
        return FileType(value) if value in FileType.__members__.values() else None

    @property
    def suppress_tokens(self):
        """Tokens that the model must never generate, as a tuple of ids."""
        return self.vocab.suppress_tokens

    # sizes

    @property
    def size_bytes(self):
        """Bytes of all tensors together."""
        return c_llama.llama_model_size(model_handle(self))

    @property
    def n_params(self):
        """Number of parameters."""
        return c_llama.llama_model_n_params(model_handle(self))

    @property
    def n_vocab(self):
        """Number of tokens in the vocabulary."""
        return self.vocab.n_tokens

    @property
    def n_ctx_train(self):
        """Positions that the model was trained with."""
        return c_llama.llama_model_n_ctx_train(model_handle(self))

    @property
    def n_embd(self):
        """Width of the hidden state."""
        return c_llama.llama_model_n_embd(model_handle(self))

    @property
    def n_embd_inp(self):
        """Width of input embeddings."""
        return c_llama.llama_model_n_embd_inp(model_handle(self))

    @property
    def n_embd_out(self):
        """Width of output embeddings."""
        return c_llama.llama_model_n_embd_out(model_handle(self))

    @property
    def n_layer(self):
        """Number of layers, without those for multi-token prediction."""
        return c_llama.llama_model_n_layer(model_handle(self))

    @property
    def n_layer_nextn(self):
        """Number of layers for multi-token prediction."""
        return c_llama.llama_model_n_layer_nextn(model_handle(self))

    @property
    def n_head(self):
        """Attention heads."""
        return c_llama.llama_model_n_head(model_handle(self))

    @property
    def n_head_kv(self):
        """Key/value heads."""
        return c_llama.llama_model_n_head_kv(model_handle(self))

    @property
    def n_swa(self):
        """Size of the sliding window of attention, or 0."""
        return c_llama.llama_model_n_swa(model_handle(self))

    @property
    def n_expert(self):
        """Number of experts, or 0."""
        return c_ext.llama_model_n_expert(model_handle(self))

    @property
    def rope_type(self):
        """`RopeType` of the model."""
        return RopeType(<int>c_llama.llama_model_rope_type(model_handle(self)))

    @property
    def rope_freq_scale_train(self):
        """Scale of the rotary frequencies in training."""
        return c_llama.llama_model_rope_freq_scale_train(model_handle(self))

    # capabilities

    @property
    def has_encoder(self):
        """Whether `Context.encode` must run first."""
        return c_llama.llama_model_has_encoder(model_handle(self))

    @property
    def has_decoder(self):
        """Whether the model has a decoder."""
        return c_llama.llama_model_has_decoder(model_handle(self))

    @property
    def decoder_start_token(self):
        """Token that starts the decoder of an encoder-decoder model, or None."""
        token = c_llama.llama_model_decoder_start_token(model_handle(self))
        return None if token < 0 else token

    @property
    def is_recurrent(self):
        """Whether all of the memory is recurrent state (Mamba, RWKV)."""
        return c_llama.llama_model_is_recurrent(model_handle(self))

    @property
    def is_hybrid(self):
        """Whether the memory is attention cache and recurrent state."""
        return c_llama.llama_model_is_hybrid(model_handle(self))

    @property
    def is_diffusion(self):
        """Whether the model generates by diffusion."""
        return c_llama.llama_model_is_diffusion(model_handle(self))

    @property
    def cls_labels(self):
        """Labels of the classifier outputs, None where one has no label; empty for other models."""
        cdef c_llama.llama_model* ptr = model_handle(self)
        cdef uint32_t i
        cdef const char* label
        labels = []
        for i in range(c_llama.llama_model_n_cls_out(ptr)):
            label = c_llama.llama_model_cls_label(ptr, i)
            labels.append(None if label == NULL else label.decode("utf-8", "replace"))
        return tuple(labels) if any(label is not None for label in labels) else ()

    @property
    def devices(self):
        """Devices that the model was loaded to, apart from the CPU."""
        cdef c_llama.llama_model* ptr = model_handle(self)
        return [device_wrap(c_ext.llama_model_get_device(ptr, i)) for i in range(c_ext.llama_model_n_devices(ptr))]

    @property
    def target_layer_ids(self):
        """For a draft model: layers of the target whose inputs it reads, as a tuple."""
        cdef c_llama.llama_model* ptr = model_handle(self)
        cdef const int32_t* ids = c_ext.llama_model_target_layer_ids(ptr)
        return tuple([ids[i] for i in range(c_ext.llama_model_target_layer_ids_n(ptr))])

    @property
    def dflash_selector_top_k(self):
        """For a DFlash2 draft model: candidates per position, else 0."""
        return c_ext.llama_model_dflash_selector_top_k(model_handle(self))

    def token_embeddings(self):
        """Return the token embedding table.

        Returns
        -------
        memoryview
            An owned copy.

        Shapes: float32, (n_vocab, n_embd), C order.

        Raises
        ------
        ModelFormatError
            The model was loaded without weights, or has no such table.

        Source: ``llama_model_get_tok_embd``.
        """
        cdef c_llama.llama_model* ptr = model_handle(self)
        cdef unsigned long long n = <unsigned long long>self.n_vocab * <unsigned long long>self.n_embd
        cdef uint32_t n_read
        cdef float[::1] table
        if self.vocab_only or self.params.values["no_alloc"]:
            raise ModelFormatError("this model was loaded without weights")
        if n >= 2**32:
            raise ModelFormatError(f"a table of {n} numbers is too large for llama.cpp to hand out")
        if c_ext.llama_model_get_tok_embd(ptr, NULL) != n:
            raise ModelFormatError("this model has no token embedding table")
        owner = array("f", bytes(4 * n))
        table = owner
        model_use(self)
        try:
            with nogil:
                n_read = c_ext.llama_model_get_tok_embd(ptr, &table[0])
        finally:
            model_unuse(self)
        return memoryview(owner).cast("B").cast("f", (n_read // self.n_embd, self.n_embd))

    def save(self, path):
        """Write the model to a GGUF file.

        Parameters
        ----------
        path : path
            Replaced as a whole once everything is written.

        Raises
        ------
        ModelSaveError
            llama.cpp can't write this architecture, or the file can't be written.

        Source: ``llama_model_save_to_file``.
        """
        cdef c_llama.llama_model* ptr = model_handle(self)
        if self.architecture in _NOT_SAVABLE or self.architecture in _SAVED_INCOMPLETE:
            raise ModelSaveError(f"llama.cpp can't write models of the architecture {self.architecture!r}")
        if self.vocab_only or self.params.values["no_alloc"]:
            raise ModelSaveError("this model was loaded without weights, so there is nothing to write")
        if self.params.values["use_extra_bufts"] and self._repacks:
            self._save_unpacked(path)
            return
        target = os.fsdecode(path)
        try:
            # a path that can't be written to is told here: llama.cpp ignores it
            with replacing(target) as partial:
                encoded = os.fsencode(partial)
                _save_to(self, ptr, encoded, target)
                # nor does it tell whether everything could be written: reading the file back does
                try:
                    Gguf(partial).close()
                except GgufError:
                    raise native_error(ModelSaveError, f"could not write {target!r}: the disk may be full") from None
        except OSError as error:
            if isinstance(error, ModelSaveError):
                raise
            raise ModelSaveError(f"could not write {target!r}: {error}") from error

    def _save_unpacked(self, path):
        # weights that were repacked for this CPU can't be read back: load the file once more, as it is
        if self.path is None or not self._one_path:
            raise ModelSaveError(
                "weights that were repacked for this CPU can't be written; load the model with use_extra_bufts=False"
            )
        values = {**self.params.values, "use_extra_bufts": False, "progress_callback": None}
        with type(self)(self.path, **values) as plain:
            plain.save(path)


cdef llama_model* model_handle(Model self) except NULL nogil:
    if self._ptr == NULL:
        with gil:
            raise_closed("model")
    return self._ptr


cdef llama_model* model_use(Model self) except NULL:
    """Return the pointer and keep `close` from freeing it until `model_unuse`, for calls that release the GIL."""
    model_handle(self)
    self._n_uses += 1
    return self._ptr


cdef void model_unuse(Model self) noexcept:
    self._n_uses -= 1


cdef int _save_to(Model self, c_llama.llama_model* ptr, const char* path, str target) except -1:
    log_begin()
    model_use(self)
    try:
        with nogil:
            abort_guard_begin()
            try:
                c_llama.llama_model_save_to_file(ptr, path)
            finally:
                abort_guard_end()
    except RuntimeError as error:
        raise native_error(ModelSaveError, f"could not write {target!r}: {error}") from None
    finally:
        model_unuse(self)
    return 0


cdef list _several_paths(source):
    try:
        return [os.fsdecode(path) for path in source]
    except TypeError:
        raise TypeError(
            f"a model is a path, the paths of a split model, an open file or a Gguf, not {source!r:.80}"
        ) from None


cdef int model_adopt(Model self, object child) except -1:
    model_handle(self)
    return children_add(self._children, child)


cdef void model_disown(Model self, object child) noexcept:
    children_remove(self._children, child)


cdef void _free(Model self) noexcept:
    cdef c_llama.llama_model* ptr = self._ptr
    if ptr != NULL:
        self._ptr = NULL
        with nogil:
            c_llama.llama_model_free(ptr)
        handle_closed(MODEL)


cdef str _short_count(n):
    for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if n >= unit:
            return f"{n / unit:.1f}{letter}"
    return str(n)


cdef str _meta(c_llama.llama_model* model, const char* key):
    cdef int n = c_llama.llama_model_meta_val_str(model, key, NULL, 0)
    if n < 0:
        return None
    buffer = bytearray(n + 1)
    c_llama.llama_model_meta_val_str(model, key, buffer, n + 1)
    return buffer[:n].decode("utf-8", "replace")


cdef str _meta_key(c_llama.llama_model* model, int i):
    cdef int n = c_llama.llama_model_meta_key_by_index(model, i, NULL, 0)
    buffer = bytearray(n + 1)
    c_llama.llama_model_meta_key_by_index(model, i, buffer, n + 1)
    return buffer[:n].decode("utf-8", "replace")


cdef str _meta_value(c_llama.llama_model* model, int i):
    cdef int n = c_llama.llama_model_meta_val_str_by_index(model, i, NULL, 0)
    buffer = bytearray(n + 1)
    c_llama.llama_model_meta_val_str_by_index(model, i, buffer, n + 1)
    return buffer[:n].decode("utf-8", "replace")
