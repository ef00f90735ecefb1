"""Sampling of one row of logits against llama_sampler_sample, in one process in turn, and whether tokens are the same.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness.compare import Ratio
from harness.models import add_model_argument, model_path
from harness.table import print_table, progress
from micro_model import wide_model
from native.build import build, library_dir

from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.core.sampler import Sampler, SamplerChain

_SMALL, _LARGE = 49_152, 262_144
# rows that are written, and then sampled, at a time: 2 MB or less, since a decode leaves its rows in the caches, too
_ROWS = {_SMALL: 8, _LARGE: 2}
_TEXT = "The history of the railway begins with horses. Then came steam, and with it the cities began to grow. " * 8
_END = (("top_p", 0.95, 0), ("min_p", 0.05, 0), ("temp", 0.8), ("dist", 1))

Link = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One chain: its links, with the arguments that llama.h and `Sampler` both take, and what is promised."""

    name: str
    links: tuple[Link, ...]
    promises: tuple[float | None, float | None]  # for the small and the large vocabulary
    most_rows: int = sys.maxsize


CASES = [
    Case("default", (("top_k", 40), *_END), (2.3, 4.0)),
    Case("greedy", (("greedy",),), (5.0, 5.0)),
    Case("repeat 1.1", (("penalties", 64, 1.1, 0.0, 0.0), ("top_k", 40), *_END), (5.0, 5.0)),
    Case("frequency -0.5", (("penalties", 64, 1.0, -0.5, 0.0), ("top_k", 40), *_END), (5.0, 5.0)),
    Case("repeat, greedy", (("penalties", 64, 1.1, 0.0, 0.0), ("greedy",)), (5.0, 5.0)),
    Case("bias", (("logit_bias", {7: 5.0, 11: float("-inf"), 400: -1.0}), ("top_k", 40), *_END), (2.3, 4.0)),
    Case("dry", (("dry", 0.8, 1.75, 2, 1024), ("top_k", 40), *_END), (None, None)),
    Case(
        "all in front",
        (
            ("logit_bias", {2: float("-inf"), 9: 2.0}),
            ("penalties", 256, 1.1, 0.2, 0.1),
            ("dry", 0.8, 1.75, 2, 1024),
            ("top_k", 40),
            ("xtc", 0.5, 0.1, 1, 3),
            *_END,
        ),
        (5.0, 5.0),
    ),
    Case("top_k 500", (("top_k", 500), *_END), (None, None)),
    Case("no top_k", _END, (None, None), 200),  # the whole row, milliseconds of work
]


class Native:
    """The context and the chains of the other side."""

    def __init__(self, path: Path, n_rows: int) -> None:
        self._rows_library = ctypes.CDLL(str(build("rows", library=True)))
        self._library = ctypes.CDLL(str(next(library_dir().glob("lib*llama.*"))))
        rows, library = self._rows_library, self._library
        rows.rows_open.restype = ctypes.c_void_p
        rows.rows_data.restype = ctypes.c_void_p
        rows.rows_data.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        rows.rows_sample.restype = ctypes.c_double
        rows.rows_sample.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        for name in ("llama_get_model", "llama_model_get_vocab"):
            getattr(library, name).restype = ctypes.c_void_p
        self._handle = rows.rows_open(str(path).encode(), n_rows)
        if not self._handle:
            raise OSError(f"llama.cpp can't open {path}")
        self._model = ctypes.cast(self._handle, ctypes.POINTER(ctypes.c_void_p))[0]
        self._tokens = (ctypes.c_int32 * n_rows)()

    def address(self, index: int) -> int:
        """Return where a row lies."""
        return int(self._rows_library.rows_data(self._handle, index))

    def chain(self, links: Sequence[Link], n_vocab: int) -> int:
        """Return a new chain."""

        class Params(ctypes.Structure):
            _fields_ = (("no_perf", ctypes.c_bool),)

        library = self._library
        library.llama_sampler_chain_init.argtypes = [Params]
        library.llama_sampler_chain_init.restype = ctypes.c_void_p
        chain: int = library.llama_sampler_chain_init(Params(True))
        for kind, *values in links:
            init = getattr(library, f"llama_sampler_init_{kind}")
            init.restype = ctypes.c_void_p
            library.llama_sampler_chain_add(
                ctypes.c_void_p(chain), ctypes.c_void_p(init(*self._arguments(kind, values, n_vocab)))
            )
        return chain

    def _arguments(self, kind: str, values: Sequence[Any], n_vocab: int) -> list[Any]:
        if kind == "logit_bias":

            class Bias(ctypes.Structure):
                _fields_ = (("token", ctypes.c_int32), ("bias", ctypes.c_float))

            biases = [Bias(*item) for item in values[0].items()]
            return [ctypes.c_int32(n_vocab), ctypes.c_int32(len(biases)), (Bias * len(biases))(*biases)]
        arguments: list[Any] = [ctypes.c_float(v) if isinstance(v, float) else v for v in values]
        if kind in ("top_p", "min_p", "xtc"):
            place = 2 if kind == "xtc" else 1
            arguments[place] = ctypes.c_size_t(values[place])
        if kind == "penalties":
            arguments.insert(0, ctypes.c_int32(n_vocab))
        if kind == "dry":
            vocab = self._library.llama_model_get_vocab(ctypes.c_void_p(self._model))
            return [ctypes.c_void_p(vocab), *arguments, None, ctypes.c_size_t(0)]
        return arguments

    def sample(self, chain: int) -> tuple[float, list[int]]:
        """Sample all rows and return the seconds that took, and the tokens."""
        spent = self._rows_library.rows_sample(self._handle, chain, self._tokens)
        return spent, list(self._tokens)

    def close(self) -> None:
        """Free it all but the chains, which are few."""
        self._rows_library.rows_close(ctypes.c_void_p(self._handle))


def main() -> int:
    """Measure, print the table and say whether all promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--rows", type=int, default=10_000, help="rows of each kind (default 10000)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only chains whose name has this in it")
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only in case.name]
    real = real_rows(model_path(arguments))
    print("microseconds of CPU time a row; ratio native/llamacy: median and quartiles; same: rows with the same token")
    lines: list[tuple[str, ...]] = [("rows", "chain", "native", "llamacy", "ratio", "promise", "", "same")]
    missed = 0
    for name, n_vocab, source in (
        ("random 49k", _SMALL, random_rows(_SMALL)),
        ("SmolLM2", _SMALL, lambda i: real[i % len(real)]),
        ("random 262k", _LARGE, random_rows(_LARGE)),
    ):
        for case, (native, own, same, n) in zip(
            cases, measure(name, n_vocab, source, cases, arguments.rows), strict=True
        ):
            ratio = Ratio.of([a / b for a, b in zip(native, own, strict=True)])
            promise = case.promises[n_vocab == _LARGE]
            kept = None if promise is None else ratio.median >= promise
            missed += (kept is False) + (same != n)
            times = [f"{1e6 * median(values) / _ROWS[n_vocab]:.1f}" for values in (native, own)]
            said = {True: "kept", False: "MISSED", None: ""}[kept]
            lines.append(
                (name, case.name, *times, str(ratio), "" if promise is None else f">= {promise}", said, f"{same}/{n}")
            )
    progress()
    print_table(lines)
    return 1 if missed else 0


def random_rows(n: int) -> Callable[[int], Any]:
    """Return a source of rows that are different pieces of a long one, with different spreads."""
    pool = np.random.default_rng(n).standard_normal(4_000_000 + n, np.float32)

    def row(index: int) -> Any:
        start = (index * 7919 * 16) % 4_000_000
        return pool[start : start + n] * np.float32(1 + index % 5)

    return row


def real_rows(path: Path) -> list[Any]:
    """Return what a model says at each token of a text."""
    with Model(path) as model, Context(model, n_ctx=256, n_batch=256, n_threads=1, n_threads_batch=1) as context:
        tokens = model.vocab.tokenize(_TEXT)[:128]
        batch = Batch(len(tokens))
        for position, token in enumerate(tokens):
            batch.add(token, position, logits=True)
        context.decode(batch)
        return [np.asarray(context.logits(i)).copy() for i in range(len(tokens))]


def measure(
    name: str, n_vocab: int, source: Callable[[int], Any], cases: Sequence[Case], n_rows: int
) -> list[tuple[list[float], list[float], int, int]]:
    """Return for each chain the seconds of each round on both sides, and of how many rows they made the same token."""
    results: list[tuple[list[float], list[float], int, int]] = []
    path, n_at_once = wide_model(n_vocab), _ROWS[n_vocab]
    native = Native(path, n_at_once)
    with Model(path) as model, Context(model, n_ctx=64, n_threads=1, n_threads_batch=1) as context:
        batch = Batch(n_at_once)
        for position in range(n_at_once):
            batch.add(5, position, logits=True)
        context.decode(batch)
        addresses = [native.address(i) for i in range(n_at_once)]
        addresses += [np.asarray(context.logits(i)).ctypes.data for i in range(n_at_once)]
        for case in cases:
            progress(f"{name}: {case.name}")
            theirs = native.chain(case.links, model.n_vocab)
            with SamplerChain(own_links(case.links, model)) as chain:
                times: tuple[list[float], list[float]] = ([], [])
                same = 0
                rounds = max(min(n_rows, case.most_rows) // n_at_once, 2)
                for number in range(rounds):
                    write(source, number * n_at_once, addresses)
                    found: list[list[int]] = [[], []]
                    for side in (0, 1) if number % 2 else (1, 0):
                        spent, found[side] = native.sample(theirs) if side == 0 else sample(chain, context, n_at_once)
                        if number > 0:  # the first one warms up
                            times[side].append(spent)
                    same += sum(a == b for a, b in zip(*found, strict=True))
                results.append((*times, same, rounds * n_at_once))
    native.close()
    return results


def own_links(links: Sequence[Link], model: Model) -> list[Sampler]:
    """Return the same samplers."""
    before: dict[str, list[Any]] = {
        "penalties": [model.n_vocab],
        "logit_bias": [model.n_vocab],
        "dry": [model.vocab],
    }
    made = []
    for kind, *values in links:
        last = [()] if kind == "dry" else []
        made.append(getattr(Sampler, kind)(*before.get(kind, []), *values, *last))
    return made


def write(source: Callable[[int], Any], first: int, addresses: Sequence[int]) -> None:
    """Put rows where each side reads them: the first half of the addresses, and the second."""
    for i, address in enumerate(addresses):
        row = np.ascontiguousarray(source(first + i % (len(addresses) // 2)))
        ctypes.memmove(address, row.ctypes.data, row.nbytes)


def sample(chain: SamplerChain, context: Context, n_rows: int) -> tuple[float, list[int]]:
    """Sample all rows and return the seconds that took, and the tokens."""
    begin = time.thread_time()
    tokens = [chain.sample(context, i) for i in range(n_rows)]
    return time.thread_time() - begin, tokens


if __name__ == "__main__":
    sys.exit(main())
