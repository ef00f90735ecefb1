"""Speed under a grammar: tokens that obey a JSON grammar against free ones, in one process in turn.

Exits with status 1 when a promise isn't kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from harness.compare import Ratio
from harness.models import add_model_argument, model_path
from harness.table import print_table, progress

from llamacy import Llama
from llamacy.core.model import Model
from llamacy.grammar import Grammar

# a model that is asked for JSON writes it by itself for the most part; one that counts has to be kept from it
_PROMPTS = {
    "asked for": "A JSON object that describes a person, with name, age, address and friends:\n",
    "not asked for": "1, 2, 3, 4, 5, 6, 7,",
}
_TARGET = 0.97


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    prompt: str
    name: str
    options: dict[str, Any]
    target: float | None


def cases() -> list[Case]:
    """Return what is measured with each model."""
    found = []
    for prompt in _PROMPTS:
        found.append(Case(prompt, "default", {}, _TARGET))
        found.append(Case(prompt, "grammar_first", {"grammar_first": True}, _TARGET))
    found.append(Case("asked for", "greedy", {"temperature": 0.0}, _TARGET))
    # what top_p costs without top_k hangs on the text: much where many tokens are likely
    found.append(Case("not asked for", "no top_k", {"top_k": 0}, None))
    found.append(Case("not asked for", "no top_k, top_p", {"top_k": 0, "top_p": 1.0}, _TARGET))
    found.append(Case("not asked for", "no top_k, first", {"top_k": 0, "grammar_first": True}, _TARGET))
    return found


def main() -> int:
    """Measure, print the table and say whether all promises are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--gemma", type=Path, metavar="GGUF", help="measure Gemma 3 270M (262,144 tokens) too")
    parser.add_argument("--seeds", type=int, default=20, help="texts of each kind (default 20)")
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of a text (default 64)")
    arguments = parser.parse_args()
    models = {"smollm2": model_path(arguments)}
    if arguments.gemma is not None:
        models["gemma3"] = arguments.gemma.resolve(strict=True)
    print("n_threads=1, temperature 1.5; milliseconds of CPU time a token; ratio free/grammar: median and quartiles")
    lines: list[tuple[str, ...]] = [("model", "JSON", "sampling", "free", "grammar", "ratio", "promise", "")]
    missed = 0
    for model, path in models.items():
        for case in cases():
            progress(f"{model}: {case.prompt}, {case.name}")
            free, constrained = measure(path, case, arguments.seeds, arguments.tokens)
            ratio = Ratio.of([a / b for a, b in zip(free, constrained, strict=True)])
            kept = None if case.target is None else ratio.median >= case.target
            missed += kept is False
            times = [f"{1000 * median(values):.3f}" for values in (free, constrained)]
            promise = "" if case.target is None else f">= {case.target}"
            said = {True: "kept", False: "MISSED", None: ""}[kept]
            lines.append((model, case.prompt, case.name, *times, str(ratio), promise, said))
    progress()
    print_table(lines)
    return 1 if missed else 0


def measure(path: Path, case: Case, n_seeds: int, n_tokens: int) -> tuple[list[float], list[float]]:
    """Return the seconds of a token for each seed: free ones, and ones under the grammar."""
    grammar = Grammar.json()
    free_s, constrained_s = [], []
    with Model(path) as model, _llama(model) as free, _llama(model) as constrained:
        prompt = free.tokenize(_PROMPTS[case.prompt])
        for seed in range(-1, n_seeds):  # the first one warms up
            options: dict[str, Any] = {"max_tokens": n_tokens, "temperature": 1.5, "seed": seed % (n_seeds + 1)}
            options |= case.options
            first = options.pop("grammar_first", False)
            one = free.generate(prompt, **options)
            other = constrained.generate(prompt, grammar=grammar, grammar_first=first, **options)
            spent = alternate(one, other)
            if seed >= 0 and spent is not None:
                free_s.append(spent[0])
                constrained_s.append(spent[1])
    return free_s, constrained_s


def alternate(one: Iterator[int], other: Iterator[int]) -> tuple[float, float] | None:
    """Take tokens of both in turn and return the mean CPU time of each; None when one ends at its beginning."""
    iterators = (one, other)
    spent = [0.0, 0.0]
    n = 0
    while True:
        round_s = [0.0, 0.0]
        for index in (0, 1) if n % 2 else (1, 0):
            begin = time.thread_time()
            if next(iterators[index], None) is None:
                return (spent[0] / (n - 1), spent[1] / (n - 1)) if n > 1 else None
            round_s[index] = time.thread_time() - begin
        if n > 0:  # the first token brings the prompt with it
            spent = [a + b for a, b in zip(spent, round_s, strict=True)]
        n += 1


def _llama(model: Model) -> Llama:
    return Llama(model, n_ctx=512, n_threads=1, n_threads_batch=1)


if __name__ == "__main__":
    sys.exit(main())
