"""Grammars as native samplers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llamacy.core._handle import live_handles
from llamacy.errors import GrammarError
from llamacy.generate.constraint import GrammarSamplers, grammar_sampler
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


@pytest.fixture
def samplers(target_model: Any, closing: Any) -> GrammarSamplers:
    return closing(GrammarSamplers(target_model.vocab))


@pytest.mark.parametrize("lazy", [False, True])
def test_samplers_of_one_grammar_go_on_apart(samplers: GrammarSamplers, lazy: bool) -> None:
    def made() -> Grammar:
        more = {"lazy": True, "trigger_words": ["<"]} if lazy else {}
        return Grammar.from_string('root ::= "<" ("ab" | "cd") ">"', **more)

    for text, wrong in (("<ab>", "c"), ("<cd>", "b"), ("<a", "c")):
        with samplers.sampler(made(), frozenset()) as one, samplers.sampler(made(), frozenset()) as other:
            for byte in ("so " * lazy + text[:2]).encode():
                assert one.awaiting_trigger == (lazy and byte != ord(text[1]))
                one.accept(4 + byte)
            assert not one.allows(spelled(wrong))
            assert other.awaiting_trigger == lazy
            for byte in text.encode():
                other.accept(4 + byte)
            for byte in text[2:].encode():
                one.accept(4 + byte)
            one.reset()
            assert one.awaiting_trigger == lazy
            one.accept(spelled("<"))
            assert not one.allows(spelled("x"))


def test_special_tokens_that_are_spelled_are_told_apart(target_model: Any, samplers: GrammarSamplers) -> None:
    grammar = Grammar.from_string('root ::= "<s>"')
    bos = target_model.vocab.bos
    for spells in (False, True, False):
        with samplers.sampler(grammar, frozenset([bos] if spells else [])) as sampler:
            assert sampler.allows(bos) == spells


def test_few_grammars_are_kept_and_all_are_freed(samplers: GrammarSamplers) -> None:
    before = live_handles()["sampler"]
    for n in range(50):
        samplers.sampler(Grammar.from_string(f'root ::= "{n}"'), frozenset()).close()
    assert live_handles()["sampler"] - before == 8
    samplers.close()
    assert live_handles()["sampler"] == before


def test_object_like_a_grammar_is_read_each_time(samplers: GrammarSamplers) -> None:
    values = Grammar.from_string('root ::= "a"')
    grammar = SimpleNamespace(**{name: getattr(values, name) for name in ("root", "lazy", "reasoning")}, text="")
    grammar.trigger_patterns = grammar.trigger_words = grammar.trigger_tokens = ()
    for char in "ab":
        grammar.text = f'root ::= "{char}"'
        with samplers.sampler(grammar, frozenset()) as sampler:
            assert sampler.allows(spelled(char))


def test_wrong_grammar_raises_each_time(samplers: GrammarSamplers) -> None:
    wrong = Grammar.from_string("root ::= <no-such-token>")
    for _ in range(2):
        with pytest.raises(GrammarError):
            samplers.sampler(wrong, frozenset())
