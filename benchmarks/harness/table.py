"""Tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print lines with aligned columns."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    sys.stdout.flush()


def progress(text: str = "") -> None:
    """Say on a terminal what is measured now; nothing to wipe it out."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
