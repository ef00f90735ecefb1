"""One run of a command over a file of many texts: what it reads, writes, shows and can go on with."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from llamacy.cli.common import CommandError
from llamacy.cli.rows.part import PartFile, file_digest
from llamacy.cli.rows.reading import Row, Source
from llamacy.cli.rows.writing import Floats, make_writer, output_format
from llamacy.generate.embed.cost import on_gpu, token_seconds
from llamacy.starter.progress import Bar, Progress

if TYPE_CHECKING:
    from llamacy.core.model import Model

_PORTION_ROWS = 2048
_PORTION_S = 1.0
_LETTERS_A_TOKEN = 3
# enough to fill a batch, and what is read at once at most
_MIN_LETTERS, _MAX_LETTERS = 1 << 10, 1 << 20


class RowJob:
    """Rows in, values out, in the same order. A context manager.

    Parameters
    ----------
    arguments
        Those of `add_row_options`.
    command
        Name of the command.
    model
        File of the model.
    fields
        Fields that are read.
    name
        What the values are called.
    options
        What else decides the values, by the option that sets it.

    Raises
    ------
    CommandError
        The files can't be used so.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        command: str,
        model: Path,
        fields: Sequence[str],
        name: str,
        options: Mapping[str, Any],
    ) -> None:
        path = input_path(arguments)
        target: Path | None = arguments.output
        if target is None and (arguments.resume or arguments.force):
            raise CommandError("--resume and --force are for a file: name it with -o.")
        check_target(target, path)
        self._source = Source(path, arguments.input_format, fields, arguments.keep)
        kind = output_format(target, arguments.output_format)
        self._show = Progress(not arguments.quiet)
        self._label = command
        self._stack = ExitStack()
        facts = {
            "command": command,
            "output format": kind,
            "model": file_digest(model),
            **options,
            "fields": [*fields, *arguments.keep],
        }
        self._part: PartFile | None = None
        if target is not None:
            self._part = PartFile(
                target, facts, resume=arguments.resume, force=arguments.force, may_begin={"--truncate"}
            )
        self._writer = make_writer(kind, name, self._part, self._source, arguments.keep)
        self._bar = Bar()
        self._n_done = 0

    def __enter__(self) -> RowJob:
        if self._part is not None:
            self._stack.enter_context(self._part)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, at)
        part = self._part
        if kind is not None and part is not None and part.n_safe:
            self._show.say(f"{part.n_safe} rows are safe in {part.path}; --resume goes on from there")

    def begin(self, shape: tuple[int, ...]) -> None:
        """Say which shape the value of a row has."""
        self._writer.begin(shape)

    @property
    def n_done(self) -> int:
        """Rows that were written, in this run and before."""
        return self._n_done

    @contextmanager
    def progress(self, model: Model) -> Iterator[Iterator[list[Row]]]:
        """Give the rows still to be done, in portions for this model, and show meanwhile how far that is."""
        rows = self._source.rows()
        if self._part is not None and self._part.is_resumed:
            self._part.skip(rows, self._source.name)
            self._n_done = self._part.n_rows
            self._show.say(f"going on after {self._n_done} rows")
        total = self._source.count() if self._show.is_shown else None
        with self._show.bar(self._label, total, unit=" rows", initial=self._n_done) as bar:
            self._bar = bar
            yield portions(rows, model)

    def write(self, values: Floats, rows: Sequence[Row]) -> None:
        """Write the values of some rows."""
        self._writer.write(values, rows)
        self._n_done += len(rows)
        self._bar.add(len(rows))

    def finish(self) -> None:
        """Give the output its name."""
        self._writer.finish()


def input_path(arguments: argparse.Namespace) -> Path | None:
    """Return the file to read, or None for standard input."""
    path: Path | None = arguments.input
    return None if path is None or str(path) == "-" else path


def check_target(target: Path | None, source: Path | None) -> None:
    """Refuse to replace what is read, whatever options say."""
    if target is not None and source is not None and target.exists() and source.exists() and target.samefile(source):
        raise CommandError(f"{target} is the input too: name another file.")


def portions(rows: Iterator[Row], model: Model) -> Iterator[list[Row]]:
    """Cut rows into portions that take a second or two: enough to fill batches, little to lose or to wait for.

    The same rows are cut in the same way whatever the machine does besides, as the last digits of a value depend on the
    texts beside it: so runs of a command are alike, and one that was interrupted ends as it would have.
    """
    n_most = portion_letters(model)
    while True:
        portion: list[Row] = []
        n_letters = 0
        while len(portion) < _PORTION_ROWS and n_letters < n_most:
            row = next(rows, None)
            if row is None:
                break
            portion.append(row)
            n_letters += sum(map(len, row.texts))
        if not portion:
            return
        yield portion


def portion_letters(model: Model) -> int:
    """Return about how many letters one thread computes in a second or two; a GPU takes as many as there may be."""
    if on_gpu(model):
        return _MAX_LETTERS
    letters = int(_LETTERS_A_TOKEN * _PORTION_S / token_seconds(model))
    return min(max(letters, _MIN_LETTERS), _MAX_LETTERS)
