"""Transition tables: what automata are while they are being computed.

Their edges carry masks of an `Alphabet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llamacy.errors import AutomatonSizeError
from llamacy.grammar.alphabet import Alphabet, MaskEdges
from llamacy.grammar.charset import CharSet
from llamacy.grammar.work import spend, steps_left, too_much

Normal = tuple[tuple[tuple[tuple[CharSet, int], ...], ...], frozenset[int]]

MAX_STATES = 20_000
# of `llamacy.grammar.work`: members of sets that are looked at in a step, and how many states make all sets slower
_READS_A_STEP = 5
_WIDE = 4096
_SMALL = 1 << 60


def too_large(what: str = "states") -> AutomatonSizeError:
    """Make the error for an automaton that outgrows a limit."""
    return AutomatonSizeError(
        f"the automaton needs more than {MAX_STATES} {what}; "
        "use smaller repeat counts, fewer alternatives that overlap, or a shorter list of words"
    )


def determinise(
    moves: Sequence[Sequence[tuple[int, int]]],
    start: int,
    accepting: int,
    universal: int = 0,
    chains: Sequence[tuple[int, bool]] = (),
) -> tuple[MaskEdges, set[int]]:
    """Turn a nondeterministic table into a deterministic one.

    Parameters
    ----------
    moves
        For each state the masks that it can read, each with the set of states (as bits) that it then is in.
    start, accepting
        Sets of states, as bits.
    universal
        States that accept all texts, as bits: a subset with one of them needs no other.
    chains
        Sets of states, as bits, of which the highest (True) or lowest (False) in a subset accepts all that the others
        accept.

    Returns
    -------
    tuple
        Edges and accepting states of a table whose states are all reachable; state 0 starts.

    Raises
    ------
    AutomatonSizeError
        More than `MAX_STATES` states, or too many steps.
    """
    if start & universal:
        start = universal & -universal
    reducer = _Reducer(chains, len(moves)) if chains else None
    numbers: dict[int | bytes, int] = {_key(start): 0}
    subsets = [start]
    edges: MaskEdges = []
    accepted: set[int] = set()
    n_read = 0
    n_steps = 0
    # sets of many states take longer to make and compare
    each = 1 + len(moves) // _WIDE
    allowed = steps_left()
    for subset in subsets:
        if subset & accepting:
            accepted.add(len(edges))
        merged: dict[int, int] = {}
        members = _members(subset)
        n_read += len(members)
        for member in members:
            for mask, targets in moves[member]:
                merged[mask] = merged.get(mask, 0) | targets
        out: list[tuple[int, int]] = []
        for mask, targets in merged.items() if len(merged) < 2 else _disjoint(merged):
            if targets & universal:
                targets = universal & -universal
            elif reducer is not None:
                targets = reducer.reduced(targets)
            key = targets if targets < _SMALL else _key(targets)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(subsets)
                if number >= MAX_STATES:
                    spend(n_steps)
                    raise too_large()
                subsets.append(targets)
            out.append((mask, number))
        edges.append(out)
        n_steps += each * (1 + len(out))
        if n_steps + (n_read + (reducer.n_read if reducer else 0)) // _READS_A_STEP > allowed:
            raise too_much()
    spend(n_steps + (n_read + (reducer.n_read if reducer else 0)) // _READS_A_STEP)
    return edges, accepted


def _key(subset: int) -> int | bytes:
    """Give what to look a subset up by: powers of two, as `int`s, have but 61 hashes."""
    return subset if subset < _SMALL else subset.to_bytes((subset.bit_length() + 7) // 8, "little")


class _Reducer:
    """Leaves out states beside which another one is enough.

    Parameters
    ----------
    chains
        As for `determinise`.
    n_states
        How many states there are.

    Attributes
    ----------
    n_read
        How many states or chains were looked at.
    """

    def __init__(self, chains: Sequence[tuple[int, bool]], n_states: int) -> None:
        self._chains = chains
        self._all = 0
        self._of_state: list[list[int]] = [[] for _ in range(n_states)]
        self.n_read = 0
        for number, (chain, _) in enumerate(chains):
            self._all |= chain
            for state in _members(chain):
                self._of_state[state].append(number)

    def reduced(self, subset: int) -> int:
        """Return a set of states without those that aren't needed."""
        held = subset & self._all
        n_held = held.bit_count()
        if n_held < 2:
            return subset
        numbers: Iterable[int] = range(len(self._chains))
        if n_held < len(self._chains):
            # few states in many chains, which is what loops inside of loops lead to
            once: set[int] = set()
            more: set[int] = set()
            for state in _members(held):
                self.n_read += len(self._of_state[state])
                for number in self._of_state[state]:
                    (more if number in once else once).add(number)
            numbers = sorted(more)
        for number in numbers:
            self.n_read += 1
            chain, highest = self._chains[number]
            held = subset & chain
            if held & (held - 1):
                subset ^= held ^ (1 << held.bit_length() - 1 if highest else held & -held)
        return subset


def _members(subset: int) -> list[int]:
    found = []
    if subset < _SMALL:
        while subset:
            lowest = subset & -subset
            found.append(lowest.bit_length() - 1)
            subset ^= lowest
        return found
    digits = f"{subset:b}"[::-1]  # arithmetic would go through all of a long number for each of its bits
    at = digits.find("1")
    while at >= 0:
        found.append(at)
        at = digits.find("1", at + 1)
    return found


def _disjoint(moves: dict[int, int]) -> Iterable[tuple[int, int]]:
    """Split masks until none overlaps another; a piece leads to all that the masks around it lead to."""
    parts: list[tuple[int, int]] = []
    seen = 0
    for mask, targets in moves.items():
        if not mask & seen:
            parts.append((mask, targets))
            seen |= mask
            continue
        split: list[tuple[int, int]] = []
        for part, part_targets in parts:
            both = part & mask
            if both:
                split.append((both, part_targets | targets))
            if part != both:
                split.append((part ^ both, part_targets))
        if mask & ~seen:
            split.append((mask & ~seen, targets))
        parts = split
        seen |= mask
    return parts


def minimise(edges: MaskEdges, accepting: set[int]) -> tuple[MaskEdges, set[int]] | None:
    """Merge the states of a deterministic table that accept the same texts, and drop those that accept none.

    Parameters
    ----------
    edges, accepting
        A table whose states are all reachable from state 0. Several edges of a state may have the same target.

    Returns
    -------
    tuple or None
        The least table of the same language, one edge a target, in no particular order but for state 0, which starts;
        None when the language is empty.
    """
    sources: list[list[int]] = [[] for _ in edges]
    for state, out in enumerate(edges):
        for _, target in out:
            sources[target].append(state)
    alive = [False] * len(edges)
    for state in accepting:
        alive[state] = True
    queue = list(accepting)
    while queue:
        for state in sources[queue.pop()]:
            if not alive[state]:
                alive[state] = True
                queue.append(state)
    if not alive[0]:
        return None
    if not all(alive):
        edges = [[edge for edge in out if alive[edge[1]]] if alive[state] else [] for state, out in enumerate(edges)]
    class_of = _classes(edges, accepting, sources, alive)
    # Classes in the order of their first states, so that state 0 stays the first.
    order: dict[int, int] = {}
    kept: list[int] = []
    for state, number in enumerate(class_of):
        if alive[state] and number not in order:
            order[number] = len(kept)
            kept.append(state)
    least: MaskEdges = []
    for state in kept:
        merged: dict[int, int] = {}
        for mask, target in edges[state]:
            number = order[class_of[target]]
            merged[number] = merged.get(number, 0) | mask
        least.append([(mask, number) for number, mask in merged.items()])
    return least, {number for number, state in enumerate(kept) if state in accepting}


def _classes(edges: MaskEdges, accepting: set[int], sources: list[list[int]], alive: list[bool]) -> list[int]:
    """Find the class of each living state: equal numbers mean equal languages.

    A state's signature is what it reads on the way to which class. Only states with an edge into a class that was split
    are looked at again, and of a class that is split the largest part keeps the number, so a state's number changes a
    logarithmic number of times.
    """
    class_of = [0 if state in accepting else 1 for state in range(len(edges))]
    members: list[set[int]] = [set(accepting), {s for s, live in enumerate(alive) if live and s not in accepting}]
    # The signature that the members have which are not waiting to be looked at again.
    settled: list[object] = [None, None]
    waiting: dict[int, set[int]] = {number: set(group) for number, group in enumerate(members) if group}
    n_steps = 0
    allowed = steps_left()
    while waiting:
        if n_steps > allowed:
            raise too_much()
        number, touched = waiting.popitem()
        groups: dict[object, list[int]] = {}
        for state in touched:
            out = edges[state]
            n_steps += 1 + len(out) // 2
            signature: object
            if len(out) == 1:
                mask, target = out[0]
                signature = (class_of[target], mask)
            else:
                reads: dict[int, int] = {}
                for mask, target in out:
                    reads[class_of[target]] = reads.get(class_of[target], 0) | mask
                signature = next(iter(reads.items())) if len(reads) == 1 else frozenset(reads.items())
            group = groups.get(signature)
            if group is None:
                groups[signature] = [state]
            else:
                group.append(state)
        n_calm = len(members[number]) - len(touched)
        if n_calm:
            # Those that still have the signature of the untouched states stay with them.
            n_calm += len(groups.pop(settled[number], ()))
        if not groups:
            continue
        largest = max(groups, key=lambda signature: len(groups[signature]))
        if n_calm >= len(groups[largest]):
            moving = groups
        elif n_calm:
            keep = set(groups.pop(largest))
            calm = members[number].difference(keep, *groups.values())
            moving = {settled[number]: list(calm), **groups}
            settled[number] = largest
        else:
            del groups[largest]
            moving = groups
            settled[number] = largest
        changed: list[int] = []
        for signature, group in moving.items():
            members[number].difference_update(group)
            for state in group:
                class_of[state] = len(members)
            members.append(set(group))
            settled.append(signature)
            changed.extend(group)
        for state in changed:
            for source in sources[state]:
                if alive[source]:
                    waiting.setdefault(class_of[source], set()).add(source)
    spend(n_steps)
    return class_of


def normal_form(edges: MaskEdges, accepting: set[int], alphabet: Alphabet) -> Normal:
    """Minimise a deterministic table whose states are all reachable, and spell it."""
    spend(len(edges) + sum(map(len, edges)))
    table = minimise(edges, accepting)
    return (((),), frozenset()) if table is None else spelled(*table, alphabet)


def spelled(edges: MaskEdges, accepting: set[int], alphabet: Alphabet) -> Normal:
    """Write a table with sets of characters, its states numbered breadth first along edges in order of character."""
    spell = alphabet.spell
    numbers = {0: 0}
    queue = [0]
    spelled_edges: list[tuple[tuple[CharSet, int], ...]] = []
    for state in queue:
        out = [(spell(mask), target) for mask, target in edges[state]]
        if len(out) > 1:
            out.sort(key=_first)
        for position, (charset, target) in enumerate(out):
            number = numbers.get(target)
            if number is None:
                number = numbers[target] = len(queue)
                queue.append(target)
            out[position] = (charset, number)
        spelled_edges.append(tuple(out))
    return tuple(spelled_edges), frozenset(number for state, number in numbers.items() if state in accepting)


def _first(edge: tuple[CharSet, int]) -> int:
    return edge[0][0][0]
