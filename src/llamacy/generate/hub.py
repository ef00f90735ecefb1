"""Models from the Hugging Face Hub, through the package huggingface_hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from llamacy.errors import DownloadError
from llamacy.generate.hub_failure import is_unreachable, is_wrong_name, reason
from llamacy.types import StrPath

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def fetch(
    repo_id: str,
    filename: str,
    *,
    revision: str | None = None,
    local_dir: StrPath | None = None,
    cache_dir: StrPath | None = None,
    kind: str = "Llama",
) -> str:
    """Return the path of a file of the Hub, downloading it, and all parts of a split model, when they aren't there.

    Parameters
    ----------
    repo_id, filename, revision, local_dir, cache_dir
        As for `llamacy.Llama.from_pretrained`.
    kind
        Name of the class that is to load it, for errors.

    Raises
    ------
    ImportError
        The package huggingface_hub is not installed.
    DownloadError
        It can't be fetched, and was not before; the error of the Hub's client is its cause.
    ValueError
        No file, or more than one, matches; or it is no name of a repository.
    """
    try:
        from huggingface_hub import hf_hub_download, list_repo_files
    except ImportError as error:
        raise ImportError(
            "models from the Hugging Face Hub need the package huggingface_hub: "
            "pip install 'llamacy[hub]', or pip install huggingface_hub"
        ) from error
    options: dict[str, Any] = {"revision": revision, "local_dir": local_dir, "cache_dir": cache_dir}
    name = filename
    if any(character in filename for character in "*?["):
        with _told(repo_id, filename, revision, kind):
            try:
                files = list_repo_files(repo_id, revision=revision)
            except Exception as error:
                files = kept(repo_id, **options) if is_unreachable(error) else []
                if not any(fnmatch(name, filename) for name in files):
                    raise
        name = match(files, filename)
    paths = []
    for part in parts(name):
        with _told(repo_id, part, revision, kind):
            paths.append(hf_hub_download(repo_id, part, **options))
    return str(Path(paths[0]))


@contextmanager
def _told(repo_id: str, filename: str, revision: str | None, kind: str) -> Iterator[None]:
    """Make an error of llamacy of what the Hub's client raises in the block."""
    try:
        yield
    except Exception as error:  # also that of its HTTP library and its storage, which have no class in common
        if is_wrong_name(error):
            raise ValueError(f"{repo_id!r} is no name of a repository: give owner/name, as 'org/model-GGUF'") from error
        raise DownloadError(
            f"{filename} of {repo_id} can't be fetched from the Hugging Face Hub: "
            f"{reason(error, repo_id, filename, revision)}. If you have the file, give its path to {kind}(…)."
        ) from error


def kept(repo_id: str, revision: str | None, local_dir: StrPath | None, cache_dir: StrPath | None) -> list[str]:
    """Return the names of the files of a repository that were fetched before."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    if local_dir is not None:
        folder = Path(local_dir)
        return [path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf")]
    try:
        cache = scan_cache_dir(None if cache_dir is None else Path(cache_dir))
    except CacheNotFound:
        return []
    return [
        file.file_path.relative_to(held.snapshot_path).as_posix()
        for repository in cache.repos
        if repository.repo_id == repo_id and repository.repo_type == "model"
        for held in repository.revisions
        if (revision or "main") in {*held.refs, held.commit_hash}
        for file in held.files
    ]


def match(files: list[str], pattern: str) -> str:
    """Return the one file that matches a pattern; of a split model that is its first part."""
    found = [
        name for name in files if fnmatch(name, pattern) and (_SPLIT.search(name) or [None, "00001"])[1] == "00001"
    ]
    if len(found) != 1:
        what = "no file" if not found else f"{len(found)} files ({', '.join(found)})"
        raise ValueError(f"{what} of the repository match {pattern!r}; it has {', '.join(files)}")
    return found[0]


def parts(name: str) -> list[str]:
    """Return the names of all parts of a split model, or just the name."""
    split = _SPLIT.search(name)
    if split is None:
        return [name]
    stem = name[: split.start()]
    return [f"{stem}-{number:05d}-of-{split[2]}.gguf" for number in range(1, int(split[2]) + 1)]
