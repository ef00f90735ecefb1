"""Entry point of the command line: parse, run one command, end cleanly whatever happens."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from llamacy import __version__
from llamacy.cli import bench, cache, chat, devices, embed, generate, info, pull, quantize, rerank, tokenize
from llamacy.cli.common import (
    EXIT_BROKEN_PIPE,
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    CommandError,
    one_line,
    options_named,
    renamed,
)
from llamacy.cli.usage import Parser, check_fetching, unknown_arguments
from llamacy.errors import LlamacyError

_COMMANDS = (chat, generate, embed, rerank, pull, info, tokenize, quantize, bench, devices, cache)


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands. Loads no native code."""
    parser = Parser(
        prog="llamacy",
        description="Text and vectors of texts from GGUF models with llama.cpp, in this process.",
        epilog="`llamacy COMMAND --help` says what a command takes.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"llamacy {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    for command_parser in commands.choices.values():
        command_parser.set_defaults(parser=command_parser)
        if command_parser.get_default("named") is None:
            command_parser.set_defaults(named={})
    return parser


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line says.

    Raises
    ------
    SystemExit
        It is wrong; standard error says how.
    """
    parser = build_parser()
    argv = sys.argv[1:] if argv is None else argv
    names = [command.__name__.rpartition(".")[2] for command in _COMMANDS]
    if not argv:
        parser.error("give a command")
    if not argv[0].startswith("-") and argv[0] not in names:
        from difflib import get_close_matches

        close = get_close_matches(argv[0], names, n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
        parser.error(f"there is no command {argv[0]!r}; {meant}")
    if argv[0] in names:
        check_fetching(argv[1:], _command_parser(parser, argv[0]))
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        # argparse would name the help of the program, not that of the command
        arguments.parser.error(unknown_arguments(unknown, arguments.parser))
    return arguments


def _command_parser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    found: argparse.ArgumentParser = commands.choices[name]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv
        Arguments after the program's name; those of the process by default.

    Returns
    -------
    int
        Exit status: 0, 1 for an error, 130 after Ctrl-C, 141 when nobody reads the output any more, 143 after
        SIGTERM. Wrong usage ends in `SystemExit` with status 2.
    """
    try:
        with _surroundings():
            arguments = parse(argv)
            warnings.showwarning = partial(_show_warning, arguments.named)
            with options_named(arguments.named):
                status: int = arguments.run(arguments)
            sys.stdout.flush()
    except KeyboardInterrupt:
        _finish_line()
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_BROKEN_PIPE
    except (LlamacyError, CommandError, ImportError, MemoryError, OSError, ValueError) as error:
        _finish_line()
        print(f"llamacy: error: {one_line(error)}", file=sys.stderr)
        return EXIT_ERROR
    return status


@contextmanager
def _surroundings() -> Iterator[None]:
    """Streams, warnings and SIGTERM as a command needs them, and back."""
    # What a model writes may have no character in the encoding of a terminal; that must not end the program.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Signals can be set by the main thread only.
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _on_terminate) if here else None
    try:
        with warnings.catch_warnings():
            yield
    finally:
        if here:
            signal.signal(signal.SIGTERM, before)


def _show_warning(named: Mapping[str, str], message: Warning | str, *_: object, **__: object) -> None:
    # Without the line of code that it points at, which is none of the user's.
    print(f"llamacy: warning: {renamed(' '.join(str(message).split()), named)}", file=sys.stderr)


def _on_terminate(_signum: int, _frame: object) -> None:
    # An exception, so that what is half done is cleaned up on the way out.
    raise SystemExit(EXIT_TERMINATED)


def _finish_line() -> None:
    """Flush what was written, and let the terminal's next line start at its beginning."""
    try:
        if sys.stdout.isatty():
            print()
        sys.stdout.flush()
    except OSError:
        _silence_stdout()


def _silence_stdout() -> None:
    # Python flushes standard output once more at its end; it must not complain then.
    with contextlib.suppress(OSError), Path(os.devnull).open("wb") as null:
        os.dup2(null.fileno(), sys.stdout.fileno())
