"""A model that is loaded, with a context to compute in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llamacy.core.adapter import LoraAdapter
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.core.params import ContextParams
from llamacy.generate.names import raise_unknown
from llamacy.generate.spellings import SPELLINGS, translated

if TYPE_CHECKING:
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
    "lora_scale", "verbose",
)  # fmt: skip


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
        lora_path: StrPath | None,
        lora_scale: float,
        params: dict[str, Any],
    ) -> None:
        params = translated(params)
        known = {*_MODEL_PARAMS, *ContextParams().values, "ctx_other"}
        for name in params:
            if name not in known:
                raise_unknown(name, [*known, *SPELLINGS, *_LLAMA_PARAMS])
        model_params = {name: params.pop(name) for name in list(params) if name in _MODEL_PARAMS}
        if params.get("n_seq_max", 1) > 1:
            params.setdefault("kv_unified", True)
        if isinstance(model_path, Model):
            if model_params:
                raise TypeError(f"the model is loaded already, so {', '.join(model_params)} can't be given")
            self._model, self._owns_model = model_path, False
        else:
            self._model, self._owns_model = Model(model_path, **model_params), True
        try:
            self._context, self._n_ctx = self._make_context(n_ctx, params)
        except BaseException:
            self._close_model()
            raise
        self._vocab = self._model.vocab
        if lora_path is not None:
            try:
                self._context.set_adapters_lora([(LoraAdapter(self._model, lora_path), lora_scale)])
            except BaseException:
                self._context.close()
                self._close_model()
                raise

    def _make_context(self, n_ctx: int | None, params: dict[str, Any]) -> tuple[Context, int]:
        """Return the context to compute in, and how many tokens a request may have."""
        n_ctx_train = self._model.n_ctx_train
        n_ctx = min(n_ctx_train, _DEFAULT_N_CTX) if n_ctx is None else n_ctx or n_ctx_train
        context = Context(self._model, n_ctx=n_ctx, **params)
        return context, min(n_ctx, context.n_ctx_seq)

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

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.closed:
            return f"<{name} closed>"
        return f"<{name} {self._model.description!r} n_ctx={self._n_ctx}>"

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

    def detokenize(self, tokens: Sequence[int], special: bool = False) -> bytes:
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
