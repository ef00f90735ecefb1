"""Writes small models with random weights: real ones in all but sense."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from harness.cache import cache_dir

from llamacy import Gguf
from llamacy.core.model import Model
from llamacy.types import GgmlType, GgufType

# in the names of the files: raise it when a change here makes other files
_VERSION = 3
_ARRAYS = {"tokenizer.ggml.token_type": GgufType.INT32, "tokenizer.ggml.scores": GgufType.FLOAT32}
# tokens of these types have no text; a generation must not run into them
_CONTROL = 3


def micro_model(tokenizer: Path, *, whole_text: bool = False) -> Path:
    """Return a model of 1 layer and 64 dimensions with the vocabulary of another one, writing it when needed.

    Nearly all of its time goes into what every model does for a token, so it shows what a binding adds.

    Parameters
    ----------
    tokenizer
        The model whose vocabulary and chat template it has.
    whole_text
        It writes words only, each of them one token with a space before it, so that a text becomes the same tokens
        again, as nearly every text of a real model does. Otherwise it strings tokens together without sense, so sooner
        or later a text has bytes that aren't UTF-8.
    """
    with Gguf(tokenizer) as source:
        kind = "micro-text" if whole_text else "micro"
        path = cache_dir() / f"{kind}-{_VERSION}-{len(source.metadata['tokenizer.ggml.tokens'])}.gguf"
        if not path.is_file():
            metadata = {key: source.metadata[key] for key in source.metadata if key.startswith("tokenizer.")}
            _write(path, metadata, n_embd=64, n_head=4, n_ff=128, silent=_no_words(tokenizer) if whole_text else ())
            del metadata
    return path


def _no_words(tokenizer: Path) -> list[int]:
    """Return the tokens that are anything else than a word with a space before it."""
    with Model(tokenizer, vocab_only=True) as model:
        pieces = [model.vocab.piece(token) for token in range(model.n_vocab)]
    return [token for token, piece in enumerate(pieces) if not re.fullmatch(rb" [A-Za-z]+", piece)]


def nano_model() -> Path:
    """Return a model with a vocabulary of 32 tokens, for tests of what creating and closing costs."""
    path = cache_dir() / f"nano-{_VERSION}.gguf"
    if not path.is_file():
        metadata = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *ascii_lowercase, "\u2581", "!", "?"],
            "tokenizer.ggml.scores": [0.0] * 32,
            "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 29],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
        }
        _write(path, metadata, n_embd=32, n_head=2, n_ff=32)
    return path


def wide_model(n_vocab: int) -> Path:
    """Return a model with a large vocabulary without sense, for rows of logits of that size."""
    path = cache_dir() / f"wide-{_VERSION}-{n_vocab}.gguf"
    if not path.is_file():
        metadata = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, n_vocab))],
            "tokenizer.ggml.scores": [0.0] * n_vocab,
            "tokenizer.ggml.token_type": [2, 3, 3, *[1] * (n_vocab - 3)],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
        }
        _write(path, metadata, n_embd=32, n_head=2, n_ff=32)
    return path


def nano_lora() -> Path:
    """Return an adapter for `nano_model`."""
    path = cache_dir() / f"nano-lora-{_VERSION}.gguf"
    if not path.is_file():
        with Gguf() as gguf:
            metadata: dict[str, Any] = {
                "general.architecture": "llama",
                "general.type": "adapter",
                "adapter.type": "lora",
                "adapter.lora.alpha": 4.0,
            }
            gguf.metadata.update(metadata)
            rows = np.full((4, 32), 0.01, np.float32)
            gguf.add_tensor("blk.0.attn_q.weight.lora_a", rows)
            gguf.add_tensor("blk.0.attn_q.weight.lora_b", np.ascontiguousarray(rows.T))
            gguf.write(path)
    return path


def _write(
    path: Path, metadata: dict[str, Any], *, n_embd: int, n_head: int, n_ff: int, silent: Sequence[int] = ()
) -> None:
    rng = np.random.default_rng(20)
    tokens = metadata["tokenizer.ggml.tokens"]
    n_vocab = len(tokens)

    def weights(rows: int, columns: int, scale: float) -> np.ndarray:
        return (scale * rng.standard_normal((rows, columns))).astype(np.float16)

    output = weights(n_vocab, n_embd, 2 / n_embd**0.5)
    # a logit of 0 is far from the largest of so many
    output[np.asarray(metadata["tokenizer.ggml.token_type"]) == _CONTROL] = 0
    output[list(silent)] = 0
    scale = n_embd**-0.5
    tensors = {
        "token_embd.weight": weights(n_vocab, n_embd, 1),
        "output.weight": output,
        "output_norm.weight": np.ones(n_embd, np.float32),
        "blk.0.attn_norm.weight": np.ones(n_embd, np.float32),
        "blk.0.ffn_norm.weight": np.ones(n_embd, np.float32),
        **{f"blk.0.attn_{part}.weight": weights(n_embd, n_embd, scale) for part in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": weights(n_ff, n_embd, scale),
        "blk.0.ffn_up.weight": weights(n_ff, n_embd, scale),
        "blk.0.ffn_down.weight": weights(n_embd, n_ff, scale),
    }
    with Gguf() as gguf:
        shape: dict[str, Any] = {
            "general.architecture": "llama",
            "general.name": path.stem,
            "llama.block_count": 1,
            "llama.context_length": 8192,
            "llama.embedding_length": n_embd,
            "llama.feed_forward_length": n_ff,
            "llama.attention.head_count": n_head,
            "llama.attention.head_count_kv": n_head,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.dimension_count": n_embd // n_head,
            "llama.vocab_size": n_vocab,
        }
        for key, value in {**shape, **metadata}.items():
            gguf.metadata.set(key, value, type=_ARRAYS.get(key))
        for name, data in tensors.items():
            gguf.add_tensor(name, data, type=GgmlType.F16 if data.dtype == np.float16 else GgmlType.F32)
        gguf.write(path)


def main() -> None:
    """Write both and say where."""
    from harness.models import add_model_argument, model_path

    parser = argparse.ArgumentParser(description=__doc__)
    add_model_argument(parser)
    print(micro_model(model_path(parser.parse_args())))
    print(nano_model())
    print(nano_lora())


if __name__ == "__main__":
    main()
