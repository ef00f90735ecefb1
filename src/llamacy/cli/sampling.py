"""Options of how tokens are picked, and of what the text must be."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamacy.cli.common import CommandError, integer, number, one_line
from llamacy.errors import LlamacyError

if TYPE_CHECKING:
    from llamacy.grammar import Grammar


def add_sampling_options(parser: argparse.ArgumentParser, *, temperature: float) -> None:
    """Add the options that `sampling_params` reads."""
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument(
        "--temp",
        type=number(0),
        default=temperature,
        metavar="X",
        help=f"temperature, 0: most likely token (default: {temperature})",
    )
    sampling.add_argument(
        "--top-k",
        type=integer(0),
        default=40,
        metavar="N",
        help="of the N most likely tokens, 0: all (default: 40)",
    )
    sampling.add_argument(
        "--top-p",
        type=number(0, 1),
        default=0.95,
        metavar="X",
        help="of the tokens with this share (default: 0.95)",
    )
    sampling.add_argument(
        "--min-p",
        type=number(0, 1),
        default=0.05,
        metavar="X",
        help="no token less likely than this share of the likeliest (default: 0.05)",
    )
    sampling.add_argument(
        "-s",
        "--seed",
        type=integer(-1, 2**32 - 2),
        default=-1,
        metavar="N",
        help="-1: drawn anew (default: -1)",
    )


def sampling_params(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of a request for the options of `add_sampling_options`."""
    return {
        "temperature": arguments.temp,
        "top_k": arguments.top_k,
        "top_p": arguments.top_p,
        "min_p": arguments.min_p,
        "seed": arguments.seed,
    }


def add_grammar_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `given_grammar` reads."""
    constraint = parser.add_argument_group("grammar (one of these)").add_mutually_exclusive_group()
    constraint.add_argument("--grammar-file", type=Path, metavar="FILE", help="write what a GBNF grammar allows")
    constraint.add_argument(
        "-j", "--json-schema", metavar="SCHEMA", help="write JSON that a JSON Schema allows, {}: any JSON"
    )
    constraint.add_argument("--json-schema-file", type=Path, metavar="FILE", help="the same, with the schema in a file")
    constraint.add_argument(
        "--regex", metavar="PATTERN", help="write what a regular expression (ECMAScript) matches as a whole"
    )


def given_grammar(arguments: argparse.Namespace) -> Grammar | None:
    """Return the grammar that the options ask for."""
    given = (arguments.grammar_file, arguments.json_schema, arguments.json_schema_file, arguments.regex)
    if all(value is None for value in given):
        return None
    from llamacy.grammar import Grammar

    if arguments.grammar_file is not None:
        return Grammar.from_file(arguments.grammar_file)
    if arguments.regex is not None:
        return Grammar.from_regex(arguments.regex)
    if arguments.json_schema_file is not None:
        return Grammar.from_json_schema(_schema_text(arguments.json_schema_file))
    schema = arguments.json_schema
    try:
        return Grammar.from_json_schema(schema)
    except (LlamacyError, ValueError) as error:
        if _is_json(schema):
            raise
        if _is_file(schema):
            raise CommandError(
                f"--json-schema takes a schema, and {schema} is a file: give it with --json-schema-file."
            ) from error
        raise CommandError(
            f"--json-schema: {one_line(error).removeprefix('#: ')}; --json-schema-file takes a file."
        ) from error


def _schema_text(path: Path) -> str:
    if not _is_file(str(path)) and _is_json(str(path)):
        raise CommandError("--json-schema-file takes a file, and this is a schema: give it with --json-schema.")
    return path.read_text(encoding="utf-8")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a schema may be no path at all: too long, or with a zero
        return False
