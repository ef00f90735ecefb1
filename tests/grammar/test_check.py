"""Grammars that can be read but not used."""

from __future__ import annotations

import pytest

from llamacy.errors import GrammarError
from llamacy.grammar.charset import CharSet
from llamacy.grammar.check import check
from llamacy.grammar.parse import parse
from llamacy.grammar.tree import Choice, Ref, Repeat, Rules

CHAIN = "\n".join(f"r{i} ::= r{i + 1}" for i in range(5_000)) + '\nr5000 ::= "a"\nroot ::= r0'
DOUBLING = "\n".join(f'r{i} ::= r{i + 1} "x" | r{i + 1}' for i in range(60)) + '\nr60 ::= "a"\nroot ::= r0'
NULLABLE = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)) + '\nr60 ::= "a"?\nroot ::= r0'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root ::= root", "left recursion: rule 'root'"),
        ('root ::= root "a" | "b"', "left recursion: rule 'root'"),
        ('root ::= "a" | (root "b")', "left recursion: rule 'root'"),
        ('root ::= a\na ::= b? root\nb ::= "x"', "left recursion: rule '(root|a)'"),
        ('root ::= x* root "z"\nx ::= "q"?', "left recursion: rule 'root'"),
        ('root ::= (root)? "z"', "left recursion: rule 'root'"),
        ('root ::= "q"{0,3} root "z" | "y"', "left recursion: rule 'root'"),
        ('root ::= "q"{0} root "z" | "y"', "left recursion: rule 'root'"),
        ('root ::= a root "z" | "y"\na ::= b\nb ::= c\nc ::= "" | "q"', "left recursion: rule 'root'"),
        ('root ::= "x"\nother ::= other "x" | "y"', "left recursion: rule 'other'"),
        ('root ::= e a\ne ::= f\nf ::= ""\na ::= e a', "rule 'a' never comes to a character"),
        ('root ::= "a" root', "line 1, column 1: rule 'root' never ends"),
        ('root ::= "a" b | "c"\nb ::= "x" (b | b){1,3}', "line 1, column 14: rule 'b' never ends"),
        ('root ::= "a"\nb ::= "x" c\nc ::= "y" b', "rule '[bc]' never ends"),
        (CHAIN, "inside each other"),
        (DOUBLING, "inside each other"),
        (NULLABLE, "ways to go on"),
        ('root ::= x{0,1024}\nx ::= "a" | ""', "inside each other"),
        ('root ::= ("a"?)* ("b" | "c"?){2,900}' + ' ("b" | "c"?){2,900}' * 9, "ways to go on"),
        ("root ::= " + " | ".join(f'"{i}"' for i in range(20_000)), "ways to go on"),
    ],
    ids=lambda value: value[:40].replace("\n", " "),
)
def test_unusable_grammar_is_refused_by_rule(text: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "root ::= " + "(" * 256 + '"a"' + ")" * 256,
        'root ::= ("a"*)*',
        'root ::= ("a"?)* "b"',
        'root ::= "x" | a root\na ::= b\nb ::= "q"?',
        'root ::= "a"{0,2000}',
        'root ::= x{0,1000}\nx ::= "a" | ""',
        'root ::= "a" root | "b"',
        'root ::= "a" root?',
        'root ::= "a" root{0,3}',
        "root ::= " + " | ".join(f'"{i}"' for i in range(2000)),
        "\n".join(f"r{i} ::= r{i + 1}" for i in range(1000)) + '\nr1000 ::= "a"\nroot ::= r0',
    ],
    ids=lambda value: value[:40].replace("\n", " "),
)
def test_grammar_at_the_limits_is_taken(text: str) -> None:
    assert parse(text).root == "root"


def test_trees_are_checked_as_texts_are() -> None:
    letter = CharSet.of(("a", "z"))
    check(Rules("r", {"r": Choice((letter, (letter, Ref("r"))))}))
    for rules, message in (
        (Rules("root", {}), "no rule 'root' to begin with; its rules are: none"),
        (Rules("r", {"r": Ref("s")}), "rule 's' is not defined"),
        (Rules("r", {"r": (Repeat(letter, 0), Ref("r"), "x")}), "left recursion: rule 'r'"),
        (Rules("r", {"r": (Repeat("", 2, 3), Ref("r"), "x")}), "left recursion: rule 'r'"),
        (Rules("r", {"r": ("", (), Ref("r"))}), "left recursion: rule 'r'"),
        (Rules("r", {"r": (letter, Ref("r"))}), "rule 'r' never ends"),
    ):
        with pytest.raises(GrammarError, match=message):
            check(rules)
