"""`llamacy info`: the model card, from the metadata of the file."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from llamacy.cli.common import add_model_option, print_table, resolve_model, show_native_log

_SHOWN_ITEMS = 6
_SHOWN_CHARACTERS = 90


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "info",
        help="show what a model file is",
        description="Show the card of a model, from the metadata of its file. No weights are loaded.",
        allow_abbrev=False,
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("file", nargs="?", metavar="MODEL", help="the same as --model")
    add_model_option(one)
    parser.add_argument("--metadata", action="store_true", help="list all keys; long texts and arrays are shortened")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path = resolve_model(arguments.file or arguments.model)
    from llamacy import Gguf

    show_native_log(False)
    with Gguf(path) as gguf:
        metadata = {key: _plain(value) for key, value in gguf.metadata.items()}
        parts = _parts(path, metadata)
        tensors = list(gguf.tensors.values())
        for part in parts[1:]:
            with Gguf(part) as other:
                tensors += other.tensors.values()
    card = make_card(path, parts, metadata, tensors)
    if arguments.json:
        shown: dict[str, Any] = {"card": card}
        if arguments.metadata:
            shown["metadata"] = {key: _json_value(value) for key, value in metadata.items()}
        print(json.dumps(shown, indent=2))
        return 0
    print_table([(_label(key), _text(key, value)) for key, value in card.items() if value is not None])
    if arguments.metadata:
        print()
        print_table([(key, _shorten(value)) for key, value in metadata.items()])
    return 0


def make_card(
    path: Path, parts: list[Path], metadata: Mapping[str, Any], tensors: Iterable[Any]
) -> dict[str, str | int | bool | None]:
    """Return the card: what a person wants to know of a model, None where the file doesn't say.

    Parameters
    ----------
    path
        The file.
    parts
        All files of a split model, else the file alone.
    metadata
        Its metadata as plain Python values.
    tensors
        `TensorInfo` of every tensor.
    """
    tensors = list(tensors)
    architecture = metadata.get("general.architecture")

    def own(key: str) -> Any:
        return metadata.get(f"{architecture}.{key}")

    vocabulary = metadata.get("tokenizer.ggml.tokens")
    # that of rerankers is for pairs of texts
    templates = [
        key for key in metadata if key.startswith("tokenizer.chat_template") and key != "tokenizer.chat_template.rerank"
    ]
    return {
        "file": str(path),
        "name": metadata.get("general.name"),
        "architecture": architecture,
        "parameters": sum(math.prod(tensor.shape) for tensor in tensors),
        "quantization": _quantization(metadata, tensors),
        "size_bytes": sum(part.stat().st_size for part in parts),
        "parts": len(parts) if len(parts) > 1 else None,
        "tensors": len(tensors),
        "context_length": own("context_length"),
        "layers": own("block_count"),
        "embedding_length": own("embedding_length"),
        "pooling": _pooling(own("pooling_type")),
        "vocabulary": len(vocabulary) if vocabulary is not None else None,
        "tokenizer": metadata.get("tokenizer.ggml.model"),
        "chat_template": bool(templates),
        "licence": metadata.get("general.license.name") or metadata.get("general.license"),
    }


def _pooling(value: Any) -> str | None:
    """Return how the model makes one vector, or scores, of a text."""
    from llamacy.types import PoolingType

    try:
        return None if value is None else PoolingType(value).name.lower()
    except ValueError:
        return f"unknown ({value})"


def _quantization(metadata: Mapping[str, Any], tensors: list[Any]) -> str | None:
    from llamacy.types import FileType

    value = metadata.get("general.file_type")
    try:
        return None if value is None else FileType(value).name
    except ValueError:
        types = {tensor.type.name for tensor in tensors}
        return f"unknown ({', '.join(sorted(types))})"


def _parts(path: Path, metadata: Mapping[str, Any]) -> list[Path]:
    """All files of a split model that are there, else the file alone."""
    count = metadata.get("split.count", 0)
    found = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path.name)
    if not isinstance(count, int) or count < 2 or found is None or int(found[2]) != count:
        return [path]
    names = [path.with_name(f"{found[1]}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    return [path, *(name for name in names if name != path and name.is_file())]


def _plain(value: Any) -> Any:
    """An array of numbers as a list, so that the file can be closed."""
    if isinstance(value, memoryview):
        with value:
            return value.tolist()
    return value


def _label(key: str) -> str:
    return key.removesuffix("_bytes").replace("_", " ")


def _text(key: str, value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and key.endswith("_bytes"):
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, int) and key == "parameters":
        return _count(value)
    return _one_line(str(value))


def _count(value: int) -> str:
    for unit, name in ((1e9, " B"), (1e6, " M"), (1e3, " K")):
        if value >= unit:
            return f"{value / unit:.2f}{name}"
    return str(value)


def _one_line(text: str) -> str:
    shown = text[:_SHOWN_CHARACTERS].replace("\n", "\\n")
    return shown if len(text) <= _SHOWN_CHARACTERS else f"{shown}… ({len(text)} characters)"


def _shorten(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(repr, value[:_SHOWN_ITEMS]))
        return f"[{shown}, … {len(value)} items]" if len(value) > _SHOWN_ITEMS else f"[{shown}]"
    return _one_line(str(value))


def _json_value(value: Any) -> Any:
    if isinstance(value, list) and len(value) > _SHOWN_ITEMS:
        return {"n_items": len(value), "first": [_json_value(item) for item in value[:_SHOWN_ITEMS]]}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
