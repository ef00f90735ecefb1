"""Memory: the peak of loading and generating against the native loop, and what 10,000 objects leave behind.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from harness.cases import COUNTING
from harness.models import add_model_argument, model_path
from harness.table import print_table, progress
from harness.worker import Load, Request, Worker, native_worker, python_worker
from micro_model import micro_model

_MIB = 1 << 20
# what llamacy may need beyond the native loop: the interpreter, its modules, its own objects
_PEAK_MOST = 30 * _MIB
# what the resident memory may differ by after all cycles: a leak of 100 bytes an object would show
_GROWTH_MOST = 1 * _MIB


def main() -> int:
    """Measure, print the tables and say whether all promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--cycles", type=int, default=10_000, help="objects of each class (default 10000)")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each peak (default 3)")
    arguments = parser.parse_args()
    real = model_path(arguments)
    kept = print_peaks({"micro": micro_model(real), "smollm2": real}, arguments.rounds)
    kept &= print_cycles(arguments.cycles)
    return 0 if kept else 1


def print_peaks(models: dict[str, Path], rounds: int) -> bool:
    """Compare the peaks of resident memory after a load and 512 tokens."""
    print("most resident memory of load + 512 tokens, MiB; median of fresh processes")
    lines: list[tuple[str, ...]] = [("model", "request", "native", "llamacy", "difference", "promise", "")]
    all_kept = True
    for model, path in models.items():
        for text in (False, True):
            name = "streamed text" if text else "generate"
            peaks: dict[str, list[int]] = {"native": [], "llamacy": []}
            for _ in range(rounds):
                progress(f"{model}, {name}")
                load = Load(path)
                for worker in (native_worker(load), python_worker("llamacy", load)):
                    peaks[worker.name].append(_peak(worker, text))
            native, llamacy = (median(peaks[side]) for side in ("native", "llamacy"))
            kept = llamacy - native <= _PEAK_MOST
            all_kept &= kept
            sizes = [f"{size / _MIB:.1f}" for size in (native, llamacy, llamacy - native)]
            lines.append((model, name, *sizes, f"<= {_PEAK_MOST // _MIB}", "kept" if kept else "MISSED"))
    progress()
    print_table(lines)
    return all_kept


def _peak(worker: Worker, text: bool) -> int:
    with worker:
        worker.run(Request(COUNTING, 512, text=text))
        return worker.peak_rss()


def print_cycles(cycles: int) -> bool:
    """Create and close objects of each class in a process of its own, and see what is left."""
    print(f"\n{cycles} times created and closed: handles left, and how much more memory is resident")
    script = Path(__file__).resolve().parent / "harness" / "cycles.py"
    names = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    lines: list[tuple[str, ...]] = [("class", "microseconds each", "handles left", "KiB more", "promise", "")]
    all_kept = True
    for name in names.stdout.split():
        progress(name)
        command = [sys.executable, str(script), name, str(cycles)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout)
        kept = not result["handles"] and result["growth"] <= _GROWTH_MOST
        all_kept &= kept
        cells = [f"{result['microseconds']:.1f}", str(result["handles"]), f"{result['growth'] / 1024:.0f}"]
        lines.append((name, *cells, f"0, <= {_GROWTH_MOST // 1024}", "kept" if kept else "MISSED"))
    progress()
    print_table(lines)
    return all_kept


if __name__ == "__main__":
    sys.exit(main())
