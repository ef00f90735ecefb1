"""Grammars that are refused: wrong ones, and those that llama.cpp would crash, hang or grow without end on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler
from llamacy.errors import GrammarError

CHAIN = "\n".join(f"r{i} ::= r{i + 1}" for i in range(100_000)) + '\nr100000 ::= "a"\nroot ::= r0'
DOUBLING = "\n".join(f'r{i} ::= r{i + 1} "x" | r{i + 1}' for i in range(60)) + '\nr60 ::= "a"\nroot ::= r0'
NULLABLE = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)) + '\nr60 ::= "a"?\nroot ::= r0'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("root", "line 1, column 5: ::= is expected"),
        ("root ::= [", "line 1, column 11: .* inside of a literal or character class"),
        ("root ::= [a-", "inside of a literal or character class"),
        ('root ::= "a', "inside of a literal or character class"),
        ('foo ::= "a"', "no rule 'root'"),
        ("root ::= undefined-rule", "line 1, column 10: rule 'undefined-rule' is not defined"),
        ('root ::= "\\q"', "line 1, column 11: unknown escape"),
        ('root ::= "\\', "unknown escape"),
        ('root ::= "\\x4"', "2 hexadecimal digits"),
        ('root ::= "\\u12g4"', "4 hexadecimal digits"),
        ('root ::= "\\U0000"', "8 hexadecimal digits"),
        ('root ::= "a"{3,1}', "line 1, column 13: the upper bound 1 is below the lower bound 3"),
        ('root ::= "a"{2001}', "more than 2000 repetitions"),
        ('root ::= "a"{0,2001}', "more than 2000 repetitions"),
        ('root ::= "a"{99999999999999999999999}', "more than 2000 repetitions"),
        ('root ::= "a"{', "a number is expected"),
        ('root ::= "a"{2', "a , or } is expected"),
        ('root ::= "a"{,3}', "a number is expected"),
        ("root ::= *", "nothing to repeat"),
        ('root ::= ""+', "nothing to repeat"),
        ('root ::= ("a"', r"a \) is expected"),
        ('root ::= "a")', "a new line or the end"),
        ('root ::= "a"\n| "b"', "line 2, column 1: a rule name"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: rule 'root' is defined twice"),
        ("root ::= <[99999]>", "no token 99999; the vocabulary has 288"),
        ("root ::= <[x]>", "a number is expected"),
        ("root ::= <[1>", "]> is expected"),
        ("root ::= <nope>", "<nope> is not one token"),
        ("root ::= <nope", "this token has no >"),
        ("root ::= <" + "x" * 1_000_000 + ">", "no text of 1000002 bytes"),
        ("root ::= !x", "after !"),
        ('root_1 ::= "a"', "::= is expected"),
        ('root ::= "é☃" x\n\n y ::= "a"', "line 1, column 15: rule 'x'"),
        ("\0", "NUL"),
        ('root ::= "a" # \0', "NUL"),
        ('root ::= "\ud800"', "surrogate"),
    ],
)
def test_wrong_grammar_says_where(target_model: Any, capfd: Any, text: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        Sampler.grammar(target_model.vocab, text)
    assert capfd.readouterr().err == "", "llama.cpp's parser wrote to stderr"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, "more than 256 groups"),
        ("root ::= " + "(" * 200_000, "more than 256 groups"),
        (CHAIN, "inside each other"),
        (DOUBLING, "inside each other"),
        (NULLABLE, "ways to go on"),
        ('root ::= root "a" | "b"', "left recursion: rule 'root'"),
        ('root ::= a\na ::= b? root\nb ::= "x"', "left recursion: rule '(root|a)'"),
        ('root ::= x* root "z"\nx ::= "q"?', "left recursion: rule 'root'"),
        # llama.cpp doesn't see that `a` may be empty, and its stacks would grow for ever
        ('root ::= a root "z" | "y"\na ::= b\nb ::= c\nc ::= "" | "q"', "left recursion: rule 'root'"),
        # no character ever: the first apply would abort
        ('root ::= e a\ne ::= f\nf ::= ""\na ::= e a', "rule 'a' never comes to a character"),
        ("root ::= root", "left recursion"),
        ('root ::= "' + "a" * 2000 + '"{1000} "c"', "too large"),
        ('root ::= "' + "a" * 1_000_001 + '"', "too large"),
        ('root ::= "a"{50}{50}', "more than 2000"),
        ("root ::= " + " | ".join(f'"{i}"' for i in range(20_000)), "ways to go on"),
    ],
    ids=lambda value: value[:40].replace("\n", " "),
)
def test_hostile_grammar_is_refused_at_once(target_model: Any, text: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        Sampler.grammar(target_model.vocab, text)


@pytest.mark.parametrize(
    "text",
    [
        "root ::=",
        "root ::= " + "(" * 256 + '"a"' + ")" * 256,
        'root ::= ("a"*)*',
        'root ::= ("a"?)* "b"',
        'root ::= a root\na ::= b\nb ::= "q"?',
        'root ::= "a"{0,2000}',
        'root ::= "a" root | "b"',
        "root ::= " + " | ".join(f'"{i}"' for i in range(2000)),
        'root ::= a{0} "b"\na ::= "c"',
        'root ::= [] "" "x"',
        'root ::= (\n "a" # comment )\n | "b"\n)\n\n# end',
        'root ::= "a" |\n  "b"\r\nx ::= "y"\r\n',
        'root ::= [\\]\\-\\[a-z-] "\\x41\\u00e9\\U0001F600"',
        "root ::= <[5]> !<[7]> .",
        "\n".join(f"r{i} ::= r{i + 1}" for i in range(1000)) + '\nr1000 ::= "a"\nroot ::= r0',
    ],
    ids=lambda value: value[:40].replace("\n", " "),
)
def test_grammar_at_the_limits_works(target_model: Any, text: str) -> None:
    with Sampler.grammar(target_model.vocab, text) as sampler, sampler.clone() as clone:
        for one in (sampler, clone):
            one.apply(Candidates(np.zeros(target_model.vocab.n_tokens, np.float32)))
        sampler.reset()


def test_root_must_be_a_rule(target_model: Any) -> None:
    vocab = target_model.vocab
    for root in ("other", "", "ro ot", "root\0"):
        with pytest.raises(GrammarError, match="no rule"):
            Sampler.grammar(vocab, 'root ::= "a"', root)
    with pytest.raises(TypeError):
        Sampler.grammar(vocab, 'root ::= "a"', None)  # type: ignore[arg-type]
    with Sampler.grammar(vocab, 'root ::= "a"\nother ::= "b"', "other"):
        pass


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "is wrong"),
        ("[a", "is wrong"),
        ("a{2,1}", "is wrong"),
        ("*", "is wrong"),
        (r"(a)\1", "is wrong"),
        ("", "empty"),
        ("a\0", "NUL"),
        ("(" * 1000 + "a" + ")" * 1000, "64 groups"),
        ("(" * 65 + "a" + ")" * 65, "64 groups"),
        ("a" * 5000, "4096"),
        ("(a?){4000}", "4096"),
        ("((a?){60}){60}", "4096"),
        ("a{99999999999999999999}", "4096"),
        ("\ud800", "surrogate"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_wrong_trigger_pattern_is_refused(target_model: Any, pattern: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        Sampler.grammar_lazy(target_model.vocab, 'root ::= "a"', trigger_patterns=[pattern])


def test_lazy_grammar_needs_triggers_that_are(target_model: Any) -> None:
    vocab = target_model.vocab
    with pytest.raises(ValueError, match="needs trigger"):
        Sampler.grammar_lazy(vocab, 'root ::= "a"')
    with pytest.raises(ValueError, match="no token 288"):
        Sampler.grammar_lazy(vocab, 'root ::= "a"', trigger_tokens=[288])
    with pytest.raises(TypeError, match="not one"):
        Sampler.grammar_lazy(vocab, 'root ::= "a"', trigger_patterns="abc")
    with pytest.raises(GrammarError, match="line 1"):
        Sampler.grammar_lazy(vocab, "root ::= (", trigger_tokens=[1])
