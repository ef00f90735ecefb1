"""What a store holds, in the order of use, with the one search that all stores share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from llamacy.checkpoint.fingerprint import Fingerprint
from llamacy.checkpoint.prefix import Prefix
from llamacy.checkpoint.trie import Trie

_Payload = TypeVar("_Payload")


@dataclass(eq=False)
class Entry(Generic[_Payload]):
    """One snapshot of a store."""

    #: Digest of its fingerprint.
    owner: bytes
    prefix: Prefix
    has_logits: bool
    #: What it takes of the store's budget.
    n_bytes: int
    payload: _Payload


class Found(NamedTuple, Generic[_Payload]):
    """An entry that is of use for a query."""

    entry: Entry[_Payload]
    #: How much of it is: elements from the beginning on.
    n_elements: int


class Index(Generic[_Payload]):
    """Entries by what they hold; the least recently used one first.

    Ctrl-C may come between any two statements: the tries are built anew when a change of them was left half done.

    Thread safety: none; guard it with a lock.
    """

    def __init__(self) -> None:
        self._tries: dict[bytes, Trie[Entry[_Payload]]] = {}
        self._used: OrderedDict[Entry[_Payload], None] = OrderedDict()
        self.n_bytes = 0
        self._torn = False

    def __len__(self) -> int:
        return len(self._used)

    def __iter__(self) -> Iterator[Entry[_Payload]]:
        """Return the entries, the least recently used one first."""
        return iter(self._used)

    def get(self, owner: bytes, prefix: Prefix) -> Entry[_Payload] | None:
        """Return the entry that holds just this."""
        self._mend()
        trie = self._tries.get(owner)
        return None if trie is None else trie.get(prefix.elements)

    def add(self, entry: Entry[_Payload]) -> Entry[_Payload] | None:
        """Add an entry as the last used one; return the one whose place it takes."""
        self._mend()
        self._torn = True
        self._used[entry] = None
        before = self._tries.setdefault(entry.owner, Trie()).insert(entry.prefix.elements, entry)
        if before is not None:
            del self._used[before]
            self.n_bytes -= before.n_bytes
        self.n_bytes += entry.n_bytes
        self._torn = False
        return before

    def remove(self, entry: Entry[_Payload]) -> bool:
        """Take an entry out; return whether it was there."""
        self._mend()
        if entry not in self._used:
            return False
        self._torn = True
        del self._used[entry]
        self.n_bytes -= entry.n_bytes
        trie = self._tries[entry.owner]
        trie.remove(entry.prefix.elements)
        if not len(trie):
            del self._tries[entry.owner]
        self._torn = False
        return True

    def touch(self, entry: Entry[_Payload]) -> None:
        """Make an entry the last used one; nothing happens when it is not there any more."""
        if entry in self._used:
            self._used.move_to_end(entry)

    def covered(self, owner: bytes, prefix: Prefix) -> list[Entry[_Payload]]:
        """Return the entries that hold a beginning of this, but not all of it."""
        self._mend()
        trie = self._tries.get(owner)
        return [] if trie is None else [found.value for found in trie.prefixes(prefix.elements)]

    def find(self, owner: Fingerprint, prefix: Prefix, *, can_cut: bool) -> Found[_Payload] | None:
        """Return the entry that saves most of the work of decoding a prefix.

        Parameters
        ----------
        owner
            Where it is to be restored.
        prefix
            What is to be decoded.
        can_cut
            Whether an entry that goes on otherwise than the prefix can be cut back to what they share; else only those
            count that the prefix begins with.

        Returns
        -------
        Found or None
            Something is left to decode, or the entry has the logits of the last token: in both cases it is
            possible to go on. None when nothing is of use.
        """
        self._mend()
        trie = self._tries.get(owner.digest)
        if trie is None:
            return None
        found = _longest(trie, prefix, can_cut)
        if found is None or found.n_elements < len(prefix):
            return found
        if found.entry.has_logits and len(found.entry.prefix) == len(prefix):
            return found
        return _longest(trie, prefix.head(prefix.whole(len(prefix) - 1)), can_cut)

    def _mend(self) -> None:
        if self._torn:
            mended: Index[_Payload] = Index()
            for entry in self._used:
                mended.add(entry)
            self._tries, self._used, self.n_bytes = mended._tries, mended._used, mended.n_bytes
            self._torn = False


def _longest(trie: Trie[Entry[_Payload]], prefix: Prefix, can_cut: bool) -> Found[_Payload] | None:
    whole = trie.longest_prefix(prefix.elements)
    best = None if whole is None else Found(whole.value, whole.n_elements)
    if can_cut:
        common = trie.longest_common(prefix.elements)
        if common is not None:
            # elements of a medium that differs may begin alike
            n = prefix.whole(common.n_elements)
            if n > (0 if best is None else best.n_elements):
                return Found(common.value, n)
    return best
