"""The measured side in Python: the protocol of native/loop.cpp, without anything of llamacy."""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

Items = Iterator[Any]


@dataclass(kw_only=True)
class Timed:
    """A request whose time is noted: at its beginning, its marks and its end."""

    marks: list[int]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def consume(self, items: Items, kept: deque[Any] | list[Any]) -> None:
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

    def answer(self, tokens: list[int], text: str, n_tokens: int) -> dict[str, Any]:
        """Return what goes back."""
        return {
            "n_tokens": n_tokens,
            "tokens": tokens,
            "text": text.encode("utf-8", "surrogateescape").hex(),
            "wall": [moment - self.wall[0] for moment in self.wall[1:]],
            "cpu": [moment - self.cpu[0] for moment in self.cpu[1:]],
        }


@dataclass(kw_only=True)
class Run(Timed):
    """One request for tokens or text, as read from its line."""

    sampler: str
    text: bool
    n_generate: int
    seed: int
    prompt: array[int]


@dataclass(kw_only=True)
class Call(Timed):
    """A call of the API, as read from its line; `harness.calls.Call` says what the fields mean."""

    kind: str
    prompt: list[int]
    messages: list[dict[str, Any]]
    max_tokens: int
    temperature: float
    seed: int
    stream: bool
    logprobs: int | None
    tools: list[dict[str, Any]] | None
    keep: bool
    times: int

    def texts(self, items: Iterable[Any]) -> Items:
        """Return the texts of responses or chunks in OpenAI's shape, as who reads a stream takes them."""
        if self.kind != "chat":
            return map(_completion_text, items)
        return map(_delta_text if self.stream else _message_text, items)


class Engine(Protocol):
    """What a measured package has to do."""

    def run(self, run: Run) -> tuple[list[int], str, int]:
        """Carry out a request and return its tokens (empty when not known), its text and their number."""

    def prepare(self, call: Call) -> Callable[[], Items]:
        """Return what begins a call and returns its texts."""


def serve(load: Callable[..., Engine]) -> None:
    """Load, and answer the lines of standard input."""
    model, *sizes, offset = sys.argv[1:6]
    params = json.loads(sys.argv[6]) if len(sys.argv) > 6 else {}
    _offset = bytearray(int(offset))  # so that all that follows lies elsewhere
    begin = time.perf_counter()
    engine = load(model, *map(int, sizes), **params)
    _answer({"ready": True, "load_s": time.perf_counter() - begin})
    for line in sys.stdin:
        command, *words = line.split()
        if command == "run":
            _answer(_run(engine, words))
        elif command == "call":
            _answer(_call(engine, Call(**json.loads(line.partition(" ")[2]))))
        else:
            _answer({"peak_rss_bytes": peak_rss()})


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
    run = Run(
        sampler=sampler,
        text=text,
        n_generate=n_generate,
        seed=seed,
        marks=[int(word) for word in words[5 : 5 + n_marks]],
        prompt=array("i", map(int, words[6 + n_marks :])),
    )
    run.note()
    tokens, written, n_tokens = engine.run(run)
    run.note()
    return run.answer(tokens, written, n_tokens)


def _call(engine: Engine, call: Call) -> dict[str, Any]:
    begin = engine.prepare(call)
    if call.times > 1:
        deque(begin(), maxlen=0)  # the first one warms up
    kept: deque[str] = deque()
    call.note()
    for _ in range(call.times):
        kept.clear()
        call.consume(begin(), kept)
    call.note()
    return call.answer([], "".join(kept), call.max_tokens)


def _completion_text(item: Any) -> str:
    return str(item["choices"][0]["text"])


def _delta_text(item: Any) -> str:
    return item["choices"][0]["delta"].get("content") or ""


def _message_text(item: Any) -> str:
    return item["choices"][0]["message"]["content"] or ""


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
