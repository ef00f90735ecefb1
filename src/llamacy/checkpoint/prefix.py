"""What a sequence holds, in the form in which beginnings are compared: tokens and media, one after the other."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from llamacy._imports import import_whole

if TYPE_CHECKING:
    from llamacy.types import AnyBuffer

#: Bytes of one element.
ELEMENT = 4
#: Elements that stand for one medium.
MEDIA_ELEMENTS = 4

_lengths = Struct("<qq")
_four = Struct("=4I")


class Media(NamedTuple):
    """One image or piece of audio or video among the tokens."""

    #: Text tokens before it.
    at: int
    #: What tells it from others: for instance a hash of its content and of how it was preprocessed.
    key: bytes
    #: Cells that it takes in the memory.
    n_tokens: int
    #: Positions that it takes; fewer than cells where positions have several dimensions.
    n_positions: int


class Prefix:
    """The tokens and media that a sequence holds from position 0 on.

    Parameters
    ----------
    tokens : buffer of int32, or iterable of int
        Text tokens; copied.
    media : sequence of Media
        In the order in which they come.

    Raises
    ------
    ValueError
        A token is negative or too large; media are out of order, empty, or beyond the tokens.

    Thread safety: immutable.
    """

    __slots__ = ("elements", "largest", "media")

    #: Tokens as int32 in native byte order; a medium is four negative numbers, a hash of its key and sizes.
    elements: bytes
    media: tuple[Media, ...]
    #: The largest token, or -1 where there is none; that of the whole where this is a part.
    largest: int

    def __init__(self, tokens: AnyBuffer | Iterable[int], media: Sequence[Media] = ()) -> None:
        ids = _ints(tokens)
        least, self.largest = _range(ids)
        if least < 0:
            raise ValueError(f"token {min(ids)} is negative: give media as `media`")
        self.media = _checked_media(media, len(ids))
        if not self.media:
            self.elements = ids.tobytes()
            return
        parts, start = [], 0
        for medium in self.media:
            parts += [ids[start : medium.at].tobytes(), _media_elements(medium)]
            start = medium.at
        parts.append(ids[start:].tobytes())
        self.elements = b"".join(parts)

    def __len__(self) -> int:
        """Return the number of elements: tokens, and four for each medium."""
        return len(self.elements) // ELEMENT

    def __eq__(self, other: object) -> bool:
        return (
            self.elements == other.elements and self.media == other.media
            if isinstance(other, Prefix)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self.elements)

    def __repr__(self) -> str:
        return f"<Prefix of {len(self) - MEDIA_ELEMENTS * len(self.media)} tokens and {len(self.media)} media>"

    @property
    def tokens(self) -> array[int]:
        """The text tokens, as int32; a copy."""
        ids = array("i", self.elements)
        for number in range(len(self.media) - 1, -1, -1):
            start = self.media[number].at + number * MEDIA_ELEMENTS
            del ids[start : start + MEDIA_ELEMENTS]
        return ids

    @property
    def n_bytes(self) -> int:
        """Bytes of the elements and of the keys of media."""
        return len(self.elements) + sum(len(medium.key) for medium in self.media)

    @property
    def n_positions(self) -> int:
        """Positions that all of it takes."""
        return self.positions(len(self))

    def positions(self, n_elements: int) -> int:
        """Return the number of positions that the first elements take; these must not end within a medium."""
        positions = n_elements
        for number, medium in enumerate(self.media):
            if medium.at + number * MEDIA_ELEMENTS >= n_elements:
                break
            positions += medium.n_positions - MEDIA_ELEMENTS
        return positions

    def cells(self, n_elements: int) -> int:
        """Return the number of cells that the first elements take in a memory."""
        cells = n_elements
        for number, medium in enumerate(self.media):
            if medium.at + number * MEDIA_ELEMENTS >= n_elements:
                break
            cells += medium.n_tokens - MEDIA_ELEMENTS
        return cells

    def whole(self, n_elements: int) -> int:
        """Return the largest number of elements, up to this one, that doesn't end within a medium."""
        for number, medium in enumerate(self.media):
            start = medium.at + number * MEDIA_ELEMENTS
            if start >= n_elements:
                break
            if n_elements < start + MEDIA_ELEMENTS:
                return start
        return n_elements

    def last_length(self, n_elements: int) -> int:
        """Return the number of positions that the last of the first elements takes: 1 for a token, 0 for none."""
        if n_elements == 0:
            return 0
        for number, medium in enumerate(self.media):
            if medium.at + (number + 1) * MEDIA_ELEMENTS == n_elements:
                return medium.n_positions
        return 1

    def head(self, n_elements: int) -> Prefix:
        """Return the first elements as a prefix of their own; these must not end within a medium."""
        if n_elements >= len(self):
            return self
        head = Prefix.__new__(Prefix)
        head.largest = self.largest
        head.elements = self.elements[: n_elements * ELEMENT]
        head.media = tuple(
            medium for number, medium in enumerate(self.media) if medium.at + number * MEDIA_ELEMENTS < n_elements
        )
        return head


def common_length(left: bytes, right: bytes) -> int:
    """Return how many elements two sequences of elements have in common at the beginning."""
    n = min(len(left), len(right))
    if left[:n] == right[:n]:
        return n // ELEMENT
    low, high = 0, n // ELEMENT  # the first `low` are equal, the first `high` aren't
    while high - low > 1:
        middle = (low + high) // 2
        if left[low * ELEMENT : middle * ELEMENT] == right[low * ELEMENT : middle * ELEMENT]:
            low = middle
        else:
            high = middle
    return low


def _ints(tokens: AnyBuffer | Iterable[int]) -> array[int]:
    try:
        view = memoryview(tokens)  # type: ignore[arg-type]
    except TypeError:
        pass
    else:
        if view.format == "i" and view.ndim == 1:
            return array("i", view.tobytes())
        tokens = view.tolist()
    try:
        return array("i", tokens)  # type: ignore[arg-type]
    except (OverflowError, TypeError) as error:
        raise ValueError(f"tokens must be whole numbers below 2**31: {error}") from None


def _range(ids: array[int]) -> tuple[int, int]:
    if not ids:
        return 0, -1
    import_whole("numpy")
    import numpy as np

    view = np.frombuffer(ids, dtype=np.int32)
    return int(view.min()), int(view.max())


def _checked_media(media: Sequence[Media], n_tokens: int) -> tuple[Media, ...]:
    checked, before = [], 0
    for medium in media:
        at, key, n_cells, n_positions = medium
        if not before <= at <= n_tokens:
            raise ValueError(f"a medium can't be at {at}: there are {n_tokens} tokens, and one at {before} before")
        if not (1 <= n_cells < 2**31 and 1 <= n_positions < 2**31):
            raise ValueError(f"a medium takes at least one token and position, not {n_cells} and {n_positions}")
        checked.append(Media(at, bytes(key), n_cells, n_positions))
        before = at
    return tuple(checked)


def _media_elements(medium: Media) -> bytes:
    digest = blake2b(medium.key + _lengths.pack(medium.n_tokens, medium.n_positions), digest_size=16).digest()
    # the sign tells them from tokens
    return _four.pack(*(number | 0x80000000 for number in _four.unpack(digest)))
