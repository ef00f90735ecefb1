"""What the numbers of a classification head mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llamacy.errors import PoolingError
from llamacy.types import PoolingType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from llamacy.core.model import Model

    Doubles = NDArray[np.float64]

# those whose numbers llama.cpp turns into probabilities itself (llm_graph_context::build_pooling)
_WITH_SOFTMAX = frozenset(("qwen3", "qwen3vl"))


class Head:
    """A model's classification head.

    Parameters
    ----------
    model
        The model.
    pooling
        How its context pools.
    width
        Numbers that it puts out.
    purpose
        What the head is wanted for, for errors.

    Attributes
    ----------
    labels
        One for each number; those that the file doesn't name, or names twice, are called ``LABEL_0`` and so on.
    normalized
        Whether the numbers are probabilities already.

    Raises
    ------
    PoolingError
        The context doesn't put out what a head says.
    """

    def __init__(self, model: Model, pooling: PoolingType, width: int, purpose: str) -> None:
        if pooling != PoolingType.RANK:
            raise PoolingError(
                f"{purpose} needs a model with a classification head (pooling type 'rank'), but this one pools by "
                f"{pooling.name.lower()!r}: its vectors are compared by their cosine, see embed()"
            )
        named = model.cls_labels or (None,) * width
        self.labels = tuple(
            label if label and named.count(label) == 1 else f"LABEL_{index}" for index, label in enumerate(named)
        )
        self.normalized = model.architecture in _WITH_SOFTMAX
        if self.normalized and width == 1:
            raise PoolingError(
                f"the head of this {model.architecture} model has one output, of which llama.cpp makes 1 for every "
                "text (a softmax); convert the model with the labels yes and no"
            )

    def column(self, label: str | None) -> int:
        """Return which number says how well a pair fits.

        Raises
        ------
        PoolingError
            The head has several labels, and it is not clear which of them means that.
        ValueError
            There is no such label.
        """
        if label is not None:
            if label not in self.labels:
                raise ValueError(f"there is no label {label!r}; the model has {', '.join(map(repr, self.labels))}")
            return self.labels.index(label)
        if len(self.labels) == 1:
            return 0
        if "yes" in self.labels:
            return self.labels.index("yes")
        raise PoolingError(
            f"the model has the labels {', '.join(map(repr, self.labels))}; say with label= which of them means that a "
            "document fits, or use classify()"
        )

    def probabilities(self, rows: Any) -> Doubles:
        """Return the probabilities of the labels: a softmax, or the sigmoid of a single one; each at most once."""
        import numpy as np

        made: Doubles = np.asarray(rows, np.float64)
        if self.normalized:
            return made
        if made.shape[1] == 1:
            return sigmoid(made)
        made = np.exp(made - made.max(axis=1, keepdims=True))
        made /= made.sum(axis=1, keepdims=True)
        return made


def sigmoid(scores: Doubles) -> Doubles:
    """Return 1 / (1 + exp(-x)), which neither overflows nor loses the digits of small values."""
    import numpy as np

    small = np.exp(-np.abs(scores))
    made: Doubles = np.where(scores >= 0, 1 / (1 + small), small / (1 + small))
    return made
