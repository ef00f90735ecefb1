"""Sets of characters.

A character is a Unicode scalar value: U+0000 to U+10FFFF without the surrogates, which no UTF-8 text can hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import chain

MAX_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


class CharSet(tuple[tuple[int, int], ...]):
    """An immutable set of characters.

    As a tuple it is its ranges: inclusive ``(low, high)`` pairs of code points in ascending order, as few as there can
    be. No range crosses the surrogates, so the set of all characters has two.

    Parameters
    ----------
    ranges
        Inclusive pairs of code points in any order; they may overlap. Surrogates are left out.

    Raises
    ------
    ValueError
        A range ends before it begins, or leaves U+0000 to U+10FFFF.
    """

    __slots__ = ()

    def __new__(cls, ranges: Iterable[tuple[int, int]] = ()) -> CharSet:
        return _build(_merge(sorted(_checked(ranges))))

    @classmethod
    def of(cls, *parts: str | tuple[str | int, str | int]) -> CharSet:
        """Make the set of some characters and ranges.

        Parameters
        ----------
        *parts
            A text stands for each of its characters, a pair for the range from one character or code point to another,
            both included: ``CharSet.of("_-", ("a", "z"), (0x30, 0x39))``.

        Returns
        -------
        CharSet
            The union of all parts.

        Raises
        ------
        ValueError
            A range ends before it begins, or leaves U+0000 to U+10FFFF.
        """
        ranges: list[tuple[int, int]] = []
        for part in parts:
            if isinstance(part, str):
                ranges.extend((ord(char), ord(char)) for char in part)
            else:
                low, high = part
                ranges.append((_code_point(low), _code_point(high)))
        return cls(ranges)

    @classmethod
    def union(cls, sets: Iterable[Iterable[tuple[int, int]]]) -> CharSet:
        """Make the union of many sets, or lists of their ranges, at once."""
        return _build(_merge(sorted(chain.from_iterable(sets))))

    @property
    def size(self) -> int:
        """How many characters are in the set."""
        return sum(high - low + 1 for low, high in self)

    @property
    def first(self) -> int:
        """The lowest code point of the set.

        Raises
        ------
        ValueError
            The set is empty.
        """
        if not self:
            raise ValueError("an empty CharSet has no first character; ask `if charset:` before")
        return self[0][0]

    def has(self, char: str | int) -> bool:
        """Say whether a character, or its code point, is in the set."""
        point = _code_point(char)
        if len(self) < 5:
            return any(low <= point <= high for low, high in self)
        index = bisect_right(self, (point, MAX_CHARACTER + 1)) - 1
        return index >= 0 and point <= self[index][1]

    def __or__(self, other: CharSet) -> CharSet:
        if not isinstance(other, CharSet):
            return NotImplemented
        if not self or self is other:
            return other
        if not other:
            return self
        return _build(_merge(sorted((*self, *other))))

    def __and__(self, other: CharSet) -> CharSet:
        if not isinstance(other, CharSet):
            return NotImplemented
        if self is other:
            return self
        ranges: list[tuple[int, int]] = []
        mine, theirs = iter(self), iter(other)
        try:
            (low, high), (other_low, other_high) = next(mine), next(theirs)
            while True:
                start, end = max(low, other_low), min(high, other_high)
                if start <= end:
                    ranges.append((start, end))
                if high < other_high:
                    low, high = next(mine)
                else:
                    other_low, other_high = next(theirs)
        except StopIteration:
            return _build(ranges)

    def __sub__(self, other: CharSet) -> CharSet:
        if not isinstance(other, CharSet):
            return NotImplemented
        return self & ~other if self and other else self

    def __invert__(self) -> CharSet:
        ranges: list[tuple[int, int]] = []
        for start, end in _ALL_RANGES:
            for low, high in self:
                if low > end:
                    break
                if high < start:
                    continue
                if start < low:
                    ranges.append((start, low - 1))
                start = high + 1
            if start <= end:
                ranges.append((start, end))
        return _build(ranges)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, CharSet) and tuple.__eq__(self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"CharSet({tuple.__repr__(self)})"


def _build(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """Make a set of ranges that are sorted, merged and clear of the surrogates already."""
    return tuple.__new__(CharSet, ranges)


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join what overlaps or touches in ranges that are sorted."""
    merged: list[tuple[int, int]] = []
    last = -2
    for low, high in ranges:
        if low > last + 1:
            merged.append((low, high))
            last = high
        elif high > last:
            merged[-1] = (merged[-1][0], high)
            last = high
    return merged


def _checked(ranges: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Check ranges and cut the surrogates out of them."""
    below, above = _SURROGATES
    for low, high in ranges:
        if not 0 <= low <= high <= MAX_CHARACTER:
            raise ValueError(
                f"({low:#x}, {high:#x}) is no range of characters; give two code points from 0 to 0x10ffff in order"
            )
        if high < below or low > above:
            yield low, high
            continue
        if low < below:
            yield low, below - 1
        if high > above:
            yield above + 1, high


def _code_point(char: str | int) -> int:
    return char if isinstance(char, int) else ord(char)


_ALL_RANGES = ((0, _SURROGATES[0] - 1), (_SURROGATES[1] + 1, MAX_CHARACTER))

NONE = _build(())
ANY = _build(_ALL_RANGES)
