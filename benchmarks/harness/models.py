"""The real model that benchmarks use."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--model` to a parser."""
    default = "the starter model, pulled when it isn't there"
    parser.add_argument("--model", type=Path, help=f"GGUF of SmolLM2-135M-Instruct (default: {default})")


def model_path(arguments: argparse.Namespace) -> Path:
    """Return the real model: the one asked for, or the starter model."""
    if arguments.model is not None:
        path: Path = arguments.model.resolve(strict=True)
        return path
    from llamacy.starter import pull

    return pull("smollm2-135m")
