"""Alphabets: characters that no set of a computation tells apart, taken together.

Over Unicode an edge carries a set of characters, and comparing sets is dear. So an `Alphabet` first splits all sets
that take part into atoms, the largest pieces that no set cuts, and numbers them. A set is then an `int`, the mask of
its atoms, and union, intersection and difference are one machine operation each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llamacy.grammar.charset import CharSet

Edges = Sequence[Sequence[tuple[CharSet, int]]]
MaskEdges = list[list[tuple[int, int]]]


class Alphabet:
    """The atoms of some sets of characters.

    Parameters
    ----------
    sets
        The sets, which may overlap and repeat.

    Attributes
    ----------
    mask
        The mask of each set by the `id` of the set, which costs less than its hash.
    """

    __slots__ = ("_atoms", "_spelled", "mask")

    def __init__(self, sets: Iterable[CharSet]) -> None:
        by_id = {id(charset): charset for charset in sets}
        bits: dict[CharSet, int] = {}
        for charset in by_id.values():
            if charset not in bits:
                bits[charset] = 1 << len(bits)
        # A sweep over all borders; `inside` has the bits of the sets around the current stretch.
        borders = sorted(
            border for charset, bit in bits.items() for low, high in charset for border in ((low, bit), (high + 1, bit))
        )
        stretches: dict[int, list[tuple[int, int]]] = {}
        inside = 0
        start = -1
        for point, bit in borders:
            if inside and point > start:
                stretches.setdefault(inside, []).append((start, point - 1))
            inside ^= bit
            start = point
        masks = [0] * len(bits)
        self._atoms = list(stretches.values())
        for number, members in enumerate(stretches):
            atom = 1 << number
            while members:
                lowest = members & -members
                masks[lowest.bit_length() - 1] |= atom
                members ^= lowest
        of_set = dict(zip(bits, masks, strict=True))
        self._spelled: dict[int, CharSet] = {mask: charset for charset, mask in of_set.items()}
        self.mask: dict[int, int] = {key: of_set[charset] for key, charset in by_id.items()}

    def spell(self, mask: int) -> CharSet:
        """Give the set of a mask, always the same object for the same mask."""
        charset = self._spelled.get(mask)
        if charset is None:
            charset = CharSet.union(atom for number, atom in enumerate(self._atoms) if mask >> number & 1)
            self._spelled[mask] = charset
        return charset

    def masked(self, edges: Edges) -> MaskEdges:
        """Write edges with masks; their sets must be those, as objects, that the alphabet was made of."""
        mask = self.mask
        return [[(mask[id(charset)], target) for charset, target in out] for out in edges]


def sets_of(*tables: Edges) -> Iterable[CharSet]:
    """Give the sets on the edges of some tables."""
    for edges in tables:
        for out in edges:
            for charset, _ in out:
                yield charset
