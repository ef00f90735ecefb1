"""A little of what `fuzz_grammar` does at length: no crash, no hang, only typed errors."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.grammar.fuzz_grammar import STOP_S, compile_one, fuzz, random_grammar, random_schema, read_one
from tests.helpers import data

REPORTED = [case["case"] for case in json.loads(data("json-schema.json").read_text(encoding="utf-8"))]


def reported_and_changed(rng: random.Random) -> Any:
    return random_schema(rng, REPORTED)


def test_schemas_of_all_kinds_compile_or_are_refused() -> None:
    assert not fuzz(reported_and_changed, compile_one, count=500, seed=1, limit_s=STOP_S)


def test_grammars_of_all_kinds_are_read_or_refused() -> None:
    assert not fuzz(random_grammar, read_one, count=2000, seed=1, limit_s=STOP_S)
