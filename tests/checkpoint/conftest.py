"""Contexts of every kind of memory, and sequences in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from tests.helpers.arch import CONTEXT, golden

MakeContext = Callable[..., Any]

PROMPT: list[int] = golden("llama")["prompt"]
#: of all models of tests.helpers.arch, those whose memories differ
KINDS = ("llama", "gemma3", "mamba", "mamba2", "rwkv7", "qwen35", "qwen35.rs4")
#: of these, the ones that can't be cut everywhere
UNCUT = KINDS[1:]


@pytest.fixture
def make_kind(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> MakeContext:
    """Return a function that creates a context of a model by its name in tests.helpers.arch."""

    def make(name: str, model: Any = None, **params: Any) -> Any:
        stem, _, rest = name.partition(".")
        rolls_back = {"n_rs_seq": 4} if rest else {}
        return make_context(model or make_model(f"{stem}.gguf"), **(CONTEXT | rolls_back | params))

    return make


def decode(context: Any, tokens: Sequence[int], pos: int = 0, seq_id: int = 0) -> np.ndarray:
    """Decode tokens in one batch and return the logits of the last one."""
    with Batch(64) as batch:
        batch.extend(list(tokens), pos, seq_id)
        context.decode(batch)
    return np.array(context.logits(-1))


def fresh(make_kind: MakeContext, name: str, tokens: Sequence[int], **params: Any) -> np.ndarray:
    """Return the logits that a context of its own computes for the last of these tokens."""
    return decode(make_kind(name, **params), tokens)
