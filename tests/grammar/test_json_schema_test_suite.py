"""The JSON Schema Test Suite: every case is decided as it says, or its schema is refused; none is decided wrongly."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from llamacy.errors import SchemaError
from tests.grammar.native import native_matches
from tests.grammar.spelling import spellings
from tests.grammar.suite import DRAFTS, PARTS, SuiteNotFound, archive, groups
from tests.helpers import REPO

N_CASES = {
    "2020-12": {"required": 1257, "optional": 158, "format": 491},
    "7": {"required": 913, "optional": 118, "format": 434},
    "4": {"required": 610, "optional": 100, "format": 153},
}
MOST_REFUSED = 0.15


@pytest.fixture(scope="module", autouse=True)
def _suite() -> None:
    try:
        archive()
    except SuiteNotFound as error:
        pytest.skip(f"the JSON Schema Test Suite is not here: {error}")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("draft", DRAFTS)
def test_no_case_is_decided_wrongly(draft: str, part: str) -> None:
    from tests.grammar.outcome import outcomes

    found = [outcome for file in outcomes(draft, part).values() for outcome in file]
    left_out = sum(
        len(group.cases) for file, some in groups(draft, part) if file not in outcomes(draft, part) for group in some
    )
    assert len(found) + left_out == N_CASES[draft][part]
    wrong = [f"{outcome.name}: {outcome.reason}" for outcome in found if outcome.kind == "wrong"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", PARTS)
def test_native_grammar_decides_every_case_alike(part: str, vocab: Any) -> None:
    from tests.grammar.outcome import grammar_of

    for _, found in groups("2020-12", part):
        for group in found:
            try:
                grammar = grammar_of(group, "2020-12", part)
            except SchemaError:
                continue
            for description, value, _ in group.cases:
                text = next(spellings(value))
                natively = native_matches(vocab, grammar.text, text, grammar.root)
                assert natively is grammar.matches(text), f"{group.name}: {description}: {text}"


@pytest.mark.parametrize("draft", DRAFTS)
def test_few_required_cases_are_refused(draft: str) -> None:
    from tests.grammar.outcome import outcomes

    found = [outcome for file in outcomes(draft, "required").values() for outcome in file]
    refused = [outcome for outcome in found if outcome.kind == "refused"]
    assert len(refused) < MOST_REFUSED * len(found)
    assert all(outcome.reason for outcome in refused)


def test_every_limit_that_is_told_is_one() -> None:
    from tests.grammar.outcome import LIMITS, outcomes

    met = {
        (part, file)
        for draft in DRAFTS
        for part in PARTS
        for file, found in outcomes(draft, part).items()
        if any(outcome.kind == "not offered" for outcome in found)
    }
    assert met == set(LIMITS)


def test_table_in_the_documentation_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPO / "docs"))
    monkeypatch.delitem(sys.modules, "render_json_schema_suite", raising=False)
    import render_json_schema_suite

    page = (REPO / "docs" / "json-schema-suite.md").read_text(encoding="utf-8")
    assert page == render_json_schema_suite.render(), "run: python docs/render_json_schema_suite.py"
