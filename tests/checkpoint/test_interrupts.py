"""Ctrl-C at any line of what stores and registries do: afterwards they are as they say, and go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from llamacy import checkpoint
from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.format import file_size
from llamacy.checkpoint.prefix import Prefix
from llamacy.checkpoint.ram import RamStore
from llamacy.checkpoint.registry import Registry
from llamacy.checkpoint.store import Store
from llamacy.errors import StaleCheckpointError

from .conftest import MakeContext, decode
from .processes import FACTS, is_right, snapshot_of

# where something is changed
NAMES = ("disk", "index", "ram", "registry", "store", "trie")
FILES = {str(Path(checkpoint.__file__).parent / f"{name}.py") for name in NAMES}
HELD = [[1, 2, 3], [1, 2, 4, 5], [1], [7, 8]]
PROMPT = [1, 5, 6, 7, 8, 9]


class Interrupt:
    """Raises KeyboardInterrupt at one of the lines that are executed where something is changed."""

    def __init__(self, at: int) -> None:
        self.n_left = at

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        except KeyboardInterrupt:
            assert self.n_left < 0
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self.n_left -= 1
            if self.n_left == -1:
                raise KeyboardInterrupt
        return self._trace


def check(store: Store[Any]) -> None:
    """Compare what a store finds with what it has."""
    assert len(store) <= 4
    assert store._index.n_bytes == sum(entry.n_bytes for entry in store._index)
    for query in ([1, 2, 3, 0], [1, 2, 4, 5, 0], [1, 2, 0], [1, 9, 0], [7, 8, 0], [7, 0], [1, 2, 3, 4, 0]):
        hit = store.get(FACTS, Prefix(query))
        # after that: an entry whose file has gone is found out by then
        held = [entry.prefix.tokens.tolist() for entry in store._index]
        expected = max((tokens for tokens in held if tokens == query[: len(tokens)]), key=len, default=None)
        assert (None if hit is None else hit.snapshot.prefix.tokens.tolist()) == expected
        assert hit is None or is_right(hit.snapshot)


# between open() and `with`, a file is closed by the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.parametrize("change", [lambda s: s.put(snapshot_of([1, 9])), lambda s: s.remove(snapshot_of([1, 2, 3]))])
def test_store_is_whole_after_ctrl_c_at_any_line(kind: str, change: Callable[[Any], Any], tmp_path: Path) -> None:
    at, interrupt = 0, Interrupt(-1)
    while interrupt.n_left < 0:
        biggest = snapshot_of([1, 2, 3, 4])
        store: Store[Any] = (
            RamStore(4 * biggest.n_bytes)
            if kind == "ram"
            else DiskStore(tmp_path / str(at), capacity_bytes=4 * file_size(biggest))
        )
        with store:
            for tokens in HELD:
                assert store.put(snapshot_of(tokens))
            interrupt = Interrupt(at)
            with interrupt():
                change(store)
            store.get(FACTS, Prefix([0]))
            check(store)
            assert store.put(snapshot_of([1, 9]))
            check(store)
        at += 1
    assert at > 20


@pytest.mark.parametrize("name", ["gemma3", "mamba2"])
def test_checkpoints_are_right_or_stale_after_ctrl_c_at_any_line(make_kind: MakeContext, name: str) -> None:
    context, alone = make_kind(name, swa_full=False), make_kind(name, swa_full=False)
    memory = context.memory
    expected = {}
    for number, token in enumerate(PROMPT):
        decode(alone, [token], number)
        with_next = make_kind(name, swa_full=False)
        expected[number + 1] = decode(with_next, [*PROMPT[: number + 1], 17])
        with_next.close()

    def change(registry: Registry) -> None:
        found = registry.find(0, [*PROMPT[:3], 17])
        if found is not None:
            registry.restore(found)  # drops those behind it
        memory.seq_rm(0)
        decode(context, PROMPT[:2])
        registry.capture(0, PROMPT[:2])

    at, interrupt = 0, Interrupt(-1)
    while interrupt.n_left < 0:
        memory.clear()
        with Registry(context, n_most=3) as registry:
            taken = []
            for number, token in enumerate(PROMPT):
                decode(context, [token], number)
                taken.append(registry.capture(0, PROMPT[: number + 1]))
            interrupt = Interrupt(at)
            with interrupt():
                change(registry)
            for one in [*taken, *registry.checkpoints(0)]:
                try:
                    n = registry.restore(one).n_positions
                except StaleCheckpointError:
                    continue
                assert np.abs(decode(context, [17], n) - expected[n]).max() < 1e-4
            memory.clear()
            decode(context, PROMPT)
            assert registry.capture(0, PROMPT) is registry.find(0, [*PROMPT, 17])
            assert len(registry) == 1
        at += 1
    assert at > 50
