"""Options of commands that work on files of many texts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

INPUT_FORMATS = ("lines", "jsonl", "parquet", "arrow")
OUTPUT_FORMATS = ("jsonl", "npy", "parquet")


def add_row_options(parser: argparse.ArgumentParser, fields: Sequence[tuple[str, str, str]]) -> None:
    """Add what to read and what to write.

    Parameters
    ----------
    parser
        Of the command.
    fields
        Option, default and meaning of each field that is read.
    """
    parser.add_argument(
        "input", nargs="?", type=Path, metavar="INPUT", help="file to read; - or nothing: standard input"
    )
    group = parser.add_argument_group("files")
    group.add_argument(
        "-o", "--output", type=Path, metavar="OUTPUT", help="file to write (default: JSON lines on standard output)"
    )
    group.add_argument(
        "--input-format", choices=INPUT_FORMATS, help="default: by the name of the file; text lines for other names"
    )
    group.add_argument("--output-format", choices=OUTPUT_FORMATS, help="default: by the name of the file")
    for option, default, meaning in fields:
        group.add_argument(option, default=default, metavar="NAME", help=f"{meaning} (default: {default})")
    group.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="NAME",
        help="field to copy to the output; may be repeated",
    )
    begin = group.add_mutually_exclusive_group()
    begin.add_argument("--resume", action="store_true", help="go on with OUTPUT where an earlier run was interrupted")
    begin.add_argument("--force", action="store_true", help="replace OUTPUT when it is there, and begin again")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no messages")
