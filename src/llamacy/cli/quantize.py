"""`llamacy quantize`: write a model with smaller weights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from llamacy.cli.common import CommandError, integer, print_table, resolve_model, show_native_log
from llamacy.types import FileType

# Parameters of `quantize` that errors may speak of, and the options that set them.
_OPTIONS = {
    "n_threads": "--threads",
    "allow_requantize": "--allow-requantize",
    "kv_overrides": "--override-kv",
    "without pure, imatrix": "without --pure, --imatrix",
    "only_copy": "--copy",
    "output_tensor_type": "--output-tensor-type",
    "prune_layers": "--prune-layers",
    "tensor_types": "--tensor-type",
    "token_embedding_type": "--token-embedding-type",
}
_Value = TypeVar("_Value")
_TYPES = ", ".join(kind.name for kind in FileType if kind is not FileType.GUESSED)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "quantize",
        help="write a model with smaller weights",
        description="Quantize a model. The new file appears whole or not at all.",
        epilog=f"Types: {_TYPES}. Those below 3 bits need an importance matrix.",
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="SOURCE", help="GGUF file to read; of a split model, its first part")
    parser.add_argument("target", metavar="TARGET", type=Path, help="GGUF file to write")
    parser.add_argument("type", metavar="TYPE", help="type of the new file, for instance Q4_K_M")
    parser.add_argument("-t", "--threads", type=integer(1, 512), metavar="N", help="threads (default: all CPUs)")
    parser.add_argument("--output-tensor-type", metavar="TYPE", help="type of the output tensor")
    parser.add_argument("--token-embedding-type", metavar="TYPE", help="type of the token embeddings")
    parser.add_argument(
        "--tensor-type",
        action="append",
        type=_pair,
        metavar="PATTERN=TYPE",
        help="type of tensors whose name matches a regular expression; may be repeated, the first one counts",
    )
    parser.add_argument("--imatrix", type=Path, metavar="FILE", help="importance matrix (GGUF)")
    parser.add_argument("--allow-requantize", action="store_true", help="quantize what is quantized already, at a loss")
    parser.add_argument("--leave-output-tensor", action="store_true", help="don't quantize the output tensor")
    parser.add_argument("--pure", action="store_true", help="the same type for all tensors")
    parser.add_argument("--copy", action="store_true", help="keep all types, and copy")
    parser.add_argument("--keep-split", action="store_true", help="write as many parts as were read")
    parser.add_argument(
        "--prune-layers", type=_layers, metavar="N,N,…", help="layers to leave out, separated by commas"
    )
    parser.add_argument(
        "--override-kv",
        action="append",
        type=_override,
        metavar="KEY=TYPE:VALUE",
        help="metadata of the new file; TYPE is int, float, bool or str; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and write nothing")
    parser.add_argument("--force", action="store_true", help="replace TARGET when it is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
    parser.add_argument("-v", "--verbose", action="store_true", help="llama.cpp's log on standard error")
    parser.set_defaults(run=run, named=_OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    overrides = _each_once(arguments, "--override-kv", arguments.override_kv)
    tensor_types = _each_once(arguments, "--tensor-type", arguments.tensor_type)
    source = resolve_model(arguments.source)
    if arguments.target.is_dir():
        raise CommandError(f"{arguments.target} is a folder: name the file to write.")
    if arguments.target.exists() and not (arguments.force or arguments.dry_run):
        raise CommandError(f"{arguments.target} is there already: --force replaces it.")
    if arguments.output_tensor_type and arguments.leave_output_tensor:
        raise CommandError("--output-tensor-type has no effect together with --leave-output-tensor: leave one out.")
    from llamacy import quantize

    show_native_log(arguments.verbose)
    with _bar(arguments.quiet or arguments.dry_run) as progress:
        result = quantize(
            source,
            arguments.target,
            _type(arguments.type),
            n_threads=arguments.threads,
            output_tensor_type=_upper(arguments.output_tensor_type),
            token_embedding_type=_upper(arguments.token_embedding_type),
            allow_requantize=arguments.allow_requantize,
            quantize_output_tensor=not arguments.leave_output_tensor,
            only_copy=arguments.copy,
            pure=arguments.pure,
            keep_split=arguments.keep_split,
            dry_run=arguments.dry_run,
            imatrix=arguments.imatrix,
            kv_overrides=overrides,
            tensor_types=tensor_types,
            prune_layers=arguments.prune_layers,
            progress=progress,
        )
    if arguments.dry_run:
        print_table([(name, kind.name) for name, kind in result.tensor_types.items()], ("TENSOR", "TYPE"))
    share = result.n_bytes / max(result.n_bytes_source, 1)
    print(
        f"tensors: {result.n_bytes_source / 1e6:.1f} MB → {result.n_bytes / 1e6:.1f} MB ({share:.0%})",
        file=sys.stderr,
    )
    for path in result.paths:
        print(path)
    return 0


@contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """Return what shows progress, if anything; a bar begins with the first tensor, after all refusals."""
    if quiet:
        yield None
        return
    from tqdm import tqdm

    bar: Any = None

    def show(done: int, total: int, name: str) -> None:
        nonlocal bar
        if bar is None:
            bar = tqdm(total=total, unit="tensor", dynamic_ncols=True)
        bar.set_postfix_str(name, refresh=False)
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


def _type(text: str) -> FileType:
    try:
        return FileType[text.upper()]
    except KeyError:
        raise CommandError(f"there is no type {text!r}; types are {_TYPES}") from None


def _each_once(
    arguments: argparse.Namespace, option: str, pairs: list[tuple[str, _Value]] | None
) -> dict[str, _Value] | None:
    """Return pairs by their names; of two for one name, one would be dropped."""
    found: dict[str, _Value] = {}
    for name, value in pairs or ():
        if name in found:
            arguments.parser.error(f"argument {option}: {name!r} is given twice")
        found[name] = value
    return found or None


def _upper(text: str | None) -> str | None:
    return None if text is None else text.upper()


def _pair(text: str) -> tuple[str, str]:
    pattern, separator, kind = text.rpartition("=")
    if not separator or not pattern or not kind:
        raise argparse.ArgumentTypeError(f"{text!r} isn't PATTERN=TYPE")
    return pattern, kind.upper()


def _layers(text: str) -> list[int]:
    return [integer(0)(part) for part in text.split(",")]


def _override(text: str) -> tuple[str, int | float | bool | str]:
    key, _, rest = text.partition("=")
    kind, separator, value = rest.partition(":")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} isn't KEY=TYPE:VALUE")
    try:
        if kind == "int":
            return key, int(value)
        if kind == "float":
            return key, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} isn't of type {kind}") from None
    if kind == "bool" and value in {"true", "false"}:
        return key, value == "true"
    if kind == "str":
        return key, value
    raise argparse.ArgumentTypeError(f"{rest!r} isn't int:…, float:…, bool:true, bool:false or str:…")
