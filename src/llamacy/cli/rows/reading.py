"""Reads texts from files: text lines, JSON lines, Parquet and Arrow. One row is in memory at a time, or one batch."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from llamacy.cli.common import CommandError, refuse_address

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_BATCH_ROWS = 1024
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Row:
    """One row of an input.

    Attributes
    ----------
    texts
        The texts of the fields that were asked for, in their order.
    kept
        Further fields, as they are.
    """

    texts: tuple[str, ...]
    kept: dict[str, Any] = field(default_factory=dict)


class Source:
    """An input of many rows.

    Parameters
    ----------
    path
        File to read; None for standard input.
    kind
        One of `options.INPUT_FORMATS`; None to tell it from the name of the file.
    fields
        Fields whose texts are wanted. Of text lines, the line is the one that is asked for.
    keep
        Fields that are handed through.

    Raises
    ------
    CommandError
        The input can't be read in that format.
    """

    def __init__(self, path: Path | None, kind: str | None, fields: Sequence[str], keep: Sequence[str] = ()) -> None:
        self.path = path
        self.name = "standard input" if path is None else str(path)
        self.kind = kind or (_SUFFIXES.get(path.suffix.lower(), "lines") if path is not None else "lines")
        self._fields = tuple(fields)
        self._keep = tuple(keep)
        if self.kind == "lines" and (len(self._fields) > 1 or not set(keep) <= set(self._fields)):
            raise CommandError(f"{self.name} is read as text lines, which have no fields: give --input-format jsonl.")
        if path is None and self.kind == "parquet":
            raise CommandError("Parquet can't be read from standard input: name the file.")
        if path is not None and not path.exists():
            refuse_address(path)
            raise CommandError(f"{path}: there is no such file.")
        if path is not None and path.is_dir():
            raise CommandError(f"{path} is a folder: name a file.")
        if path is not None and path.is_file() and _is_model(path):
            raise CommandError(f"{path} is a model, not a file of texts: give it with --model.")
        if self.kind in ("parquet", "arrow"):
            require_arrow()

    def rows(self) -> Iterator[Row]:
        """Read the rows in order.

        Raises
        ------
        CommandError
            A row has no such field, or what is in it is no text. The message names the row.
        """
        if self.kind == "lines":
            return self._lines()
        return self._json_lines() if self.kind == "jsonl" else self._arrow_rows()

    def count(self) -> int | None:
        """Return how many rows there are where that can be told at once, else None; for progress bars only."""
        if self.path is None or not self.path.is_file():
            return None
        if self.kind == "parquet":
            with self._arrow_errors():
                import pyarrow.parquet

                with pyarrow.parquet.ParquetFile(self.path) as file:
                    return int(file.metadata.num_rows)
        if self.kind == "arrow":
            return None
        n_lines, last = 0, b"\n"
        with self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                n_lines += block.count(b"\n")
                last = block[-1:]
        return n_lines + (last != b"\n")

    def schema(self) -> Any:
        """Return the Arrow schema of the kept fields, where the input has types; else None."""
        if self.kind not in ("parquet", "arrow") or self.path is None:
            return None
        import pyarrow

        with self._arrow_errors(), self._arrow_batches() as (schema, _):
            return pyarrow.schema([schema.field(name) for name in self._keep])

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if self.path is None:
            yield sys.stdin.buffer
        else:
            with self.path.open("rb") as file:
                yield file

    def _decoded(self) -> Iterator[tuple[int, str]]:
        with self._open() as file:
            for number, line in enumerate(file, 1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise CommandError(
                        f"{self.name}, line {number}: byte {error.start} isn't UTF-8: convert the file, for instance "
                        "with iconv."
                    ) from None
                yield number, text.removesuffix("\n").removesuffix("\r")

    def _lines(self) -> Iterator[Row]:
        for _, text in self._decoded():
            yield Row((text,), dict.fromkeys(self._keep, text))

    def _json_lines(self) -> Iterator[Row]:
        for number, line in self._decoded():
            if not line.strip():
                continue
            where = f"{self.name}, line {number}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise CommandError(f"{where}: this is no JSON: {error}") from None
            if isinstance(value, str) and len(self._fields) == 1 and not self._keep:
                value = {self._fields[0]: value}
            if not isinstance(value, dict):
                raise CommandError(f"{where}: a JSON object is wanted, not {line[:40]!r}")
            yield self._row(value, where)

    def _row(self, value: dict[str, Any], where: str) -> Row:
        for name in (*self._fields, *self._keep):
            if name not in value:
                raise CommandError(f"{where}: there is no field {name!r}; there are {_names(value)}")
        for name in self._fields:
            if not isinstance(value[name], str):
                raise CommandError(f"{where}: field {name!r} is no text but {value[name]!r:.40}")
        return Row(tuple(value[name] for name in self._fields), {name: value[name] for name in self._keep})

    def _arrow_rows(self) -> Iterator[Row]:
        number = 0
        with self._arrow_errors(), self._arrow_batches() as (schema, batches):
            for name in (*self._fields, *self._keep):
                if name not in schema.names:
                    raise CommandError(f"{self.name}: there is no column {name!r}; there are {_names(schema.names)}")
            for batch in batches:
                columns = {name: batch.column(name).to_pylist() for name in {*self._fields, *self._keep}}
                for index in range(batch.num_rows):
                    value = {name: column[index] for name, column in columns.items()}
                    yield self._row(value, f"{self.name}, row {number + index}")
                number += batch.num_rows

    @contextlib.contextmanager
    def _arrow_batches(self) -> Iterator[tuple[Any, Iterator[Any]]]:
        """Open the file, and give its schema and what reads its batches."""
        import pyarrow

        if self.kind == "parquet":
            import pyarrow.parquet

            with pyarrow.parquet.ParquetFile(self.path) as file:
                schema = file.schema_arrow
                columns = [name for name in schema.names if name in {*self._fields, *self._keep}]
                yield schema, file.iter_batches(_BATCH_ROWS, columns=columns)
            return
        with self._open() as file:
            if self.path is not None and file.read(6) == b"ARROW1":
                file.seek(0)
                with pyarrow.ipc.open_file(file) as reader:
                    numbers = range(reader.num_record_batches)
                    yield reader.schema, _sliced(map(reader.get_batch, numbers))
                return
            if self.path is not None:
                file.seek(0)
            with pyarrow.ipc.open_stream(file) as reader:
                yield reader.schema, _sliced(reader)

    @contextlib.contextmanager
    def _arrow_errors(self) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except pyarrow.ArrowException as error:
            raise CommandError(f"{self.name} can't be read as {self.kind}: {error}") from None


def _is_model(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def require_arrow() -> None:
    """Raise `CommandError` when pyarrow isn't installed."""
    try:
        import pyarrow.ipc
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise CommandError(
            "Parquet and Arrow need the package pyarrow: pip install 'llamacy[arrow]', or pip install pyarrow."
        ) from None


def _sliced(batches: Iterator[Any]) -> Iterator[Any]:
    # Batches of a file may be as large as it; rows become Python objects in small pieces.
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)


def _names(names: Iterable[str]) -> str:
    found = [repr(name) for name in names]
    return ", ".join(found[:10]) + (", …" if len(found) > 10 else "") if found else "none"
