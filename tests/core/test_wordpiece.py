"""What texts are made before BERT's tokenizer cuts them; what is expected is what Hugging Face's tokenizers do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamacy.core.gguf import Gguf
from llamacy.core.model import Model
from llamacy.core.wordpiece import normalize_wordpiece

LONG = "\U00013000"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("Plain ASCII\tstays.\r\n", "Plain ASCII\tstays.\r\n"),
        ("three\x0bfour\x0cfive\x1b[0m\x7f", "threefourfive[0m"),
        ("Crème Brûlée", "Creme Brulee"),
        ("cafe\u0301", "cafe"),
        ("Straße", "Straße"),
        ("İstanbul IŞIK ılık", "Istanbul ISIK ılık"),
        ("Ёлка Київ", "Елка Киів"),
        ("서울", "\u1109\u1165\u110b\u116e\u11af"),
        ("हिन्दी", "हिनदी"),
        ("が", "か"),
        ("zero\u200bwidth soft\u00adhyphen \ufeffmark \ufffd", "zerowidth softhyphen mark "),
        ("👩\u200d👧", "👩👧"),
        ("a" * 100, "a" * 100),
        (f"b {'a' * 101} c", f"b {LONG} c"),
        (f"É {'a' * 300}!", f"E {LONG}!"),
        ("x" * 60 + "_" + "y" * 60, "x" * 60 + "_" + "y" * 60),
        ("長" * 120, "長" * 120),
        ("か" * 101, LONG),
        ("1" * 101, LONG),
    ],
)
def test_normalize_wordpiece(text: str, expected: str) -> None:
    assert normalize_wordpiece(text, True) == expected


def test_normalize_wordpiece_with_accents_keeps_letters_whole() -> None:
    assert normalize_wordpiece("Crème\u200b 서울\x0b", False) == "Crème 서울"


@pytest.mark.parametrize("spelling", [str.encode, str, lambda text: bytearray(text.encode())])
def test_tokenize_wordpiece_accents_go(make_model: Callable[..., Any], bert_path: Path, spelling: Any) -> None:
    vocab = make_model(bert_path).vocab
    assert vocab.tokenize(spelling("Âb\x0bÇ")) == vocab.tokenize("abc")
    assert vocab.tokenize(spelling("ab c")) != vocab.tokenize("abc")


def test_tokenize_wordpiece_special_tokens_are_still_found(make_model: Callable[..., Any], bert_path: Path) -> None:
    tokens = make_model(bert_path).vocab.tokenize("É[SEP]a", parse_special=True, add_special=False)
    assert tokens.tolist() == [9, 3, 5]


def test_tokenize_wordpiece_damaged_bytes_are_left_out(make_model: Callable[..., Any], bert_path: Path) -> None:
    vocab = make_model(bert_path).vocab
    assert vocab.tokenize(b"a\xffb") == vocab.tokenize("ab")


@pytest.mark.parametrize(
    "overrides",
    [
        {"tokenizer.ggml.normalizer.lowercase": False},
        {"tokenizer.ggml.normalizer.strip_accents": False},
        {"tokenizer.ggml.normalizer.lowercase": True, "tokenizer.ggml.normalizer.strip_accents": False},
    ],
)
def test_tokenize_wordpiece_accents_stay_where_the_model_wants_them(
    make_model: Callable[..., Any], bert_path: Path, overrides: dict[str, bool]
) -> None:
    vocab = make_model(bert_path, kv_overrides=overrides).vocab
    assert vocab.tokenize("é", add_special=False).tolist() == [1]


def test_tokenize_wordpiece_file_says_what_goes(
    make_model: Callable[..., Any], bert_path: Path, tmp_path: Path
) -> None:
    with Gguf(bert_path) as gguf:
        gguf.metadata["tokenizer.ggml.normalizer.strip_accents"] = False
        gguf.write(tmp_path / "accents.gguf")
    vocab = make_model(tmp_path / "accents.gguf").vocab
    assert vocab.tokenize("é", add_special=False).tolist() == [1]
    overridden = make_model(
        tmp_path / "accents.gguf", kv_overrides={"tokenizer.ggml.normalizer.strip_accents": True}
    ).vocab
    assert overridden.tokenize("é", add_special=False) == overridden.tokenize("e", add_special=False)


def test_tokenize_wordpiece_model_from_open_file(
    make_model: Callable[..., Any], bert_path: Path, closing: Callable[[Any], Any]
) -> None:
    with bert_path.open("rb") as file:
        vocab = closing(Model(file)).vocab
        assert vocab.tokenize("É") == vocab.tokenize("e")
