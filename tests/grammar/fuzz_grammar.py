"""Random and broken schemas and grammars: no crash, no hang, and only typed errors.

    python -m tests.grammar.fuzz_grammar --schemas 100000 --grammars 100000 --seed 1

Prints a line for each fault with what reproduces it, and exits with status 1 when there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llamacy.errors import GrammarError, SchemaError
from llamacy.grammar import Grammar
from tests.grammar.suite import DRAFTS, PARTS, SuiteNotFound, groups
from tests.helpers import data

LIMIT_S = 1.0
# how much longer than the limit an item may take before it is stopped
STOP_S = 10.0

_KEYWORDS = """
type enum const multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern format items
prefixItems additionalItems contains minContains maxContains minItems maxItems uniqueItems unevaluatedItems properties
required additionalProperties patternProperties propertyNames minProperties maxProperties dependencies
dependentRequired dependentSchemas unevaluatedProperties allOf anyOf oneOf not if then else $ref $defs definitions $id
$anchor $dynamicRef $dynamicAnchor $schema id description default unknown
"""
KEYWORDS = tuple(_KEYWORDS.split())
SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 1000, 100_001, 2**63, -(10**40), 0.1, -0.0, 1e308, 5e-324, float("nan"),
    float("inf"), "", "a", "object", "array", "string", "integer", "number", "null", "boolean", "#", "#/$defs/a",
    "#/definitions/a", "#/properties/a", "#a", "other.json", "http://json-schema.org/draft-07/schema#", "date",
    "date-time", "ipv4", "uuid", "^[a-z]{1,20}$", "(a+)+$", "(?!a)b", "(", "[", "a{2,1}", "\\p{L}", "(.)\\1",
    "^a*b*c*d*e*f*$", "\\", "\ud800", "\0", "\U0001f600", '"; root ::= "x"',
)  # fmt: skip
GRAMMAR_PARTS = (
    "root", "::=", "a", "b-c", "|", "(", ")", "*", "+", "?", "{1,2}", "{3}", "{0,2000}", "{2,}", "{", "}", ",", '"a"',
    '""', '"\\n"', '"\\x41"', '"\\u00e9"', '"\\', '"', "[a-z]", "[^\\x00-\\x1F]", "[", "]", "[]", "[z-a]", ".", "#",
    "# c\n", "\n", " ", "\t", "<think>", "<[1]>", "!<[1]>", "!", "<", ">", "\\", "\0", "\u00e9", "\U0001f600",
    "root ::= a\n", 'a ::= "x"\n', 'b-c ::= a? root | ""\n', "99999999999", "_", "1",
)  # fmt: skip


class Stopped(BaseException):
    """An item took too long."""


@contextmanager
def stopped_after(limit_s: float) -> Iterator[None]:
    """Stop what takes more CPU time than this, where the system can."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def corpus() -> list[Any]:
    """Return the schemas that mutations start from: the reported faults, and the test suite where that can be had."""
    schemas = [case["case"] for case in json.loads(data("json-schema.json").read_text(encoding="utf-8"))]
    with contextlib.suppress(SuiteNotFound):
        schemas += [
            group.schema for draft in DRAFTS for part in PARTS for _, found in groups(draft, part) for group in found
        ]
    return schemas


def random_value(rng: random.Random, depth: int) -> Any:
    """Return any JSON value, many of them schemas or nearly so."""
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(SCALARS)
    if kind < 0.5:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {
        rng.choice(KEYWORDS if rng.random() < 0.9 else ("a", "b", "")): random_value(rng, depth - 1)
        for _ in range(rng.randrange(5))
    }


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all containers of a value with a key of each."""
    pending = [value]
    while pending:
        at = pending.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        for key in keys:
            yield at, key
            pending.append(at[key])


def mutated(rng: random.Random, schemas: list[Any]) -> Any:
    """Return a schema of the corpus with a few changes."""
    schema = copy.deepcopy(rng.choice(schemas))
    for _ in range(rng.randint(1, 4)):
        places = list(_places(schema))
        if not places:
            return random_value(rng, 3)
        at, key = rng.choice(places)
        change = rng.randrange(5)
        if change == 0:
            at[key] = random_value(rng, 2)
        elif change == 1:
            del at[key]
        elif change == 2:
            donor, donated = rng.choice(list(_places(rng.choice(schemas))) or [(at, key)])
            at[key] = copy.deepcopy(donor[donated])
        elif change == 3 and isinstance(at, dict):
            at[rng.choice(KEYWORDS)] = at.pop(key)
        elif isinstance(at, dict):
            donor, donated = rng.choice(list(_places(rng.choice(schemas))) or [(at, key)])
            at[rng.choice(KEYWORDS) if isinstance(donor, list) else donated] = copy.deepcopy(donor[donated])
    return schema


def random_schema(rng: random.Random, schemas: list[Any]) -> Any:
    """Return anything, or a schema of the corpus with a few changes."""
    return random_value(rng, 4) if rng.random() < 0.3 else mutated(rng, schemas)


def random_grammar(rng: random.Random) -> str:
    """Return a text that is nearly GBNF, or is."""
    if rng.random() < 0.5:
        text = "".join([rng.choice(GRAMMAR_PARTS) for _ in range(rng.randint(1, 25))])
    else:
        rules = [
            f"{name} ::= " + " ".join([rng.choice(GRAMMAR_PARTS) for _ in range(rng.randint(1, 6))])
            for name in ("root", "a", "b-c")
        ]
        text = "\n".join(rules)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(GRAMMAR_PARTS) + text[at + rng.randrange(3) :]
    return text


def compile_one(schema: Any, rng: random.Random) -> None:
    """Compile a schema with some policy; only a wrong schema may raise, and what is no schema at all."""
    policy = {
        "extra_keys": rng.random() < 0.5,
        "strict": rng.random() < 0.7,
        "property_order": rng.choice(("declared", "required_first", "any")),
        "whitespace": rng.choice(("compact", "single", "pretty")),
    }
    before = repr(schema)
    try:
        grammar = Grammar.from_json_schema(schema, **policy)
        grammar.matches('{"a":1}')
    except TypeError:
        if isinstance(schema, (dict, bool, str)):
            raise
    except SchemaError as error:
        if not error.pointer.startswith("#"):
            raise AssertionError(f"pointer {error.pointer!r}") from error
    finally:
        if repr(schema) != before:
            raise AssertionError("the schema was changed")


def read_one(text: str, rng: random.Random) -> None:
    """Read a grammar and put texts to it; only a wrong grammar may raise."""
    try:
        grammar = Grammar.from_string(text)
        for probe in ("", "a", "x" * 50, 'xa"', "\u00e9\U0001f600"):
            if grammar.matches(probe) and not grammar.accepts_prefix(probe):
                raise AssertionError(f"{probe!r} matches, but may not begin a text")
    except GrammarError:
        pass


def fuzz(
    make: Callable[[random.Random], Any],
    use: Callable[[Any, random.Random], None],
    count: int,
    seed: int,
    limit_s: float = LIMIT_S,
) -> Counter[str]:
    """Use many random items and return how many of each fault there were, each printed when first seen.

    Parameters
    ----------
    make, use
        Makes one item; does with it what is tested.
    count, seed
        How many items, and which.
    limit_s
        CPU time above which an item is a fault.
    """
    faults: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        item = make(rng)
        begin = time.process_time()
        fault = message = ""
        try:
            with stopped_after(STOP_S), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                use(item, rng)
        except Stopped:
            fault = f"more than {STOP_S} s"
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}, {last.name}"
            message = f": {error!s:.200}"
        else:
            spent = time.process_time() - begin
            if spent > limit_s:
                fault = f"more than {limit_s} s"
        if fault:
            faults[fault] += 1
            if faults[fault] <= 3:
                print(f"{number}: {fault}{message}\n  {item!r:.2000}", flush=True)
    return faults


def main() -> int:
    """Run the fuzzer and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=100_000)
    parser.add_argument("--grammars", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    schemas = corpus()
    faults = fuzz(lambda rng: random_schema(rng, schemas), compile_one, arguments.schemas, arguments.seed)
    faults += fuzz(random_grammar, read_one, arguments.grammars, arguments.seed)
    print(f"{faults.total()} faults in {arguments.schemas} schemas and {arguments.grammars} grammars")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
