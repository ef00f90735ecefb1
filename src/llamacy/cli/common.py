"""What several commands share: options, the model to use, the text to read, errors in one line."""

from __future__ import annotations

import argparse
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llamacy.errors import LlamacyError

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_EMBEDDING_MODEL = "all-minilm-l6-v2"

# Parameters that errors and warnings may speak of, and the options of `add_compute_options` that set them.
COMPUTE_NAMES = {
    "n_threads": "--threads",
    "n_threads_batch": "--threads",
    "n_gpu_layers": "--gpu-layers",
    "n_batch": "--batch-size",
    "n_ctx": "--ctx-size",
}

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143


class CommandError(Exception):
    """A command can't do what it was asked; the message is one line for the user."""


def one_line(error: BaseException) -> str:
    """Return what an exception says, as one line and without the native log."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, UnicodeError):  # its first argument is the encoding
        text = str(error)
    else:
        text = str(error.args[0]) if error.args else ""
    return " ".join(text.split()) or type(error).__name__


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Let errors of the block speak of options, where they name the parameters that those set.

    Parameters
    ----------
    options
        As for `renamed`.
    """
    try:
        yield
    except (LlamacyError, ValueError) as error:
        text = one_line(error)
        said = renamed(text, options)
        if said == text:
            raise
        raise CommandError(said) from error


def renamed(text: str, options: Mapping[str, str]) -> str:
    """Return a message with options in place of parameters.

    Parameters
    ----------
    text
        The message. What stands in quotes is no parameter, and stays.
    options
        What to say, by the name of a parameter or by the words about it.
    """
    if not options:
        return text
    quoted = r"""(?<!\w)(?:'[^']*'|"[^"]*")"""
    # a name is a whole word; of words about one, the longer come first
    ordered = sorted(options, key=len, reverse=True)
    names = "|".join((r"\b" if name[0].isalnum() else "") + re.escape(name) + r"(?!\w)" for name in ordered)
    return re.sub(f"{quoted}|{names}", lambda match: options.get(match[0], match[0]), text)


def integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """Return an argparse type for whole numbers from `low` to `high`."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} isn't a whole number") from None
        if not low <= value <= high:
            limits = f"from {low}" if high == 2**31 - 1 else f"from {low} to {high}"
            raise argparse.ArgumentTypeError(f"{value} is out of range: give a whole number {limits}")
        return value

    return convert


def number(low: float, high: float = math.inf) -> Callable[[str], float]:
    """Return an argparse type for finite numbers from `low` to `high`."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} isn't a number") from None
        if not math.isfinite(value) or not low <= value <= high:
            limits = f"from {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise argparse.ArgumentTypeError(f"{text} is out of range: give a number {limits}")
        return value

    return convert


def add_model_option(parser: argparse._ActionsContainer, default: str = DEFAULT_MODEL) -> None:
    """Add `--model`, as resolved by `resolve_model`."""
    parser.add_argument(
        "-m",
        "--model",
        metavar="MODEL",
        help=f"GGUF file, or the name of a starter model (default: {default}, fetched on first use)",
    )


def resolve_model(model: str | None, default: str = DEFAULT_MODEL) -> Path:
    """Return the file that `--model` means; the default starter model is fetched when it isn't there.

    Raises
    ------
    CommandError
        There is no such file, and it isn't the name of a starter model that may be fetched without being
        asked for.
    """
    from llamacy import starter

    name = model or default
    if model is not None and (Path(model).exists() or all(model != known.name for known in starter.starters())):
        path = Path(model)
        refuse_address(model)
        if path.is_dir():
            raise CommandError(f"{path} is a folder: name the GGUF file in it.")
        if not path.exists():
            raise CommandError(f"{path}: there is no such file, and {_instead(model)}")
        return path
    if not starter.find_starter(name).implicit:
        return starter.starter_path(name)
    try:
        return starter.starter_path(name)
    except FileNotFoundError:
        print(f"llamacy: using the starter model {name}, which is fetched once", file=sys.stderr)
        return starter.pull(name)


def refuse_address(file: str | Path) -> None:
    """Refuse an address of the web where a file is wanted.

    Raises
    ------
    CommandError
        It is one; the message says what fetches the file.
    """
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+:)//?(?=[^/])", str(file))
    if found is not None and not Path(file).exists():
        # a path has one slash of the two
        address = f"{found[1]}//{str(file)[found.end() :]}"
        raise CommandError(f"{address}: nothing is read from the web here; {_fetching(address)}")


def _fetching(address: str) -> str:
    """Return what fetches the file of an address."""
    hub = re.match(r"https?://(?:huggingface\.co|hf\.co)/([^/?]+/[^/?]+)(?:/(?:resolve|blob)/[^/]+/([^?]+))?", address)
    if hub is not None:
        return (
            f"`hf download {hub[1]} {hub[2] or 'FILE.gguf'}` fetches a file of the Hugging Face Hub and prints its "
            "path; hf comes with the package huggingface_hub."
        )
    return "fetch the file, for instance with `curl -LO`, and give its path."


def _instead(model: str) -> str:
    """Return what may be meant by the name of a model that isn't there."""
    from difflib import get_close_matches

    from llamacy import starter

    names = [known.name for known in starter.starters()]
    close = get_close_matches(model.rsplit("/", 1)[-1].lower(), names, n=1)
    meant = f"; did you mean {close[0]}?" if close else "."
    text = f"no starter model of that name ({', '.join(names)}){meant}"
    if model.count("/") == 1 and model[0] not in "./~" and not model.endswith(".gguf"):
        text += (
            f" If it is a repository of the Hugging Face Hub, `hf download {model} FILE.gguf` fetches a file of it and "
            "prints its path; hf comes with the package huggingface_hub."
        )
    return text


def add_compute_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of where and how a model is computed, as read by `compute_params`."""
    group = parser.add_argument_group("computing")
    group.add_argument(
        "-t", "--threads", type=integer(1, 512), metavar="N", help="CPU threads (default: half of the CPUs)"
    )
    group.add_argument(
        "-ngl",
        "--gpu-layers",
        type=integer(-1),
        metavar="N",
        help="layers to keep on GPUs, -1: all (default: all that fit)",
    )
    group.add_argument(
        "-b", "--batch-size", type=integer(1), metavar="N", help="most tokens in one decode (default: 2048)"
    )
    group.add_argument(
        "-c",
        "--ctx-size",
        type=integer(0),
        metavar="N",
        help="tokens that prompt and result may have together, 0: as many as the model was trained with",
    )


def compute_params(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of `Llama` for those options of `add_compute_options` that were given."""
    params: dict[str, Any] = {
        "n_threads": arguments.threads,
        "n_threads_batch": arguments.threads,
        "n_batch": arguments.batch_size,
        "n_ctx": arguments.ctx_size,
    }
    if arguments.gpu_layers is not None:
        params["n_gpu_layers"] = "all" if arguments.gpu_layers == -1 else arguments.gpu_layers
    return {key: value for key, value in params.items() if value is not None}


def show_native_log(verbose: bool) -> None:
    """Let native log lines through to standard error, or nowhere."""
    logger = logging.getLogger("llamacy")
    if verbose:
        handler: logging.Handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.setLevel(logging.INFO)
    else:
        # Without a handler `logging` prints warnings by itself.
        handler = logging.NullHandler()
    logger.addHandler(handler)


def counted(n: int, noun: str) -> str:
    """Return a number with a noun, in the plural where that belongs."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def argument_bytes(text: str) -> bytes:
    """Return an argument as the bytes that the shell gave; UTF-8 where the system has text."""
    return os.fsencode(text) if os.name == "posix" else text.encode("utf-8", "surrogatepass")


def add_text(parser: argparse.ArgumentParser, metavar: str) -> None:
    """Add the text of a command, from one of the places that `read_text` takes it from."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument("text", nargs="?", metavar=metavar, help="the text; - or nothing: standard input")
    one.add_argument("-p", "--prompt", metavar="TEXT", help=f"the same as {metavar}")
    one.add_argument("-f", "--file", type=Path, metavar="FILE", help="read the text from a file")
    parser.set_defaults(takes_text=True)


def read_text(argument: str | None, file: Path | None = None) -> bytes:
    """Return the text of a command: an argument, a file, or standard input.

    Raises
    ------
    CommandError
        Nothing was given and standard input is a terminal.
    """
    if argument is not None and argument != "-":
        return argument_bytes(argument)
    if file is not None:
        refuse_address(file)
        return file.read_bytes()
    if argument is None and sys.stdin.isatty():
        raise CommandError("there is no text: give it as an argument, in a file (--file), or on standard input.")
    return sys.stdin.buffer.read()


def print_table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...] | None = None) -> None:
    """Print rows in columns."""
    lines = [header, *rows] if header else list(rows)
    if not lines:
        return
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
