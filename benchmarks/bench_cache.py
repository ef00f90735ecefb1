"""Prompt caches: searching in many prompts, and what a snapshot adds to the native calls.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from harness.table import print_table, progress

from llamacy.checkpoint.prefix import ELEMENT, Prefix, common_length
from llamacy.checkpoint.trie import Trie

_PROMPTS = 10_000
_TOKENS = 4_000
_SEARCHES = 200
_SCAN_MOST = 1 / 50
_ROUNDS = 60
_NATIVE_MOST = 1.1
_BYTES_MOST = 1.05


def prompts(seed: int = 0) -> list[bytes]:
    """Return prompts of chats: a few system prompts, and turns that more and more prompts share the fewer there are."""
    rng = np.random.default_rng(seed)
    vocabulary = 49_152
    parts: dict[tuple[int, int], bytes] = {}

    def part(level: int, number: int, n: int) -> bytes:
        if (level, number) not in parts:
            parts[level, number] = rng.integers(0, vocabulary, n, dtype=np.int32).tobytes()
        return parts[level, number]

    made = []
    for number in range(_PROMPTS):
        # 10 system prompts of 1,000 tokens, 1,000 documents of 2,000, and an end of its own
        shared = part(0, number % 10, 1000) + part(1, number % 1000, 2000)
        made.append(shared + rng.integers(0, vocabulary, _TOKENS - 3000, dtype=np.int32).tobytes())
    return made


def scan(known: list[bytes], query: bytes) -> int:
    """Return how many elements the best of all prompts has in common with a query, after a look at each."""
    best = 0
    for key in known:
        # only one that goes on as far as the best one can be better
        if key[: best * ELEMENT] == query[: best * ELEMENT]:
            best = max(best, common_length(key, query))
    return best


def queries(known: list[bytes], seed: int = 1) -> list[bytes]:
    """Return prompts that begin as known ones do, for some length."""
    chosen = random.Random(seed)
    made = []
    for _ in range(_SEARCHES):
        key = chosen.choice(known)
        n = chosen.choice((500, 1500, 3500, _TOKENS)) * ELEMENT
        made.append(key[:n] + chosen.randbytes(400 * ELEMENT))
    return made


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _milliseconds(value: float) -> str:
    return f"{1000 * value:.4f} ms"


def bench_trie() -> bool:
    """Compare searches in the trie with scans; return whether the promise is kept."""
    progress("trie: prompts")
    known = prompts()
    trie: Trie[int] = Trie()
    inserting = seconds(lambda: [trie.insert(key, number) for number, key in enumerate(known)])
    times: dict[str, list[float]] = {"scan": [], "whole": [], "common": []}
    for number, query in enumerate(queries(known)):
        progress(f"trie: search {number + 1}")
        match = trie.longest_common(query)
        if (match.n_elements if match else 0) != scan(known, query):
            raise SystemExit("trie and scan don't agree")
        times["scan"].append(seconds(lambda query=query: scan(known, query)))  # type: ignore[misc]
        times["common"].append(seconds(lambda query=query: trie.longest_common(query)))  # type: ignore[misc]
        times["whole"].append(seconds(lambda query=query: trie.longest_prefix(query)))  # type: ignore[misc]
    progress()
    medians = {name: median(values) for name, values in times.items()}
    ratio = max(medians["common"], medians["whole"]) / medians["scan"]
    kept = ratio <= _SCAN_MOST
    print_table(
        [
            ("trie", f"{_PROMPTS:,} prompts of {_TOKENS:,} tokens"),
            ("insert, each", _milliseconds(inserting / _PROMPTS)),
            ("scan", _milliseconds(medians["scan"])),
            ("longest common beginning", _milliseconds(medians["common"])),
            ("longest prompt that is a beginning", _milliseconds(medians["whole"])),
            ("search / scan", f"{ratio:.5f}, promised {_SCAN_MOST:.2f}{'' if kept else '  MISSED'}"),
            ("nodes", f"{trie.n_nodes:,}"),
            ("elements on edges / elements", f"{trie.n_bytes / sum(map(len, known)):.3f}"),
        ]
    )
    return kept


def bench_snapshot() -> bool:
    """Compare snapshots of a sequence with the calls of `State` in them; return whether the promises are kept."""
    from llamacy.checkpoint.disk import DiskStore
    from llamacy.checkpoint.snapshot import Snapshot
    from llamacy.core.batch import Batch
    from llamacy.core.context import Context
    from llamacy.core.model import Model
    from llamacy.starter import starter_path

    progress("snapshot: prompt")
    tokens = np.random.default_rng(2).integers(0, 49_152, 512, dtype=np.int32)
    with (
        Model(starter_path("smollm2-135m")) as model,
        Context(model, n_ctx=1024, n_threads=1, n_threads_batch=1) as context,
        Batch(512) as batch,
        tempfile.TemporaryDirectory() as folder,
    ):
        batch.extend(tokens, 0, 0)
        context.decode(batch)
        prefix = Prefix(tokens)
        row = context.logits(-1).copy()
        state = context.state.seq_get(0)
        snapshot = Snapshot.take(context, prefix, logits=row)
        store = DiskStore(folder)
        calls: dict[str, Callable[[], Any]] = {
            "seq_get": lambda: context.state.seq_get(0),
            # the same bytes as the native call; then with the logits, which that leaves out
            "take": lambda: Snapshot.take(context, prefix),
            "take with logits": lambda: Snapshot.take(context, prefix, logits=row),
            "seq_set": lambda: context.state.seq_set(0, state),
            "restore": lambda: snapshot.restore(context),
            "memcpy": lambda: bytearray(state),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(_ROUNDS):
            progress(f"snapshot: round {number + 1}")
            for name, call in calls.items():
                times[name].append(seconds(call))
        disk = [seconds(lambda: store.put(snapshot)), seconds(lambda: store.restore(context, prefix))]
    progress()
    medians = {name: median(values) for name, values in times.items()}
    bytes_ratio = snapshot.n_bytes / len(state)
    ratios = {"take": medians["take"] / medians["seq_get"], "restore": medians["restore"] / medians["seq_set"]}
    kept = max(ratios.values()) <= _NATIVE_MOST and bytes_ratio <= _BYTES_MOST
    print_table(
        [
            ("snapshot", f"SmolLM2, {len(tokens)} tokens, {len(state) / 1e6:.1f} MB"),
            *((name, _milliseconds(value)) for name, value in medians.items()),
            *((f"{name} / native", f"{value:.3f}, promised {_NATIVE_MOST}") for name, value in ratios.items()),
            ("bytes / native", f"{bytes_ratio:.3f}, promised {_BYTES_MOST}"),
            ("to disk, from disk", ", ".join(map(_milliseconds, disk))),
            ("", "" if kept else "MISSED"),
        ]
    )
    return kept


_PARTS = {"trie": bench_trie, "snapshot": bench_snapshot}


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *_PARTS], help="all by default")
    arguments = parser.parse_args()
    kept = [_PARTS[name]() for name in arguments.parts or _PARTS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
