"""Vectors computed one text at a time, by the classes of core alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def vectors_one_by_one(path: Path, texts: Sequence[str | Sequence[int]], **params: Any) -> npt.NDArray[np.float64]:
    """Return what pooling leaves of each text or token list, each in a batch of its own, not normalised."""
    from llamacy.core.batch import Batch
    from llamacy.core.context import Context
    from llamacy.core.model import Model

    found = []
    with Model(path) as model:
        n_ctx = model.n_ctx_train
        params = {"n_threads": 1, "n_threads_batch": 1, "n_ubatch": n_ctx, "n_batch": n_ctx} | params
        with Context(model, n_ctx=n_ctx, embeddings=True, **params) as context, Batch(n_ctx) as batch:
            for text in texts:
                batch.clear()
                batch.extend(model.vocab.tokenize(text) if isinstance(text, str) else text, 0)
                context.encode(batch)
                found.append(np.array(context.seq_embeddings(0), np.float64))
    return np.array(found)


def unit(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return vectors of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
