"""Fixtures of the tests of grammars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers import data


@pytest.fixture(scope="session")
def vocab() -> Iterator[Any]:
    """The toy vocabulary; tests that need it are skipped where nothing is built."""
    model = pytest.importorskip("llamacy.core.model", reason="the extension modules are not built")
    with model.Model(data("llama.gguf"), vocab_only=True) as loaded:
        yield loaded.vocab
