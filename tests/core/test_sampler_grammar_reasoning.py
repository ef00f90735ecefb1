"""Lazy grammars of models that think: no trigger counts within thinking, however it is cut into tokens."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llamacy.chat.output import named_format
from llamacy.core.model import Model
from llamacy.core.sampler import Sampler
from llamacy.grammar import Grammar
from llamacy.types import ReasoningTags
from tests.helpers import toy_tokens, vendor_dir

DO = 'root ::= "<do>" [a-z<>/`\'" \\n]*'
THINK = ReasoningTags()
OPEN = ReasoningTags(is_open=True)


@pytest.fixture(scope="module")
def gpt2() -> Iterator[Any]:
    with Model(vendor_dir() / "models" / "ggml-vocab-gpt-2.gguf", vocab_only=True) as model:
        yield model.vocab


def fires_after(sampler: Sampler, tokens: list[tuple[int, str]]) -> str | None:
    """Return the text of the tokens up to the one that triggers the grammar, or None."""
    text = ""
    for token, piece in tokens:
        sampler.accept(token)
        text += piece
        if not sampler.awaiting_trigger:
            return text
    return None


def toy(text: str) -> list[tuple[int, str]]:
    return list(zip(toy_tokens(text, add_special=False)[1:], text, strict=True))


@pytest.mark.parametrize(
    ("tags", "text", "fired"),
    [
        (THINK, "<think>a <do> b</think>c<do>", "<think>a <do> b</think>c<do>"),
        (THINK, " \n<think><do></think><think><do></think>\n<do>", " \n<think><do></think><think><do></think>\n<do>"),
        (THINK, "<think>a <do> b", None),
        (THINK, "a<do>", "a<do>"),
        (THINK, "a <think><do>", "a <think><do>"),  # not where a turn begins, it is spoken of
        (THINK, "<thing><do>", "<thing><do>"),
        (THINK, "<th<do>", "<th<do>"),
        (THINK, "</think><think><do></think><do>", "</think><think><do></think><do>"),
        (THINK, "<think>the `</think>` <do> tag</think><do>", "<think>the `</think>` <do> tag</think><do>"),
        (THINK, '<think>a "</think>" <do></think> <do>', '<think>a "</think>" <do></think> <do>'),
        (THINK, "<think>it's '</think>' <do></think><do>", "<think>it's '</think>' <do></think><do>"),
        (THINK, '<think>said "so"</think><do>', '<think>said "so"</think><do>'),
        (THINK, '<think>"</think><do>', '<think>"</think><do>'),
        (OPEN, "<do></think><do>", "<do></think><do>"),
        (OPEN, "<think><do></think><do>", "<think><do></think><do>"),
        (OPEN, "so <do> and <do>", None),
        (ReasoningTags("[", ["]", "}"]), "[<do>}<do>", "[<do>}<do>"),
        (ReasoningTags("[", "]", anywhere=True), "a[<do>]<do>", "a[<do>]<do>"),
        (ReasoningTags("[", "]", anywhere=True), "a[<do>]b [<do>]<do>", "a[<do>]b [<do>]<do>"),
        (ReasoningTags(" [\n", "]", anywhere=True), "a[\n<do>", "a[\n<do>"),
        (ReasoningTags(" [\n", "]"), "[\n<do>]<do>", "[\n<do>]<do>"),
    ],
)
@pytest.mark.parametrize("pattern", ["<do>", r"[\s\S]*?(<do>)", "z?<do>"])
def test_trigger_counts_outside_of_reasoning(
    target_model: Any, tags: ReasoningTags, text: str, fired: str | None, pattern: str
) -> None:
    with Sampler.grammar_lazy(target_model.vocab, DO, trigger_patterns=[pattern], reasoning=tags) as sampler:
        for _ in range(2):
            assert fires_after(sampler, toy(text)) == fired
            sampler.reset()


PARTS = ["<think>", "</think>", "<do>", '"', "`", "'", "\n", " ", "a", "<", "</", "think>", "<d", "o>", ">"]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join), st.booleans(), st.data())
@example("<think>`</think>`<do></think><do>", False, None)
def test_trigger_counts_where_the_parser_sees_no_thinking(gpt2: Any, text: str, is_open: bool, data: Any) -> None:
    parser = named_format("hermes", "<think></think>").parser(
        parse_tools=False, prompt_suffix="<think>" if is_open else ""
    )
    # where the first trigger ends that isn't thought
    end = None
    for at, character in enumerate(text):
        parser.feed(character)
        if end is None and text[: at + 1].endswith("<do>") and not parser.is_thinking:
            end = at + 1
    cuts = [] if data is None else sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    tokens = [
        (token, gpt2.piece(token).decode())
        for begin, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)
        for token in gpt2.tokenize(text[begin:stop], add_special=False)
    ]
    with Sampler.grammar_lazy(gpt2, DO, trigger_patterns=["<do>"], reasoning=ReasoningTags(is_open=is_open)) as sampler:
        fired = fires_after(sampler, tokens)
    # it fires with the token in which the trigger ends
    ends, n = [], 0
    for _, piece in tokens:
        n += len(piece)
        ends.append(n)
    assert fired == (None if end is None else text[: next(stop for stop in ends if stop >= end)])


def test_tag_and_trigger_in_one_token(gpt2: Any) -> None:
    # "></" is a token of GPT-2
    (token,) = gpt2.tokenize("></", add_special=False)
    tags = ReasoningTags("[", ">", is_open=True)
    with Sampler.grammar_lazy(gpt2, 'root ::= "</a"', trigger_patterns=["</"], reasoning=tags) as sampler:
        sampler.accept(token)
        assert not sampler.awaiting_trigger
        assert not sampler.allows(token)
        sampler.accept(gpt2.tokenize("a", add_special=False)[0])


def test_trigger_token_counts_outside_of_reasoning(target_model: Any) -> None:
    (x,) = toy_tokens("x", add_special=False)[1:]
    with Sampler.grammar_lazy(target_model.vocab, 'root ::= "xa"', trigger_tokens=[x], reasoning=THINK) as sampler:
        for token, _ in toy("<think>axa</think>"):
            sampler.accept(token)
            assert sampler.awaiting_trigger
        sampler.accept(x)
        assert not sampler.awaiting_trigger


def test_text_begins_again_after_reasoning(target_model: Any) -> None:
    with Sampler.grammar_lazy(
        target_model.vocab, DO, trigger_patterns=[r"^\s*(<do>)"], reasoning=ReasoningTags(is_open=True)
    ) as sampler:
        assert fires_after(sampler, toy("<do> so</think>\n<do>")) == "<do> so</think>\n<do>"
        sampler.reset()
        assert fires_after(sampler, toy("so</think>\nb<do>")) is None


def test_reasoning_of_any_length_is_waited_for(gpt2: Any) -> None:
    tokens = [*gpt2.tokenize("<think>", add_special=False), *gpt2.tokenize("so <do> it", add_special=False) * 30_000]
    with Sampler.grammar_lazy(gpt2, DO, trigger_patterns=["^[^<]*(<do>)"], reasoning=THINK) as sampler:
        for token in tokens:
            sampler.accept(token)
        for token in gpt2.tokenize("</think>so <do", add_special=False):
            sampler.accept(token)
        assert sampler.awaiting_trigger
        sampler.accept(gpt2.tokenize(">", add_special=False)[0])
        assert not sampler.awaiting_trigger


def test_clone_goes_on_within_reasoning(target_model: Any) -> None:
    with Sampler.grammar_lazy(target_model.vocab, DO, trigger_patterns=["<do>"], reasoning=THINK) as sampler:
        assert fires_after(sampler, toy("<think>a</thi")) is None
        with sampler.clone() as clone:
            assert fires_after(clone, toy("nk><do>")) == "nk><do>"
        assert fires_after(sampler, toy("<do>nk><do>")) is None


def test_grammar_keeps_the_tags() -> None:
    grammar = Grammar.from_string(DO, lazy=True, trigger_words=["<do>"], reasoning=OPEN)
    assert grammar.reasoning == OPEN
    assert grammar == Grammar.from_string(DO).with_triggers(trigger_words=["<do>"], reasoning=OPEN)
    assert grammar != grammar.with_triggers(trigger_words=["<do>"])
    copied = pickle.loads(pickle.dumps(grammar))
    assert (copied, copied.reasoning, type(copied.reasoning)) == (grammar, OPEN, ReasoningTags)
    assert ReasoningTags(["<a>", "<b>"]).start == ("<a>", "<b>")


@pytest.mark.parametrize(
    ("start", "end", "error"),
    [
        ("", "x", ValueError),
        (" \n", "x", ValueError),
        ("x", (), ValueError),
        ("x", "\ud800", ValueError),
        ("x" * 1025, "x", ValueError),
        ("x", ["x"] * 17, ValueError),
        ("x", [1], TypeError),
        (None, "x", TypeError),
    ],
)
def test_wrong_tags_are_refused(start: Any, end: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ReasoningTags(start, end)


def test_what_is_no_tags_is_refused(target_model: Any) -> None:
    with pytest.raises(TypeError, match="must be a ReasoningTags"):
        Sampler.grammar_lazy(target_model.vocab, DO, trigger_tokens=[1], reasoning=("a", "b"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a ReasoningTags"):
        Grammar.from_string(DO, lazy=True, trigger_words=["a"], reasoning="a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only a lazy grammar"):
        Grammar.from_string(DO, reasoning=THINK)
