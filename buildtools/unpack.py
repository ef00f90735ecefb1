"""Takes the wanted files out of a tar archive, and nothing that could land elsewhere."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from buildtools.errors import BuildError


def unpack(
    archive: Path,
    folder: PurePosixPath,
    keeps: Callable[[PurePosixPath], bool],
    target: Path,
    advanced: Callable[[int], object] = lambda _: None,
) -> int:
    """Unpack the files below `folder` of a .tar.gz into `target`.

    Parameters
    ----------
    archive : Path
        The archive.
    folder : PurePosixPath
        The folder in the archive whose content is wanted.
    keeps : callable
        Says whether a file, by its path in that folder, is wanted.
    target : Path
        An existing folder.
    advanced : callable, optional
        Called with the number of bytes of the archive read since the last call.

    Returns
    -------
    int
        How many files were written.

    Raises
    ------
    BuildError
        The archive is damaged, or holds a name that points out of its folder, or a wanted entry that is
        neither a file nor a folder.
    """
    count = 0
    position = 0
    try:
        with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r:gz") as tar:
            for member in tar:
                advanced(raw.tell() - position)
                position = raw.tell()
                relative = _relative(member, folder)
                if relative is None or member.isdir() or not keeps(relative):
                    continue
                if not member.isreg():
                    # A link could point anywhere, now or once another entry has been written.
                    raise BuildError(
                        f"{archive.name} holds {member.name!r}, which isn't a plain file: this archive isn't trusted."
                    )
                source = tar.extractfile(member)
                assert source is not None
                path = target.joinpath(*relative.parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with source, path.open("xb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                # Executable for all or nobody; never writable by others, never set-uid.
                path.chmod(0o755 if member.mode & 0o100 else 0o644)
                count += 1
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BuildError(f"{archive.name} is damaged ({type(error).__name__}: {error}).") from error
    return count


def _relative(member: tarfile.TarInfo, folder: PurePosixPath) -> PurePosixPath | None:
    """The path of an entry below `folder`; None when it lies elsewhere in the archive."""
    path = PurePosixPath(member.name)
    # Any such name condemns the archive, wanted or not. A backslash or colon means something on Windows only.
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or "\0" in member.name:
        raise BuildError(
            f"The archive holds the name {member.name!r}, which points out of its folder: it isn't trusted."
        )
    try:
        relative = path.relative_to(folder)
    except ValueError:
        return None
    if any(":" in part for part in relative.parts):
        raise BuildError(
            f"The archive holds the name {member.name!r}, which names a drive on Windows: it isn't trusted."
        )
    return relative if relative.parts else None
