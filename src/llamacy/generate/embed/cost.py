"""How large batches of texts are best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from llamacy.types import DeviceType, FlashAttnType

if TYPE_CHECKING:
    from llamacy.core.model import Model

# Seconds on one thread of a CPU, measured with BERT of 2 layers of 32 and of 6 layers of 384 numbers. Only how they
# relate to each other matters, and batches of half and of twice the best size are slower by a few percent only.
_MULTIPLICATION = 1.8e-11
# a decode without any tokens costs as much as so many of them, and the graph of each layer
_START_TOKENS = 8.0
_START_LAYER = 5e-5
# a pair of tokens in a head: flash attention leaves out what is masked, the plain way computes it
_FLASH_PAIR = 0.8e-9
_PLAIN_PAIR = 9.6e-9
# a GPU computes so many tokens in hardly more time than one
_GPU_TOKENS = 2048.0


def on_gpu(model: Model) -> bool:
    """Return whether a GPU computes the model, or a part of it."""
    return any(device.type in (DeviceType.GPU, DeviceType.IGPU) for device in model.devices)


def token_seconds(model: Model) -> float:
    """Return about how long one thread of a CPU computes a token."""
    return 12 * max(model.n_layer, 1) * max(model.n_embd, 1) ** 2 * _MULTIPLICATION


def best_tokens(model: Model, n_threads: int, flash_attn: FlashAttnType) -> float:
    """Return how many tokens a batch of many short texts has best.

    That is where the fixed time of a decode equals the time of its pairs of tokens; threads share the latter.
    """
    if on_gpu(model):
        return _GPU_TOKENS
    n_layer = max(model.n_layer, 1)
    start = _START_TOKENS * token_seconds(model) + _START_LAYER * n_layer
    pair = (_PLAIN_PAIR if flash_attn == FlashAttnType.DISABLED else _FLASH_PAIR) * n_layer * max(model.n_head, 1)
    return math.sqrt(start * max(n_threads, 1) / pair)
