"""Clones of grammars in the middle of a string, a character, an escape and a count."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llamacy.core.sampler import Sampler
from llamacy.errors import GrammarError
from tests.helpers import FIRST_BYTE

# an object with a string of two to four characters
GRAMMAR = r"""
root ::= "{\"name\": \"" char{2,4} "\"}"
char ::= [^"\\\x00-\x1F] | "\\" ("n" | "u00" [0-9a-f]{2})
"""


def accept(sampler: Sampler, text: bytes) -> None:
    """Accept a text of the toy vocabulary, a byte a token."""
    for byte in text:
        sampler.accept(FIRST_BYTE + byte)


def ends(sampler: Sampler, vocab: Any) -> bool:
    """Return whether a text may end here."""
    return sampler.allows(vocab.eos)


# a beginning, two ways to go on, and one that leaves the grammar with its last byte
@pytest.mark.parametrize(
    ("beginning", "one", "other", "wrong"),
    [
        ('{"name": "A', 'da"}', 'n"}', '"'),
        ('{"name": "Gr', 'ö\\n"}', '"}', "öße"),
        ('{"name": "Gr\\', 'n"}', 'u00e4n"}', "t"),
        ('{"name": "Gr\\u00', 'e4"}', '0a!"}', "E"),
        ('{"name": "x\\u0041', 'yz"}', '"}', "yzz"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_clone_and_original_go_on_apart(
    target_model: Any, beginning: str, one: str, other: str, wrong: str, lazy: bool
) -> None:
    vocab = target_model.vocab
    for text in (beginning + one, beginning + other):
        assert 2 <= len(json.loads(text)["name"]) <= 4
    if lazy:
        original = Sampler.grammar_lazy(vocab, GRAMMAR, trigger_patterns=[r"\{"])
        accept(original, b"some text first: ")
    else:
        original = Sampler.grammar(vocab, GRAMMAR)
    with original:
        accept(original, beginning.encode())
        with original.clone() as clone, clone.clone() as third:
            assert not clone.awaiting_trigger
            # by turns, a byte of each
            for at in range(max(len(one.encode()), len(other.encode()))):
                accept(original, one.encode()[at : at + 1])
                accept(clone, other.encode()[at : at + 1])
            assert ends(original, vocab)
            assert ends(clone, vocab)
            accept(third, wrong.encode()[:-1])
            assert not ends(third, vocab)
            with pytest.raises(GrammarError):
                accept(third, wrong.encode()[-1:])


@pytest.mark.parametrize("split", [1, 2, 3])
def test_clone_in_the_middle_of_a_character_outlives_its_original(target_model: Any, split: int) -> None:
    vocab = target_model.vocab
    character = "😀".encode()
    with Sampler.grammar(vocab, GRAMMAR) as original:
        accept(original, b'{"name": "' + character[:split])
        clone = original.clone()
    with clone:
        assert not clone.allows(FIRST_BYTE + ord("a"))
        accept(clone, character[split:] + b'a"}')
        assert ends(clone, vocab)
