"""Where the real models of the tests are.

``LLAMACY_TEST_SMOLLM2`` and ``LLAMACY_TEST_GEMMA3`` name files to use as they are. Otherwise SmolLM2 comes from the
cache of ``llamacy pull`` and is pulled when it isn't there; Gemma, whose licence the user has to accept, is never
pulled here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SMOLLM2 = "smollm2-135m"
GEMMA3 = "gemma3-270m"


def smollm2_path() -> Path:
    """Return the GGUF of SmolLM2-135M-Instruct (Q4_1), pulling it first when it isn't there."""
    given = os.environ.get("LLAMACY_TEST_SMOLLM2")
    if given:
        return _existing(given)
    from llamacy.starter import pull

    return pull(SMOLLM2, progress=False)


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
