"""The goldens of tests/data/arch.json and arch.npz: what llama.cpp's own C API computes for each kind of memory."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np

from tests.helpers import data

# models of every kind of memory, by the name that arch.json gives them
KINDS = (
    "target",
    "llama",
    "gemma3",
    "mamba",
    "mamba2",
    "rwkv7",
    "qwen35",
    "qwen35.rs4",
    "qwen35_mtp",
    "qwen35_mtp.rs4",
)

# the configuration that the goldens were made with
CONTEXT = {
    "n_ctx": 128,
    "n_batch": 64,
    "n_ubatch": 64,
    "n_threads": 1,
    "n_threads_batch": 1,
    "flash_attn_type": "disabled",
    "type_k": "f32",
    "type_v": "f32",
}


@functools.cache
def golden(name: str) -> dict[str, Any]:
    """Return the record of one model, with its `prompt`, `logits` and `greedy` tokens."""
    record = json.loads(data("arch.json").read_text())
    arrays = np.load(data("arch.npz"))
    return {
        **record["models"][name],
        "prompt": record["prompt"],
        "logits": arrays[f"{name}.logits"],
        "greedy": arrays[f"{name}.greedy"].tolist(),
    }


def model_file(name: str) -> str:
    """Return the file of a model: the part of its name before the dot."""
    return name.split(".")[0] + ".gguf"


def context_params(name: str) -> dict[str, Any]:
    """Return the parameters of the context that the golden was made with."""
    return {**CONTEXT, "n_rs_seq": 4 if name.endswith(".rs4") else 0}
