"""Texts that an automaton accepts, chosen so that they use all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random

from llamacy.grammar.automaton import Dfa
from llamacy.grammar.charset import CharSet


def walks(language: Dfa, random: Random, n_random: int = 500) -> Iterator[str]:
    """Yield texts that together read both ends of every edge's ranges, and some from walks at random.

    Parameters
    ----------
    language
        A language that isn't empty.
    random
        Chooses characters and edges.
    n_random
        How many walks at random.
    """
    heads = _heads(language, random)
    tails = _tails(language, random)
    for state, out in enumerate(language.edges):
        for characters, target in out:
            low, high = random.choice(characters)
            for point in sorted({characters[0][0], characters[-1][1], low, high, random.randint(low, high)}):
                yield heads[state] + chr(point) + tails[target]
    for _ in range(n_random):
        text, state = "", 0
        for _ in range(random.randint(0, 120)):
            if not language.edges[state]:
                break
            characters, state = random.choice(language.edges[state])
            text += _one(characters, random)
        yield text + tails[state]


def _heads(language: Dfa, random: Random) -> dict[int, str]:
    """Return for each state a shortest text that leads to it."""
    heads = {0: ""}
    queue = deque([0])
    while queue:
        state = queue.popleft()
        for characters, target in language.edges[state]:
            if target not in heads:
                heads[target] = heads[state] + _one(characters, random)
                queue.append(target)
    return heads


def _tails(language: Dfa, random: Random) -> dict[int, str]:
    """Return for each state a shortest text that is accepted from there."""
    tails = dict.fromkeys(sorted(language.accepting), "")
    queue = deque(tails)
    sources: dict[int, list[tuple[int, CharSet]]] = {}
    for state, out in enumerate(language.edges):
        for characters, target in out:
            sources.setdefault(target, []).append((state, characters))
    while queue:
        target = queue.popleft()
        for state, characters in sources.get(target, ()):
            if state not in tails:
                tails[state] = _one(characters, random) + tails[target]
                queue.append(state)
    return tails


def _one(characters: CharSet, random: Random) -> str:
    low, high = random.choice(characters)
    return chr(random.choice((low, high, random.randint(low, high))))
