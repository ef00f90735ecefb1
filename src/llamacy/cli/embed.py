"""`llamacy embed`: vectors for the texts of a file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llamacy.cli.common import (
    COMPUTE_NAMES,
    DEFAULT_EMBEDDING_MODEL,
    CommandError,
    add_compute_options,
    add_model_option,
    compute_params,
    integer,
    one_line,
    resolve_model,
    show_native_log,
)
from llamacy.cli.purpose import check_reads, loaded
from llamacy.cli.rows.options import add_row_options
from llamacy.errors import LlamacyError
from llamacy.types import PoolingType

if TYPE_CHECKING:
    from llamacy import Embedding
    from llamacy.cli.rows.job import RowJob

# Parameters of `Embedding` that errors may speak of, and the options that set them.
_OPTIONS = {
    "truncate=True": "--truncate",
    "dimensions": "--dimensions",
    "normalize": "--normalize",
    **COMPUTE_NAMES,
    "pooling_type": "--pooling",
    "prompt": "--prompt",
    "query_prefix": "--query-prefix",
    "document_prefix": "--document-prefix",
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "embed",
        help="compute a vector for each text of a file",
        description=(
            "Compute a vector for each text of a file: text lines, JSON lines, Parquet or Arrow. Vectors are written "
            "in the order of the texts, as JSON lines, NumPy or Parquet; memory doesn't grow with the file. A run that "
            "was interrupted goes on with --resume."
        ),
        allow_abbrev=False,
    )
    add_row_options(parser, fields=[("--field", "text", "field of the texts")])
    add_model_option(parser, DEFAULT_EMBEDDING_MODEL)
    group = parser.add_argument_group("vectors")
    group.add_argument(
        "--normalize",
        type=_norm,
        default="l2",
        metavar="NORM",
        help="none, l2, l1, max_abs, or the p of a p-norm (default: l2, vectors of length 1)",
    )
    group.add_argument(
        "--dimensions", type=integer(1), metavar="N", help="keep the first N numbers, for models trained for that"
    )
    group.add_argument(
        "--pooling", choices=("mean", "cls", "last"), help="how tokens become one vector (default: the model's)"
    )
    group.add_argument(
        "--prompt", metavar="TEXT", help="put before each text; query or document: the prefix of that name"
    )
    group.add_argument("--query-prefix", metavar="TEXT", help="what --prompt query stands for")
    group.add_argument("--document-prefix", metavar="TEXT", help="what --prompt document stands for")
    group.add_argument(
        "--truncate", action="store_true", help="cut a text that is too long, at its end; without it, that is an error"
    )
    add_compute_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="llama.cpp's log on standard error")
    parser.set_defaults(run=run, named=_OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from llamacy.cli.rows.job import RowJob

    if arguments.prompt not in ("query", "document"):
        for name in ("query", "document"):
            if getattr(arguments, f"{name}_prefix") is not None:
                arguments.parser.error(f"--{name}-prefix has no effect without --prompt {name}")
    model = resolve_model(arguments.model, DEFAULT_EMBEDDING_MODEL)
    options = {
        "--normalize": arguments.normalize,
        "--dimensions": arguments.dimensions,
        "--pooling": arguments.pooling,
        "--prompt": arguments.prompt,
        "--query-prefix": arguments.query_prefix,
        "--document-prefix": arguments.document_prefix,
        "--truncate": arguments.truncate,
        "--ctx-size": arguments.ctx_size,
    }
    show_native_log(arguments.verbose)
    with ExitStack() as stack:
        job = stack.enter_context(RowJob(arguments, "embed", model, [arguments.field], "embedding", options))
        stack.enter_context(_text_numbers(job))
        engine = stack.enter_context(_engine(arguments, model))
        vectors_of = partial(
            engine.embed,
            normalize=arguments.normalize,
            truncate=arguments.truncate,
            prompt=arguments.prompt,
            dimensions=arguments.dimensions,
        )
        vectors_of([])  # an option that is wrong is told before texts are read and counted
        with job.progress(engine.model) as portions:
            job.begin((arguments.dimensions or engine.n_embd,))
            for rows in portions:
                job.write(vectors_of([row.texts[0] for row in rows]), rows)
        job.finish()
    return 0


@contextmanager
def _engine(arguments: argparse.Namespace, model: Path) -> Iterator[Embedding]:
    from llamacy import Embedding

    with loaded(
        Embedding,
        model,
        pooling_type=arguments.pooling,
        query_prefix=arguments.query_prefix,
        document_prefix=arguments.document_prefix,
        **compute_params(arguments),
    ) as engine:
        check_reads(engine.model, model)
        if engine.pooling_type == PoolingType.RANK:
            raise CommandError(f"{model} is a reranker or classifier and makes no vectors: see `llamacy rerank`.")
        if engine.pooling_type == PoolingType.NONE:
            raise CommandError(f"{model} doesn't say how to make one vector of a text: give --pooling.")
        yield engine


@contextmanager
def _text_numbers(job: RowJob) -> Iterator[None]:
    """Let errors count the texts of the file, not those of a portion."""
    try:
        yield
    except (LlamacyError, ValueError) as error:
        text = one_line(error)
        raise ValueError(re.sub(r"^text (\d+)\b", lambda match: f"text {int(match[1]) + job.n_done}", text)) from error


def _norm(text: str) -> str | float:
    if text in ("none", "l2", "l1", "max_abs"):
        return text
    try:
        power = float(text)
    except ValueError:
        power = 0.0
    if not 0 < power < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no norm: give none, l2, l1, max_abs or a number above 0")
    return power
