"""What `vendor/PIN.toml` says."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from buildtools.errors import BuildError
from buildtools.paths import PIN_FILE


@dataclass(frozen=True)
class Pin:
    """One pinned llama.cpp: its name, the archive that carries it, and what of it is kept."""

    tag: str
    build_number: int
    package: str
    version: str
    file: str
    sha256: str
    folder: str
    keep: tuple[str, ...]
    drop: tuple[str, ...]

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    @property
    def stamp(self) -> str:
        """A line that changes whenever a tree unpacked from this pin would change."""
        wanted = "\n".join((self.sha256, self.folder, *self.keep, "-", *self.drop))
        return f"{self.tag} {hashlib.sha256(wanted.encode()).hexdigest()}"

    def keeps(self, path: PurePosixPath) -> bool:
        """Whether a file of the folder belongs to the vendored tree."""
        return _matches(path, self.keep) and not _matches(path, self.drop)


def _matches(path: PurePosixPath, patterns: tuple[str, ...]) -> bool:
    name = path.as_posix()
    for pattern in patterns:
        if pattern.endswith("/"):
            if name.startswith(pattern):
                return True
        # match() compares from the right, so equal length makes it a match of the whole path.
        elif len(path.parts) == len(PurePosixPath(pattern).parts) and path.match(pattern):
            return True
    return False


def read_pin(path: Path = PIN_FILE) -> Pin:
    """Read a pin file.

    Raises
    ------
    BuildError
        The file is missing, is not TOML, or lacks a key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return Pin(
            tag=data["llama_cpp"]["tag"],
            build_number=data["llama_cpp"]["build_number"],
            package=data["archive"]["package"],
            version=data["archive"]["version"],
            file=data["archive"]["file"],
            sha256=data["archive"]["sha256"].lower(),
            folder=data["archive"]["folder"].strip("/"),
            keep=tuple(data["tree"]["keep"]),
            drop=tuple(data["tree"]["drop"]),
        )
    except (OSError, ValueError, KeyError) as error:
        raise BuildError(
            f"{path} can't be read as a pin file ({type(error).__name__}: {error}); restore it from the repository."
        ) from error
