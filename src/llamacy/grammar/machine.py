"""Automata of machines that are written as functions.

Some languages are easier said as "what may follow after this much was read" than as a regular expression: numbers
beside a bound, remainders of a division, host names with limits on length. `tabulate` walks such a machine from its
start and numbers the states that it meets.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from llamacy.grammar.automaton import Dfa, from_edges
from llamacy.grammar.charset import CharSet
from llamacy.grammar.table import MAX_STATES, too_large
from llamacy.grammar.work import spend

# of `llamacy.grammar.work`: for a move
_STEPS = 3

State = TypeVar("State", bound=Hashable)


def tabulate(
    start: State, step: Callable[[State], Iterable[tuple[CharSet, State]]], accepts: Callable[[State], bool]
) -> Dfa:
    """Make the automaton of a machine given by its moves.

    Parameters
    ----------
    start
        The state before the first character.
    step
        Gives the moves out of a state: characters, and the state that they lead to. The sets of one state don't
        overlap; a character in none of them ends the reading.
    accepts
        Says whether a text may end in a state.

    Raises
    ------
    AutomatonSizeError
        More than `MAX_STATES` states are within reach.
    """
    numbers = {start: 0}
    states = [start]
    edges: list[list[tuple[CharSet, int]]] = []
    for state in states:  # grows while it is walked
        row: list[tuple[CharSet, int]] = []
        for characters, target in step(state):
            number = numbers.get(target)
            if number is None:
                number = numbers[target] = len(states)
                if number >= MAX_STATES:
                    raise too_large()
                states.append(target)
            row.append((characters, number))
        spend(_STEPS * (1 + len(row)))
        edges.append(row)
    return from_edges(edges, [number for number, state in enumerate(states) if accepts(state)])
