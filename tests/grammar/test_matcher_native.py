"""The matcher beside llama.cpp's own: both must say the same of every text."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamacy.errors import GrammarError
from llamacy.grammar.charset import CharSet
from llamacy.grammar.emit import emit
from llamacy.grammar.matcher import Matcher
from llamacy.grammar.parse import parse
from llamacy.grammar.tree import Node, Rules
from tests.grammar.native import native_matches
from tests.grammar.test_matcher import RECURSIVE, all_texts, regular
from tests.grammar.writer import random_text

pytest.importorskip("llamacy.core.sampler", exc_type=ImportError)


@pytest.mark.parametrize("text", RECURSIVE)
def test_recursive_grammar_has_the_same_texts(target_model: Any, text: str) -> None:
    found = Matcher(parse(text))
    for word in all_texts("abc", 4):
        assert found.matches(word) is native_matches(target_model.vocab, text, word), word


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(regular, st.randoms(use_true_random=False))
def test_regular_grammar_has_the_same_texts(target_model: Any, node: Node, rng: random.Random) -> None:
    rules = Rules("root", {"root": node})
    text = emit(rules)
    try:
        parse(text)
        found = Matcher(rules)
    except GrammarError:
        return
    words = [random_text(rules, rng, budget) for budget in (0, 4, 8, 16)]
    words += ["".join(rng.choices("abcé☃😀", k=rng.randrange(6))) for _ in range(12)]
    words += [word[:-1] for word in words] + [word + "a" for word in words]
    for word in words:
        if "\0" not in word:  # llama.cpp's texts end there
            assert found.matches(word) is native_matches(target_model.vocab, text, word), word


def test_class_without_a_letter_beyond_ascii_leaves_its_neighbours(target_model: Any) -> None:
    # of [^é] llama.cpp takes no character that begins with the same byte, when it comes byte by byte
    rules = Rules("root", {"root": ~CharSet.of("é")})
    for char in "aèéêüß☃😀":
        matches = char != "é"
        assert Matcher(rules).matches(char) is matches
        assert native_matches(target_model.vocab, emit(rules), char) is matches, char
