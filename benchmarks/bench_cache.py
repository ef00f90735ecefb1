"""Prompt caches: searching in many prompts, saving and restoring, and chats that grow, alone and taking turns.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness.chats import Chat, Setting, TokenChat, Told, cache_worker, hold_chats, settings
from harness.models import add_model_argument, model_path
from harness.table import print_table, progress
from harness.worker import share_cpu
from native.build import build

from llamacy.checkpoint.prefix import ELEMENT, Prefix, common_length
from llamacy.checkpoint.trie import Trie

_PROMPTS = 10_000
_TOKENS = 4_000
_SEARCHES = 200
_SCAN_MOST = 1 / 50
_ROUNDS = 200
_STATE_TOKENS = 512
# the last ones that are kept, as in native/state.cpp
_KEPT = 4
_NATIVE_MOST = 1.1
_BYTES_MOST = 1.05
_PEER_LEAST = 8.0
_REUSED_LEAST = 0.95
_TURNS_MOST = 1.1
_HYBRID = Path(__file__).resolve().parent.parent / "tests" / "data" / "qwen35.gguf"


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


def bench_trie(_: argparse.Namespace) -> bool:
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
            ("search / scan", f"{ratio:.5f}, promised {_SCAN_MOST:.2f}{_said(kept)}"),
            ("nodes", f"{trie.n_nodes:,}"),
            ("elements on edges / elements", f"{trie.n_bytes / sum(map(len, known)):.3f}"),
        ]
    )
    return kept


def _said(kept: bool) -> str:
    return "" if kept else "  MISSED"


@contextmanager
def native_state(path: Path, tokens: np.ndarray[Any, Any]) -> Iterator[Callable[[str], float]]:
    """Give a function that returns the seconds of a call of native/state.cpp, on a context of its own."""
    library = ctypes.CDLL(str(build("state", library=True)))
    library.state_open.restype = ctypes.c_void_p
    ids = tokens.ctypes.data_as(ctypes.c_void_p)
    handle = ctypes.c_void_p(library.state_open(str(path).encode(), 1024, ids, len(tokens)))
    if not handle:
        raise SystemExit(f"{path} can't be loaded")

    def call(name: str) -> float:
        function = getattr(library, f"state_{name}")
        function.restype = ctypes.c_double
        took = float(function(handle))
        if took < 0:
            raise SystemExit(f"state_{name} failed")
        return took

    try:
        yield call
    finally:
        library.state_close(handle)


def bench_snapshot(arguments: argparse.Namespace) -> bool:
    """Compare snapshots of a sequence with the native calls, in one process; return whether the promises are kept."""
    from llamacy.checkpoint.disk import DiskStore
    from llamacy.checkpoint.snapshot import Snapshot
    from llamacy.core.batch import Batch
    from llamacy.core.context import Context
    from llamacy.core.model import Model

    progress("snapshot: prompt")
    path = model_path(arguments)
    tokens = np.random.default_rng(2).integers(0, 49_152, _STATE_TOKENS, dtype=np.int32)
    with (
        Model(path) as model,
        Context(model, n_ctx=1024, n_threads=1, n_threads_batch=1) as context,
        Batch(_STATE_TOKENS) as batch,
        tempfile.TemporaryDirectory() as folder,
        native_state(path, tokens) as native,
    ):
        batch.extend(tokens, 0, 0)
        context.decode(batch)
        prefix = Prefix(tokens)
        row = context.logits(-1).copy()
        state = context.state.seq_get(0)
        snapshot = Snapshot.take(context, prefix, logits=row)
        store = DiskStore(folder)
        last: deque[Snapshot] = deque(maxlen=_KEPT)

        def take(**options: Any) -> float:
            if len(last) == _KEPT:
                last.popleft()
            return seconds(lambda: last.append(Snapshot.take(context, prefix, **options)))

        calls: dict[str, Callable[[], float]] = {
            "native save": lambda: native("get"),
            # the same bytes; then with the logits, which the native call leaves out
            "take": take,
            "take with logits": lambda: take(logits=row),
            "native restore": lambda: native("set"),
            "restore": lambda: seconds(lambda: snapshot.restore(context)),
            "memcpy": lambda: native("copy"),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        shuffled, names = random.Random(3), list(calls)
        for number in range(_ROUNDS):
            progress(f"snapshot: round {number + 1}")
            # what came before is in the caches of the CPU
            shuffled.shuffle(names)
            for name in names:
                times[name].append(calls[name]())
        disk = [seconds(lambda: store.put(snapshot)), seconds(lambda: store.restore(context, prefix))]
    progress()
    medians = {name: median(values) for name, values in times.items()}
    bytes_ratio = snapshot.n_bytes / len(state)
    pairs = {"take": "native save", "restore": "native restore"}
    ratios = {name: medians[name] / medians[other] for name, other in pairs.items()}
    kept = max(ratios.values()) <= _NATIVE_MOST and bytes_ratio <= _BYTES_MOST
    print_table(
        [
            ("snapshot", f"SmolLM2, {len(tokens)} tokens, {len(state) / 1e6:.1f} MB"),
            *((name, _milliseconds(value)) for name, value in medians.items()),
            *((f"{name} / native", f"{value:.3f}, promised {_NATIVE_MOST}") for name, value in ratios.items()),
            ("bytes / native", f"{bytes_ratio:.3f}, promised {_BYTES_MOST}"),
            ("to disk, from disk", ", ".join(map(_milliseconds, disk))),
            ("", _said(kept)),
        ]
    )
    return kept


def bench_state(arguments: argparse.Namespace) -> bool:
    """Compare `save_state` and `load_state` with those of the peer, in turn; return whether the promise is kept."""
    if arguments.llama_cpp_python is None:
        return True
    path, rounds = model_path(arguments), 10
    python = str(arguments.llama_cpp_python / "bin" / "python")
    compared = [Setting("llamacy", "none"), Setting("llama-cpp-python", "none", python)]
    times: dict[str, dict[str, list[float]]] = {}
    with (
        cache_worker(compared[0], path, 1024) as own,
        cache_worker(compared[1], path, 1024) as peer,
    ):
        share_cpu((own, peer), 0)
        for worker in (own, peer):
            progress(f"state: {worker.name}")
            worker.ask(json.dumps({"do": "open", "cache": "none", "folder": ""}))
            prompt = Chat(0).first(_STATE_TOKENS)
            worker.ask(json.dumps({"do": "ask", "prompt": prompt, "max_tokens": 1}))
            times[worker.name] = {"save_s": [], "load_s": []}
        for _ in range(rounds):
            for worker in (own, peer):
                for name, value in worker.ask(json.dumps({"do": "state", "rounds": 5})).items():
                    times[worker.name][name].append(value)
    progress()
    lines = [(f"states of {_STATE_TOKENS} tokens", "llamacy", "llama-cpp-python", "times as fast")]
    kept = True
    for name, call in (("save_s", "save_state"), ("load_s", "load_state")):
        mine, theirs = (median(times[setting.name][name]) for setting in compared)
        good = theirs / mine >= _PEER_LEAST
        told = f"{theirs / mine:.1f}, promised {_PEER_LEAST:g}{_said(good)}"
        lines.append((call, _milliseconds(mine), _milliseconds(theirs), told))
        kept = kept and good
    print_table(lines)
    return kept


def bench_chats(arguments: argparse.Namespace) -> bool:
    """Hold chats with SmolLM2 with each kind of cache, and with that of the peer; return whether promises are kept."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for setting in settings(arguments.llama_cpp_python):
            rows.append((setting, hold_chats(setting, model_path(arguments), Path(folder))))
    return _print_chats("SmolLM2", rows)


def bench_hybrid(_: argparse.Namespace) -> bool:
    """Hold chats with a hybrid model that is too small to tell times; return whether the promises are kept."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for setting in settings(None):
            rows.append((setting, hold_chats(setting, _HYBRID, Path(folder), kind=TokenChat)))
    return _print_chats("a tiny hybrid model", rows, timed=False)


def _print_chats(title: str, rows: list[tuple[Setting, dict[str, Told]]], *, timed: bool = True) -> bool:
    """Print what chats told; return whether llamacy's kept the promises."""
    lines = [
        (
            f"chats of 1,000 to 2,000 tokens, {title}", "alone, first", "alone", "taking turns", "ratio", "reused",
            "stored MB", "resident MB a turn", "",
        )
    ]  # fmt: skip
    all_kept = True
    for setting, told in rows:
        alone, both = told["alone"], (told["first"], told["second"])
        ratio = median(
            turn / single for chat in both for turn, single in zip(chat.first_s(), alone.first_s(), strict=True)
        )
        reused = min(share for chat in told.values() for share in chat.reused())
        kept = reused >= _REUSED_LEAST and (not timed or ratio <= _TURNS_MOST)
        first, last = alone.turns[1], alone.turns[-1]
        growth = (last["n_resident"] - first["n_resident"]) / (len(alone.turns) - 2)
        lines.append(
            (
                setting.name,
                f"{alone.turns[0]['first_s']:.2f} s",
                f"{sum(alone.first_s()):.3f} s",
                f"{sum(sum(chat.first_s()) for chat in both) / 2:.3f} s",
                f"{ratio:.3f}",
                f"{reused:.1%}",
                f"{both[1].turns[-1]['n_stored'] / 1e6:.1f}",
                f"{growth / 1e6:+.1f}",
                _said(kept) if setting.package == "llamacy" else "",
            )
        )
        all_kept = all_kept and (kept or setting.package != "llamacy")
    print_table(lines)
    print(
        f"seconds until the first text: of the first turn, then of {len(alone.turns) - 1} turns together; promised: "
        f"{_REUSED_LEAST:.0%} reused" + (f", ratio (median of the turns) {_TURNS_MOST}" if timed else "")
    )
    return all_kept


_PARTS = {
    "trie": bench_trie, "snapshot": bench_snapshot, "state": bench_state, "chats": bench_chats, "hybrid": bench_hybrid,
}  # fmt: skip


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_model_argument(parser)
    parser.add_argument("--llama-cpp-python", type=Path, metavar="VENV", help="measure this peer too")
    parser.add_argument("parts", nargs="*", choices=[[], *_PARTS], help="all by default")
    arguments = parser.parse_args()
    kept = [_PARTS[name](arguments) for name in arguments.parts or _PARTS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
