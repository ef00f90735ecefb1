"""Models from the Hugging Face Hub, through the package huggingface_hub."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from llamacy.types import StrPath

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def fetch(
    repo_id: str,
    filename: str,
    *,
    revision: str | None = None,
    local_dir: StrPath | None = None,
    cache_dir: StrPath | None = None,
) -> str:
    """Return the path of a file of the Hub, downloading it, and all parts of a split model, when they aren't there.

    Raises
    ------
    ImportError
        The package huggingface_hub is not installed.
    ValueError
        No file, or more than one, matches.
    """
    try:
        from huggingface_hub import hf_hub_download, list_repo_files
    except ImportError as error:
        raise ImportError(
            "models from the Hugging Face Hub need the package huggingface_hub: "
            "pip install 'llamacy[hub]', or pip install huggingface_hub"
        ) from error
    options: dict[str, Any] = {"revision": revision, "local_dir": local_dir, "cache_dir": cache_dir}
    names = [filename]
    if any(character in filename for character in "*?["):
        names = match(list_repo_files(repo_id, revision=revision), filename)
    paths = [hf_hub_download(repo_id, name, **options) for part in names for name in parts(part)]
    return str(Path(paths[0]))


def match(files: list[str], pattern: str) -> list[str]:
    """Return the one file that matches a pattern; of a split model that is its first part."""
    found = [
        name for name in files if fnmatch(name, pattern) and (_SPLIT.search(name) or [None, "00001"])[1] == "00001"
    ]
    if len(found) != 1:
        what = "no file" if not found else f"{len(found)} files ({', '.join(found)})"
        raise ValueError(f"{what} of the repository match {pattern!r}; it has {', '.join(files)}")
    return found


def parts(name: str) -> list[str]:
    """Return the names of all parts of a split model, or just the name."""
    split = _SPLIT.search(name)
    if split is None:
        return [name]
    stem = name[: split.start()]
    return [f"{stem}-{number:05d}-of-{split[2]}.gguf" for number in range(1, int(split[2]) + 1)]
