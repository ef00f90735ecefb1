"""Structured output of SmolLM2: every text parses, satisfies its schema and ends, at temperature 1.5.

Exits with status 1 when one of them doesn't.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from harness.models import add_model_argument, model_path
from harness.table import print_table, progress
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from llamacy import Llama
from llamacy.grammar import Grammar
from llamacy.grammar.charset import CharSet
from llamacy.grammar.parse import parse
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules, Token

_CASES = Path(__file__).resolve().parent.parent / "tests" / "data" / "structured-output.json"
_N_CTX = 2048
_SAMPLING: dict[str, dict[str, Any]] = {
    "default": {},
    # a chain that leaves no token out, so that a temperature of 1.5 brings rare characters, escapes and bytes
    "whole vocabulary": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
}


@dataclass
class Tally:
    """What came of one schema with one way of sampling."""

    outputs: int = 0
    parsed: int = 0
    valid: int = 0
    ended: int = 0
    tokens: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def main() -> int:
    """Generate, print the table and the texts that are wrong, and say whether there are none."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_argument(parser)
    parser.add_argument("--seeds", type=int, default=100, help="texts of each kind (default 100)")
    parser.add_argument("--sampling", choices=list(_SAMPLING), help="one way of sampling (default: all)")
    arguments = parser.parse_args()
    cases = json.loads(_CASES.read_text(encoding="utf-8"))
    ways = list(_SAMPLING) if arguments.sampling is None else [arguments.sampling]
    lines: list[tuple[str, ...]] = [
        ("schema", "sampling", "outputs", "parse", "valid", "ended", "tokens: median", "most", "limit", "")
    ]
    faults = []
    with Llama(model_path(arguments), n_ctx=_N_CTX, n_threads=1, n_threads_batch=1) as llama:
        for case in cases:
            for way in ways:
                limit, tally = check(llama, case, way, arguments.seeds)
                counts = (tally.outputs, tally.parsed, tally.valid, tally.ended)
                tokens = (f"{median(tally.tokens):g}", str(max(tally.tokens)), str(limit))
                said = "WRONG" if tally.faults else "all right"
                lines.append((case["name"], way, *(str(count) for count in counts), *tokens, said))
                faults += [f"{case['name']}, {way}, {fault}" for fault in tally.faults]
    progress()
    print(f"SmolLM2-135M, temperature 1.5, seeds 0 to {arguments.seeds - 1}, n_threads=1")
    print_table(lines)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def check(llama: Llama, case: dict[str, Any], way: str, n_seeds: int) -> tuple[int, Tally]:
    """Generate one text for each seed; return the most tokens that one may take, and what came of them."""
    grammar = Grammar.from_json_schema(case["schema"], **case["policy"])
    validator = exact_validator(case["schema"])
    # a token is a byte at least; one more may say that the text ends
    limit = most_bytes(parse(grammar.text, grammar.root)) + 1
    prompt = llama.tokenize(case["prompt"])
    if len(prompt) + limit > _N_CTX:
        raise ValueError(f"{case['name']}: a text may take {limit} tokens, which don't fit a context of {_N_CTX}")
    tally = Tally()
    for seed in range(n_seeds):
        progress(f"{case['name']}, {way}, seed {seed}")
        result = llama.create_completion(prompt, limit, temperature=1.5, seed=seed, grammar=grammar, **_SAMPLING[way])
        choice = result["choices"][0]
        text, reason = choice["text"], choice["finish_reason"]
        tally.outputs += 1
        tally.tokens.append(result["usage"]["completion_tokens"])
        wrong = []
        if reason == "stop":
            tally.ended += 1
        else:
            wrong.append(f"finish reason {reason!r}")
        try:
            value = exact_value(text)
        except ValueError as error:
            wrong.append(f"no JSON: {error}")
        else:
            tally.parsed += 1
            errors = [error.message for error in validator.iter_errors(value)]
            tally.valid += not errors
            wrong += errors
        if wrong:
            tally.faults.append(f"seed {seed}: {'; '.join(wrong)}: {text!r}")
    return limit, tally


def exact_validator(schema: dict[str, Any]) -> Draft202012Validator:
    """Return a validator that knows each format of the schema, and whose numbers are exact.

    Raises
    ------
    ValueError
        A format would go unchecked, since a package that jsonschema needs for it is not installed.
    """
    checker = Draft202012Validator.FORMAT_CHECKER
    unknown = formats(schema) - set(checker.checkers)
    if unknown:
        raise ValueError(f"jsonschema can't check {', '.join(sorted(unknown))}; install jsonschema[format-nongpl]")
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(json.loads(json.dumps(schema), parse_float=Decimal), format_checker=checker)


def formats(schema: object) -> set[str]:
    """Return the formats that a schema names."""
    if isinstance(schema, list):
        return set().union(*map(formats, schema))
    if not isinstance(schema, dict):
        return set()
    own = schema.get("format")
    return set().union({own} if isinstance(own, str) else (), *map(formats, schema.values()))


def exact_value(text: str) -> object:
    """Return what a JSON text says.

    Raises
    ------
    ValueError
        It is no JSON, or a key stands twice.
    """
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_different)


def _refuse(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _different(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"a key stands twice in {[key for key, _ in pairs]}")
    return members


def most_bytes(rules: Rules) -> int:
    """Return how many bytes the longest text of a grammar has.

    Raises
    ------
    ValueError
        There is no longest one, or the grammar speaks of tokens.
    """
    known: dict[str, int] = {}
    inside: set[str] = set()

    def most(node: Node) -> int:
        if isinstance(node, Ref):
            name = str(node)
            if name not in known:
                if name in inside:
                    raise ValueError(f"texts of the grammar have no limit: rule {name} uses itself")
                inside.add(name)
                known[name] = most(rules.rules[name])
            return known[name]
        if isinstance(node, str):
            return len(node.encode())
        if isinstance(node, CharSet):
            return len(chr(node[-1][1]).encode())
        if isinstance(node, Token):
            raise ValueError(f"how long a text with the token {node.token} may be depends on the model")
        if isinstance(node, Repeat):
            if node.maximum is None:
                raise ValueError("texts of the grammar have no limit: a part may come again and again")
            return node.maximum * most(node.item)
        if isinstance(node, Choice):
            return max(map(most, node))
        return sum(map(most, node))

    return most(Ref(rules.root))


if __name__ == "__main__":
    sys.exit(main())
