"""Grammars with hundreds of ways to go on, where our own matcher is alone, against sums and the matcher in Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from llamacy.core.model import Model
from llamacy.core.sampler import Sampler
from llamacy.errors import GrammarError
from llamacy.grammar.matcher import Matcher
from llamacy.grammar.parse import parse
from tests.helpers import vendor_dir
from tests.helpers.masks import allowed

LOW, HIGH = 100, 600
GRAMMAR = f'root ::= ("aa" | "aaaaa"){{{LOW},{HIGH}}} "b" "c"?'
FITS = {2 * n + 3 * fives for n in range(LOW, HIGH + 1) for fives in range(n + 1)}


@pytest.fixture(scope="module")
def gpt2() -> Iterator[Any]:
    with Model(vendor_dir() / "models" / "ggml-vocab-gpt-2.gguf", vocab_only=True) as model:
        yield model.vocab


def test_grammar_with_hundreds_of_ways_goes_on_as_before(gpt2: Any) -> None:
    rng = random.Random(5)
    texts = {token: gpt2.piece(token).decode("latin-1") for token in range(gpt2.n_tokens) if not gpt2.is_control(token)}
    letters = {token: text for token, text in texts.items() if text and set(text) <= set("abc")}
    letter = {text: token for token, text in letters.items()}
    ends = {token for token in range(gpt2.n_tokens) if gpt2.is_eog(token)}
    python = Matcher(parse(GRAMMAR))
    runs = [token for token, text in letters.items() if set(text) == {"a"}]
    assert len(runs) > 2
    with Sampler.grammar(gpt2, GRAMMAR) as sampler:
        for _ in range(2):
            written = ""
            for at in (0, 7, 150, 700, 1_100, 1_600):
                while len(written) < at:
                    token = rng.choice(runs)
                    sampler.accept(token)
                    written += letters[token]
                expected = {token for token, text in letters.items() if python.accepts_prefix(written + text)}
                assert allowed(sampler, gpt2.n_tokens) == expected
                assert all(sampler.allows(token) is (token in expected) for token in letters)
                assert (letter["b"] in expected) is (len(written) in FITS)
                assert not any(map(sampler.allows, ends))
                with pytest.raises(GrammarError):
                    sampler.accept(letter["c"])
                assert allowed(sampler, gpt2.n_tokens) == expected
            while len(written) not in FITS:
                sampler.accept(letter["a"])
                written += "a"
            with sampler.clone() as clone:
                clone.accept(letter["a"])
                assert clone.allows(letter["b"]) is (len(written) + 1 in FITS)
            sampler.accept(letter["b"])
            assert allowed(sampler, gpt2.n_tokens) == {letter["c"]} | ends
            assert not sampler.complete
            sampler.accept(letter["c"])
            assert allowed(sampler, gpt2.n_tokens) == ends
            assert sampler.complete
            sampler.accept(min(ends))
            sampler.reset()
            assert not sampler.allows(letter["b"])
