"""Speed of embedding: llamacy against a C++ loop on the same libraries, and against peers.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from harness.compare import Series, take_turns
from harness.table import print_table, progress
from harness.worker import Answer, Worker, share_cpu
from native.build import backend_dir, build

# how fast llamacy is at least, relative to others
_NATIVE = 0.97
_PEERS = {"llama-cpp-python": 2.4, "torch": 0.9}
# sizes of batches that the native loop tries; the fastest one is what llamacy is compared with
_PACKS = (64, 128, 256, 512)
_N_MOST = 256
_DOCS = Path(__file__).resolve().parent.parent / "docs"


@dataclass(frozen=True)
class Embed:
    """A request: all texts, in batches of so many tokens where the process lets one say so."""

    pack: int = 0

    def line(self) -> str:
        """Return the request as the protocol writes it."""
        return f"embed {self.pack}"


def main() -> int:
    """Measure, print the table and say whether all promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="GGUF of an embedding model")
    parser.add_argument("--llama-cpp-python", type=Path, metavar="VENV", help="measure this peer too")
    parser.add_argument("--torch", nargs=2, type=Path, metavar=("VENV", "FOLDER"), help="and sentence-transformers")
    parser.add_argument("--texts", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--rounds", type=int, default=5, help="of all processes in turn (default 5)")
    arguments = parser.parse_args()
    kept = True
    lines: list[tuple[str, ...]] = [
        ("model", "against", "texts/s", "llamacy texts/s", "times as fast", "promise", "cosine", "")
    ]
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.txt"
        texts.write_text("\n".join(sentences(arguments.texts)) + "\n", encoding="utf-8")
        for model in arguments.models:
            kept &= _measure(model, texts, arguments, lines)
    print(f"n_threads=1; {arguments.texts} texts of about 46 tokens, at most {_N_MOST}; CPU time, median and quartiles")
    print_table(lines)
    return 0 if kept else 1


def sentences(n: int, seed: int = 1) -> list[str]:
    """Return texts of many lengths, made of the words of the documentation."""
    words = " ".join(path.read_text(encoding="utf-8") for path in sorted(_DOCS.glob("*.md"))).split()
    words = [word for word in words if word.isalpha()]
    drawn = random.Random(seed)
    made = []
    for _ in range(n):
        length = min(max(int(drawn.lognormvariate(3.35, 0.75)), 3), 150)
        begin = drawn.randrange(len(words) - length)
        made.append(" ".join(words[begin : begin + length]))
    return made


def _measure(model: Path, texts: Path, arguments: argparse.Namespace, lines: list[tuple[str, ...]]) -> bool:
    python: dict[str, tuple[str, Path]] = {"llamacy": (sys.executable, model)}
    if arguments.llama_cpp_python is not None:
        python["llama-cpp-python"] = (str(arguments.llama_cpp_python / "bin" / "python"), model)
    if arguments.torch is not None:
        python["torch"] = (str(arguments.torch[0] / "bin" / "python"), arguments.torch[1])
    backends = backend_dir()
    extra = [str(backends)] if backends else []
    workers = [Worker("native", [str(build("embed")), str(model), str(_N_MOST), str(texts), *extra])]
    script = Path(__file__).resolve().parent / "harness" / "serve_embed.py"
    try:
        for name, (executable, path) in python.items():
            workers.append(Worker(name, [executable, str(script), name, str(path), str(_N_MOST), str(texts)]))
        share_cpu(workers, os.getpid())
        series = _in_turn(workers, arguments.rounds, model.name)
    finally:
        for worker in workers:
            worker.close()
    kept = True
    for worker in workers:
        if worker.name != "llamacy":
            kept &= _row(model.name, worker.name, series, arguments.texts, lines)
    return kept


def _in_turn(workers: list[Worker], rounds: int, model: str) -> Series:
    native, *others = workers
    progress(f"{model}: size of the native loop's batches")
    taken = {pack: min(_cpu(native.run(Embed(pack)), "cpu") for _ in range(2)) for pack in _PACKS}
    best = min(taken, key=lambda pack: taken[pack])
    progress(f"{model}: {best} tokens in a batch")
    runs = {"native": partial(native.run, Embed(best)), **{one.name: partial(one.run, Embed()) for one in others}}
    series = take_turns(runs, rounds)
    progress()
    return series


def _row(model: str, name: str, series: Series, n_texts: int, lines: list[tuple[str, ...]]) -> bool:
    ratio = series.ratio("llamacy", name, _cpu, "cpu")
    promise = _PEERS.get(name, _NATIVE)
    cosine = _cosine(series.answers[name][0], series.answers["llamacy"][0])
    kept = ratio.median >= promise and cosine > 0.99
    speeds = [f"{n_texts / median(series.seconds(who, _cpu, 'cpu')):.1f}" for who in (name, "llamacy")]
    lines.append((model, name, *speeds, str(ratio), f">= {promise}", f"{cosine:.5f}", "kept" if kept else "MISSED"))
    return kept


def _cpu(answer: Answer, clock: str) -> float:
    taken: list[float] = getattr(answer, clock)
    return taken[-1]


def _cosine(one: Answer, other: Answer) -> float:
    """Return the least cosine of the vectors that both show."""
    a, b = (np.frombuffer(answer.text, np.float32).reshape(8, -1).astype(np.float64) for answer in (one, other))
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


if __name__ == "__main__":
    sys.exit(main())
