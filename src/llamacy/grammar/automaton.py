"""Regular languages as minimal deterministic automata over characters.

A `Dfa` is in a normal form: equal languages are equal objects with equal hashes, however they came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from llamacy.grammar.alphabet import Alphabet, MaskEdges, sets_of
from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.combine import Parts, complement, concatenation, product, repetition, universal_state
from llamacy.grammar.table import MAX_STATES, normal_form, too_large
from llamacy.grammar.trie import word_table

__all__ = [
    "MAX_STATES", "Dfa", "chars", "choices", "empty_string", "everything", "from_edges", "lengths", "literal",
    "nothing",
]  # fmt: skip


class Dfa:
    """A regular language: a minimal deterministic automaton whose states all lead to an accepted text.

    Made by the functions of this module and by its own operators: ``a | b``, ``a & b``, ``a - b`` and ``~a`` (all texts
    but those of ``a``).

    Attributes
    ----------
    edges
        For each state its edges in order of their first character: a set of characters and the state it leads to. The
        sets of a state don't overlap, no two edges have the same target, and a character in none is refused. States are
        numbered breadth first, in order of the edges; state 0 starts.
    accepting
        The states in which a text may end.
    """

    __slots__ = ("_distance", "_hash", "_order", "accepting", "edges")

    edges: tuple[tuple[tuple[CharSet, int], ...], ...]
    accepting: frozenset[int]

    def __init__(self, edges: tuple[tuple[tuple[CharSet, int], ...], ...], accepting: frozenset[int]) -> None:
        self.edges = edges
        self.accepting = accepting
        self._hash = 0
        self._distance: list[int] | None = None
        self._order: list[int] | None = None

    def __reduce__(self) -> tuple[type[Dfa], tuple[object, ...]]:
        return Dfa, (self.edges, self.accepting)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Dfa):
            return NotImplemented
        return self.accepting == other.accepting and self.edges == other.edges

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((self.edges, self.accepting)) or 1
        return self._hash

    def __repr__(self) -> str:
        shown = self.words(4)
        texts = ", ".join(map(repr, shown[:3]))
        return f"<Dfa of {self.size} states: {texts}{', …' if len(shown) > 3 else ''}>"

    def __or__(self, other: Dfa) -> Dfa:
        if not isinstance(other, Dfa):
            return NotImplemented
        if other.is_empty or self is other or self.is_everything:
            return self
        if self.is_empty or other.is_everything:
            return other
        return Dfa(*product(self._parts, other._parts, left=True, right=True, both=True))

    def __and__(self, other: Dfa) -> Dfa:
        if not isinstance(other, Dfa):
            return NotImplemented
        if self.is_empty or self is other or other.is_everything:
            return self
        if other.is_empty or self.is_everything:
            return other
        return Dfa(*product(self._parts, other._parts, left=False, right=False, both=True))

    def __sub__(self, other: Dfa) -> Dfa:
        if not isinstance(other, Dfa):
            return NotImplemented
        if self.is_empty or other.is_empty:
            return self
        if self is other or other.is_everything:
            return nothing()
        if self.is_everything:
            return ~other
        return Dfa(*product(self._parts, other._parts, left=True, right=False, both=False))

    def __invert__(self) -> Dfa:
        if self.is_empty:
            return everything()
        if self.is_everything:
            return nothing()
        return Dfa(*complement(self.edges, self.accepting))

    @property
    def _parts(self) -> Parts:
        return self.edges, self.accepting

    @property
    def size(self) -> int:
        """How many states there are."""
        return len(self.edges)

    @property
    def is_empty(self) -> bool:
        """Whether no text at all is in the language."""
        return not self.accepting

    @property
    def is_everything(self) -> bool:
        """Whether every text is in the language."""
        return len(self.edges) == 1 and universal_state(self.edges, self.accepting) == 0

    @property
    def is_finite(self) -> bool:
        """Whether the language has a longest text, or none."""
        return self._topological() is not None

    @property
    def min_length(self) -> int | None:
        """How many characters the shortest text has; None when there is no text."""
        return None if self.is_empty else self._distances()[0]

    @property
    def max_length(self) -> int | None:
        """How many characters the longest text has; None when there is no longest text (or no text: see `is_empty`)."""
        order = self._topological()
        if order is None or self.is_empty:
            return None
        longest = [0] * self.size
        for state in reversed(order):
            for _, target in self.edges[state]:
                longest[state] = max(longest[state], longest[target] + 1)
        return longest[0]

    def count(self, most: int | None = None) -> int | None:
        """Count the texts of the language; None when there are infinitely many.

        Parameters
        ----------
        most
            Where to stop counting: this number means as many or more.
        """
        order = self._topological()
        if order is None:
            return None
        texts = [0] * self.size
        for state in reversed(order):
            texts[state] = (state in self.accepting) + sum(
                charset.size * texts[target] for charset, target in self.edges[state]
            )
            if most is not None:
                texts[state] = min(texts[state], most)
        return texts[0]

    def accepts(self, text: str) -> bool:
        """Say whether a text is in the language."""
        state = 0
        for char in text:
            point = ord(char)
            for charset, target in self.edges[state]:
                if charset.has(point):
                    state = target
                    break
            else:
                return False
        return state in self.accepting

    def words(self, limit: int) -> list[str]:
        """List the first texts of the language, shorter ones first, equally long ones by code point.

        Parameters
        ----------
        limit
            How many at most.

        Returns
        -------
        list of str
            All texts when there are no more than `limit`.
        """
        found: list[str] = []
        if self.is_empty:
            return found
        # within[n]: the states from which a text of exactly n more characters is accepted.
        within: list[frozenset[int]] = [self.accepting]
        longest = self.max_length
        sources = self._sources()
        while len(found) < limit:
            if 0 in within[-1]:
                for word in self._words_of_length(within):
                    found.append(word)
                    if len(found) == limit:
                        break
            if longest is not None and len(within) > longest:
                break
            within.append(frozenset().union(*(sources[state] for state in within[-1])))
        return found

    def shortest(self) -> str | None:
        """Give the first of the shortest texts; None when there is no text."""
        if self.is_empty:
            return None
        distances = self._distances()
        path: list[str] = []
        state = 0
        while distances[state]:
            point, state = min(
                (charset.first, target) for charset, target in self.edges[state] if distances[target] < distances[state]
            )
            path.append(chr(point))
        return "".join(path)

    def concat(self, other: Dfa) -> Dfa:
        """Make the language of a text of this one followed by a text of another.

        Raises
        ------
        AutomatonSizeError
            More than `MAX_STATES` states.
        """
        if self.is_empty or other.is_empty:
            return nothing()
        if other == empty_string():
            return self
        if self == empty_string():
            return other
        return Dfa(*concatenation(self._parts, other._parts))

    def repeat(self, minimum: int, maximum: int | None = None) -> Dfa:
        """Make the language of several texts of this one in a row.

        Parameters
        ----------
        minimum, maximum
            How many; `maximum` None means without limit.

        Returns
        -------
        Dfa
            The language.

        Raises
        ------
        ValueError
            `minimum` is negative or above `maximum`.
        AutomatonSizeError
            More than `MAX_STATES` states.
        """
        if minimum < 0 or (maximum is not None and maximum < minimum):
            raise ValueError(f"can't repeat {minimum} to {maximum} times; give 0 <= minimum <= maximum")
        if maximum == 0 or self.is_empty or self == empty_string():
            return empty_string() if minimum == 0 or not self.is_empty else nothing()
        if (minimum, maximum) == (1, 1):
            return self
        return Dfa(*repetition(self.edges, self.accepting, minimum, maximum))

    def _sources(self) -> list[list[int]]:
        """Give for each state those with an edge to it."""
        sources: list[list[int]] = [[] for _ in self.edges]
        for state, out in enumerate(self.edges):
            for _, target in out:
                sources[target].append(state)
        return sources

    def _distances(self) -> list[int]:
        """Give for each state how many characters it takes at least to an accepting one; there must be one."""
        if self._distance is not None:
            return self._distance
        sources = self._sources()
        distances = [0 if state in self.accepting else -1 for state in range(self.size)]
        queue = list(self.accepting)
        for state in queue:
            for source in sources[state]:
                if distances[source] < 0:
                    distances[source] = distances[state] + 1
                    queue.append(source)
        self._distance = distances
        return distances

    def _topological(self) -> list[int] | None:
        """Order the states so that all edges lead forwards; None when there is a cycle."""
        if self._order is not None:
            return self._order or None
        n_sources = [0] * self.size
        for out in self.edges:
            for _, target in out:
                n_sources[target] += 1
        order = [] if n_sources[0] else [0]
        for state in order:
            for _, target in self.edges[state]:
                n_sources[target] -= 1
                if not n_sources[target]:
                    order.append(target)
        self._order = order if len(order) == self.size else []
        return self._order or None

    def _words_of_length(self, within: Sequence[frozenset[int]]) -> Iterator[str]:
        """Yield the texts of ``len(within) - 1`` characters in order."""
        length = len(within) - 1
        if not length:
            yield ""
            return
        path: list[str] = []
        steps = [self._steps(0, within[length - 1])]
        while steps:
            step = next(steps[-1], None)
            if step is None:
                steps.pop()
                if path:
                    path.pop()
                continue
            point, target = step
            if len(steps) == length:
                yield "".join(path) + chr(point)
            else:
                path.append(chr(point))
                steps.append(self._steps(target, within[length - len(steps) - 1]))

    def _steps(self, state: int, targets: frozenset[int]) -> Iterator[tuple[int, int]]:
        """Yield the characters that lead from a state to some others, in order, each with its target."""
        ranges = sorted(
            (low, high, target) for charset, target in self.edges[state] if target in targets for low, high in charset
        )
        for low, high, target in ranges:
            for point in range(low, high + 1):
                yield point, target


@lru_cache(maxsize=1)
def nothing() -> Dfa:
    """Make the language without any text."""
    return Dfa(((),), frozenset())


@lru_cache(maxsize=1)
def everything() -> Dfa:
    """Make the language of all texts."""
    return Dfa((((ANY, 0),),), frozenset((0,)))


@lru_cache(maxsize=1)
def empty_string() -> Dfa:
    """Make the language whose only text is the empty one."""
    return Dfa(((),), frozenset((0,)))


def chars(charset: CharSet) -> Dfa:
    """Make the language of the texts of one character out of a set."""
    return Dfa((((charset, 1),), ()), frozenset((1,))) if charset else nothing()


def literal(text: str) -> Dfa:
    """Make the language of one text.

    Raises
    ------
    ValueError
        The text has a surrogate, which is no character.
    AutomatonSizeError
        The text has `MAX_STATES` characters or more.
    """
    return choices((text,))


def choices(texts: Iterable[str]) -> Dfa:
    """Make the language of some texts.

    Parameters
    ----------
    texts
        The texts in any order; thousands are fine.

    Returns
    -------
    Dfa
        The language.

    Raises
    ------
    ValueError
        A text has a surrogate, which is no character.
    AutomatonSizeError
        More than `MAX_STATES` states.
    """
    distinct = sorted(set(texts))
    return Dfa(*word_table(distinct)) if distinct else nothing()


@lru_cache(maxsize=64)
def lengths(minimum: int, maximum: int | None = None) -> Dfa:
    """Make the language of all texts whose number of characters lies within bounds.

    Parameters
    ----------
    minimum, maximum
        The bounds, both included; `maximum` None means without limit.

    Returns
    -------
    Dfa
        The language.

    Raises
    ------
    AutomatonSizeError
        A bound is `MAX_STATES` or more.
    """
    minimum = max(minimum, 0)
    if maximum is not None and maximum < minimum:
        return nothing()
    last = minimum if maximum is None else maximum
    if last >= MAX_STATES:
        raise too_large()
    edges = [((ANY, state + 1),) for state in range(last)]
    end = () if maximum is not None else ((ANY, last),)
    return Dfa((*edges, end), frozenset(range(minimum, last + 1)))


def from_edges(edges: Sequence[Sequence[tuple[CharSet, int]]], accepting: Iterable[int]) -> Dfa:
    """Make the language of a deterministic table.

    Parameters
    ----------
    edges
        For each state the sets of characters that it reads and the states they lead to. Sets of one state may overlap
        only if they lead to the same state; states that can't be reached, lead nowhere or do the same are fine. State
        0 starts.
    accepting
        The states in which a text may end.

    Returns
    -------
    Dfa
        The least automaton of that language.

    Raises
    ------
    ValueError
        There is no state, a target or accepting state isn't in the table, or a character leads to two states.
    AutomatonSizeError
        The table has more than `MAX_STATES` states.
    """
    n_states = len(edges)
    ends = set(accepting)
    if not n_states:
        raise ValueError("the table has no states; give at least state 0, where texts start")
    if n_states > MAX_STATES:
        raise too_large()
    for state in ends:
        if not 0 <= state < n_states:
            raise ValueError(f"accepting state {state} isn't in the table; give states from 0 to {n_states - 1}")
    alphabet = Alphabet(sets_of(edges))
    masked = alphabet.masked(edges)
    for state, out in enumerate(masked):
        led: dict[int, int] = {}
        seen = 0
        for mask, target in out:
            if not 0 <= target < n_states:
                raise ValueError(f"state {state} leads to state {target}; give states from 0 to {n_states - 1}")
            if mask & seen & ~led.get(target, 0):
                both = alphabet.spell(mask & seen & ~led.get(target, 0))
                raise ValueError(f"state {state} leads to two states on {both!r}; give each character one target")
            led[target] = led.get(target, 0) | mask
            seen |= mask
        masked[state] = [(mask, target) for target, mask in led.items() if mask]
    return Dfa(*normal_form(*_reachable(masked, ends), alphabet))


def _reachable(edges: MaskEdges, accepting: set[int]) -> tuple[MaskEdges, set[int]]:
    """Leave out what can't be reached from state 0."""
    numbers = {0: 0}
    queue = [0]
    kept: MaskEdges = []
    for state in queue:
        for _, target in edges[state]:
            if target not in numbers:
                numbers[target] = len(queue)
                queue.append(target)
        kept.append([(mask, numbers[target]) for mask, target in edges[state]])
    return kept, {numbers[state] for state in accepting if state in numbers}
