"""What BERT's normaliser does to texts; expected texts are those of Hugging Face's tokenizers."""

from __future__ import annotations

import pytest

from llamacy.generate.wordpiece import normalize_wordpiece

LONG = "\U00013000"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("Plain ASCII\tstays.\r\n", "Plain ASCII\tstays.\r\n"),
        ("three\x0bfour\x0cfive\x1b[0m\x7f", "threefourfive[0m"),
        ("Crème Brûlée", "creme brulee"),
        ("cafe\u0301", "cafe"),
        ("Straße", "straße"),
        ("İstanbul IŞIK ılık", "istanbul isik ılık"),
        ("ΑΣ ΣΑΣ", "ασ σασ"),
        ("Ёлка Київ", "елка киів"),
        ("서울", "\u1109\u1165\u110b\u116e\u11af"),
        ("हिन्दी", "हिनदी"),
        ("が", "か"),
        ("zero\u200bwidth soft\u00adhyphen \ufeffmark \ufffd", "zerowidth softhyphen mark "),
        ("👩\u200d👧", "👩👧"),
        ("a" * 100, "a" * 100),
        (f"b {'a' * 101} c", f"b {LONG} c"),
        (f"É {'a' * 300}!", f"e {LONG}!"),
        ("x" * 60 + "_" + "y" * 60, "x" * 60 + "_" + "y" * 60),
        ("長" * 120, "長" * 120),
        ("か" * 101, LONG),
        ("1" * 101, LONG),
    ],
)
def test_normalize_wordpiece(text: str, expected: str) -> None:
    assert normalize_wordpiece(text) == expected
