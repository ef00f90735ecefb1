"""A file that is written row by row over hours, and that a later run goes on with when one is interrupted.

Rows go to ``NAME.part``; beside it ``NAME.part.json`` says how many of them are safely there, what they were computed
with, and the digest of the texts. The file gets its name when it is whole.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

from llamacy.cli.common import CommandError
from llamacy.cli.rows.reading import Row
from llamacy.starter.lock import file_lock

_VERSION = 1
_SYNC_S = 5.0
_N_BLOCKS, _BLOCK = 64, 1 << 16


class _Done(NamedTuple):
    """Rows and bytes written, and the digest of the texts of those rows."""

    n_rows: int
    n_bytes: int
    texts: hashlib.blake2b

    def plus(self, rows: Iterable[Row], n_bytes: int) -> _Done:
        n_rows, texts = self.n_rows, self.texts.copy()
        for row in rows:
            for text in row.texts:
                encoded = text.encode("utf-8", "surrogatepass")
                texts.update(len(encoded).to_bytes(8, "little"))
                texts.update(encoded)
            n_rows += 1
        return _Done(n_rows, self.n_bytes + n_bytes, texts)


class PartFile:
    """The rows written so far, and the record of them. A context manager.

    Parameters
    ----------
    target
        The file to be made.
    facts
        What decides the numbers and their layout: JSON values by the name that errors call them.
    may_begin
        Facts that a later run may turn from false to true: they decide nothing for rows that were computed.
    resume
        Go on with what an interrupted run has left, if it has left something.
    force
        Replace a file that is there, and begin again where an interrupted run has left something.

    Raises
    ------
    CommandError
        There is a file already, or what is left was computed otherwise.
    """

    def __init__(
        self, target: Path, facts: Mapping[str, Any], *, resume: bool, force: bool, may_begin: Collection[str] = ()
    ) -> None:
        # The file is replaced, not a link to it.
        target = target.resolve() if target.is_symlink() else target
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self._record = target.with_name(target.name + ".part.json")
        self._lock_path = target.with_name(f".{target.name}.lock")
        self._facts = dict(facts)
        self._may_begin = may_begin
        self._resume, self._force = resume, force
        self._synced_at = -math.inf
        self._n_safe = 0
        self._done = _Done(0, 0, hashlib.blake2b(digest_size=16))
        self._found: dict[str, Any] | None = None

    def __enter__(self) -> PartFile:
        if not self.target.parent.is_dir():
            raise CommandError(f"{self.target.parent}: there is no such folder.")
        was_killed = self._lock_path.exists()
        self._lock = file_lock(self._lock_path, self._in_use)
        self._lock.__enter__()
        try:
            self._check_target(was_killed)
            self._found = self._read_record() if self._resume and not self._force else None
            self._file = self._open()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if not self._file.closed:
                # Where the disk is full this fails once more; what is told is why the run ended.
                with suppress(OSError) if error is not None else nullcontext():
                    if self._done.n_rows:
                        self.sync()
                with suppress(OSError) if error is not None else nullcontext():
                    self._file.close()
                if not self._done.n_rows and self._found is None:
                    self.path.unlink()
        finally:
            self._unlock()

    @property
    def n_rows(self) -> int:
        """Rows that were written."""
        return self._done.n_rows

    @property
    def n_safe(self) -> int:
        """Rows that a later run need not compute again."""
        return self._n_safe

    @property
    def is_resumed(self) -> bool:
        """Whether there are rows of an earlier run that `skip` has to pass."""
        return self._found is not None

    def skip(self, rows: Iterator[Row], source: str) -> None:
        """Read over the rows that are done, and check that they are those that were computed.

        Raises
        ------
        CommandError
            They are others, or fewer.
        """
        if self._found is None:
            return
        wanted: int = self._found["n_rows"]
        done = _Done(0, self._found["n_bytes"], self._done.texts)
        for row in itertools.islice(rows, wanted):
            done = done.plus([row], 0)
        if done.n_rows < wanted or done.texts.hexdigest() != self._found["texts"]:
            raise CommandError(
                f"{source} doesn't begin with the {wanted} rows that {self.path} was computed from: give the same "
                "input, or --force to begin again."
            )
        self._done, self._found = done, None
        self._n_safe = done.n_rows

    def write(self, data: bytes | memoryview, rows: Iterable[Row] = ()) -> None:
        """Append the bytes of some rows; now and then what was written becomes safe."""
        done = self._done.plus(rows, len(data))
        with naming_errors(self.path):
            self._file.write(data)
        # One assignment, so that an interruption finds either all of it done or nothing.
        self._done = done
        if done.n_rows and time.monotonic() - self._synced_at > _SYNC_S:
            self.sync()

    def sync(self) -> None:
        """Make what was written so far safe: a later run goes on from here."""
        with naming_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        done = self._done
        record = {
            "version": _VERSION,
            "n_rows": done.n_rows,
            "n_bytes": done.n_bytes,
            "texts": done.texts.hexdigest(),
            "facts": self._facts,
        }
        temporary = self._record.with_name(self._record.name + ".tmp")
        temporary.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
        temporary.replace(self._record)
        self._synced_at = time.monotonic()
        self._n_safe = done.n_rows

    @contextmanager
    def finished(self) -> Iterator[IO[bytes]]:
        """Give the whole file for last changes; after the block it has its name."""
        with naming_errors(self.path):
            yield self._file
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        self.path.replace(self.target)
        self._record.unlink(missing_ok=True)

    def rewound(self) -> IO[bytes]:
        """Return the file, safe on the disk and at its beginning, to be read."""
        self.sync()
        self._file.seek(0)
        return self._file

    def discard(self) -> None:
        """Remove the file and its record, when something else was made of it."""
        self._file.close()
        self.path.unlink(missing_ok=True)
        self._record.unlink(missing_ok=True)

    def _open(self) -> IO[bytes]:
        if self._found is None:
            self._record.unlink(missing_ok=True)
            return self.path.open("w+b")
        n_bytes: int = self._found["n_bytes"]
        if self.path.stat().st_size < n_bytes:
            raise CommandError(f"{self.path} is shorter than {self._record.name} says: --force begins again.")
        file = self.path.open("r+b")
        # What is beyond is a torn end that the record doesn't vouch for.
        file.truncate(n_bytes)
        file.seek(0, os.SEEK_END)
        return file

    def _check_target(self, was_killed: bool) -> None:
        if self.target.is_dir():
            raise CommandError(f"{self.target} is a folder: name the file to write.")
        if self.target.exists() and not self.target.is_file():
            raise CommandError(f"{self.target} is no regular file: write JSON lines to standard output instead.")
        if self._force:
            return
        if self._record.exists() and not self._resume:
            raise CommandError(
                f"{self.path} is there from a run that was interrupted: --resume goes on with it, --force begins again."
            )
        if self.target.exists():
            if self._resume and not self._record.exists():
                # whether it is of this input and these options, nothing tells: the record ends with the run
                raise CommandError(
                    f"{self.target} is there, and no interrupted run to go on with: a file that llamacy wrote has its "
                    "name only when it has all rows. Keep it, or give --force in place of --resume to compute it again."
                )
            raise CommandError(f"{self.target} is there already: --force replaces it.")
        # A run of llamacy that was killed before it had a record leaves its lock.
        if self.path.exists() and self.path.stat().st_size and not self._record.exists() and not was_killed:
            raise CommandError(
                f"{self.path} is there, but nothing says that llamacy wrote it: move it away, or --force replaces it."
            )

    def _read_record(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self._record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            found = None
        if not _is_record(found) or not self.path.is_file():
            raise CommandError(f"{self._record} is damaged or of another version: --force begins again.")
        self._check_facts(found)
        made: dict[str, Any] = found
        return made

    def _check_facts(self, found: dict[str, Any]) -> None:
        before = found["facts"]
        for name in dict.fromkeys((*before, *self._facts)):
            then, now = before.get(name), self._facts.get(name)
            if then != now and not (name in self._may_begin and then is False):
                raise CommandError(
                    f"{self.path} was begun with {name} {_shown(then)}, not {_shown(now)}: give what it was begun "
                    "with, or --force to begin again."
                )

    def _in_use(self) -> None:
        raise CommandError(f"another process writes {self.target} at this moment.")

    def _unlock(self) -> None:
        # On Windows a file that is open stays.
        with suppress(OSError):
            self._lock_path.unlink()
        self._lock.__exit__(None, None, None)


@contextmanager
def naming_errors(path: Path) -> Iterator[None]:
    """Let errors name the file: what goes wrong with one that is open, such as a full disk, has no name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def file_digest(path: Path) -> str:
    """Return a digest of a file's size and of blocks all over it, fast however large the file is."""
    digest = hashlib.blake2b(digest_size=16)
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as file:
        for number in range(_N_BLOCKS):
            file.seek(max(size - _BLOCK, 0) * number // (_N_BLOCKS - 1))
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()


def _is_record(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and found.get("version") == _VERSION
        and all(type(found.get(name)) is int and found[name] >= 0 for name in ("n_rows", "n_bytes"))
        and isinstance(found.get("texts"), str)
        and isinstance(found.get("facts"), dict)
    )


def _shown(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
