"""Options of LoRA adapters and a control vector."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

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
        # files in different folders may have the same name
        llm.load_lora(path, name=f"{number}: {path}", scale=scale)
    if arguments.control_vector is not None:
        path, scale = arguments.control_vector
        llm.set_control_vector(path, scale)


def _scaled(text: str) -> tuple[str, float]:
    """Return a file and its scale; a colon may also belong to the name of the file."""
    path, colon, last = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, 1.0
    try:
        scale = float(last)
    except ValueError:
        return text, 1.0
    if not path or not math.isfinite(scale):
        raise argparse.ArgumentTypeError(f"{text!r} isn't FILE[:SCALE] with a finite scale")
    return path, scale
