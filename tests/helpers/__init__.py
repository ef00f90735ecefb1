"""Things that several test modules need: data files, tiny models, references that don't come from llamacy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent.parent
DATA = REPO / "tests" / "data"

# the toy vocabulary of tests/data/*.gguf (and of most models that `models` writes)
UNK, BOS, EOS, MASK = 0, 1, 2, 3
FIRST_BYTE = 4
SPACE = 260
FIRST_LETTER = 261
PERIOD = 287
N_TOY_VOCAB = 288


def data(name: str) -> Path:
    """Return the path of a file in tests/data."""
    path = DATA / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not in the checkout; see tests/data/README.md")
    return path


def vendor_dir() -> Path:
    """Return the source tree of llama.cpp that this checkout is built from, or skip the test when it is not here."""
    override = os.environ.get("LLAMACY_LLAMA_CPP_DIR")
    path = Path(override) if override else REPO / "vendor" / "llama.cpp"
    if not (path / "include" / "llama.h").is_file():
        pytest.skip("the llama.cpp source tree is not in this checkout (see vendor/PIN.toml)")
    return path


def toy_tokens(text: str, *, add_special: bool = True) -> list[int]:
    """Tokenize `text` by the toy vocabulary, character by character: it has no merged tokens, so this is exact."""
    ids = [BOS] if add_special else []
    for char in " " + text:
        if char == " ":
            ids.append(SPACE)
        elif "a" <= char <= "z":
            ids.append(FIRST_LETTER + ord(char) - ord("a"))
        elif char == ".":
            ids.append(PERIOD)
        else:
            ids.extend(FIRST_BYTE + byte for byte in char.encode())
    return ids
