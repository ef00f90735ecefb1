"""Texts that come more than once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any


class Repeats:
    """Says which texts have to be computed, and gives their vectors to those that are equal.

    That is faster, and it makes equal texts have equal vectors: they would differ in the last digits, by where in its
    batch each is.

    Parameters
    ----------
    texts
        Tokens of each.

    Attributes
    ----------
    distinct
        Indices of the texts that no earlier one equals.
    n_repeated
        How many others there are.
    """

    def __init__(self, texts: Sequence[array[int]]) -> None:
        places: dict[bytes, int] = {}
        self._originals = [places.setdefault(text.tobytes(), index) for index, text in enumerate(texts)]
        self.distinct = array("i", places.values())
        self.n_repeated = len(texts) - len(places)

    def fill(self, vectors: Any) -> None:
        """Copy the vectors of the distinct texts to where the others are: rows of an array, or items of a list."""
        if not self.n_repeated:
            return
        for index, original in enumerate(self._originals):
            if index != original:
                vectors[index] = vectors[original].copy()
