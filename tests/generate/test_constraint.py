"""Grammars as native samplers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llamacy.errors import GrammarError
from llamacy.generate.constraint import grammar_sampler
from llamacy.grammar import Grammar


def spelled(char: str) -> int:
    """Return the byte token of the toy vocabulary."""
    return 4 + ord(char)


def test_grammar_becomes_a_sampler_of_its_root(target_model: Any) -> None:
    grammar = Grammar.from_string('root ::= "a"\nother ::= "b"', "other")
    with grammar_sampler(grammar, target_model.vocab) as sampler:
        assert (sampler.allows(spelled("a")), sampler.allows(spelled("b"))) == (False, True)
        assert not sampler.awaiting_trigger


@pytest.mark.parametrize("word", ["<do>", "a.b*", "(x)|[y]", "{1}^$", "tab\there", "é☃", "back\\slash/"])
def test_trigger_word_is_taken_as_it_is(target_model: Any, word: str) -> None:
    literal = word.replace("\\", "\\\\").replace("\t", "\\t")
    grammar = Grammar.from_string(f'root ::= "{literal}" "!"', lazy=True, trigger_words=[word])
    with grammar_sampler(grammar, target_model.vocab) as sampler:
        for byte in ("so " + word).encode():
            assert sampler.awaiting_trigger
            sampler.accept(4 + byte)
        assert not sampler.awaiting_trigger
        assert (sampler.allows(spelled("?")), sampler.allows(spelled("!"))) == (False, True)


def test_patterns_and_tokens_trigger_too(target_model: Any) -> None:
    vocab = target_model.vocab
    text = 'root ::= "x" "!"'
    by_pattern = Grammar.from_string(text, lazy=True, trigger_patterns=["so+ (x)"])
    by_token = Grammar.from_string(text, lazy=True, trigger_tokens=[spelled("x")])
    with grammar_sampler(by_pattern, vocab) as one, grammar_sampler(by_token, vocab) as other:
        for char in "sooo x":
            assert one.awaiting_trigger
            one.accept(spelled(char))
        other.accept(spelled("y"))
        assert other.awaiting_trigger
        other.accept(spelled("x"))
        for sampler in (one, other):
            assert (sampler.allows(spelled("?")), sampler.allows(spelled("!"))) == (False, True)


@pytest.mark.parametrize("wrong", ['root ::= "a"', b'root ::= "a"'])
def test_text_is_refused_with_a_hint(target_model: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"Grammar\.from_string"):
        grammar_sampler(wrong, target_model.vocab)


@pytest.mark.parametrize("wrong", [1, {"type": "object"}, object(), SimpleNamespace(text="x")])
def test_what_is_no_grammar_is_refused(target_model: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"not {type(wrong).__name__}"):
        grammar_sampler(wrong, target_model.vocab)


def test_triggers_that_the_model_cannot_have_are_refused(target_model: Any) -> None:
    text = 'root ::= "x"'
    with pytest.raises(ValueError, match="no token 5000"):
        grammar_sampler(Grammar.from_string(text, lazy=True, trigger_tokens=[5000]), target_model.vocab)
    with pytest.raises(GrammarError, match="at most 512 bytes"):
        grammar_sampler(Grammar.from_string(text, lazy=True, trigger_words=["x" * 513]), target_model.vocab)
    with pytest.raises(GrammarError, match="is wrong"):
        grammar_sampler(Grammar.from_string(text, lazy=True, trigger_patterns=["("]), target_model.vocab)
