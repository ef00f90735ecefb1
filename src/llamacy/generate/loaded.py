"""A model that is loaded, with a context to compute in."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, BinaryIO

from llamacy.core.attempt import Attempt
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.core.params import ContextParams
from llamacy.errors import ClosedError, ContextCreateError, InUseError, ModelFormatError, ModelNotFoundError
from llamacy.generate.adapters import Adapters, Lora, control_vector, several
from llamacy.generate.names import raise_unknown
from llamacy.generate.purpose import FILES, MODELS, file_kind, is_draft
from llamacy.generate.spellings import SPELLINGS, translated

if TYPE_CHECKING:
    from typing_extensions import Self

    from llamacy.core.control_vector import ControlVector
    from llamacy.core.threadpool import ThreadPool
    from llamacy.types import StrPath

# positions that a context gets when the caller doesn't say: enough for most, and little memory
_DEFAULT_N_CTX = 4096

_MODEL_PARAMS = frozenset(
    (
        "n_gpu_layers", "cpu_moe", "n_cpu_moe", "devices", "tensor_buft_overrides", "split_mode", "main_gpu",
        "tensor_split", "load_mode", "lazy_mode", "kv_overrides", "check_tensors", "use_extra_bufts", "no_host",
        "load_mtp", "progress_callback",
    )
)  # fmt: skip


# names in the signature of `Llama`, one of which may have been meant
_LLAMA_PARAMS = (
    "seed", "context_shift", "n_keep", "chat_format", "chat_template", "chat_template_name", "spm_infill", "lora_path",
    "lora_scale", "cache", "ctx_checkpoints", "checkpoint_interval", "checkpoint_on_device", "verbose",
)  # fmt: skip


def _load(path: StrPath, kind: str, params: dict[str, Any]) -> Model:
    try:
        return Model(path, **params)
    except ModelNotFoundError as error:
        from llamacy._elsewhere import model_hint

        raise ModelNotFoundError(f"{error}{model_hint(path, kind)}") from None
    except ModelFormatError as error:
        what = FILES.get(file_kind(path))
        if what is None:
            raise
        raise ModelFormatError(f"{error.args[0]}: {what}", log=error.log) from None


def _checked(params: dict[str, Any]) -> dict[str, Any]:
    """Return further parameters under the names that they have here."""
    params = translated(params)
    known = {*_MODEL_PARAMS, *ContextParams().values, "ctx_other"}
    for name in params:
        if name not in known:
            raise_unknown(name, [*known, *SPELLINGS, *_LLAMA_PARAMS])
    return params


class LoadedModel:
    """A model and its context: what is known of them, their text and their threads.

    Parameters
    ----------
    model_path, n_ctx, lora_path, lora_scale, params
        As for `llamacy.Llama`.

    Raises
    ------
    ModelLoadError, ContextCreateError, AdapterError, TypeError, ValueError
        As there.
    """

    def __init__(
        self,
        model_path: StrPath | Model,
        *,
        n_ctx: int | None,
        lora_path: StrPath | Sequence[StrPath | tuple[StrPath, float]] | None,
        lora_scale: float,
        params: dict[str, Any],
    ) -> None:
        params = _checked(params)
        model_params = {name: params.pop(name) for name in list(params) if name in _MODEL_PARAMS}
        n_seq_max = params.get("n_seq_max")
        if isinstance(n_seq_max, Integral) and int(n_seq_max) > 1:
            params.setdefault("kv_unified", True)
        if isinstance(model_path, Model):
            if model_params:
                raise TypeError(f"the model is loaded already, so {', '.join(model_params)} can't be given")
            self._model, self._owns_model = model_path, False
        else:
            self._model, self._owns_model = _load(model_path, type(self).__name__, model_params), True
        try:
            self._context, self._n_ctx = self._make_context(n_ctx, params)
        except ContextCreateError as error:
            architecture = self._model.architecture
            self._close_model()
            if not is_draft(error):
                raise
            message = f"a model of the architecture {architecture!r} can't be used alone: {MODELS['draft']}"
            raise ContextCreateError(message, log=error.log) from error
        except BaseException:
            self._close_model()
            raise
        self._vocab = self._model.vocab
        self._adapters = Adapters(self._model, self._contexts)
        self._control_vector: ControlVector | None = None
        try:
            for path, scale in several(lora_path, lora_scale):
                self._adapters.load(path, scale=scale)
            self._context.set_adapters_lora(self._adapters.pairs(None))
        except BaseException:
            for context in self._contexts():
                context.close()
            self._adapters.close()
            self._close_model()
            raise

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str,
        *,
        revision: str | None = None,
        local_dir: StrPath | None = None,
        cache_dir: StrPath | None = None,
        **kwargs: Any,
    ) -> Self:
        """Download a model from the Hugging Face Hub, once, and load it.

        Parameters
        ----------
        repo_id
            Repository, for instance ``"org/model-GGUF"``.
        filename
            File in it, or a pattern such as ``"*q4_k_m.gguf"`` that one file matches. All parts of a split model are
            fetched when its first part is named.
        revision
            Branch, tag or commit.
        local_dir, cache_dir
            Where to put the file; the Hub's own cache by default.
        **kwargs
            As for the class.

        Raises
        ------
        ImportError
            The package huggingface_hub is not installed.
        DownloadError
            It can't be fetched: there is no such file or repository, it is private or gated, or the Hub can't be
            reached and the file was not fetched before. The error of the package is its cause.
        ValueError
            No file, or more than one, matches; or it is no name of a repository.
        TypeError
            There is no such option; nothing was fetched.
        """
        from inspect import signature

        from llamacy.generate.hub import fetch

        # before gigabytes are fetched
        own = signature(cls).parameters
        _checked({name: value for name, value in kwargs.items() if name not in own})
        path = fetch(repo_id, filename, revision=revision, local_dir=local_dir, cache_dir=cache_dir, kind=cls.__name__)
        return cls(path, **kwargs)

    def _make_context(self, n_ctx: int | None, params: dict[str, Any]) -> tuple[Context, int]:
        """Return the context to compute in, and how many tokens a request may have."""
        n_ctx_train = self._model.n_ctx_train
        n_ctx = min(n_ctx_train, _DEFAULT_N_CTX) if n_ctx is None else n_ctx or n_ctx_train
        context = Context(self._model, n_ctx=n_ctx, **params)
        return context, int(min(n_ctx, context.n_ctx_seq))

    # what it is made of

    @property
    def model(self) -> Model:
        """The `Model`."""
        return self._model

    @property
    def context(self) -> Context:
        """The `Context`; using it directly while a request runs raises `ConcurrentUseError`."""
        return self._context

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the model file."""
        return dict(self._model.metadata)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._context.closed

    def n_ctx(self) -> int:
        """Return how many tokens prompt and completion may have together."""
        return self._n_ctx

    def n_vocab(self) -> int:
        """Return the number of tokens in the vocabulary."""
        return self._model.n_vocab

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.closed:
            return f"<{name} closed>"
        return f"<{name} {self._model.description!r} n_ctx={self._n_ctx}>"

    if not TYPE_CHECKING:  # to a type checker it would say that any name exists

        def __getattr__(self, name: str) -> Any:
            """Say of a name that there isn't where it may be."""
            from llamacy._elsewhere import attribute_hint

            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            hint = attribute_hint(name, type(self))
            if hint:
                raise AttributeError(message + hint)
            # with these, Python names what is spelled alike
            raise AttributeError(message, name=name, obj=self)

    # text and tokens

    def tokenize(self, text: str | bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Convert text into tokens.

        Parameters
        ----------
        text
            The text; bytes are taken as they are.
        add_bos
            Add the tokens that the model wants around a text.
        special
            Recognise the spelling of special tokens in the text.

        Raises
        ------
        TokenizeError
            The text can't be converted.
        """
        return self._vocab.tokenize(text, add_special=add_bos, parse_special=special).tolist()

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> bytes:
        """Convert tokens into text, which may end in the middle of a character.

        Parameters
        ----------
        tokens
            Token ids.
        special
            Spell special tokens out; otherwise they are left out.

        Raises
        ------
        TokenizeError
            An id is not in the vocabulary.
        """
        return self._vocab.detokenize(tokens, unparse_special=special)

    # adapters

    @property
    def loras(self) -> Mapping[str, Lora]:
        """LoRA adapters that are loaded, by name, as of now."""
        return self._adapters.loaded

    def load_lora(self, path: StrPath | BinaryIO, *, name: str | None = None, scale: float = 1.0) -> str:
        """Load a LoRA adapter.

        Parameters
        ----------
        path
            A GGUF file made by llama.cpp's ``convert_lora_to_gguf.py``, or an open binary file that has one.
        name
            What requests call it; the name of the file without its ending by default.
        scale
            How strongly requests apply it that have no option `lora`; with 0 only those that ask for it apply it.

        Returns
        -------
        str
            The name.

        Raises
        ------
        AdapterError
            There is no such file, it is not a LoRA adapter, it does not fit the model, an adapter of that name is
            loaded already, or the scale is not finite.

        Thread safety: any thread; a request that runs goes on as it began.
        """
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} is closed")
        return self._adapters.load(path, name, scale)

    def unload_lora(self, name: str) -> None:
        """Free a LoRA adapter.

        Raises
        ------
        AdapterError
            There is none of that name.
        InUseError
            A request that runs applies it, or a context that is not this object's.
        """
        self._adapters.find(name)
        with self._changing(lambda: self._adapters.is_applied(name)):
            self._adapters.unload(name)

    def set_lora_scale(self, name: str, scale: float) -> None:
        """Set how strongly requests that have no option `lora` apply an adapter from now on.

        Raises
        ------
        AdapterError
            There is none of that name, or the scale is not finite.
        """
        self._adapters.set_scale(name, scale)

    def set_control_vector(
        self, vector: StrPath | Any | None, scale: float = 1.0, layers: tuple[int, int] | None = None
    ) -> None:
        """Add a control vector to what all requests compute from now on, in place of the one before.

        Parameters
        ----------
        vector
            A GGUF file, a `ControlVector`, or directions of shape (n_layers, n_embd), whose first row belongs to layer
            1; None for none.
        scale
            What to multiply it by.
        layers
            The first and the last layer that it is applied to; all that it has directions for by default.

        Raises
        ------
        AdapterError
            It does not fit the model, or a number is not finite; nothing was changed.
        InUseError
            A request runs.
        """
        made = None if vector is None else control_vector(vector, scale, layers)
        with self._changing(lambda: True):
            self._context.set_adapter_cvec(made)
            self._control_vector = made

    def clear_control_vector(self) -> None:
        """Add no control vector any more.

        Raises
        ------
        InUseError
            A request runs.
        """
        self.set_control_vector(None)

    def _contexts(self) -> list[Context]:
        """Return the contexts of the model."""
        return [self._context]

    def _works(self) -> list[tuple[threading.RLock, Callable[[], bool]]]:
        """Return what computes on the model: the lock that it holds, and whether it holds it for a request."""
        return []

    @contextlib.contextmanager
    def _changing(self, concerns: Callable[[], bool]) -> Iterator[None]:
        """Keep requests from running while something is changed.

        Raises
        ------
        InUseError
            A request runs, and it concerns that one.
        """
        works = self._works()
        with Attempt(*(lock for lock, _ in works)) as taken:
            if (not taken or any(runs() for _, runs in works)) and concerns():
                raise InUseError("a request that runs computes with it; read or close its stream, or abort() it first")
            yield

    # threads

    @property
    def n_threads(self) -> int:
        """Threads for one token; may be set."""
        return self._context.n_threads

    @n_threads.setter
    def n_threads(self, n_threads: int) -> None:
        self._context.set_n_threads(n_threads, self._context.n_threads_batch)

    @property
    def n_threads_batch(self) -> int:
        """Threads for a prompt; may be set."""
        return self._context.n_threads_batch

    @n_threads_batch.setter
    def n_threads_batch(self, n_threads_batch: int) -> None:
        self._context.set_n_threads(self._context.n_threads, n_threads_batch)

    def attach_threadpool(self, threadpool: ThreadPool, threadpool_batch: ThreadPool | None = None) -> None:
        """Compute on these threads from now on; they are kept alive as long as they are used.

        Parameters
        ----------
        threadpool
            For one token, and for prompts too unless `threadpool_batch` is given.
        threadpool_batch
            For prompts.

        Raises
        ------
        ClosedError
            A pool is closed.
        """
        self._context.attach_threadpool(threadpool, threadpool_batch)

    def detach_threadpool(self) -> None:
        """Compute on llama.cpp's own threads again."""
        self._context.detach_threadpool()

    def _close_model(self) -> None:
        if self._owns_model:
            self._model.close()
