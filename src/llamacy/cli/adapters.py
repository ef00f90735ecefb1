"""Options of LoRA adapters and a control vector."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from llamacy.cli.common import CommandError, one_line, refuse_address
from llamacy.errors import AdapterError

if TYPE_CHECKING:
    from llamacy import Llama


def add_adapter_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `apply_adapters` reads."""
    group = parser.add_argument_group("adapters")
    group.add_argument(
        "--lora",
        action="append",
        type=_scaled,
        default=[],
        metavar="FILE[:SCALE]",
        help="LoRA adapter (GGUF), and how strongly it is applied (default: 1); may be repeated",
    )
    group.add_argument(
        "--control-vector",
        type=_scaled,
        metavar="FILE[:SCALE]",
        help="control vector (GGUF), and what it is multiplied by (default: 1)",
    )


def apply_adapters(llm: Llama, arguments: argparse.Namespace) -> None:
    """Load the adapters of the command line, for all requests."""
    for number, (path, scale) in enumerate(arguments.lora, 1):
        with _with_reason("--lora", path):
            # files in different folders may have the same name
            llm.load_lora(path, name=f"{number}: {path}", scale=scale)
    if arguments.control_vector is not None:
        path, scale = arguments.control_vector
        with _with_reason("--control-vector", path):
            llm.set_control_vector(path, scale)


@contextmanager
def _with_reason(option: str, path: str) -> Iterator[None]:
    """Let an error end with what llama.cpp said last, without the name of its function."""
    refuse_address(path)
    if not Path(path).exists():
        raise CommandError(f"{option} {path}: there is no such file.")
    try:
        yield
    except AdapterError as error:
        if not error.log:
            raise
        raise CommandError(f"{one_line(error)}: {re.sub(r'^[a-z_0-9]+: ', '', error.log[-1])}") from error


def _scaled(text: str) -> tuple[str, float]:
    """Return a file and its scale; a colon may also belong to the name of the file."""
    path, colon, last = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, 1.0
    try:
        scale = float(last)
    except ValueError:
        if path.lower().endswith(".gguf") or Path(path).is_file():
            raise argparse.ArgumentTypeError(f"what is behind the colon is the scale, a number, not {last!r}") from None
        return text, 1.0
    if not path or not math.isfinite(scale):
        raise argparse.ArgumentTypeError(f"{text!r} isn't FILE[:SCALE] with a finite scale")
    return path, scale
