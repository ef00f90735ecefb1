"""Minimal automata of lists of texts."""

from __future__ import annotations

from collections.abc import Iterable

from llamacy.grammar.alphabet import Alphabet, sets_of
from llamacy.grammar.charset import CharSet
from llamacy.grammar.table import MAX_STATES, Normal, spelled, too_large


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
            key = (state in accepting, *edges[state].items())
            twin = shared.setdefault(key, state)
            if twin != state:
                edges[path[-1]][last[len(path) - 1]] = twin
                edges[state] = {}
                accepting.discard(state)
                spare.append(state)

    for text in sorted(set(texts)):
        common = 0
        for mine, theirs in zip(text, last):  # noqa: B905
            if mine != theirs:
                break
            common += 1
        share(common)
        for position in range(common, len(text)):
            char = text[position]
            if "\ud800" <= char <= "\udfff":
                raise ValueError(
                    f"{text!r} has the surrogate {char!r} at position {position}, which is no character; "
                    "give a text that can be encoded as UTF-8"
                )
            if spare:
                state = spare.pop()
            else:
                state = len(edges)
                edges.append({})
                if state >= MAX_STATES:
                    raise too_large()
            edges[path[-1]][char] = state
            path.append(state)
        accepting.add(path[-1])
        last = text
    share(0)
    grouped: list[list[tuple[CharSet, int]]] = []
    sets: dict[str, CharSet] = {}
    for out in edges:
        by_target: dict[int, str] = {}
        for char, target in out.items():
            by_target[target] = by_target.get(target, "") + char
        for group in by_target.values():
            if group not in sets:
                sets[group] = CharSet.of(group)
        grouped.append([(sets[group], target) for target, group in by_target.items()])
    alphabet = Alphabet(sets_of(grouped))
    return spelled(alphabet.masked(grouped), accepting, alphabet)
