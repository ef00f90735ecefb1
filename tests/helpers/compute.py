"""Short ways to have llamacy compute something, as exactly as it can: F32 K/V cache, no flash attention, one thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT: dict[str, Any] = {
    "n_ctx": 256,
    "n_threads": 1,
    "n_threads_batch": 1,
    "type_k": "F32",
    "type_v": "F32",
    "flash_attn_type": "DISABLED",
}


def logits_of(model: Any, tokens: Sequence[int], **params: Any) -> NDArray[np.float32]:
    """Return the logits after `tokens`, an owned copy."""
    from llamacy.core.batch import Batch
    from llamacy.core.context import Context

    with Context(model, **(EXACT | params)) as context, Batch(len(tokens)) as batch:
        batch.extend(tokens, 0)
        context.decode(batch)
        return np.array(context.logits(-1))
