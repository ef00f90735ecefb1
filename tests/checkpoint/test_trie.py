"""The trie against a dictionary and a search through all of it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from llamacy.checkpoint.prefix import ELEMENT
from llamacy.checkpoint.trie import Match, Trie

# few values, of which some share bytes, so that keys share beginnings
KEYS = st.lists(st.sampled_from([0, 1, 256, 1 << 24, -1]), max_size=8)


def elements(key: Any) -> bytes:
    return np.array(key, np.int32).tobytes()


def n_common(left: list[int], right: list[int]) -> int:
    n = 0
    while n < min(len(left), len(right)) and left[n] == right[n]:
        n += 1
    return n


class TrieMachine(RuleBasedStateMachine):
    """Does the same to a trie and a dictionary, and asks both."""

    keys: Bundle[list[int]] = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.trie: Trie[int] = Trie()
        self.known: dict[tuple[int, ...], int] = {}

    @rule(target=keys, key=KEYS, value=st.integers())
    def insert(self, key: list[int], value: int) -> list[int]:
        assert self.trie.insert(elements(key), value) == self.known.get(tuple(key))
        self.known[tuple(key)] = value
        return key

    @rule(key=keys | KEYS)
    def remove(self, key: list[int]) -> None:
        assert self.trie.remove(elements(key)) == self.known.pop(tuple(key), None)

    @rule(key=keys | KEYS)
    def get(self, key: list[int]) -> None:
        assert self.trie.get(elements(key)) == self.known.get(tuple(key))
        assert (elements(key) in self.trie) == (tuple(key) in self.known)

    @rule(start=keys | KEYS, end=KEYS)
    def search(self, start: list[int], end: list[int]) -> None:
        query = start + end
        scan = [(n_common(query, list(key)), key) for key in self.known]
        whole = [(n, key) for n, key in scan if n == len(key)]
        expected = None
        if whole:
            n, key = max(whole, key=lambda found: found[0])
            expected = Match(n, self.known[key], n)
        assert self.trie.longest_prefix(elements(query)) == expected
        part = [(-n, len(key), elements(key), key) for n, key in scan if n]
        expected = None
        if part:
            n, n_key, _, key = min(part)
            expected = Match(-n, self.known[key], n_key)
        assert self.trie.longest_common(elements(query)) == expected

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.trie) == len(self.known)
        assert dict(self.trie.items()) == {elements(key): value for key, value in self.known.items()}
        assert self.trie.n_nodes <= 2 * len(self.known)
        assert self.trie.n_bytes <= ELEMENT * sum(map(len, self.known))


TestTrie = TrieMachine.TestCase
TestTrie.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_random_tries_find_what_a_scan_finds_and_stay_compressed() -> None:
    chosen = random.Random(0)
    for _ in range(300):
        keys = {tuple(chosen.randrange(2) for _ in range(chosen.randrange(8))) for _ in range(12)}
        trie: Trie[tuple[int, ...]] = Trie()
        for key in chosen.sample(sorted(keys), len(keys)):
            trie.insert(elements(key), key)
        for key in chosen.sample(sorted(keys), chosen.randrange(len(keys) + 1)):
            assert trie.remove(elements(key)) == key
            keys.discard(key)
            # ends of keys, and places where keys part
            places = {key[:n] for key in keys for n in range(1, len(key) + 1)}
            parting = {place for place in places if {(*place, 0), (*place, 1)} <= places}
            assert trie.n_nodes == len((keys | parting) - {()})
        for _ in range(20):
            query = tuple(chosen.randrange(2) for _ in range(chosen.randrange(9)))
            scan = [(-n_common([*query], [*key]), len(key), key) for key in keys]
            best = min((found for found in scan if found[0]), default=None)
            expected = None if best is None else Match(-best[0], best[2], best[1])
            assert trie.longest_common(elements(query)) == expected


def test_nodes_and_bytes_are_of_what_keys_do_not_share() -> None:
    rng = np.random.default_rng(0)
    shared = rng.integers(0, 1000, 2000).tolist()
    trie: Trie[int] = Trie()
    for number in range(50):
        trie.insert(elements(shared + [number] * 10), number)
    # one edge for what they share, one for each end
    assert trie.n_nodes == 51
    assert trie.n_bytes == ELEMENT * (2000 + 50 * 10)


def test_result_does_not_depend_on_the_order_of_keys() -> None:
    rng = np.random.default_rng(1)
    keys = [elements(rng.integers(0, 2, rng.integers(1, 9))) for _ in range(60)]
    queries = [elements(rng.integers(0, 2, rng.integers(1, 9))) for _ in range(60)]
    answers = []
    for _ in range(4):
        trie: Trie[bytes] = Trie()
        for key in rng.permutation(np.array(keys, object)):
            trie.insert(key, key)
        for key in keys[::3]:
            trie.remove(key)
        answers.append([trie.longest_common(query) for query in queries])
    assert answers[0] == answers[1] == answers[2] == answers[3]
