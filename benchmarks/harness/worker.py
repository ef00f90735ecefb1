"""Processes that are measured, by the protocol of native/loop.cpp: the native loop, llamacy, and peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Load:
    """What a process loads: a model, and the sizes of its context. Threads are always one.

    `offset` is a number of bytes that the process allocates before. Where its memory lies relative to pages and caches
    decides over up to 2 percent of its speed, and depends on little else than what it allocated before.
    """

    model: Path
    n_ctx: int = 4096
    n_batch: int = 2048
    n_ubatch: int = 512
    offset: int = 0


@dataclass(frozen=True)
class Request:
    """One request: a prompt and how much to generate.

    Parameters
    ----------
    prompt
        Token ids.
    n_generate
        Most tokens to generate.
    sampler
        ``"greedy"`` or ``"default"``.
    text
        Make text of the tokens, streamed.
    marks
        Numbers of tokens at which the time is noted; the end is always noted too.
    seed
        Seed of the default sampler.
    """

    prompt: Sequence[int]
    n_generate: int
    sampler: str = "greedy"
    text: bool = False
    marks: tuple[int, ...] = (1,)
    seed: int = 7

    def line(self) -> str:
        """Return the request as the protocol writes it."""
        head = f"run {self.sampler} {int(self.text)} {self.n_generate} {self.seed} {len(self.marks)}"
        return " ".join([head, *map(str, self.marks), str(len(self.prompt)), *map(str, self.prompt)])


@dataclass(frozen=True)
class Answer:
    """Seconds since the beginning of a request, at its marks and its end: wall time, CPU time of the process."""

    n_tokens: int
    tokens: list[int]
    text: bytes
    wall: list[float]
    cpu: list[float]

    def span(self, clock: str, begin: int, end: int = -1) -> float:
        """Return the seconds between two marks by their index; -1 is the end of the request."""
        times: list[float] = getattr(self, clock)
        return times[end] - times[begin]


class Asked(Protocol):
    """What a process can be asked."""

    def line(self) -> str:
        """Return it as the protocol writes it."""


class WorkerError(RuntimeError):
    """A measured process ended early."""


class Worker:
    """One measured process.

    Parameters
    ----------
    name
        How it is called in tables.
    command
        How it is started.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.facts = self._read()

    def run(self, request: Asked) -> Answer:
        """Run one request."""
        answer = self.ask(request.line())
        return Answer(
            answer["n_tokens"], answer["tokens"], bytes.fromhex(answer["text"]), answer["wall"], answer["cpu"]
        )

    def pin(self, cpu: int) -> None:
        """Keep the process on one CPU from here on."""
        os.sched_setaffinity(self._process.pid, {cpu})

    def peak_rss(self) -> int:
        """Return the most bytes of memory that the process had so far."""
        return int(self.ask("rss")["peak_rss_bytes"])

    def interruptions(self) -> int | None:
        """Return how often another process took the CPU away, or None where the system doesn't tell."""
        try:
            with Path(f"/proc/{self._process.pid}/status").open(encoding="ascii") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("nonvoluntary_ctxt_switches:"))
        except OSError:
            return None

    def ask(self, line: str) -> dict[str, Any]:
        """Give the process one line, and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise WorkerError(f"the process of {self.name} ended with status {self._process.wait()}")
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer


def share_cpu(workers: Sequence[Worker], number: int) -> None:
    """Keep processes on one CPU, another one for each `number`, where the system can.

    They work in turn, so none waits for another. CPUs of one machine, of a virtual one above all, differ by several
    percent in what they do in a second, and a process that is alone on a CPU stays there for as long as it lives.
    """
    if hasattr(os, "sched_setaffinity"):
        cpus = sorted(os.sched_getaffinity(0))
        for worker in workers:
            worker.pin(cpus[number % len(cpus)])


def native_worker(load: Load) -> Worker:
    """Start the native loop, compiling it when needed."""
    from native.build import backend_dir, build

    backends = backend_dir()
    return Worker("native", [str(build("loop")), *_sizes(load), *([str(backends)] if backends else [])])


def python_worker(name: str, load: Load, python: str = sys.executable, **params: Any) -> Worker:
    """Start a Python worker: `name` is ``"llamacy"``, ``"llama-cpp-python"`` or ``"xllamacpp"``.

    The first two take more parameters of their `Llama`.
    """
    script = _HERE / f"serve_{name.replace('-', '_')}.py"
    return Worker(name, [python, str(script), *_sizes(load), *([json.dumps(params)] if params else [])])


def _sizes(load: Load) -> list[str]:
    return [str(load.model), *map(str, (load.n_ctx, load.n_batch, load.n_ubatch, load.offset))]
