"""`Embedding`: a model that makes vectors of texts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from llamacy.generate.embed.engine import EmbeddingEngine
from llamacy.generate.embed.prefixes import Prefixes
from llamacy.generate.embed.requests import EmbeddingRequest
from llamacy.generate.embed.texts import is_single
from llamacy.generate.names import hinting
from llamacy.generate.native_log import log_to_stderr
from llamacy.generate.rank.model import RankingModel

if TYPE_CHECKING:
    from llamacy.core.context import Context
    from llamacy.core.model import Model
    from llamacy.core.threadpool import ThreadPool
    from llamacy.generate.aio import Worker
    from llamacy.generate.embed.norms import Normalization
    from llamacy.generate.embed.responses import CreateEmbeddingResponse
    from llamacy.types import PoolingType, StrPath

    Text = str | bytes | Sequence[int]

_Item = TypeVar("_Item")

__all__ = ["Embedding"]


class Embedding(RankingModel):
    """A model that is ready to make vectors of texts.

    Many texts are computed at once, in the order of their length; what is returned is in the order in which they were
    given. The context grows with the longest text, so that short ones take little memory.

    Parameters
    ----------
    model_path
        A GGUF file, or a `Model` that is already loaded (it is shared and not closed with this object).
    n_ctx
        Most tokens of a text; by default, and with 0, what the model was trained with. A model with learned positions
        can do no more than that.
    n_batch, n_ubatch
        Most tokens that are computed at once; a text that is longer is computed alone. By default 512 on a CPU and
        2,048 on a GPU, of which batches fill what is fastest.
    n_threads, n_threads_batch
        Threads; texts are computed with the second number.
    pooling_type
        How the vectors of its tokens become that of a text: ``"mean"``, ``"cls"``, ``"last"``, ``"none"`` (a text gets
        one for each token), or ``"rank"`` (the scores of a classification head); by default as the model says, and
        ``"none"`` where it does not.
    query_prefix, document_prefix
        What the model wants before each query and document (its page says so, its file doesn't), for ``prompt="query"``
        and ``prompt="document"``; an empty text when it wants none.
    lora_path, lora_scale
        A LoRA adapter for all texts, and its scale; or several paths, or pairs of a path and a scale.
    verbose
        Show llama.cpp's log on standard error, unless `logging` is set up to do something else with it.
    **params
        Further parameters of `ModelParams` and `ContextParams`, by name, also as llama-cpp-python spells them. With
        `n_seq_max`, at most so many texts are computed at once.

    Raises
    ------
    ModelNotFoundError, ModelFormatError, ModelLoadError
        The model can't be loaded.
    ContextCreateError
        The context can't be created, in most cases for want of memory.
    PoolingError
        The model can't pool like that.
    TypeError, ValueError
        A parameter is wrong or does not exist.

    Thread safety: calls of several threads take turns; `abort` stops the one that runs.
    """

    def __init__(
        self,
        model_path: StrPath | Model,
        *,
        n_ctx: int | None = None,
        n_batch: int | None = None,
        n_ubatch: int | None = None,
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        pooling_type: PoolingType | int | str | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        lora_path: StrPath | Sequence[StrPath | tuple[StrPath, float]] | None = None,
        lora_scale: float = 1.0,
        verbose: bool = False,
        **params: Any,
    ) -> None:
        self._arguments = {
            "n_ctx": n_ctx, "n_batch": n_batch, "n_ubatch": n_ubatch, "n_threads": n_threads,
            "n_threads_batch": n_threads_batch, "pooling_type": pooling_type, "query_prefix": query_prefix,
            "document_prefix": document_prefix, "lora_path": lora_path, "lora_scale": lora_scale, "verbose": verbose,
            **params,
        }  # fmt: skip
        if verbose:
            log_to_stderr()
        self._prefixes = Prefixes(query_prefix, document_prefix)
        given = {
            "n_batch": n_batch, "n_ubatch": n_ubatch, "n_threads": n_threads, "n_threads_batch": n_threads_batch,
            "pooling_type": pooling_type,
        }  # fmt: skip
        params.update({name: value for name, value in given.items() if value is not None})
        self._worker: Worker | None = None
        super().__init__(model_path, n_ctx=n_ctx, lora_path=lora_path, lora_scale=lora_scale, params=params)

    def _make_context(self, n_ctx: int | None, params: dict[str, Any]) -> tuple[Context, int]:
        self._engine = EmbeddingEngine(self._model, n_ctx, params)
        self._engine.replaced = self._replace_context
        self._engine.adapters = lambda lora: self._adapters.pairs(lora)
        self._engine.control_vector = lambda: self._control_vector
        return self._engine.context, self._engine.n_most

    def _replace_context(self, context: Context) -> None:
        self._context = context

    # vectors

    @hinting
    def embed(
        self,
        input: Text | Iterable[Text],  # noqa: A002
        *,
        normalize: Normalization = True,
        truncate: bool = False,
        prompt: str | None = None,
        dimensions: int | None = None,
        lora: Mapping[str, float] | None = None,
        progress: bool = False,
        return_count: bool = False,
    ) -> Any:
        """Return the vectors of texts.

        Parameters
        ----------
        input
            A text, its tokens, or any number of these. Texts get the tokens that the model wants around a text, and
            what is spelled like a special token is plain text; tokens are taken as they are. An empty text is what the
            model puts around one.
        normalize
            True or ``"l2"`` for unit length, False or ``"none"`` for vectors as the model makes them, ``"l1"``,
            ``"max_abs"``, or the p of a p-norm. Scores of a classification head are never normalised.
        truncate
            Cut a text that is too long at its end, but keep the token with which the model ends a text; otherwise it is
            an error, before anything is computed.
        prompt
            Goes before each text that is not given as tokens: a prefix, or the name of one (``"query"``,
            ``"document"``).
        dimensions
            Keep only so many numbers from the beginning, before normalising (for models trained like that).
        lora
            The LoRA adapters to apply, by name, with their scales; by default those that are applied to all texts.
        progress
            Show a bar on standard error.
        return_count
            Return the number of tokens that were computed, too.

        Returns
        -------
        numpy.ndarray, list of numpy.ndarray, or tuple
            The vector, or with several texts all of them, in order; with ``return_count=True`` in a tuple with the
            number of tokens.

        Shapes: float32, owned: (d,) for one text, (n, d) for several; without pooling (n_tokens, d), or a list of such.

        Raises
        ------
        ContextLengthError
            A text has more tokens than fit; the message has its index and both numbers.
        AdapterError
            There is no adapter of a name, or it is an activated LoRA.
        DecodeAbortedError
            `abort` was called.
        DecodeError, EncodeError, OutputError
            llama.cpp failed.
        TokenizeError, TypeError, ValueError
            A text can't be converted, or an option is wrong.
        """
        request = self._request(normalize, truncate, prompt, dimensions, lora)
        vectors = request.embed(input, progress=progress)
        return (vectors, request.n_tokens) if return_count else vectors

    @hinting
    def embed_batches(
        self,
        texts: Iterable[Text],
        *,
        normalize: Normalization = True,
        truncate: bool = False,
        prompt: str | None = None,
        dimensions: int | None = None,
        lora: Mapping[str, float] | None = None,
        progress: bool = False,
    ) -> Iterator[tuple[int, Any]]:
        """Return an iterator of the vectors of any number of texts, which takes constant memory.

        Parameters
        ----------
        texts
            Texts or tokens; read as they are needed.
        normalize, truncate, prompt, dimensions, lora, progress
            As for `embed`.

        Yields
        ------
        start : int
            Index of the first text.
        vectors : numpy.ndarray, or list of numpy.ndarray
            Of this text and those after it, as from `embed`; up to 2,048.

        Raises
        ------
        ContextLengthError, TokenizeError, DecodeError
            As for `embed`; what was yielded before is right.
        TypeError
            It is one text, or an option is wrong.

        Thread safety: between two steps other calls may run.
        """
        if is_single(texts):  # each of its characters or tokens would be a text
            raise TypeError(f"texts must be several texts, not {texts!r:.80}")
        return self._request(normalize, truncate, prompt, dimensions, lora).batches(texts, progress=progress)

    @hinting
    def create_embedding(
        self,
        input: Text | Iterable[Text],  # noqa: A002
        model: str | None = None,
        *,
        encoding_format: str = "float",
        dimensions: int | None = None,
        normalize: Normalization = True,
        truncate: bool = False,
        prompt: str | None = None,
        lora: Mapping[str, float] | None = None,
    ) -> CreateEmbeddingResponse:
        """Return the vectors of texts in the shape of OpenAI's embeddings.

        Parameters
        ----------
        input, dimensions, normalize, truncate, prompt, lora
            As for `embed`.
        model
            Name that the response shows; the model's own by default.
        encoding_format
            ``"float"`` for lists of numbers, or ``"base64"`` for little-endian float32.

        Returns
        -------
        dict
            As OpenAI's; without pooling, `embedding` is a list of the vectors of all tokens.

        Raises
        ------
        ContextLengthError, DecodeError, EncodeError, OutputError, TokenizeError, TypeError, ValueError
            As for `embed`.
        """
        request = self._request(normalize, truncate, prompt, dimensions, lora)
        return request.response(input, model, encoding_format)

    # without blocking an event loop

    async def aembed(self, input: Text | Iterable[Text], **options: Any) -> Any:  # noqa: A002
        """Do as `embed` in a thread of its own; a task that is cancelled aborts it."""
        return await self._awaited(lambda: self.embed(input, **options))

    async def acreate_embedding(
        self,
        input: Text | Iterable[Text],  # noqa: A002
        model: str | None = None,
        **options: Any,
    ) -> CreateEmbeddingResponse:
        """Do as `create_embedding` in a thread of its own; a task that is cancelled aborts it."""
        return await self._awaited(lambda: self.create_embedding(input, model, **options))

    def abort(self) -> None:
        """Stop the call that computes, from any thread; it raises `DecodeAbortedError`."""
        self._engine.abort()

    # what it is

    @property
    def n_embd(self) -> int:
        """Numbers in a vector; those of a classification head's score."""
        return self._engine.width

    @property
    def pooling_type(self) -> PoolingType:
        """How the vectors of its tokens become that of a text."""
        return self._engine.pooling

    # lifetime

    def attach_threadpool(self, threadpool: ThreadPool, threadpool_batch: ThreadPool | None = None) -> None:
        """Compute on these threads from now on, as for `Llama`."""
        super().attach_threadpool(threadpool, threadpool_batch)
        self._engine.threadpools = threadpool, threadpool_batch

    def detach_threadpool(self) -> None:
        """Compute on llama.cpp's own threads again."""
        super().detach_threadpool()
        self._engine.threadpools = None

    def close(self) -> None:
        """Free the context, and the model unless it was handed in.

        Raises
        ------
        InUseError
            Another thread computes.
        """
        self._engine.close()
        if self._worker is not None:
            self._worker.close()
        self._adapters.close()
        self._close_model()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made with: loading it loads the model anew."""
        path = self._model.path
        if not self._owns_model or path is None:
            raise TypeError(
                "an Embedding of a model that was handed in can't be pickled; make it with the path of the model"
            )
        return _make, (path, self._arguments)

    def __repr__(self) -> str:
        if self.closed:
            return "<Embedding closed>"
        return (
            f"<Embedding {self._model.description!r} n_ctx={self._n_ctx} n_embd={self.n_embd} "
            f"pooling_type={self.pooling_type.name}>"
        )

    def _works(self) -> list[tuple[threading.RLock, Callable[[], bool]]]:
        return [*super()._works(), (self._engine.lock, lambda: self._engine.running)]

    def _request(
        self,
        normalize: Normalization,
        truncate: bool,
        prompt: str | None,
        dimensions: int | None,
        lora: Mapping[str, float] | None,
    ) -> EmbeddingRequest:
        return EmbeddingRequest(self._engine, normalize, truncate, prompt, dimensions, self._prefixes, lora)

    async def _awaited(self, request: Callable[[], _Item]) -> _Item:
        if self._worker is None:
            from llamacy.generate.aio import Worker

            self._worker = Worker()
        return await self._worker.call(request)


def _make(model_path: str, arguments: dict[str, Any]) -> Embedding:
    return Embedding(model_path, **arguments)
