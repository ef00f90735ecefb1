"""Requests for scores: of documents for a query, and of the labels of texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamacy.generate.arguments import checked_count
from llamacy.generate.embed.texts import TextTokens, is_single
from llamacy.generate.rank.head import Head, sigmoid
from llamacy.generate.rank.pairs import PairTokens
from llamacy.generate.rank.responses import Classification, RankedDocument, RerankResponse, rerank_response

if TYPE_CHECKING:
    from llamacy.generate.embed.engine import EmbeddingEngine

# what has no order, or characters instead of documents
_NO_DOCUMENTS = (str, bytes, Mapping, set, frozenset)


class RerankRequest:
    """Documents to put in order.

    Parameters
    ----------
    engine
        What computes.
    query, documents, top_n, label, template, truncate, lora
        As for `llamacy.Embedding.rerank`.
    probabilities
        Put out probabilities.

    Attributes
    ----------
    n_tokens
        Tokens of all pairs.

    Raises
    ------
    AdapterError, ContextLengthError, PoolingError, TokenizeError, TypeError, ValueError
        As there; nothing was computed.
    """

    def __init__(
        self,
        engine: EmbeddingEngine,
        query: str,
        documents: Iterable[str],
        *,
        top_n: int | None,
        probabilities: bool,
        truncate: bool,
        label: str | None,
        template: str | None,
        lora: Mapping[str, float] | None,
    ) -> None:
        self._engine = engine
        self._head = Head(engine.model, engine.pooling, engine.width, "reranking")
        self._column = self._head.column(label)
        if isinstance(documents, _NO_DOCUMENTS) or not isinstance(documents, Iterable):
            raise TypeError(f"documents must be several texts in an order, as a list, not {documents!r:.80}")
        self._documents = list(documents)
        self._n = len(self._documents) if top_n is None else checked_count("top_n", top_n)
        self._probabilities = probabilities
        engine.adapters(lora)  # one that there is not is told before pairs are made, and without any
        self._lora = lora
        pairs = PairTokens(engine.model, query, engine.n_most, template=template, truncate=truncate)
        self._pairs = [pairs.tokens(document, index) for index, document in enumerate(self._documents)]
        self.n_tokens = sum(map(len, self._pairs))

    def ranked(self) -> list[RankedDocument]:
        """Compute the scores, and return the best documents."""
        rows = self._engine.run(self._pairs, lora=self._lora)
        import numpy as np  # the engine has loaded it by now

        scores = np.asarray(rows, np.float64)[:, self._column]
        if self._probabilities and not self._head.normalized:
            scores = sigmoid(scores)
        order = np.argsort(-scores, kind="stable")[: self._n]
        return [RankedDocument(int(index), float(scores[index]), self._documents[index]) for index in order]

    def response(self, model_name: str | None, *, with_documents: bool) -> RerankResponse:
        """Return them in the shape of the rerank APIs."""
        model = self._engine.model
        name = model_name or model.name or Path(model.path or "").name
        return rerank_response(self.ranked(), self.n_tokens, name, with_documents=with_documents)


def classify(
    engine: EmbeddingEngine, texts: Any, *, softmax: bool, truncate: bool, lora: Mapping[str, float] | None
) -> Classification | list[Classification]:
    """Return what a classifier says of one text or several; `llamacy.Embedding.classify` says more."""
    head = Head(engine.model, engine.pooling, engine.width, "classifying")
    tokens = TextTokens(engine.model.vocab, engine.n_most, truncate=truncate).tokens
    engine.adapters(lora)
    single = is_single(texts)
    rows = engine.run([tokens(text, index) for index, text in enumerate([texts] if single else texts)], lora=lora)
    made = [_classification(head.labels, row) for row in (head.probabilities(rows) if softmax else rows).tolist()]
    return made[0] if single else made


def _classification(labels: tuple[str, ...], scores: list[float]) -> Classification:
    ordered = sorted(zip(labels, scores, strict=True), key=lambda pair: -pair[1])
    return Classification(*ordered[0], dict(ordered))
