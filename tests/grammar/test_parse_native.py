"""The reader of GBNF beside the one that stands before llama.cpp: what the one refuses, the other refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamacy.errors import GrammarError
from llamacy.grammar.parse import parse

samplers = pytest.importorskip("llamacy.core.sampler", exc_type=ImportError)

# only here: llama.cpp would go on and on, or wait for a character that no text has
STRICTER = ("never ends", "is no character")

PARTS = (
    "root", "a", "b", "::=", "|", "(", ")", "*", "+", "?", "{1,2}", "{3}", "{0}", "{2,}", "{", "}", ",", '"a"', '""',
    '"\\n"', '"\\x41"', '"\\', '"', "[a-z]", "[^\\x00-\\x1F]", "[", "]", "[]", "[z-a]", ".", "# c\n", "\n", " ", "\t",
    "\r", "!", "\\", "é", "\nroot ::= a ", '\na ::= "x" ', '\nb ::= a? root | "" ', "_", "1", "{0,2000}", "{60}",
)  # fmt: skip


def verdict(read: Any, *arguments: Any) -> str | None:
    """Return the message of an error without what it knows more of."""
    try:
        made = read(*arguments)
    except GrammarError as error:
        return str(error).partition("; its rules are")[0]
    if hasattr(made, "close"):
        made.close()
    return None


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join), st.booleans())
def test_both_readers_say_the_same(target_model: Any, text: str, whole: bool) -> None:
    if whole:
        text = f'root ::= {text}\na ::= "x"\nb ::= "y" root | "z"?'
    native = verdict(samplers.Sampler.grammar, target_model.vocab, text)
    ours = verdict(parse, text)
    if native is None and ours is not None:
        assert any(reason in ours for reason in STRICTER)
    else:
        assert ours == native


@pytest.mark.parametrize(
    "text",
    [
        "root ::= " + "(" * 60_000,
        'root ::= "a"{2001}',
        'root ::= "a"{2000}',
        'root ::= "' + "a" * 2000 + '"{1000} "c"',
        'root ::= "' + "a" * 999_990 + '" "' + "a" * 9 + '"',
        'root ::= "' + "a" * 999_990 + '" "' + "a" * 8 + '"',
        'root ::= x{0,1023}\nx ::= "a" | ""',
        'root ::= x{0,1024}\nx ::= "a" | ""',
        'root ::= ("a"? | "b"){2,400} ("a"? | "b"){2,400}',
        'root ::= ("a"? | "b"){2,300} ("a"? | "b"){2,300}',
        *["root ::= " + " | ".join(f'"{i}"' for i in range(n)) for n in (16_383, 16_384, 16_385)],
        *["root ::= " + " ".join(["a*"] * n) + '\na ::= "x"' for n in (8_191, 8_192)],
        *[
            "\n".join(f"r{i} ::= r{i + 1}" for i in range(n)) + f'\nr{n} ::= "a"\nroot ::= r0'
            for n in (1_021, 1_022, 1_023, 1_024)
        ],
        *[
            "\n".join(f'r{i} ::= r{i + 1} "x" | r{i + 1}' for i in range(n)) + f'\nr{n} ::= "a"\nroot ::= r0'
            for n in (12, 13, 14, 20, 21, 22)
        ],
    ],
    ids=lambda text: f"{text[:30]!r} {len(text)}",
)
def test_both_readers_have_the_same_limits(target_model: Any, text: str) -> None:
    assert verdict(parse, text) == verdict(samplers.Sampler.grammar, target_model.vocab, text)
