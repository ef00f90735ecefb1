"""What is built of two automata, or of one several times over.

Automata are given by their edges and accepting states, as a `Dfa` has them, and come back in normal form.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from llamacy.grammar.alphabet import Alphabet, Edges, MaskEdges, sets_of
from llamacy.grammar.charset import ANY
from llamacy.grammar.table import MAX_STATES, Normal, determinise, normal_form, spelled, too_large
from llamacy.grammar.work import spend, steps_left, too_much

Parts = tuple[Edges, AbstractSet[int]]


def complement(edges: Edges, accepting: AbstractSet[int]) -> Normal:
    """Accept what a minimal automaton, which doesn't accept everything, refuses."""
    alphabet = Alphabet([*sets_of(edges), ANY])
    full = alphabet.mask[id(ANY)]
    # What accepts every text refuses every text now, and the other way round, so the result is minimal again.
    universal = universal_state(edges, accepting)
    sink = len(edges)
    changed: MaskEdges = []
    for out in alphabet.masked(edges):
        missing = full
        for mask, _ in out:
            missing ^= mask
        kept = [edge for edge in out if edge[1] != universal]
        if missing:
            kept.append((missing, sink))
        changed.append(kept)
    changed.append([(full, sink)])
    spend(sum(map(len, changed)))
    return spelled(changed, set(range(sink + 1)) - accepting, alphabet)


def product(first: Parts, second: Parts, *, left: bool, right: bool, both: bool) -> Normal:
    """Run two automata side by side.

    A text is accepted that both accept if `both`, that only the first accepts if `left`, only the second if `right`.
    """
    first_table, first_accepting = first
    second_table, second_accepting = second
    alphabet = Alphabet(sets_of(first_table, second_table))
    # State -1 of either refuses everything: an empty row at the end of its table.
    first_edges = [*alphabet.masked(first_table), []]
    second_edges = [*alphabet.masked(second_table), []]
    second_covers = [sum(mask for mask, _ in out) for out in second_edges]
    pairs = [(0, 0)]
    numbers = {(0, 0): 0}
    edges: MaskEdges = []
    accepting: set[int] = set()
    n_steps = 0
    allowed = steps_left()
    for one, two in pairs:
        n_steps += 1 + len(first_edges[one]) * len(second_edges[two]) // 16
        if n_steps > allowed:
            raise too_much()
        if one in first_accepting:
            accepts = both if two in second_accepting else left
        else:
            accepts = right and two in second_accepting
        if accepts:
            accepting.add(len(edges))
        found: list[tuple[int, tuple[int, int]]] = []
        beside = second_covers[two]
        for mask, target in first_edges[one]:
            if mask & beside:
                for other_mask, other_target in second_edges[two]:
                    if mask & other_mask:
                        found.append((mask & other_mask, (target, other_target)))
            if left and mask & ~beside:
                found.append((mask & ~beside, (target, -1)))
        if right:
            beside = sum(mask for mask, _ in first_edges[one])
            found.extend((mask & ~beside, (-1, target)) for mask, target in second_edges[two] if mask & ~beside)
        out: list[tuple[int, int]] = []
        for mask, pair in found:
            number = numbers.get(pair)
            if number is None:
                number = numbers[pair] = len(pairs)
                if number >= MAX_STATES:
                    spend(n_steps)
                    raise too_large()
                pairs.append(pair)
            out.append((mask, number))
        n_steps += 2 * len(out)
        edges.append(out)
    spend(n_steps)
    return normal_form(edges, accepting, alphabet)


def concatenation(first: Parts, second: Parts) -> Normal:
    """Accept a text of one automaton followed by a text of another."""
    first_edges, first_accepting = first
    second_edges, second_accepting = second
    alphabet = Alphabet(sets_of(first_edges, second_edges))
    begin = 1 << len(first_edges)
    moves = _passing(alphabet.masked(first_edges), first_accepting, 0, begin)
    moves.extend([(mask, begin << target) for mask, target in out] for out in alphabet.masked(second_edges))
    start = 1 | (begin if 0 in first_accepting else 0)
    universal = universal_state(second_edges, second_accepting)
    accepting = sum(begin << state for state in second_accepting)
    table = determinise(moves, start, accepting, 0 if universal is None else begin << universal)
    return normal_form(*table, alphabet)


def repetition(edges: Edges, accepting: AbstractSet[int], minimum: int, maximum: int | None) -> Normal:
    """Accept `minimum` to `maximum` texts of an automaton in a row; it must have an edge, and `maximum` not be 0."""
    if 0 in accepting:
        minimum = 0
    copies = max(minimum, 1) if maximum is None else maximum
    width = len(edges)
    if copies * sum(map(bool, edges)) > MAX_STATES:
        raise too_large()
    alphabet = Alphabet(sets_of(edges))
    masked = alphabet.masked(edges)
    # Bit 0 is the end, where nothing more is read; done[n] is where one is after n texts.
    done = [(1 << copy * width + 1) | (copy >= minimum) for copy in range(copies)]
    done.append(1 if maximum is not None else done[-1] | 1)
    moves: list[list[tuple[int, int]]] = [[]]
    for copy in range(copies):
        moves.extend(_passing(masked, accepting, copy * width + 1, done[copy + 1]))
    return normal_form(*determinise(moves, done[0], 1), alphabet)


def _passing(edges: MaskEdges, accepting: AbstractSet[int], shift: int, after: int) -> list[list[tuple[int, int]]]:
    """Write a table as moves between sets of states, where reaching an accepting state also reaches those `after`.

    An accepting state that leads nowhere is never reached itself: those after it stand for it.
    """
    reached = [
        (1 << shift + state if out else 0) | (after if state in accepting else 0) for state, out in enumerate(edges)
    ]
    return [[(mask, reached[target]) for mask, target in out] for out in edges]


def universal_state(edges: Edges, accepting: AbstractSet[int]) -> int | None:
    """Find the state that accepts every text; a minimal automaton has one at most."""
    for state in accepting:
        out = edges[state]
        if len(out) == 1 and out[0] == (ANY, state):
            return state
    return None
