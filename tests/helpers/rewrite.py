"""Copies of GGUF files in which some metadata or tensors are different."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

# a value and its type; for an array, the type of its items
Value = tuple[Any, gguf.GGUFValueType] | tuple[Any, gguf.GGUFValueType, gguf.GGUFValueType]


def string(text: str) -> Value:
    """Return a text as metadata."""
    return text, gguf.GGUFValueType.STRING


def strings(*texts: str) -> Value:
    """Return texts as metadata."""
    return list(texts), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING


def boolean(value: bool) -> Value:
    """Return a bool as metadata."""
    return value, gguf.GGUFValueType.BOOL


def number(value: int) -> Value:
    """Return a number as metadata."""
    return value, gguf.GGUFValueType.UINT32


def rewrite(
    path: Path,
    base: Path,
    metadata: Mapping[str, Value | None] | None = None,
    tensors: Callable[[str, Any], NDArray[Any] | None] | None = None,
    more: Mapping[str, NDArray[Any]] | None = None,
    without: Collection[str] = (),
) -> Path:
    """Write a copy of a GGUF file.

    Parameters
    ----------
    path, base
        What to write, and what to copy.
    metadata
        Values that are different or new; None leaves a key out.
    tensors
        Given a name and the tensor of gguf-py's reader, returns what takes its place, or None to copy it.
    more
        Further tensors.
    without
        Tensors to leave out.
    """
    reader = gguf.GGUFReader(base)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    changed = dict(metadata or {})
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in changed:
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    for name, value in changed.items():
        if value is not None:
            writer.add_key_value(name, value[0], value[1], sub_type=value[2] if len(value) == 3 else None)
    for tensor in reader.tensors:
        if tensor.name in without:
            continue
        made = tensors(tensor.name, tensor) if tensors is not None else None
        if made is not None:
            writer.add_tensor(tensor.name, made)
        else:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    for name, data in (more or {}).items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
