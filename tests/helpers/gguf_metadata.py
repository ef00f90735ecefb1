"""A small reader of GGUF metadata, straight from the description of the format (docs/gguf.md of ggml).

gguf-py makes a NumPy array for every string, which takes half a minute for a vocabulary of a quarter of a million
tokens.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.offset = data, 0

    def numbers(self, code: str, count: int = 1) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self.data, self.offset)
        self.offset += layout.size
        return values

    def string(self) -> bytes:
        (length,) = self.numbers("Q")
        self.offset += length
        return self.data[self.offset - length : self.offset]

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, count = self.numbers("I")[0], self.numbers("Q")[0]
            if inner in _NUMBERS:
                return list(self.numbers(_NUMBERS[inner], count))
            return [self.value(inner) for _ in range(count)]
        return self.numbers(_NUMBERS[kind])[0]


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a GGUF file; strings are bytes, arrays are lists."""
    cursor = _Cursor(path.read_bytes())
    magic, version = cursor.numbers("I", 2)
    if magic != int.from_bytes(b"GGUF", "little") or version not in (2, 3):
        raise ValueError(f"{path} is not GGUF 2 or 3")
    _, n_keys = cursor.numbers("Q", 2)
    found = {}
    for _ in range(n_keys):
        key = cursor.string().decode()
        found[key] = cursor.value(cursor.numbers("I")[0])
    return found
