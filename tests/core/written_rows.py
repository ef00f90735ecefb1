"""Rows of logits that a test makes up, put where a context keeps those of its last decode."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamacy.core.batch import Batch

Row = NDArray[np.float32]


class WrittenRows:
    """A context with some output rows, which can be overwritten."""

    def __init__(self, context: Any, n_rows: int = 1) -> None:
        batch = Batch(n_rows)
        for position in range(n_rows):
            batch.add(5, position, logits=True)
        context.decode(batch)
        self.context = context
        self.n_rows = n_rows
        self._addresses = [np.asarray(context.outputs.logits(i)).ctypes.data for i in range(n_rows)]

    def write(self, row: Any, index: int = 0) -> None:
        """Overwrite a row."""
        data = np.ascontiguousarray(row, np.float32)
        assert data.shape == (self.context.n_vocab,)
        ctypes.memmove(self._addresses[index], data.ctypes.data, data.nbytes)

    def each(self, rows: Iterable[Row]) -> Iterator[int]:
        """Write rows, and give the index of each when it is there."""
        for number, row in enumerate(rows):
            self.write(row, number % self.n_rows)
            yield number % self.n_rows


def random_rows(n: int, n_vocab: int, seed: int = 1) -> Iterator[Row]:
    """Return rows of normal numbers with different spreads."""
    pool = np.random.default_rng(seed).standard_normal(1_000_000 + n_vocab, np.float32)
    for i in range(n):
        start = i * 104_729 % 1_000_000
        yield pool[start : start + n_vocab] * np.float32(1 + i % 5)
