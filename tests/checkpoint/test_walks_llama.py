"""Any order of requests, aborts, saved states, forks and caches of one `Llama`, against evaluations from scratch.

LLAMACY_WALKS is the number of walks of each kind, LLAMACY_WALK_SEED an integer to begin with.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from llamacy import Llama
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.errors import CheckpointError, MemoryOperationError
from tests.helpers import data
from tests.helpers.arch import CONTEXT

from .conftest import decode

# name: file, parameters of the Llama
WALKS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, sequences": ("llama", {"n_seq_max": 3}),
    "llama, sequences apart": ("llama", {"n_seq_max": 3, "kv_unified": False, "n_ctx": 384}),
    "gemma3, window, sequences": ("gemma3", {"swa_full": False, "n_seq_max": 2}),
    "mamba2": ("mamba2", {}),
    "rwkv7, sequences": ("rwkv7", {"n_seq_max": 2}),
    "qwen35": ("qwen35", {}),
    "qwen35, sequences": ("qwen35", {"n_seq_max": 3, "checkpoint_interval": 8}),
    "qwen35, sequences apart": ("qwen35", {"n_seq_max": 3, "kv_unified": False, "n_ctx": 384}),
    "qwen35, rollback": ("qwen35", {"n_rs_seq": 4, "n_seq_max": 2}),
    "qwen35, on the device": ("qwen35", {"checkpoint_on_device": True, "n_seq_max": 2}),
}
N_WALKS = int(os.environ.get("LLAMACY_WALKS", "3"))
LONGEST = 48
TOLERANCE = 2e-3

# few tokens, so that prompts often begin alike; 2 ends a message
PIECE = st.lists(st.sampled_from([2, 261, 262, 263]), min_size=1, max_size=12)


class Row:
    """A logits processor that keeps a copy of the row that came first."""

    def __init__(self) -> None:
        self.logits: np.ndarray | None = None

    def __call__(self, _: Any, scores: np.ndarray) -> np.ndarray:
        if self.logits is None:
            self.logits = scores.copy()
        return scores


class Walk(RuleBasedStateMachine):
    """One `Llama`, and the conversations that were held; how far an aborted one came is a matter of chance."""

    make: Callable[[], Llama]
    fresh: Any
    n_steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.llama = self.make()
        self.held: list[list[int]] = [[1]]
        self.states: list[Any] = []

    def teardown(self) -> None:
        self.llama.close()
        self.folder.cleanup()

    def prompt(self, number: int, n: int, piece: list[int]) -> list[int]:
        """Return a prompt that begins as a conversation does, for so many tokens."""
        held = self.held[number % len(self.held)]
        return [*held[: max(n, 1)], *piece][-LONGEST:]

    def check(self, prompt: list[int], row: Row) -> None:
        type(self).n_steps += 1
        assert row.logits is not None
        assert np.abs(row.logits - self.fresh(tuple(prompt))).max() <= TOLERANCE

    @rule(
        number=st.integers(0, 5), n=st.integers(0, LONGEST), piece=PIECE, n_most=st.integers(1, 5), kept=st.booleans()
    )
    def ask(self, number: int, n: int, piece: list[int], n_most: int, kept: bool) -> None:
        prompt, row = self.prompt(number, n, piece), Row()
        answer = list(
            self.llama.generate(prompt, max_tokens=n_most, temperature=0, logits_processor=row, cache_prompt=kept)
        )
        self.check(prompt, row)
        self.held = [*self.held[-5:], [*prompt, *answer]]

    @rule(number=st.integers(0, 5), piece=PIECE, n_choices=st.integers(1, 3))
    def choose(self, number: int, piece: list[int], n_choices: int) -> None:
        prompt, row = self.prompt(number, LONGEST, piece), Row()
        result = self.llama(prompt, max_tokens=3, temperature=1.0, seed=1, n=n_choices, logits_processor=row)
        self.check(prompt, row)
        details = result["usage"]["prompt_tokens_details"]
        assert details["cached_tokens"] < len(prompt)

    @rule(number=st.integers(0, 5), piece=PIECE, how=st.sampled_from(["close", "abort", "error"]))
    def leave(self, number: int, piece: list[int], how: str) -> None:
        prompt, row = self.prompt(number, LONGEST, piece), Row()
        stream = self.llama.generate(prompt, max_tokens=9, temperature=0, logits_processor=row)
        answer = [next(stream), next(stream)]
        if how == "abort":
            self.llama.abort()
            answer += list(stream)
        elif how == "close":
            stream.close()
        else:
            with pytest.raises(ZeroDivisionError):
                stream.throw(ZeroDivisionError())
        self.check(prompt, row)
        self.held = [*self.held[-5:], [*prompt, *answer]]

    @rule()
    def save(self) -> None:
        try:
            self.states = [*self.states[-3:], self.llama.save_state()]
        except CheckpointError:
            return

    @rule(number=st.integers(0, 3), whole=st.booleans())
    def load(self, number: int, whole: bool) -> None:
        if not self.states:
            return
        state = self.states[number % len(self.states)]
        self.llama.load_state(state if whole else bytes(state))
        self.held = [*self.held[-5:], state.prefix.tokens.tolist()]

    @rule()
    def fork(self) -> None:
        try:
            self.llama.fork()
        except MemoryOperationError:
            return

    @rule()
    def reset(self) -> None:
        self.llama.reset()

    @rule(cache=st.sampled_from([None, 1 << 16, 1 << 22, "disk"]))
    def set_cache(self, cache: Any) -> None:
        self.llama.set_cache(self.folder.name if cache == "disk" else cache)


@pytest.mark.parametrize("name", WALKS)
def test_walk_answers_as_evaluated_from_scratch(name: str) -> None:
    file, params = WALKS[name]
    with Model(data(f"{file}.gguf")) as model, Context(model, **CONTEXT) as scratch:
        known: dict[tuple[int, ...], np.ndarray] = {}

        def fresh(tokens: tuple[int, ...]) -> np.ndarray:
            if tokens not in known:
                scratch.memory.clear()
                known[tokens] = decode(scratch, tokens)
            return known[tokens]

        def make() -> Llama:
            return Llama(model, **(CONTEXT | params))

        machine = type("Walk", (Walk,), {"make": staticmethod(make), "fresh": staticmethod(fresh)})
        if "LLAMACY_WALK_SEED" in os.environ:
            seed(int(os.environ["LLAMACY_WALK_SEED"]))(machine)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=N_WALKS,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        print(f"{name}: {machine.n_steps} requests")
