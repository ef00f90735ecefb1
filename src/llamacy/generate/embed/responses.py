"""Shape of the response: OpenAI's."""

from __future__ import annotations

import base64
import sys
from array import array
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class EmbeddingData(TypedDict):
    """One text's vector: numbers, or base64 of its little-endian float32; without pooling one for each token."""

    object: Literal["embedding"]
    embedding: list[float] | list[list[float]] | str
    index: int


class EmbeddingUsage(TypedDict):
    """Tokens that were computed."""

    prompt_tokens: int
    total_tokens: int


class CreateEmbeddingResponse(TypedDict):
    """Vectors of one text or several."""

    object: Literal["list"]
    data: list[EmbeddingData]
    model: str
    usage: EmbeddingUsage


def check_encoding(encoding_format: str) -> None:
    """Refuse an encoding that there is not.

    Raises
    ------
    ValueError
        It is neither ``"float"`` nor ``"base64"``.
    """
    if encoding_format not in ("float", "base64"):
        raise ValueError(f"encoding_format is 'float' or 'base64', not {encoding_format!r}")


def embedding_response(
    vectors: Sequence[Any], n_tokens: int, model_name: str, encoding_format: str
) -> CreateEmbeddingResponse:
    """Return vectors in the shape of OpenAI's embeddings."""
    encoded = [_base64(vector) if encoding_format == "base64" else vector.tolist() for vector in vectors]
    return {
        "object": "list",
        "data": [{"object": "embedding", "embedding": one, "index": index} for index, one in enumerate(encoded)],
        "model": model_name,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }


def _base64(vector: Any) -> str:
    numbers = array("f", vector.tobytes())
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode("ascii")
