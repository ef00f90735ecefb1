"""Which kinds of pooling a model can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamacy.core.gguf import Gguf
from llamacy.errors import GgufError, PoolingError
from llamacy.types import PoolingType

if TYPE_CHECKING:
    from llamacy.core.model import Model

# with the layer before it alone, llama.cpp reads single numbers of a vector as the scores
_HEAD_TENSOR = "cls.output.weight"


def check_pooling(model: Model, pooling_type: PoolingType) -> None:
    """Refuse a pooling that llama.cpp takes and then reads past the vectors for.

    Parameters
    ----------
    model
        The model.
    pooling_type
        What is in effect.

    Raises
    ------
    PoolingError
        It is that of a classification head, but there is none.
    """
    if pooling_type == PoolingType.RANK and not _has_head(model):
        raise PoolingError(
            "pooling_type 'rank' needs a model with a classification head, which this one has not; it is for rerankers "
            "and classifiers"
        )


def _has_head(model: Model) -> bool:
    if model.path is not None and model.metadata.get("split.count", "1") in ("0", "1"):
        try:
            with Gguf(model.path) as gguf:
                return _HEAD_TENSOR in gguf.tensors
        except (OSError, GgufError):
            pass  # the file was moved since
    return model.metadata.get(f"{model.architecture}.pooling_type") == str(int(PoolingType.RANK))
