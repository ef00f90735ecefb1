"""Tokens of prompts that are converted in pieces: always those that llama.cpp makes of the whole text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from llamacy.core.model import Model
from llamacy.errors import TokenizeError
from llamacy.generate import tokenizer as module
from llamacy.generate.tokenizer import Tokenizer
from llamacy.types import TokenAttr
from tests.core.test_vocab_goldens import GOLDENS
from tests.helpers import data, vendor_dir

# scripts, joined and combining characters, white space of all kinds, and what looks like a special token
WORDS = (
    "the sea", " 123", "\n", "\n\n ", "   ", "\t", "\r\n", "ｗｉｄｅ", "naïve", "e\u0301", "\u0338", "日本語", "한국어", "עברית",
    "🙂", "👨‍👩‍👧", "\u200b", "\u00a0", "\ufeff", "\u2028", "▁", "Ġ", "<|", "|>", "<", ">", "im_start|>", "[", "]", "\0", "\x7f",
    "_", "'ll", "</s", "<s> ", "it's",
)  # fmt: skip


@pytest.fixture(scope="module", params=GOLDENS)
def golden(request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model(vendor_dir() / "models" / f"ggml-vocab-{request.param}.gguf", vocab_only=True) as model:
        yield model


def _texts(model: Model, seed: int, n: int) -> list[str]:
    """Return random texts with the special tokens of a model, whole and in parts, and some texts again in longer ones."""
    random_ = random.Random(seed)
    vocab = model.vocab
    special = [vocab.piece(token).decode("utf-8", "replace") for token in vocab.special_tokens]
    special = [text for text in special if len(text) < 100]
    often = random_.sample(special, min(len(special), 6))
    texts = [""]
    for _ in range(n):
        parts = [random_.choice(texts[-20:])] if random_.random() < 0.5 else []
        for _ in range(random_.randrange(12)):
            kind = random_.random()
            if kind < 0.35 and often:
                parts.append(random_.choice(often))
            elif kind < 0.45 and special:
                word = random_.choice(special)
                parts.append(word if kind < 0.42 else word[: random_.randrange(len(word) + 1)])
            else:
                parts.append(random_.choice(WORDS))
        texts.append("".join(parts)[-400:])
    return texts


def test_tokens_of_random_texts_are_those_of_the_whole_text(golden: Model) -> None:
    tokenizer = Tokenizer(golden.vocab)
    for text in _texts(golden, 1, 1500):
        assert tokenizer.tokens(text) == golden.vocab.tokenize(text, parse_special=True), text


def test_tokens_of_conversations_are_those_of_the_whole_text(golden: Model) -> None:
    vocab = golden.vocab
    tokenizer = Tokenizer(vocab)
    marks = [vocab.piece(token).decode("utf-8", "replace") for token in vocab.special_tokens]
    chat = ""
    for turn in range(40):
        mark = marks[turn * 7919 % len(marks)]
        chat += f"{mark}user\nQuestion {turn}: {WORDS[turn % len(WORDS)]} {mark} \nAnswer"
        assert tokenizer.tokens(chat) == vocab.tokenize(chat, parse_special=True), chat


def _strips(attr: TokenAttr) -> Callable[[Model], list[str]]:
    return lambda model: [
        model.vocab.piece(token).decode() for token in model.vocab.special_tokens if attr in model.vocab.attr(token)
    ]


@pytest.mark.parametrize(
    ("name", "attr"), [("phi-3", TokenAttr.RSTRIP), ("nomic-bert-moe", TokenAttr.LSTRIP)], ids=["right", "left"]
)
def test_white_space_beside_a_special_token_goes_with_it_as_in_the_whole_text(name: str, attr: TokenAttr) -> None:
    with Model(vendor_dir() / "models" / f"ggml-vocab-{name}.gguf", vocab_only=True) as model:
        marks = _strips(attr)(model)
        assert marks
        tokenizer = Tokenizer(model.vocab)
        others = [model.vocab.piece(token).decode() for token in model.vocab.special_tokens[:8]]
        for mark in marks[:8]:
            for other in others:
                for space in ("", " ", "  \n\t"):
                    text = f"a{space}{mark}{space}b{space}{other}{space}{mark}{space}{other}{space}"
                    for _ in range(2):
                        assert tokenizer.tokens(text) == model.vocab.tokenize(text, parse_special=True), text
