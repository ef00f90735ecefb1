"""Tokens of prompts that are converted in pieces: always those that llama.cpp makes of the whole text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import gguf
import pytest

from llamacy.core.model import Model
from llamacy.errors import ClosedError, TokenizeError
from llamacy.generate import tokenizer as module
from llamacy.generate.tokenizer import Tokenizer
from llamacy.types import TokenAttr
from tests.core.test_vocab_goldens import GOLDENS
from tests.helpers import vendor_dir
from tests.helpers.gguf_metadata import read_metadata
from tests.helpers.models import LlamaShape, write_llama
from tests.helpers.rewrite import rewrite, string, strings

# scripts, joined and combining characters, white space of all kinds, and what looks like a special token
WORDS = (
    "the sea", " 123", "\n", "\n\n ", "   ", "\t", "\r\n", "\uff57\uff49\uff44\uff45", "naïve", "e\u0301", "\u0338",
    "日本語", "한국어", "עברית", "🙂", "👨\u200d👩\u200d👧", "\u200b", "\u00a0", "\ufeff", "\u2028", "▁", "Ġ",
    "<|", "|>", "<", ">", "im_start|>", "[", "]", "\0", "\x7f", "_", "'ll", "</s", "<s> ", "it's",
)  # fmt: skip


@pytest.fixture(scope="module", params=GOLDENS)
def golden(request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model(vendor_dir() / "models" / f"ggml-vocab-{request.param}.gguf", vocab_only=True) as model:
        yield model


def _texts(model: Model, seed: int, n: int) -> list[str]:
    """Return random texts with the special tokens of a model, whole and in parts, some again within longer ones."""
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


@pytest.mark.parametrize(
    ("name", "attr"), [("phi-3", TokenAttr.RSTRIP), ("nomic-bert-moe", TokenAttr.LSTRIP)], ids=["right", "left"]
)
def test_white_space_beside_a_special_token_goes_with_it_as_in_the_whole_text(name: str, attr: TokenAttr) -> None:
    with Model(vendor_dir() / "models" / f"ggml-vocab-{name}.gguf", vocab_only=True) as model:
        vocab = model.vocab
        spellings = {token: vocab.piece(token).decode() for token in vocab.special_tokens}
        marks = [spelling for token, spelling in spellings.items() if attr in vocab.attr(token)]
        assert marks
        tokenizer = Tokenizer(vocab)
        for mark in marks[:8]:
            for other in list(spellings.values())[:8]:
                for space in ("", " ", "  \n\t"):
                    text = f"a{space}{mark}{space}b{space}{other}{space}{mark}{space}{other}{space}"
                    for _ in range(2):
                        assert tokenizer.tokens(text) == vocab.tokenize(text, parse_special=True), text


# words that contain each other, begin as others end, overlap themselves, or begin or end with white space
OVERLAPPING = (
    "<a>", "<b>", "<a><b>", "><", "b><c", "<c>", "abab", "ba", " <q>", "y ", "<ü>", "ü", "[s]", "]", "s]<a", "zzz",
    "<d>", "<e>", "<1", "1>", "<|endoftext|>",
)  # fmt: skip


@pytest.fixture(scope="module")
def overlapping(model_dir: Path) -> Iterator[Model]:
    path = write_llama(model_dir / "overlapping.gguf", LlamaShape(n_vocab=288 + len(OVERLAPPING)), controls=OVERLAPPING)
    with Model(path) as model:
        yield model


@pytest.fixture(scope="module")
def stripping_right(model_dir: Path, overlapping: Model) -> Iterator[Model]:
    """A model whose special tokens take the white space after them, which llama.cpp tells from its name."""
    path = model_dir / "stripping-right.gguf"
    with Model(rewrite(path, Path(overlapping.path), {"general.name": string("phi-3")})) as model:
        assert TokenAttr.RSTRIP in model.vocab.attr(model.n_vocab - 4)
        yield model


@pytest.fixture(scope="module")
def stripping_left(model_dir: Path) -> Iterator[Model]:
    """A model of which one token takes the white space before it, which llama.cpp tells from its tokenizer."""
    base = vendor_dir() / "models" / "ggml-vocab-gpt-2.gguf"
    metadata = read_metadata(base)
    tokens = [token.decode() for token in metadata["tokenizer.ggml.tokens"]]
    types = list(metadata["tokenizer.ggml.token_type"])
    tokens[-3:-1], types[-3:-1] = ["<mask>", "y "], [gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    changed = {
        "tokenizer.ggml.pre": string("jina-v2-code"),
        "tokenizer.ggml.tokens": strings(*tokens),
        "tokenizer.ggml.token_type": (types, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32),
    }
    with Model(rewrite(model_dir / "stripping-left.gguf", base, changed), vocab_only=True) as model:
        assert TokenAttr.LSTRIP in model.vocab.attr(model.n_vocab - 3)
        yield model


@pytest.fixture(scope="module", params=["overlapping", "stripping_right", "stripping_left"])
def difficult(request: pytest.FixtureRequest) -> Model:
    model: Model = request.getfixturevalue(request.param)
    return model


def test_special_tokens_that_share_characters_are_found_as_in_the_whole_text(difficult: Model) -> None:
    vocab = difficult.vocab
    special = [vocab.piece(token).decode() for token in vocab.special_tokens]
    random_ = random.Random(3)
    parts = (*special, *special, *"<>abcdsxyz[1] ü", "ab", " \n ", "text", "<a", "<b><", "><b")
    for _ in range(20):
        tokenizer = Tokenizer(vocab)  # what it learns depends on the order of the texts
        for _ in range(150):
            text = "".join(random_.choices(parts, k=random_.randrange(1, 14)))
            assert tokenizer.tokens(text) == vocab.tokenize(text, parse_special=True), text


class Asked:
    """A vocabulary that notes which texts it converts."""

    def __init__(self, vocab: Any) -> None:
        self._vocab = vocab
        self.texts: list[str] = []

    def tokenize(self, text: str, **options: Any) -> Any:
        self.texts.append(text)
        return self._vocab.tokenize(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vocab, name)


def test_what_came_before_is_not_converted_again(overlapping: Model) -> None:
    asked = Asked(overlapping.vocab)
    tokenizer = Tokenizer(asked)  # type: ignore[arg-type]
    chat = "<d>one<e>\n"
    tokenizer.tokens(chat)
    for word in ("two", "three", "four"):
        chat += f"<d>{word}<e>\n"
        tokenizer.tokens(chat)
    asked.texts.clear()
    tokenizer.tokens(chat + "<d>five<e>\n")
    assert asked.texts == ["<d>five"]


def test_pieces_that_were_used_long_ago_are_forgotten(overlapping: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_KEPT", 100)
    asked = Asked(overlapping.vocab)
    tokenizer = Tokenizer(asked)  # type: ignore[arg-type]
    tokenizer.tokens("<d><e>")
    for number in range(200):
        tokenizer.tokens(f"<d>always<e>{number:010}")
    assert asked.texts.count("<d>always") == 1
    asked.texts.clear()
    tokenizer.tokens("<d>always<e>0000000000<e>0000000199")
    assert asked.texts == ["<e>0000000000"]
    tokenizer.tokens("long " * 21)
    assert asked.texts[-1] == "long " * 21
    asked.texts.clear()
    tokenizer.tokens("long " * 21)
    assert asked.texts == ["long " * 21]  # longer than all that is kept


def test_texts_of_several_threads_are_converted_rightly(golden: Model) -> None:
    vocab = golden.vocab
    tokenizer = Tokenizer(vocab)
    wrong: list[str] = []
    barrier = Barrier(3)

    def convert(seed: int) -> None:
        texts = _texts(golden, seed, 60)
        barrier.wait()
        wrong.extend(text for text in texts if tokenizer.tokens(text) != vocab.tokenize(text, parse_special=True))

    threads = [Thread(target=convert, args=(seed,)) for seed in (5, 5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bytes_are_converted_as_they_are(golden: Model) -> None:
    text = b"a\xff<|endoftext|>"
    assert Tokenizer(golden.vocab).tokens(text) == golden.vocab.tokenize(text, parse_special=True)


def test_error_tells_the_place_in_the_whole_text(overlapping: Model) -> None:
    tokenizer = Tokenizer(overlapping.vocab)
    tokenizer.tokens("<d>one<e>")
    with pytest.raises(TokenizeError, match="lone surrogate at index 9"):
        tokenizer.tokens("<d>one<e>\ud800")


def test_closed_model_raises(make_model: Callable[..., Any]) -> None:
    model = make_model()
    tokenizer = Tokenizer(model.vocab)
    model.close()
    with pytest.raises(ClosedError):
        tokenizer.tokens("text")
