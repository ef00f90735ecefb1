"""A model that scores pairs and texts, where it has a classification head."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from llamacy.generate.loaded import LoadedModel
from llamacy.generate.rank.requests import RerankRequest, classify

if TYPE_CHECKING:
    from llamacy.generate.embed.engine import EmbeddingEngine
    from llamacy.generate.rank.responses import RankedDocument, RerankResponse

_Item = TypeVar("_Item")


class RankingModel(LoadedModel):
    """A model whose classification head scores pairs of a query and a document, or texts."""

    _engine: EmbeddingEngine

    def rerank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_n: int | None = None,
        sigmoid: bool = False,
        truncate: bool = False,
        label: str | None = None,
        template: str | None = None,
        lora: Mapping[str, float] | None = None,
    ) -> list[RankedDocument]:
        """Put documents in the order of how well they fit a query.

        Parameters
        ----------
        query
            The query.
        documents
            The documents.
        top_n
            Return only so many, the best ones; all by default.
        sigmoid
            Make probabilities of the scores. Those of a model whose head puts out probabilities stay as they are.
        truncate
            Cut the document of a pair that is too long at its end, never the query; otherwise that is an error, before
            anything is computed.
        label
            For a head with several labels, which one says that a document fits; ``"yes"`` by default, if there is one.
        template
            How a pair is written, with ``{query}`` and ``{document}``; the model's own by default, and where it has
            none the tokens that its vocabulary puts around and between two texts.
        lora
            The LoRA adapters to apply, by name, with their scales; by default those that are applied to all texts.

        Returns
        -------
        list of RankedDocument
            With `index`, `score` and `document`, the best first; of equal ones, the one that was given first.

        Raises
        ------
        PoolingError
            The model has no classification head, or pools in another way; or it is unclear what its head's labels, or
            its pairs, mean.
        ContextLengthError
            A pair has more tokens than fit; the message has the document's index and both numbers.
        AdapterError
            There is no adapter of a name, or it is an activated LoRA.
        DecodeAbortedError
            `abort` was called.
        DecodeError, EncodeError, OutputError
            llama.cpp failed.
        TokenizeError, TypeError, ValueError
            A text can't be converted, or an option is wrong.
        """
        return self._reranking(query, documents, top_n, sigmoid, truncate, label, template, lora).ranked()

    def create_rerank(
        self,
        query: str,
        documents: Iterable[str],
        model: str | None = None,
        *,
        top_n: int | None = None,
        return_documents: bool = False,
        sigmoid: bool = False,
        truncate: bool = False,
        label: str | None = None,
        template: str | None = None,
        lora: Mapping[str, float] | None = None,
    ) -> RerankResponse:
        """Put documents in order, in the shape of the rerank APIs of Cohere, Jina and llama.cpp's server.

        Parameters
        ----------
        query, documents, top_n, sigmoid, truncate, label, template, lora
            As for `rerank`.
        model
            Name that the response shows; the model's own by default.
        return_documents
            Put the texts into the response.

        Returns
        -------
        dict
            Under ``"results"`` dicts with `index` and `relevance_score`, the best first.

        Raises
        ------
        PoolingError, AdapterError, ContextLengthError, DecodeError, EncodeError, OutputError, TokenizeError
            As for `rerank`.
        TypeError, ValueError
            As for `rerank`.
        """
        request = self._reranking(query, documents, top_n, sigmoid, truncate, label, template, lora)
        return request.response(model, with_documents=return_documents)

    def classify(
        self,
        input: Any,  # noqa: A002
        *,
        softmax: bool = True,
        truncate: bool = False,
        lora: Mapping[str, float] | None = None,
    ) -> Any:
        """Tell the labels of texts, with their scores.

        Parameters
        ----------
        input
            A text, its tokens, or any number of these, as for `embed`.
        softmax
            Make probabilities of the scores: over all labels, or by the sigmoid where there is only one. Those of a
            model whose head puts out probabilities stay as they are.
        truncate
            Cut a text that is too long at its end; otherwise that is an error.
        lora
            As for `rerank`.

        Returns
        -------
        Classification, or list of Classification
            With `label` and `score` of the best, and `scores` of all labels; a list for several texts.

        Raises
        ------
        PoolingError
            The model has no classification head, or pools in another way.
        AdapterError, ContextLengthError, DecodeError, EncodeError, OutputError, TokenizeError, TypeError, ValueError
            As for `embed`.
        """
        return classify(self._engine, input, softmax=softmax, truncate=truncate, lora=lora)

    # without blocking an event loop

    async def arerank(self, query: str, documents: Iterable[str], **options: Any) -> list[RankedDocument]:
        """Do as `rerank` in a thread of its own; a task that is cancelled aborts it."""
        return await self._awaited(lambda: self.rerank(query, documents, **options))

    async def acreate_rerank(
        self, query: str, documents: Iterable[str], model: str | None = None, **options: Any
    ) -> RerankResponse:
        """Do as `create_rerank` in a thread of its own; a task that is cancelled aborts it."""
        return await self._awaited(lambda: self.create_rerank(query, documents, model, **options))

    async def aclassify(self, input: Any, **options: Any) -> Any:  # noqa: A002
        """Do as `classify` in a thread of its own; a task that is cancelled aborts it."""
        return await self._awaited(lambda: self.classify(input, **options))

    def _awaited(self, request: Callable[[], _Item]) -> Awaitable[_Item]:
        """Do something in a thread of its own."""
        raise NotImplementedError

    def _reranking(
        self,
        query: str,
        documents: Iterable[str],
        top_n: int | None,
        sigmoid: bool,
        truncate: bool,
        label: str | None,
        template: str | None,
        lora: Mapping[str, float] | None,
    ) -> RerankRequest:
        return RerankRequest(
            self._engine,
            query,
            documents,
            top_n=top_n,
            probabilities=sigmoid,
            truncate=truncate,
            label=label,
            template=template,
            lora=lora,
        )
