"""What tests of the disk store run in processes of their own: ``python -m tests.checkpoint.processes WHAT DIR …``."""

from __future__ import annotations

import random
import sys
from hashlib import shake_128
from pathlib import Path

import numpy as np

from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.fingerprint import Fingerprint
from llamacy.checkpoint.prefix import Prefix
from llamacy.checkpoint.snapshot import Snapshot

FACTS = Fingerprint({"architecture": "test", "n_vocab": 16})


def snapshot_of(
    tokens: list[int], *, n_state_bytes: int = 2000, logits: bool = True, facts: Fingerprint = FACTS
) -> Snapshot:
    """Return a snapshot whose state and logits follow from its tokens, so that anybody can tell a wrong one."""
    prefix = Prefix(tokens)
    state = shake_128(facts.digest + prefix.elements).digest(n_state_bytes)
    row = np.frombuffer(shake_128(state).digest(16), np.uint8).astype(np.float32) if logits else None
    return Snapshot(facts, prefix, state, row)


def is_right(snapshot: Snapshot) -> bool:
    """Return whether state and logits are those of the tokens."""
    made = snapshot_of(snapshot.prefix.tokens.tolist(), n_state_bytes=len(snapshot.state), facts=snapshot.fingerprint)
    return snapshot.state == made.state and (snapshot.logits is None or snapshot.logits == made.logits)


def write_numbered(directory: Path, number: int) -> None:
    """Store that many snapshots, and print the number of each when it is stored."""
    store = DiskStore(directory)
    for index in range(number):
        store.put(snapshot_of([index % 16, index // 16], n_state_bytes=200_000))
        print(index, flush=True)


def work(directory: Path, seed: int, number: int) -> None:
    """Store, find and remove at random, in little room; print how often something was found."""
    chosen = random.Random(seed)
    store = DiskStore(directory, capacity_bytes=40_000)
    n_hits = 0
    for _ in range(number):
        tokens = [chosen.randrange(2) for _ in range(chosen.randrange(1, 7))]
        action = chosen.random()
        if action < 0.45:
            logits = chosen.random() < 0.5
            store.put(snapshot_of(tokens, logits=logits), can_cut=chosen.random() < 0.1)
        elif action < 0.95:
            can_cut = chosen.random() < 0.5
            hit = store.get(FACTS, Prefix(tokens), can_cut=can_cut)
            if hit is not None:
                n_hits += 1
                n = hit.n_elements
                assert is_right(hit.snapshot)
                assert hit.snapshot.prefix.tokens.tolist()[:n] == tokens[:n]
                assert can_cut or len(hit.snapshot.prefix) == n
        else:
            store.remove(snapshot_of(tokens))
    assert store.stats.n_corrupt == 0
    print(n_hits)


if __name__ == "__main__":
    what, folder, *numbers = sys.argv[1:]
    {"write": write_numbered, "work": work}[what](Path(folder), *map(int, numbers))
