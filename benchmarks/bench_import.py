"""What importing costs: llamacy beside NumPy, and `Llama` beside that of llama-cpp-python.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.compare import Ratio, milliseconds
from harness.table import print_table

# prints the seconds of CPU and of wall time that a statement takes in a fresh interpreter
_PROBE = """
import sys, time
wall, cpu = time.perf_counter(), time.process_time()
{statement}
sys.stdout.write("%r %r" % (time.perf_counter() - wall, time.process_time() - cpu))
"""


# an installer leaves compiled bytecode, and a checkout gets it from the first round, unless this forbids it
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Statement:
    """One import, and the interpreter that does it."""

    text: str
    python: str = sys.executable

    def seconds(self) -> tuple[float, float]:
        """Run it in a fresh process and return its wall time and its CPU time."""
        done = subprocess.run(
            [self.python, "-c", _PROBE.format(statement=self.text)],
            capture_output=True,
            text=True,
            check=True,
            env=_ENVIRONMENT,
        )
        wall, cpu = done.stdout.split()
        return float(wall), float(cpu)


def main() -> int:
    """Measure, print the table and say whether all promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp-python", type=Path, metavar="VENV", help="measure this peer too")
    parser.add_argument("--rounds", type=int, default=40, help="fresh processes of each (default 40)")
    arguments = parser.parse_args()
    whole = Statement("from llamacy import Llama")
    pairs: list[tuple[Statement, Statement, float | None]] = [
        (Statement("import llamacy"), Statement("import numpy"), 0.3)
    ]
    if arguments.llama_cpp_python is not None:
        peer = str(arguments.llama_cpp_python / "bin" / "python")
        pairs.append((whole, Statement("from llama_cpp import Llama", peer), 0.5))
    else:
        pairs.append((whole, Statement("import numpy"), None))
    lines: list[tuple[str, ...]] = [
        ("import", "ms", "beside", "ms", "ratio, CPU time", "ratio, wall time", "promise", "")
    ]
    missed = 0
    for own, other, most in pairs:
        times = measure(own, other, arguments.rounds)
        wall, cpu = (Ratio.of([a[clock] / b[clock] for a, b in times]) for clock in (0, 1))
        kept = most is None or cpu.median <= most
        missed += not kept
        promise = ("", "") if most is None else (f"<= {most}", "kept" if kept else "MISSED")
        own_ms, other_ms = (f"{milliseconds([pair[side][1] for pair in times]):.2f}" for side in (0, 1))
        lines.append((own.text, own_ms, other.text, other_ms, str(cpu), str(wall), *promise))
    print("fresh processes with warm file caches; milliseconds of CPU time; median and quartiles")
    print_table(lines)
    return 1 if missed else 0


def measure(own: Statement, other: Statement, rounds: int) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Run both in turn, each round in the other order; the first round only warms up."""
    times = []
    for number in range(rounds + 1):
        if number % 2:
            a, b = own.seconds(), other.seconds()
        else:
            b, a = other.seconds(), own.seconds()
        if number > 0:
            times.append((a, b))
    return times


if __name__ == "__main__":
    sys.exit(main())
