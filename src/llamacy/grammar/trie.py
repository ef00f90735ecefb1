"""Minimal automata of lists of texts."""

from __future__ import annotations

from collections.abc import Iterable

from llamacy.grammar.charset import CharSet
from llamacy.grammar.table import MAX_STATES, Normal, too_large


def word_table(texts: Iterable[str]) -> Normal:
    """Accept some texts and no others; there must be one.

    Daciuk, Mihov, Watson and Watson (2000), "Incremental construction of minimal acyclic finite-state automata": in
    sorted order only the path of the last text can still change; all other states are final and shared.
    """
    edges: list[dict[str, int]] = [{}]
    accepting: set[int] = set()
    shared: dict[tuple[object, ...], int] = {}
    spare: list[int] = []
    path = [0]
    last = ""

    def share(depth: int) -> None:
        while len(path) > depth + 1:
            state = path.pop()
            out = edges[state]
            twin = shared.setdefault((state in accepting, *out.items()), state)
            if twin != state:
                edges[path[-1]][last[len(path) - 1]] = twin
                out.clear()
                accepting.discard(state)
                spare.append(state)

    for text in sorted(set(texts)):
        if not text.isascii():
            _refuse_surrogates(text)
        common = 0
        for mine, theirs in zip(text, last):  # noqa: B905
            if mine != theirs:
                break
            common += 1
        share(common)
        here = edges[path[-1]]
        for char in text[common:]:
            if spare:
                state = spare.pop()
            else:
                state = len(edges)
                edges.append({})
                if state >= MAX_STATES:
                    raise too_large()
            here[char] = state
            here = edges[state]
            path.append(state)
        accepting.add(path[-1])
        last = text
    share(0)
    return _spelled(edges, accepting)


def _refuse_surrogates(text: str) -> None:
    for position, char in enumerate(text):
        if "\ud800" <= char <= "\udfff":
            raise ValueError(
                f"{text!r} has the surrogate {char!r} at position {position}, which is no character; "
                "give a text that can be encoded as UTF-8"
            )


def _spelled(edges: list[dict[str, int]], accepting: set[int]) -> Normal:
    """Write edges of single characters, which are in order, as `llamacy.grammar.table.spelled` would."""
    sets: dict[str, CharSet] = {}
    numbers = {0: 0}
    queue = [0]
    table: list[tuple[tuple[CharSet, int], ...]] = []
    for state in queue:
        groups: dict[int, str] = {}
        for char, target in edges[state].items():
            groups[target] = groups[target] + char if target in groups else char
        row = []
        for target, chars in groups.items():
            characters = sets.get(chars)
            if characters is None:
                characters = sets[chars] = CharSet.of(chars)
            number = numbers.get(target)
            if number is None:
                number = numbers[target] = len(queue)
                queue.append(target)
            row.append((characters, number))
        table.append(tuple(row))
    return tuple(table), frozenset([numbers[state] for state in accepting])
