"""Compiling JSON Schemas to grammars, beside the converter of llama-cpp-python.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from harness.compare import Ratio, milliseconds
from harness.table import print_table, progress

from llamacy.grammar import Grammar
from llamacy.grammar.schema import compile_schema

Convert = Callable[[str], object]

# a batch of conversions is timed as one: long enough for the clock, short enough for a turn
_BATCH_S = 0.01
_GROWTH_MOST = 2.1
_RULES_MOST = 301
_SECOND_CALL_MOST = 1 / 20


@dataclass(frozen=True)
class Case:
    """A schema, and how many times as fast as the peer it is promised to compile."""

    name: str
    schema: dict[str, Any]
    promise: float


def optional_properties(number: int) -> dict[str, Any]:
    """Return an object of optional strings."""
    return {"type": "object", "properties": {f"property_{i}": {"type": "string"} for i in range(number)}}


def cases() -> list[Case]:
    """Return what is compiled."""
    unicode_names = [f"größe_{i}_名前_ключ" for i in range(100)]
    pattern = {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4,8}(-[a-z]+)?$"}
    repeated = [f"code_{i}" for i in range(50)]
    return [
        Case("20 optional properties", optional_properties(20), 2.5),
        Case("100 optional properties", optional_properties(100), 12),
        Case("200 optional properties", optional_properties(200), 28),
        Case("400 optional properties", optional_properties(400), 60),
        Case(
            "100 Unicode properties",
            {"type": "object", "properties": {name: {"type": "string"} for name in unicode_names}},
            8,
        ),
        Case(
            "50 properties with one pattern",
            {"type": "object", "properties": dict.fromkeys(repeated, pattern), "required": repeated},
            2.5,
        ),
    ]


_serial = count()


def convert(text: str) -> object:
    """Compile a schema as the first call for it does: a comment makes it one that was never seen."""
    return Grammar.from_json_schema(f'{text[:-1]}, "$comment": "{next(_serial)}"}}').text


def peer_converter(place: Path) -> Convert:
    """Return the converter of llama-cpp-python.

    Parameters
    ----------
    place
        A virtual environment with the package, or its ``llama_grammar.py``. That file needs nothing of the package, so
        it is loaded by itself, without the native library.
    """
    if place.is_dir():
        code = "import importlib.util; print(importlib.util.find_spec('llama_cpp').submodule_search_locations[0])"
        done = subprocess.run([str(place / "bin" / "python"), "-c", code], capture_output=True, text=True, check=True)
        place = Path(done.stdout.strip()) / "llama_grammar.py"
    spec = importlib.util.spec_from_file_location("peer_llama_grammar", place)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    converter: Convert = module.json_schema_to_gbnf
    return converter


def seconds(function: Convert, text: str, times: int) -> float:
    """Return the CPU time of one call, over some calls."""
    gc.collect()
    begin = time.process_time()
    for _ in range(times):
        function(text)
    return (time.process_time() - begin) / times


def batch(function: Convert, text: str) -> int:
    """Return how many calls make one batch; this also warms up."""
    return max(1, round(_BATCH_S / max(seconds(function, text, 3), 1e-9)))


def main() -> int:
    """Measure, print the tables and say whether all promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--llama-cpp-python", type=Path, metavar="PLACE", help="measure this peer too: a venv, or its llama_grammar.py"
    )
    parser.add_argument("--rounds", type=int, default=15, help="turns of each (default 15)")
    arguments = parser.parse_args()
    peer = None if arguments.llama_cpp_python is None else peer_converter(arguments.llama_cpp_python)
    kept = print_conversions(peer, arguments.rounds)
    kept &= print_own(arguments.rounds)
    return 0 if kept else 1


def print_conversions(peer: Convert | None, rounds: int) -> bool:
    """Compile each schema in turns with the peer."""
    print("from the text of a schema to the text of a grammar; milliseconds of CPU time, medians")
    lines: list[tuple[str, ...]] = [("schema", "llamacy", "peer", "times as fast", "promise", "")]
    all_kept = True
    for case in cases():
        progress(case.name)
        text = json.dumps(case.schema)
        if peer is None:
            lines.append((case.name, f"{milliseconds(measure(convert, text, rounds)):.3f}", "", "", "", ""))
            continue
        pairs = alternate(convert, peer, text, rounds)
        ratio = Ratio.of([theirs / ours for ours, theirs in pairs])
        kept = ratio.median >= case.promise
        all_kept &= kept
        times = [f"{milliseconds([pair[side] for pair in pairs]):.3f}" for side in (0, 1)]
        lines.append((case.name, *times, str(ratio), f">= {case.promise}", "kept" if kept else "MISSED"))
    progress()
    print_table(lines)
    return all_kept


def alternate(own: Convert, peer: Convert, text: str, rounds: int) -> list[tuple[float, float]]:
    """Run both in turn, each round in the other order."""
    own_times, peer_times = batch(own, text), batch(peer, text)
    pairs = []
    for number in range(rounds):
        if number % 2:
            ours = seconds(own, text, own_times)
            theirs = seconds(peer, text, peer_times)
        else:
            theirs = seconds(peer, text, peer_times)
            ours = seconds(own, text, own_times)
        pairs.append((ours, theirs))
    return pairs


def measure(function: Convert, text: str, rounds: int) -> list[float]:
    """Return the CPU time of a call in each round."""
    times = batch(function, text)
    return [seconds(function, text, times) for _ in range(rounds)]


def print_own(rounds: int) -> bool:
    """Measure what needs no peer: growth, rules, and a second call."""
    small, large = (json.dumps(optional_properties(number)) for number in (200, 400))
    pairs = alternate(convert, convert_of(large), small, rounds)
    growth = Ratio.of([second / first for first, second in pairs])
    text = json.dumps(optional_properties(100))
    n_rules = len(compile_schema(json.loads(text)).rules)
    schema = json.loads(text)
    first = median(measure(convert, text, rounds))
    second = median(measure(lambda _: Grammar.from_json_schema(schema), text, rounds))
    rows = [
        ("400 properties beside 200, times as long", growth.median, _GROWTH_MOST),
        ("rules for 100 optional properties", n_rules, _RULES_MOST),
        ("the same schema again, part of the first call", second / first, _SECOND_CALL_MOST),
    ]
    lines: list[tuple[str, ...]] = [("", "measured", "promise", "")]
    for name, value, most in rows:
        lines.append((name, f"{value:.4g}", f"<= {most:.4g}", "kept" if value <= most else "MISSED"))
    print()
    print_table(lines)
    return all(value <= most for _, value, most in rows)


def convert_of(text: str) -> Convert:
    """Return what compiles one schema, whatever it is given."""
    return lambda _: convert(text)


if __name__ == "__main__":
    sys.exit(main())
