"""What the schema compiler makes of the JSON Schema Test Suite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from llamacy.errors import SchemaError, UnsatisfiableSchemaError, UnsupportedSchemaError
from llamacy.grammar import Grammar
from tests.grammar.spelling import spellings
from tests.grammar.suite import Group, groups, registry

# as many as the longest number of the suite has
MAX_DIGITS = 309
# Instances that satisfy their schema and are not offered: limits that the documentation tells, by part and file.
LIMITS = {
    ("format", "time"): "leap seconds are left out",
    ("format", "date-time"): "leap seconds are left out",
    ("format", "idn-hostname"): "characters that are allowed in some surroundings only are left out",
}
# Tests that an implementation may pass and this one leaves out: the standard lets these keywords be comments.
LEFT_OUT = {("7", "optional", "content"): "`contentMediaType` and `contentEncoding` are comments, as in later drafts"}


@dataclass(frozen=True)
class Outcome:
    """What became of one case.

    Attributes
    ----------
    name
        Which case it is.
    kind
        ``"exact"``, ``"refused"``, ``"not offered"`` or ``"wrong"``.
    reason
        Why it was refused or not offered, or what was wrong.
    """

    name: str
    kind: str
    reason: str = ""


def grammar_of(group: Group, draft: str, part: str) -> Grammar:
    """Return the grammar of a schema of the suite.

    Raises
    ------
    SchemaError
        It is refused, or nothing satisfies it.
    """
    return Grammar.from_json_schema(
        group.schema,
        resolver=registry(draft),
        dialect=draft,
        extra_keys=True,
        formats=part == "format",
        max_digits=MAX_DIGITS,
    )


@cache
def outcomes(draft: str, part: str) -> dict[str, tuple[Outcome, ...]]:
    """Return what became of each case of one part of a draft's tests, by file."""
    return {
        file: tuple([outcome for group in found for outcome in _judge(group, draft, part, LIMITS.get((part, file)))])
        for file, found in groups(draft, part)
        if (draft, part, file) not in LEFT_OUT
    }


def _judge(group: Group, draft: str, part: str, limit: str | None) -> Iterator[Outcome]:
    names = [f"{group.name}: {description}" for description, _, _ in group.cases]
    try:
        grammar = grammar_of(group, draft, part)
    except UnsupportedSchemaError as error:
        for name in names:
            yield Outcome(name, "refused", f"`{error.keyword}`: {_general(error)}")
        return
    except SchemaError as error:
        # a schema that nothing satisfies has no grammar; to refuse it is to enforce it
        empty = isinstance(error, UnsatisfiableSchemaError)
        for name, (_, _, valid) in zip(names, group.cases, strict=True):
            yield Outcome(name, "exact") if empty and not valid else Outcome(name, "wrong", str(error))
        return
    for name, (_, value, valid) in zip(names, group.cases, strict=True):
        if valid:
            if any(grammar.matches(text) for text in spellings(value)):
                yield Outcome(name, "exact")
            else:
                yield Outcome(name, "not offered" if limit else "wrong", limit or "no text of it matches")
        else:
            # to draft 4, 2.0 is another value than 2
            texts = spellings(value, whole=draft != "4")
            text = next((text for text in texts if grammar.matches(text)), None)
            yield Outcome(name, "exact") if text is None else Outcome(name, "wrong", f"matches: {text:.200}")


def _general(error: SchemaError) -> str:
    """Return a message without the place in the schema that it speaks of."""
    return str(error).removeprefix(f"{error.pointer}: ")
