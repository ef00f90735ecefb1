"""The measured side of chats and saved states: a protocol of JSON lines, without anything of llamacy.

The process gets the model and the size of the context, and answers

- ``open``: a fresh object with one kind of cache,
- ``ask``: one turn of a chat, as messages or as tokens,
- ``state``: saves and restores of what the object holds, several times.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol


@dataclass
class Turn:
    """What is told of one turn."""

    #: Seconds until the first text, and until the end.
    first_s: float = 0
    whole_s: float = 0
    #: CPU seconds until the first text.
    first_cpu_s: float = 0
    text: str = ""
    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0
    #: Bytes that the cache says that it has, and resident memory.
    n_stored: int = 0
    n_resident: int = 0
    _begin: tuple[float, float] = field(default=(0, 0), repr=False)

    def consume(self, texts: Iterator[str]) -> None:
        """Take all texts of a stream, and note when the first one that isn't empty comes."""
        self._begin = time.perf_counter(), time.process_time()
        taken: list[str] = []
        for text in texts:
            if text and not taken:
                self.first_s = time.perf_counter() - self._begin[0]
                self.first_cpu_s = time.process_time() - self._begin[1]
            if text:
                taken.append(text)
        self.whole_s = time.perf_counter() - self._begin[0]
        self.first_s = self.first_s or self.whole_s
        self.text = "".join(taken)


class CacheEngine(Protocol):
    """What a measured package has to do."""

    def open(self, model: str, n_ctx: int, cache: str, folder: str) -> None:
        """Create an object with a cache: ``"none"``, ``"sequences"``, ``"ram"`` or ``"disk"``."""

    def ask(self, prompt: list[Any], max_tokens: int) -> Turn:
        """Continue a chat of messages, or tokens, in the likeliest way."""

    def state_calls(self) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        """Return what saves the state, and what restores what that returned."""


def serve(engine: CacheEngine) -> None:
    """Answer the lines of standard input."""
    model, n_ctx = sys.argv[1], int(sys.argv[2])
    _answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "open":
            engine.open(model, n_ctx, asked["cache"], asked["folder"])
            _answer({})
        elif asked["do"] == "ask":
            turn = engine.ask(asked["prompt"], asked["max_tokens"])
            turn.n_resident = resident()
            _answer({name: value for name, value in vars(turn).items() if not name.startswith("_")})
        else:
            _answer(_state(engine, asked["rounds"]))


def resident() -> int:
    """Return the resident memory of this process in bytes, or 0 where that isn't known."""
    try:
        with Path("/proc/self/status").open(encoding="ascii") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    except OSError:
        return 0


def _state(engine: CacheEngine, rounds: int) -> dict[str, float]:
    save, restore = engine.state_calls()
    saves, restores = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        state = save()
        middle = time.perf_counter()
        restore(state)
        restores.append(time.perf_counter() - middle)
        saves.append(middle - begin)
    return {"save_s": median(saves), "load_s": median(restores)}


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
