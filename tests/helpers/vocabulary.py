"""The tokenizer part of a GGUF file and what its tokens and texts are, worked out without llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf

from tests.helpers.gguf_metadata import read_metadata

SEPARATOR = b"\n__ggml_vocab_test__\n"


@dataclass(frozen=True)
class GoldenCase:
    """One text of an upstream golden file and its token ids."""

    text: bytes
    ids: list[int]


def golden_cases(path: Path) -> list[GoldenCase]:
    """Read ``<path>.inp`` and ``<path>.out`` as upstream's tests/test-tokenizer-0.cpp does."""
    texts = path.with_name(path.name + ".inp").read_bytes().split(SEPARATOR)
    lines = path.with_name(path.name + ".out").read_text(encoding="ascii").splitlines()
    if texts[-1] == b"":
        del texts[-1]  # the reader stops where nothing follows a separator
    if len(texts) != len(lines):
        raise ValueError(f"{path} has {len(texts)} texts and {len(lines)} lines of ids")
    return [GoldenCase(text, [int(token) for token in line.split()]) for text, line in zip(texts, lines, strict=True)]


def _byte_of_character() -> dict[str, int]:
    # GPT-2's table: printable bytes stand for themselves, the others are moved to U+0100 and up
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    moved = [byte for byte in range(256) if byte not in printable]
    return table | {chr(0x100 + index): byte for index, byte in enumerate(moved)}


_BYTES = _byte_of_character()
# what stands for each byte in GPT-2's vocabulary
BYTE_CHARACTERS = {byte: character for character, byte in _BYTES.items()}


class VocabularyFile:
    """Arrays and settings of the tokenizer in a GGUF file."""

    def __init__(self, path: Path) -> None:
        self.metadata = read_metadata(path)
        self.model = self.value("model")
        self.texts: list[bytes] = self.value("tokens")
        self.types: list[int] = self.value("token_type", [1] * len(self.texts))
        self.scores: list[float] = self.value("scores", [0.0] * len(self.texts))

    def value(self, key: str, default: Any = None) -> Any:
        """Return one ``tokenizer.ggml`` value."""
        value = self.metadata.get(f"tokenizer.ggml.{key}", default)
        return value.decode() if isinstance(value, bytes) else value

    def is_special(self, token: int) -> bool:
        return self.types[token] in (gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL)

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token stands for, specials spelled out.

        Raises `KeyError` for a token with characters that byte-level BPE has no byte for; no text makes such a token.
        """
        text, kind = self.texts[token], self.types[token]
        if kind == gguf.TokenType.BYTE:
            return bytes([int(text[3:5], 16)])
        if kind != gguf.TokenType.NORMAL:
            return text
        if self.model == "gpt2":
            return bytes(_BYTES[char] for char in text.decode())
        return text.replace("\u2581".encode(), b" ")

    def detokenize(self, tokens: Sequence[int], *, clean: bool) -> bytes:
        """Return the text of tokens, specials left out.

        With `clean`, spaces are removed as `clean_up_tokenization` of Hugging Face's tokenizers does.
        """
        text = b"".join(b"" if self.is_special(token) else self.piece(token) for token in tokens)
        if self.value("add_space_prefix", self.model in ("llama", "t5")):
            text = text.removeprefix(b" ")
        if clean:
            text = re.sub(rb" ([?!.,])", rb"\1", text)
            text = text.replace(b" ' ", b"'")
            text = re.sub(rb" ('(?:s|m|ve|re))", rb"\1", text)
        return text
