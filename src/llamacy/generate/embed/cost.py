"""How large batches of texts are best: what a decode costs, in the time that one token takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from llamacy.types import DeviceType, FlashAttnType

if TYPE_CHECKING:
    from llamacy.core.model import Model

# a decode without any tokens: a CPU needs the time of so many tokens for each of its threads, which wait for each
# other; a GPU computes so many in the time that it takes to start
_CPU_START = 8.0
_GPU_START = 2000.0
# a pair of tokens, relative to its multiplications' share in those of a token: flash attention leaves out what is
# masked, while the softmax of the plain way is slow for its number of multiplications
_FLASH_PAIR = 0.57
_PLAIN_PAIR = 6.8


def on_gpu(model: Model) -> bool:
    """Return whether a GPU computes the model, or a part of it."""
    return any(device.type in (DeviceType.GPU, DeviceType.IGPU) for device in model.devices)


def best_tokens(model: Model, n_threads: int, flash_attn: FlashAttnType) -> float:
    """Return how many tokens a batch of many short texts has best.

    A layer multiplies 12 n_embd² numbers for a token, and 2 n_embd for each token that this one looks at. With a fixed
    time of c tokens and a time for the pairs of k/(6 n_embd) T², a token takes least where both are equal.
    """
    start = _GPU_START if on_gpu(model) else _CPU_START * max(n_threads, 1)
    pair = _PLAIN_PAIR if flash_attn == FlashAttnType.DISABLED else _FLASH_PAIR
    return math.sqrt(start * 6 * max(model.n_embd, 1) / pair)
