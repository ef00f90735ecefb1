"""Shapes of results: of llamacy's own, and that of the rerank APIs of Cohere, Jina and llama.cpp's server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired


@dataclass(frozen=True)
class RankedDocument:
    """A document and how well it fits the query.

    Parameters
    ----------
    index
        Its place among the documents that were given.
    score
        The higher the better.
    document
        The text.
    """

    index: int
    score: float
    document: str


@dataclass(frozen=True)
class Classification:
    """What a classifier says of a text.

    Parameters
    ----------
    label
        The label with the highest score.
    score
        Its score.
    scores
        Those of all labels, the highest first.
    """

    label: str
    score: float
    scores: Mapping[str, float]


class RerankDocument(TypedDict):
    """A document."""

    text: str


class RerankResult(TypedDict):
    """One document of a response."""

    index: int
    relevance_score: float
    document: NotRequired[RerankDocument]


class RerankUsage(TypedDict):
    """Tokens that were computed."""

    prompt_tokens: int
    total_tokens: int


class RerankResponse(TypedDict):
    """Documents in the order of their scores."""

    object: Literal["list"]
    model: str
    usage: RerankUsage
    results: list[RerankResult]


def rerank_response(
    ranked: Sequence[RankedDocument], n_tokens: int, model_name: str, *, with_documents: bool
) -> RerankResponse:
    """Return ranked documents in the shape of the rerank APIs."""
    results: list[RerankResult] = [{"index": one.index, "relevance_score": one.score} for one in ranked]
    if with_documents:
        for result, one in zip(results, ranked, strict=True):
            result["document"] = {"text": one.document}
    return {
        "object": "list",
        "model": model_name,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        "results": results,
    }
