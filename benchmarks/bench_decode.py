"""Speed of generating, of streamed text and of prompts: llamacy against a C++ loop on the same libraries.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from harness.cases import MARKS, Case, cases, growth_request, second_half
from harness.compare import CLOCKS, Ratio, Series, alternate, milliseconds
from harness.models import add_model_argument, model_path
from harness.table import print_table, progress
from harness.worker import Load, native_worker, python_worker, share_cpu
from micro_model import micro_model

# how much more a token may cost than in the native loop there plus what llamacy added at the first mark
_GROWTH = 0.03
# glibc returns memory to the system, or not, by what a process freed before: on both sides the same, so that page
# faults of one side don't count as speed of the other
_STEADY_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
# bytes by which the memory of one set of processes lies elsewhere than that of the set before
_OFFSET_STEP = 528
# rounds of the slow peers: enough for factors
_PEER_ROUNDS = 6


def main() -> int:
    """Measure, print the table and say whether all promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--llama-cpp-python", type=Path, metavar="VENV", help="measure this peer too")
    parser.add_argument("--xllamacpp", type=Path, metavar="VENV", help="measure this peer too")
    parser.add_argument("--sets", type=int, default=6, help="sets of fresh processes (default 6)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the rounds")
    parser.add_argument("--only", default="", help="only cases with this in 'model: name'")
    parser.add_argument("--json", type=Path, help="write all ratios here as well")
    arguments = parser.parse_args()
    os.environ.update(_STEADY_MALLOC)
    real = model_path(arguments)
    models = {"micro": micro_model(real), "smollm2": real}
    venvs = {"llama-cpp-python": arguments.llama_cpp_python, "xllamacpp": arguments.xllamacpp}
    peers = {name: venv / "bin" / "python" for name, venv in venvs.items() if venv is not None}
    chosen = [case for case in cases(quick=arguments.quick) if arguments.only in f"{case.model}: {case.name}"]
    print("n_threads=1; milliseconds of CPU time a token; ratio native/llamacy: median and quartiles")
    rows = measure(chosen, models, arguments.sets)
    if rows:
        print_rows(rows)
    if arguments.only in "micro: growth":
        growth, interrupted = measure_growth(models["micro"], arguments.sets, 1 if arguments.quick else 2)
        print_rows(growth)
        print_interruptions(interrupted)
        rows += growth
    if peers:
        print_peers(measure_peers(chosen, models, peers))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    missed = [row for row in rows if row["kept"] is False]
    if missed:
        print(f"{len(missed)} of {len(rows)} are below what is promised")
    return 1 if missed else 0


def measure(chosen: list[Case], models: dict[str, Path], n_sets: int) -> list[dict[str, Any]]:
    """Measure cases on sets of fresh processes: each on another CPU, and with memory that lies elsewhere."""
    series = [Series() for _ in chosen]
    for number in range(n_sets):
        for model, path in models.items():
            own = [index for index, case in enumerate(chosen) if case.model == model]
            if not own:
                continue
            load = Load(path, offset=number * _OFFSET_STEP)
            with native_worker(load) as native, python_worker("llamacy", load) as llamacy:
                share_cpu((native, llamacy), number)
                for index in own:
                    progress(f"set {number + 1} of {n_sets}: {model}, {chosen[index].name}")
                    alternate((native, llamacy), chosen[index].request, chosen[index].rounds, series[index])
    progress()
    return [_row(case, one) for case, one in zip(chosen, series, strict=True)]


def measure_growth(path: Path, n_sets: int, rounds: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure what a token costs after few tokens and after many, relative to the native loop there.

    Returns the rows, and how many times each process was interrupted in 100 tokens, where the system tells.
    """
    rows = []
    interruptions: dict[str, int] = {}
    n_tokens_made = 0
    for text in (False, True):
        series = Series()
        for number in range(n_sets):
            load = Load(path, n_ctx=MARKS[-1] + 256, offset=number * _OFFSET_STEP)
            with native_worker(load) as native, python_worker("llamacy", load) as llamacy:
                share_cpu((native, llamacy), number)
                progress(f"set {number + 1} of {n_sets}: growth, {'streamed text' if text else 'generate'}")
                alternate((native, llamacy), growth_request(text), rounds, series)
                for worker in (native, llamacy):
                    count = worker.interruptions()
                    if count is not None:
                        interruptions[worker.name] = interruptions.get(worker.name, 0) + count
                n_tokens_made += (rounds + 1) * growth_request(text).n_generate
        added = None
        for mark in MARKS:
            span = second_half(mark)
            ratios = {clock: series.ratio("llamacy", "native", span, clock) for clock in CLOCKS}
            native_s = median(series.seconds("native", span, "cpu"))
            n_tokens = mark - mark // 2
            difference = median(series.differences("llamacy", "native", span, "cpu"))
            added = difference / n_tokens if added is None else added
            growth = (difference - added * n_tokens) / (native_s + added * n_tokens)
            name = f"{'streamed text' if text else 'generate'}, token {mark}"
            row = _fields("micro", name, series, span, n_tokens, ratios)
            rows.append({**row, "target": None, "growth": growth, "kept": growth <= _GROWTH})
    progress()
    return rows, {name: 100 * count / n_tokens_made for name, count in interruptions.items()}


def measure_peers(
    chosen: list[Case], models: dict[str, Path], peers: dict[str, Path]
) -> list[tuple[Case, str, float, float, Ratio]]:
    """Measure what peers need beside llamacy; they bring their own builds of the native libraries."""
    found = []
    for model, path in models.items():
        for name, python in peers.items():
            load = Load(path)
            with python_worker("llamacy", load) as llamacy, python_worker(name, load, str(python)) as peer:
                share_cpu((llamacy, peer), 0)
                for case in chosen:
                    if case.model != model or (name == "xllamacpp" and not case.request.text):
                        continue
                    progress(f"{name}: {model}, {case.name}")
                    series = alternate((llamacy, peer), case.request, _PEER_ROUNDS)
                    own, other = (
                        milliseconds(series.seconds(worker.name, case.measure, "cpu")) / case.n_tokens
                        for worker in (llamacy, peer)
                    )
                    ratio = series.ratio("llamacy", name, case.measure, "cpu")
                    found.append((case, name, own, other, ratio))
    progress()
    return found


def _row(case: Case, series: Series) -> dict[str, Any]:
    ratios = {clock: series.ratio("llamacy", "native", case.measure, clock) for clock in CLOCKS}
    row = _fields(case.model, case.name, series, case.measure, case.n_tokens, ratios)
    kept = None if case.target is None else ratios["cpu"].median >= case.target
    return {**row, "target": case.target, "growth": None, "kept": kept and row["same"] is not False}


def _fields(
    model: str, name: str, series: Series, measure: Any, n_tokens: int, ratios: dict[str, Ratio]
) -> dict[str, Any]:
    """Return the part of a row that all rows have; `same` says whether both made the same tokens or text."""
    native, llamacy = series.answers["native"][0], series.answers["llamacy"][0]
    same = native.tokens == llamacy.tokens if llamacy.tokens else _text(native.text) == _text(llamacy.text)
    return {
        "model": model,
        "name": name,
        "same": same,
        "native_ms": milliseconds(series.seconds("native", measure, "cpu")) / n_tokens,
        "llamacy_ms": milliseconds(series.seconds("llamacy", measure, "cpu")) / n_tokens,
        **{clock: [ratio.median, ratio.low, ratio.high] for clock, ratio in ratios.items()},
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the table of llamacy against the native loop."""
    clocks = [f"ratio, {clock} time" for clock in CLOCKS]
    lines = [("model", "case", "native", "llamacy", *clocks, "promise", "output", "")]
    for row in rows:
        promise = "" if row["target"] is None else f">= {row['target']}"
        if row["growth"] is not None:
            promise = f"{row['growth']:+.1%} growth"
        times = [f"{row[key]:.4f}" for key in ("native_ms", "llamacy_ms")]
        ratios = [str(Ratio(*row[clock])) for clock in CLOCKS]
        output = "same" if row["same"] else "DIFFERENT"
        kept = {True: "kept", False: "MISSED", None: ""}[row["kept"]]
        lines.append((row["model"], row["name"], *times, *ratios, promise, output, kept))
    print_table(lines)


def print_interruptions(interrupted: dict[str, float]) -> None:
    """Say how much other programs disturbed what tells the growth; a longer token is interrupted more often."""
    if interrupted:
        counts = ", ".join(f"{name} {count:.0f}" for name, count in interrupted.items())
        print(f"interrupted by other programs in 100 tokens of the growth rows: {counts}")


def print_peers(found: list[tuple[Case, str, float, float, Ratio]]) -> None:
    """Print the table of llamacy against peers."""
    print("\nbeside peers: milliseconds of CPU time a token; how many times as fast llamacy is")
    lines: list[tuple[str, ...]] = [("model", "case", "peer", "llamacy", "peer", "times as fast")]
    for case, name, own, other, ratio in found:
        lines.append((case.model, case.name, name, f"{own:.4f}", f"{other:.4f}", str(ratio)))
    print_table(lines)


if __name__ == "__main__":
    sys.exit(main())
