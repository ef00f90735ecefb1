"""Vectors from a model that generates: a context of their own beside the one for text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamacy.errors import ClosedError
from llamacy.generate.loaded import LoadedModel
from llamacy.generate.names import hinting

if TYPE_CHECKING:
    from llamacy.core.context import Context
    from llamacy.generate.embed.engine import EmbeddingEngine
    from llamacy.generate.embed.norms import Normalization
    from llamacy.generate.embed.responses import CreateEmbeddingResponse

    Text = str | bytes | Sequence[int]

# what a context for texts to embed has of its own, or does not have
_NOT_SHARED = ("n_batch", "n_seq_max", "n_rs_seq", "n_outputs_max", "n_outputs_max_per_seq", "ctx_type", "ctx_other",
               "kv_unified")  # fmt: skip


class EmbeddingBeside(LoadedModel):
    """A model that generates, and makes vectors of texts on a context of their own, made when it is first needed."""

    _embedding: EmbeddingEngine | None = None

    def _make_context(self, n_ctx: int | None, params: dict[str, Any]) -> tuple[Context, int]:
        self._embedding_lock = threading.Lock()  # two threads may come first
        params = dict(params)
        at_once = params.pop("embeddings", False)
        self._embedding_arguments = n_ctx, {name: params[name] for name in params if name not in _NOT_SHARED}
        # of no use where text is generated; with all rows as outputs it would only be slower
        params.pop("pooling_type", None)
        made = super()._make_context(n_ctx, params)
        if at_once:
            try:
                self._make_embeddings()
            except BaseException:
                made[0].close()
                raise
        return made

    def _make_embeddings(self) -> EmbeddingEngine:
        # most models that generate make no vectors: what that takes is imported with the first
        from llamacy.generate.embed.engine import EmbeddingEngine

        engine = EmbeddingEngine(self._model, *self._embedding_arguments)
        engine.adapters = lambda lora: self._adapters.pairs(lora)
        engine.control_vector = lambda: self._control_vector
        self._embedding = engine
        return engine

    def _contexts(self) -> list[Context]:
        return [*super()._contexts(), *([] if self._embedding is None else [self._embedding.context])]

    def _works(self) -> list[tuple[threading.RLock, Callable[[], bool]]]:
        engine = self._embedding
        return [*super()._works(), *([] if engine is None else [(engine.lock, lambda: engine.running)])]

    @hinting
    def embed(
        self,
        input: Text | Iterable[Text],  # noqa: A002
        *,
        normalize: Normalization = False,
        truncate: bool = False,
        prompt: str | None = None,
        dimensions: int | None = None,
        lora: Mapping[str, float] | None = None,
        progress: bool = False,
        return_count: bool = False,
    ) -> Any:
        """Return the vectors of texts, as `Embedding.embed` does, but not normalised by default.

        They are computed on a context of their own, which is made at the first call (or with the model, given
        ``embedding=True``): what the model generates before and after is not touched. It pools as `pooling_type` of the
        constructor says, or as the model does; a model for generating pools nothing by itself, so that each token has a
        vector.

        Parameters
        ----------
        input, normalize, truncate, prompt, dimensions, lora, progress, return_count
            As for `Embedding.embed`; `prompt` is a prefix.

        Returns
        -------
        numpy.ndarray, list of numpy.ndarray, or tuple
            As from `Embedding.embed`.

        Raises
        ------
        AdapterError, ContextLengthError, DecodeAbortedError, DecodeError, EncodeError, OutputError, TokenizeError
            As there.
        ContextCreateError
            The context can't be created.
        PoolingError
            The model can't pool as `pooling_type` says.
        TypeError, ValueError
            An option is wrong.
        """
        from llamacy.generate.embed.requests import EmbeddingRequest

        request = EmbeddingRequest(self._embeddings(), normalize, truncate, prompt, dimensions, lora=lora)
        vectors = request.embed(input, progress=progress)
        return (vectors, request.n_tokens) if return_count else vectors

    @hinting
    def create_embedding(
        self,
        input: Text | Iterable[Text],  # noqa: A002
        model: str | None = None,
        *,
        encoding_format: str = "float",
        dimensions: int | None = None,
        normalize: Normalization = False,
        truncate: bool = False,
        prompt: str | None = None,
        lora: Mapping[str, float] | None = None,
    ) -> CreateEmbeddingResponse:
        """Return the vectors of texts in the shape of OpenAI's embeddings, as `Embedding.create_embedding` does.

        Parameters
        ----------
        input, model, encoding_format, dimensions, normalize, truncate, prompt, lora
            As there; not normalised by default.

        Raises
        ------
        ContextLengthError, DecodeError, EncodeError, OutputError, TokenizeError, TypeError, ValueError
            As for `embed`.
        """
        from llamacy.generate.embed.requests import EmbeddingRequest

        request = EmbeddingRequest(self._embeddings(), normalize, truncate, prompt, dimensions, lora=lora)
        return request.response(input, model, encoding_format)

    async def aembed(self, input: Text | Iterable[Text], **options: Any) -> Any:  # noqa: A002
        """Do as `embed` in a thread of its own, as `acreate_completion` does."""
        return await self._awaited(lambda: self.embed(input, **options), {})

    async def acreate_embedding(self, input: Text | Iterable[Text], **options: Any) -> Any:  # noqa: A002
        """Do as `create_embedding` in a thread of its own, as `acreate_completion` does."""
        return await self._awaited(lambda: self.create_embedding(input, **options), {})

    async def _awaited(self, request: Callable[[], Any], options: Mapping[str, Any]) -> Any:
        """Do something in a thread of its own, given the options of the request."""
        raise NotImplementedError

    def _embeddings(self) -> EmbeddingEngine:
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} is closed")
        with self._embedding_lock:
            return self._make_embeddings() if self._embedding is None else self._embedding

    def _abort_embeddings(self) -> None:
        if self._embedding is not None:
            self._embedding.abort()

    def _close_embeddings(self) -> None:
        if self._embedding is not None:
            self._embedding.close()
