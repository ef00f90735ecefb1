"""States with damage at random places: a typed error or a restore, never the end of the process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.errors import DecodeError, StateError
from llamacy.types import StateFlags
from tests.core.test_state import EXACT, PROMPT, decode
from tests.helpers import data

_SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["llama", "gemma3", "mamba", "qwen35"])
def context(request: pytest.FixtureRequest) -> Iterator[Any]:
    with (
        Model(data(f"{request.param}.gguf")) as model,
        Context(model, **(EXACT | {"n_seq_max": 2, "n_threads": 1, "n_threads_batch": 1})) as context,
    ):
        decode(context, PROMPT, 0)
        decode(context, PROMPT[:7], 0, 1)
        yield context


# where in the bytes, near the beginning more often; what to put there
damage = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 400), st.integers(0, 10**6)),
        st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f"])),
    ),
    min_size=1,
    max_size=4,
)


def damaged(blob: bytes, changes: list[tuple[int, bytes]], cut: int) -> bytes:
    raw = bytearray(blob)
    for where, what in changes:
        where %= len(raw)
        raw[where : where + len(what)] = what[: len(raw) - where]
    return bytes(raw[: len(raw) - cut % len(raw)] if cut else raw)


def still_decodes(context: Any) -> None:
    """Whatever was restored: going on works or is refused, and a prompt on a clean memory works."""
    for seq_id in (0, 1):
        with contextlib.suppress(DecodeError, ValueError):
            decode(context, [5], context.memory.seq_pos_max(seq_id) + 1, seq_id)
    context.memory.clear()
    decode(context, PROMPT, 0)
    decode(context, PROMPT[:7], 0, 1)


@_SETTINGS
@given(changes=damage, cut=st.one_of(st.just(0), st.integers(0, 10**6)), flags=st.sampled_from([0, 1]))
@example(changes=[(16, b"\xff\xff\xff\xff")], cut=0, flags=0)
def test_damaged_sequence_state_never_ends_process(
    context: Any, changes: list[tuple[int, bytes]], cut: int, flags: int
) -> None:
    blob = damaged(context.state.seq_get(0, StateFlags(flags)), changes, cut)
    with contextlib.suppress(StateError):
        context.state.seq_set(1, blob, StateFlags(flags))
    still_decodes(context)


@_SETTINGS
@given(changes=damage, cut=st.one_of(st.just(0), st.integers(0, 10**6)))
def test_damaged_whole_state_never_ends_process(context: Any, changes: list[tuple[int, bytes]], cut: int) -> None:
    blob = damaged(context.state.get(), changes, cut)
    with contextlib.suppress(StateError):
        context.state.set(blob)
    still_decodes(context)


@_SETTINGS
@given(blob=st.binary(max_size=200), flags=st.sampled_from([0, 1, 2, 3]))
def test_random_bytes_are_refused(context: Any, blob: bytes, flags: int) -> None:
    with pytest.raises(StateError):
        context.state.set(blob)
    with pytest.raises(StateError):
        context.state.seq_set(0, blob, StateFlags(flags))
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1
