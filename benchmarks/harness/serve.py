"""The measured side in Python: the protocol of native/loop.cpp, without anything of llamacy."""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol


@dataclass
class Run:
    """One request, as read from its line."""

    sampler: str
    text: bool
    n_generate: int
    seed: int
    marks: list[int]
    prompt: array[int]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def consume(self, items: Iterator[Any], kept: deque[Any] | list[Any]) -> None:
        """Take all items, one for a token, and note the time at the marks; the loop itself runs in C."""
        at = 0
        for mark in self.marks:
            kept.extend(islice(items, mark - at))
            at = mark
            if len(kept) == mark:
                self.note()
        kept.extend(items)

    def note(self) -> None:
        """Note the time."""
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())


class Engine(Protocol):
    """What a measured package has to do."""

    def run(self, run: Run) -> tuple[list[int], str, int]:
        """Carry out a request and return its tokens (empty when not known), its text and their number."""


def serve(load: Callable[[str, int, int, int], Engine]) -> None:
    """Load, and answer the lines of standard input."""
    model, *sizes, offset = sys.argv[1:6]
    _offset = bytearray(int(offset))  # so that all that follows lies elsewhere
    begin = time.perf_counter()
    engine = load(model, *map(int, sizes))
    _answer({"ready": True, "load_s": time.perf_counter() - begin})
    for line in sys.stdin:
        command, *words = line.split()
        _answer(_run(engine, words) if command == "run" else {"peak_rss_bytes": peak_rss()})


def peak_rss() -> int:
    """Return the most memory that this process had, in bytes."""
    try:
        # not getrusage where it can be helped: on Linux that has the peak of the process before exec in it
        with Path("/proc/self/status").open(encoding="ascii") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def _run(engine: Engine, words: list[str]) -> dict[str, Any]:
    sampler, text, n_generate, seed, n_marks = words[0], words[1] == "1", *map(int, words[2:5])
    marks = [int(word) for word in words[5 : 5 + n_marks]]
    run = Run(sampler, text, n_generate, seed, marks, array("i", map(int, words[6 + n_marks :])))
    run.note()
    tokens, written, n_tokens = engine.run(run)
    run.note()
    return {
        "n_tokens": n_tokens,
        "tokens": tokens,
        "text": written.encode("utf-8", "surrogateescape").hex(),
        "wall": [moment - run.wall[0] for moment in run.wall[1:]],
        "cpu": [moment - run.cpu[0] for moment in run.cpu[1:]],
    }


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
