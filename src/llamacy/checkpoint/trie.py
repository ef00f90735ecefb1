"""The longest beginning that two sequences of elements share, found among many: a compressed trie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from llamacy.checkpoint.prefix import ELEMENT, common_length

_Value = TypeVar("_Value")


class Match(NamedTuple, Generic[_Value]):
    """A key of a trie that begins as the query does."""

    #: Elements that key and query have in common at the beginning.
    n_elements: int
    value: _Value
    #: Elements of the key.
    n_key: int


class _Node(Generic[_Value]):
    """A place where keys end or part."""

    __slots__ = ("children", "label", "n_least", "nearest", "value")

    def __init__(self, label: bytes) -> None:
        #: elements from the parent to here
        self.label = label
        #: by their first element
        self.children: dict[bytes, _Node[_Value]] = {}
        #: what the key has that ends here, in a tuple; empty where none does
        self.value: tuple[_Value] | tuple[()] = ()
        #: bytes from here to the nearest end of a key
        self.n_least = 0
        #: first element on the way there; nothing where a key ends here
        self.nearest = b""

    def distance(self) -> int:
        """Return the bytes from the parent to the nearest end of a key."""
        return len(self.label) + self.n_least

    def update(self) -> None:
        if self.value or not self.children:
            self.n_least, self.nearest = 0, b""
        else:
            self.n_least, self.nearest = min((child.distance(), first) for first, child in self.children.items())

    def came_nearer(self, child: _Node[_Value]) -> None:
        """Take notice of a child that is new, or nearer to the end of a key than before."""
        if not self.value:
            way = child.distance(), child.label[:ELEMENT]
            self.n_least, self.nearest = way if len(self.children) == 1 else min(way, (self.n_least, self.nearest))


class Trie(Generic[_Value]):
    """A mapping whose keys are elements of prefixes, with a search for the longest common beginning.

    Edges hold as many elements as keys share, and are compared as a whole. What is found doesn't depend on the order in
    which keys came.

    Thread safety: none; guard it with a lock.
    """

    def __init__(self) -> None:
        self._root: _Node[_Value] = _Node(b"")
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def __contains__(self, key: bytes) -> bool:
        path = self._path(key)
        return path is not None and bool(path[-1].value)

    def get(self, key: bytes) -> _Value | None:
        """Return the value of a key, or None when it isn't there."""
        path = self._path(key)
        return path[-1].value[0] if path is not None and path[-1].value else None

    def insert(self, key: bytes, value: _Value) -> _Value | None:
        """Add a key, or give it another value; return the value that it had."""
        node, start, path = self._root, 0, [self._root]
        while start < len(key):
            first = key[start : start + ELEMENT]
            child = node.children.get(first)
            if child is None:
                child = _Node(key[start:])
                node.children[first] = child
            elif not key.startswith(child.label, start):
                child = _split(node, child, common_length(child.label, key[start:]) * ELEMENT)
            node = child
            path.append(node)
            start += len(node.label)
        before = node.value
        node.value = (value,)
        self._n += not before
        node.update()
        for parent, child in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            parent.came_nearer(child)
        return before[0] if before else None

    def remove(self, key: bytes) -> _Value | None:
        """Take a key out; return the value that it had, or None when it wasn't there."""
        path = self._path(key)
        if path is None or not path[-1].value:
            return None
        (value,) = path[-1].value
        path[-1].value = ()
        path[-1].update()
        self._n -= 1
        for parent, node in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            first = node.label[:ELEMENT]
            if not node.value:
                if not node.children:
                    del parent.children[first]
                elif len(node.children) == 1:
                    _join(parent, node)
            if parent.nearest == first:
                parent.update()
        return value

    def longest_prefix(self, query: bytes) -> Match[_Value] | None:
        """Return the longest key that the query begins with."""
        best = None
        for match in self._prefixes(query):
            best = match
        return best

    def prefixes(self, query: bytes) -> list[Match[_Value]]:
        """Return the keys that the query begins with, the shortest one first, without the query itself."""
        return [match for match in self._prefixes(query) if match.n_key * ELEMENT < len(query)]

    def longest_common(self, query: bytes) -> Match[_Value] | None:
        """Return the key that has most in common with the query at the beginning; None where all have nothing.

        Of several, it is the shortest one, and of these the one that comes first as bytes.
        """
        node, start = self._root, 0
        while True:
            child = node.children.get(query[start : start + ELEMENT])
            if child is None:
                common = start
                break
            if not query.startswith(child.label, start):
                common = start + common_length(child.label, query[start : start + len(child.label)]) * ELEMENT
                node, start = child, start + len(child.label)
                break
            node = child
            start += len(node.label)
        if common == 0:
            return None
        while not node.value:
            node = node.children[node.nearest]
            start += len(node.label)
        return Match(common // ELEMENT, node.value[0], start // ELEMENT)

    def items(self) -> Iterator[tuple[bytes, _Value]]:
        """Return all keys with their values."""
        stack = [(self._root, b"")]
        while stack:
            node, key = stack.pop()
            if node.value:
                yield key, node.value[0]
            stack += [(child, key + child.label) for child in node.children.values()]

    @property
    def n_nodes(self) -> int:
        """Number of places where keys end or part; at most two for each key."""
        n, stack = 0, [self._root]
        while stack:
            node = stack.pop()
            n += 1
            stack += node.children.values()
        return n - 1

    @property
    def n_bytes(self) -> int:
        """Bytes of the elements on all edges."""
        n, stack = 0, [self._root]
        while stack:
            node = stack.pop()
            n += len(node.label)
            stack += node.children.values()
        return n

    def _prefixes(self, query: bytes) -> Iterator[Match[_Value]]:
        node, start = self._root, 0
        while True:
            if node.value:
                yield Match(start // ELEMENT, node.value[0], start // ELEMENT)
            child = node.children.get(query[start : start + ELEMENT])
            if child is None or not query.startswith(child.label, start):
                return
            node = child
            start += len(node.label)

    def _path(self, key: bytes) -> list[_Node[_Value]] | None:
        """Return the nodes from the root to where a key ends, or None when there is no such place."""
        node, start, path = self._root, 0, [self._root]
        while start < len(key):
            child = node.children.get(key[start : start + ELEMENT])
            if child is None or not key.startswith(child.label, start):
                return None
            node = child
            path.append(node)
            start += len(node.label)
        return path


def _split(parent: _Node[_Value], child: _Node[_Value], n: int) -> _Node[_Value]:
    """Put a node between a parent and its child, after `n` bytes of the label."""
    middle: _Node[_Value] = _Node(child.label[:n])
    child.label = child.label[n:]
    middle.children[child.label[:ELEMENT]] = child
    parent.children[middle.label[:ELEMENT]] = middle
    middle.update()
    return middle


def _join(parent: _Node[_Value], node: _Node[_Value]) -> None:
    """Take out a node with one child and no value of its own; the child comes in its place."""
    (child,) = node.children.values()
    child.label = node.label + child.label
    parent.children[child.label[:ELEMENT]] = child
