"""Thousands of states and extended batches: handles and memory stay flat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llamacy.core.batch_ext import ExtendedBatch
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.core.process import process
from llamacy.errors import StateError
from llamacy.types import StateFlags
from tests.core.test_model_soak import assert_flat
from tests.core.test_state import EXACT, PROMPT, decode
from tests.helpers import data

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with Model(data("qwen35.gguf")) as model, Context(model, n_threads=1, n_threads_batch=1, **EXACT) as context:
        decode(context, PROMPT, 0)
        yield context


def test_state_saved_and_restored(context: Context, tmp_path: Path) -> None:
    buffer = bytearray(context.state.size())

    def cycle() -> None:
        for flags in (StateFlags.NONE, StateFlags.PARTIAL_ONLY, StateFlags.ON_DEVICE):
            context.state.seq_set(0, context.state.seq_get(0, flags), flags)
        context.state.get_into(buffer)
        context.state.set(buffer)

    assert_flat(cycle, 3_000)


def test_state_files_saved_and_loaded(context: Context, tmp_path: Path) -> None:
    path = tmp_path / "state"

    def cycle() -> None:
        context.state.save_file(path, PROMPT)
        context.state.load_file(path)
        context.state.seq_save_file(path, 0, PROMPT)
        context.state.seq_load_file(path, 0)

    assert_flat(cycle, 1_000)


def test_state_refused(context: Context, tmp_path: Path) -> None:
    blob = context.state.seq_get(0)
    path = tmp_path / "state"
    path.write_bytes(blob)

    def cycle() -> None:
        with pytest.raises(StateError):
            context.state.seq_set(0, blob[:-1])
        with pytest.raises(StateError):
            context.state.load_file(path)

    assert_flat(cycle, 3_000)


def test_extended_batch_closed(context: Context) -> None:
    def cycle() -> None:
        with ExtendedBatch(context) as batch:
            batch.add_token(0, 5)

    assert_flat(cycle)


def test_extended_batch_processed(context: Context) -> None:
    def cycle() -> None:
        context.memory.clear()
        with ExtendedBatch(context) as batch:
            for token in PROMPT:
                batch.add_token(0, token)
            process(batch)

    assert_flat(cycle, 500)
