"""Writes docs/json-schema-suite.md from the JSON Schema Test Suite: `python docs/render_json_schema_suite.py`. A
test compares the two."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.grammar.outcome import LEFT_OUT, LIMITS, Outcome, outcomes
from tests.grammar.suite import DRAFTS, PARTS

TARGET = Path(__file__).with_name("json-schema-suite.md")

_INTRODUCTION = """# The JSON Schema Test Suite

What `llamacy.grammar` makes of the JSON Schema Test Suite, as it is inside the source distribution of `jsonschema`
4.26.0. This page is written by `docs/render_json_schema_suite.py`; a test says when it is no longer true.

- **exact**: an instance that satisfies the schema matches, written in one order of its keys and with numbers written
  plainly; one that doesn't satisfy it matches in no order and no spacing.
- **refused**: the schema has no grammar; compiling it raises `UnsupportedSchemaError` with the place and the keyword. A
  schema that nothing satisfies raises `UnsatisfiableSchemaError`; that is exact, since no instance of it is valid.
- **not offered**: an instance that satisfies the schema and doesn't match, because of a limit that is told below.
- **wrong**: anything else.

Schemas are compiled with `extra_keys=True`, since the suite's instances have keys that no schema names, with
`formats=False` but for the tests of formats, and with `max_digits=309`, which the longest numbers need. References to
the outside go through a `referencing` registry with the suite's own remote schemas.
"""
_TITLES = {
    "required": "tests that every implementation has to pass",
    "optional": "tests that an implementation may pass",
    "format": "formats, enforced",
}


def render() -> str:
    """Return the page."""
    lines = [_INTRODUCTION, "| draft | tests | cases | exact | refused | not offered | wrong |"]
    lines.append("|---|---|---|---|---|---|---|")
    for draft in DRAFTS:
        for part in PARTS:
            found = [outcome for file in outcomes(draft, part).values() for outcome in file]
            lines.append(f"| {draft} | {_TITLES[part]} | {len(found)} | {_counts(found)} |")
    for draft in DRAFTS:
        for part in PARTS:
            lines += ["", f"## Draft {draft}: {_TITLES[part]}", ""]
            lines += ["| file | cases | exact | refused | not offered | wrong |", "|---|---|---|---|---|---|"]
            for file, found in outcomes(draft, part).items():
                lines.append(f"| {file} | {len(found)} | {_counts(found)} |")
    lines += ["", "## Why schemas are refused", "", "| cases | keyword and reason |", "|---|---|"]
    reasons = Counter(
        outcome.reason
        for draft in DRAFTS
        for part in PARTS
        for file in outcomes(draft, part).values()
        for outcome in file
        if outcome.kind == "refused"
    )
    lines += [f"| {count} | {_cell(reason)} |" for reason, count in sorted(reasons.items(), key=_frequent_first)]
    lines += ["", "## What is not offered", "", "| tests | limit |", "|---|---|"]
    lines += [f"| {file} | {limit} |" for (_, file), limit in LIMITS.items()]
    lines += ["", "## What is left out", "", "| tests | reason |", "|---|---|"]
    lines += [f"| draft {draft}, {file} | {reason} |" for (draft, _, file), reason in LEFT_OUT.items()]
    return "\n".join(lines) + "\n"


def _counts(found: Iterable[Outcome]) -> str:
    kinds = Counter(outcome.kind for outcome in found)
    return " | ".join([str(kinds[kind]) for kind in ("exact", "refused", "not offered", "wrong")])


def _frequent_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
