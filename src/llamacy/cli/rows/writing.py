"""Writes what was computed for each row: JSON lines, NumPy and Parquet."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import math
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from llamacy.cli.common import CommandError
from llamacy.cli.rows.part import PartFile
from llamacy.cli.rows.reading import Row, Source, require_arrow

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_HEADER_BYTES = 128
_GROUP_BYTES = 1 << 24
_MAX_GROUP_ROWS = 1 << 16

Floats = npt.NDArray[np.float32]


class Writer(Protocol):
    """Takes the values of rows, in order."""

    def begin(self, shape: tuple[int, ...], /) -> None:
        """Say which shape the value of a row has; called once, before all else."""

    def write(self, values: Floats, rows: Sequence[Row]) -> None:
        """Write the values of some rows."""

    def finish(self) -> None:
        """Give the file its name; not called after an error."""


def output_format(path: Path | None, kind: str | None) -> str:
    """Return the format of an output.

    Parameters
    ----------
    path
        The file; None for standard output.
    kind
        What the user asked for; None to tell it from the name.

    Raises
    ------
    CommandError
        It can't be told, or can't be written there, or lacks pyarrow.
    """
    if path is None:
        if kind in ("npy", "parquet"):
            raise CommandError(f"{kind} can't be written to standard output: name a file with -o.")
        return "jsonl"
    found = kind or _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise CommandError(
            f"{path}: its name doesn't tell the format: end it in .jsonl, .npy or .parquet, or give --output-format."
        )
    if found == "parquet":
        require_arrow()
    return found


def make_writer(kind: str, name: str, part: PartFile | None, source: Source, keep: Sequence[str]) -> Writer:
    """Return what writes a format.

    Parameters
    ----------
    kind
        One of `options.OUTPUT_FORMATS`.
    name
        What the values are called.
    part
        The file; None for standard output.
    source
        The input, and
    keep
        its fields that are written as well.

    Raises
    ------
    CommandError
        The format has no room for fields, or would need to read the input twice and can't.
    """
    check_kept(keep, name)
    if kind == "jsonl" or part is None:
        return JsonWriter(name, part)
    if kind == "npy":
        if keep:
            raise CommandError("a NumPy file has no room for fields: leave out --keep, or write JSON lines or Parquet.")
        return NpyWriter(part)
    if keep and source.path is None:
        raise CommandError("fields can't be kept from standard input in Parquet: name the input, or write JSON lines.")
    return ParquetWriter(name, part, source, keep)


class JsonWriter:
    """One JSON object a row: ``index``, the kept fields, and the values under `name`."""

    def __init__(self, name: str, part: PartFile | None) -> None:
        self._name = json.dumps(name)
        self._part = part
        self._index = 0

    def begin(self, _shape: tuple[int, ...], /) -> None:
        """Write nothing: each line says all."""
        self._index = self._part.n_rows if self._part is not None else 0

    def write(self, values: Floats, rows: Sequence[Row]) -> None:
        """Write a line for each row."""
        lines = []
        for value, row in zip(values, rows, strict=True):
            lines.append(f"{json_start(self._index, row.kept)}, {self._name}: {_numbers(value)}}}\n")
            self._index += 1
        data = "".join(lines).encode("utf-8", "surrogatepass")
        if self._part is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            self._part.write(data, rows)

    def finish(self) -> None:
        """Give the file its name."""
        if self._part is not None:
            with self._part.finished():
                pass


class NpyWriter:
    """One array, float32; its header comes last, when the number of rows is known."""

    def __init__(self, part: PartFile) -> None:
        self._part = part
        self._shape: tuple[int, ...] = ()

    def begin(self, shape: tuple[int, ...]) -> None:
        """Leave room for the header."""
        self._shape = shape
        if not self._part.n_rows:
            self._part.write(npy_header((0, *shape)))

    def write(self, values: Floats, rows: Sequence[Row]) -> None:
        """Append the rows."""
        self._part.write(np.ascontiguousarray(values, "<f4").tobytes(), rows)

    def finish(self) -> None:
        """Write the header and give the file its name."""
        with self._part.finished() as file:
            file.seek(0)
            file.write(npy_header((self._part.n_rows, *self._shape)))


class ParquetWriter:
    """Parquet, which can't be gone on with: plain rows until all are there, then all of it at once."""

    def __init__(self, name: str, part: PartFile, source: Source, keep: Sequence[str]) -> None:
        self._name = name
        self._part = part
        self._source = source
        self._keep = tuple(keep)
        self._shape: tuple[int, ...] = ()

    def begin(self, shape: tuple[int, ...]) -> None:
        """Write nothing yet."""
        self._shape = shape

    def write(self, values: Floats, rows: Sequence[Row]) -> None:
        """Append the rows."""
        self._part.write(np.ascontiguousarray(values, "<f4").tobytes(), rows)

    def finish(self) -> None:
        """Make Parquet of the rows and of the kept fields of the input."""
        from llamacy.core._replace import replacing

        with replacing(self._part.target) as temporary:
            self._convert(self._part.rewound(), temporary)
        self._part.discard()

    def _convert(self, file: IO[bytes], path: str) -> None:
        import pyarrow.parquet

        rows = self._source.rows() if self._keep else None
        n_group = min(max(1, _GROUP_BYTES // (4 * math.prod(self._shape))), _MAX_GROUP_ROWS)
        starts = range(0, self._part.n_rows, n_group) or range(1)
        writer = None
        schema = self._source.schema() if self._keep else None
        try:
            for start in starts:
                n_rows = min(n_group, self._part.n_rows - start)
                values = np.frombuffer(file.read(4 * n_rows * math.prod(self._shape)), "<f4")
                kept = [] if rows is None else [row.kept for row in itertools.islice(rows, n_rows)]
                if len(kept) != n_rows and rows is not None:
                    raise CommandError(f"{self._source.name} has changed while it was read.")
                table = self._table(values, kept, schema)
                if writer is None:
                    writer = pyarrow.parquet.ParquetWriter(path, table.schema)
                    schema = table.schema
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()

    def _table(self, values: Floats, kept: list[dict[str, Any]], schema: Any) -> Any:
        import pyarrow

        columns = {}
        for name in self._keep:
            column = [row[name] for row in kept]
            try:
                columns[name] = pyarrow.array(column, type=schema.field(name).type if schema is not None else None)
            except (pyarrow.ArrowException, OverflowError) as error:
                raise CommandError(f"field {name!r} can't be one column of Parquet: {error}") from None
        columns[self._name] = pyarrow.array(values)
        if self._shape:
            columns[self._name] = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values), self._shape[0])
        return pyarrow.table(columns)


def npy_header(shape: tuple[int, ...]) -> bytes:
    """Return the head of a .npy file, always of the same length."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}"
    prefix = b"\x93NUMPY\x01\x00"
    length = _HEADER_BYTES - len(prefix) - 2
    return prefix + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"


def check_kept(keep: Sequence[str], name: str) -> None:
    """Refuse to keep fields that are called as what is written anyway."""
    for taken in ("index", name):
        if taken in keep:
            raise CommandError(f"a field {taken!r} can't be kept: {taken!r} is what llamacy writes.")


def json_start(index: int, kept: dict[str, Any]) -> str:
    """Return a JSON object of a row without its end, for values to follow; JSON has null for what is no number."""
    row = {"index": index, **kept}
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        text = json.dumps(_finite(row), ensure_ascii=False, allow_nan=False, default=_plain)
    return text[:-1]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _numbers(value: Any) -> str:
    if not np.isfinite(value).all():
        raise CommandError("the model gave values that are no numbers: it may be damaged, or of a type that overflows.")
    # Nine digits tell every float32 from its neighbours.
    if np.ndim(value) == 0:
        return f"{value:.9g}"
    return "[" + ", ".join([f"{number:.9g}" for number in value.tolist()]) + "]"


def _plain(value: Any) -> Any:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    raise CommandError(f"a field of type {type(value).__name__} can't be written as JSON: leave it out of --keep.")
