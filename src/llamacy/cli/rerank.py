"""`llamacy rerank`: how well texts fit a query, for a file of documents or of pairs."""

from __future__ import annotations

import argparse
import heapq
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamacy.cli.common import (
    COMPUTE_NAMES,
    CommandError,
    add_compute_options,
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
    from llamacy.cli.rows.reading import Row

# Parameters of `Embedding.rerank` that errors may speak of, and the options that set them.
_OPTIONS = {
    "truncate=True": "--truncate",
    "label": "--label",
    "template": "--template",
    **COMPUTE_NAMES,
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "rerank",
        help="tell how well the texts of a file fit a query",
        description=(
            "Tell how well texts fit a query, with a reranker. With --query the documents of a file are written best "
            "first, as JSON lines. With --query-field each row has a query and a document, and the scores are written "
            "in the order of the rows; memory doesn't grow with the file, and --resume goes on with a run that was "
            "interrupted."
        ),
        allow_abbrev=False,
    )
    add_row_options(parser, fields=[("--field", "text", "field of the documents")])
    parser.add_argument("-m", "--model", required=True, metavar="MODEL", help="GGUF file of a reranker")
    group = parser.add_argument_group("ranking")
    queries = group.add_mutually_exclusive_group(required=True)
    queries.add_argument("--query", metavar="TEXT", help="rank all documents for this query")
    queries.add_argument("--query-field", metavar="NAME", help="field of the query that a row's document is scored for")
    group.add_argument("--top-n", type=integer(1), metavar="N", help="write the N best documents only (with --query)")
    group.add_argument("--sigmoid", action="store_true", help="make probabilities of the scores")
    group.add_argument("--label", metavar="NAME", help="which label of the model says that a document fits")
    group.add_argument(
        "--template", metavar="TEXT", help="how a pair is written, with {query} and {document} (default: the model's)"
    )
    group.add_argument(
        "--truncate", action="store_true", help="cut a document that is too long; without it, that is an error"
    )
    add_compute_options(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="llama.cpp's log on standard error")
    parser.set_defaults(run=run, named=_OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.query_field is None:
        _check_ranking(arguments)
    elif arguments.top_n is not None:
        raise CommandError("--top-n is for one query: give --query.")
    model = resolve_model(arguments.model)
    show_native_log(arguments.verbose)
    if arguments.query_field is None:
        _rank(arguments, model)
    else:
        _score_pairs(arguments, model)
    return 0


def _check_ranking(arguments: argparse.Namespace) -> None:
    """Refuse what makes no sense for one ranking, which is known at its end only."""
    if arguments.resume:
        raise CommandError("--resume is for pairs (--query-field): a ranking is known at its end only.")
    suffix = arguments.output.suffix.lower() if arguments.output is not None else ""
    if arguments.output_format not in (None, "jsonl") or suffix in (".npy", ".parquet", ".pq"):
        raise CommandError("a ranking is written as JSON lines.")
    if arguments.output is not None and arguments.output.exists() and not arguments.force:
        raise CommandError(f"{arguments.output} is there already: --force replaces it.")


def _rank(arguments: argparse.Namespace, model: Path) -> None:
    from llamacy.cli.rows.job import check_target, input_path, portions
    from llamacy.cli.rows.reading import Source
    from llamacy.cli.rows.writing import check_kept, json_start
    from llamacy.starter.progress import Progress

    check_target(arguments.output, input_path(arguments))
    source = Source(input_path(arguments), arguments.input_format, [arguments.field], arguments.keep)
    check_kept(arguments.keep, "score")
    show = Progress(not arguments.quiet)
    best: list[tuple[float, int, dict[str, Any]]] = []
    n_done = 0
    with _engine(arguments, model) as engine:
        _scores(engine, arguments, arguments.query, [], [])  # options are checked before documents are counted
        total = source.count() if show.is_shown else None
        with show.bar("rerank", total, unit=" rows") as bar:
            for rows in portions(source.rows(), engine.model):
                numbers = range(n_done, n_done + len(rows))
                scores = _scores(engine, arguments, arguments.query, [row.texts[0] for row in rows], numbers)
                # Of equal scores the earlier document is the better one; fields are never compared.
                entries = [(score, -number, row.kept) for score, number, row in zip(scores, numbers, rows, strict=True)]
                best += entries
                if arguments.top_n is not None:
                    best = heapq.nlargest(arguments.top_n, best, key=lambda entry: entry[:2])
                n_done += len(rows)
                bar.add(len(rows))
    best.sort(key=lambda entry: entry[:2], reverse=True)
    lines = (f"{json_start(-number, kept)}, {json.dumps('score')}: {score:.9g}}}\n" for score, number, kept in best)
    if arguments.output is None:
        for line in lines:
            sys.stdout.buffer.write(line.encode("utf-8", "surrogatepass"))
        sys.stdout.buffer.flush()
        return
    from llamacy.cli.rows.part import naming_errors
    from llamacy.core._replace import replacing

    output = arguments.output
    with replacing(output) as temporary, naming_errors(output), Path(temporary).open("wb") as file:
        file.writelines(line.encode("utf-8", "surrogatepass") for line in lines)


def _score_pairs(arguments: argparse.Namespace, model: Path) -> None:
    import numpy as np

    from llamacy.cli.rows.job import RowJob

    options = {
        "--sigmoid": arguments.sigmoid,
        "--label": arguments.label,
        "--template": arguments.template,
        "--truncate": arguments.truncate,
        "--ctx-size": arguments.ctx_size,
    }
    fields = [arguments.query_field, arguments.field]
    with ExitStack() as stack:
        job = stack.enter_context(RowJob(arguments, "rerank", model, fields, "score", options))
        engine = stack.enter_context(_engine(arguments, model))
        _scores(engine, arguments, "", [], [])  # options are checked before rows are counted
        with job.progress(engine.model) as portions:
            job.begin(())
            for rows in portions:
                scores = np.empty(len(rows), np.float32)
                for query, places in _by_query(rows).items():
                    documents = [rows[place].texts[1] for place in places]
                    numbers = [job.n_done + place for place in places]
                    scores[places] = _scores(engine, arguments, query, documents, numbers)
                job.write(scores, rows)
        job.finish()


def _by_query(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return the places of the rows of each query: what has the same query is computed at once."""
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.texts[0], []).append(place)
    return places


def _scores(
    engine: Embedding, arguments: argparse.Namespace, query: str, documents: list[str], numbers: Sequence[int]
) -> list[float]:
    """Return the scores of documents in their order; errors name them by `numbers`."""
    try:
        ranked = engine.rerank(
            query,
            documents,
            sigmoid=arguments.sigmoid,
            truncate=arguments.truncate,
            label=arguments.label,
            template=arguments.template,
        )
    except (LlamacyError, ValueError) as error:
        text = one_line(error)
        renamed = re.sub(r"^document (\d+)\b", lambda match: f"document {numbers[int(match[1])]}", text)
        if arguments.query_field is not None and documents and not renamed.startswith("document "):
            renamed = f"row {numbers[0]}: {renamed}"
        raise ValueError(renamed) from error
    scores = [0.0] * len(documents)
    for one in ranked:
        scores[one.index] = one.score
    return scores


@contextmanager
def _engine(arguments: argparse.Namespace, model: Path) -> Iterator[Embedding]:
    from llamacy import Embedding

    with loaded(Embedding, model, **compute_params(arguments)) as engine:
        check_reads(engine.model, model)
        if engine.pooling_type != PoolingType.RANK:
            pooling = " --pooling mean" if engine.pooling_type == PoolingType.NONE else ""
            raise CommandError(
                f"{model} is no reranker: its file speaks of no classification head. Vectors of texts, which may be "
                f"compared, are made by `llamacy embed{pooling}`."
            )
        yield engine
