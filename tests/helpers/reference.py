"""A forward pass in NumPy float64, written from the papers: what the logits of a tiny llama must be.

Covers the architectures ``llama`` and ``qwen3``: RMSNorm, rotary positions (adjacent pairs or halves), grouped-query
attention, SwiGLU, and LoRA deltas. Uses gguf-py to read the weights and nothing of llamacy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


class Reference:
    """The weights of one model in float64, and what it computes.

    Parameters
    ----------
    path
        A GGUF file with F32 or F16 weights.
    deltas
        What to add to weights, by tensor name (see `lora_deltas`).
    """

    def __init__(self, path: Path, deltas: Mapping[str, Doubles] | None = None) -> None:
        reader = gguf.GGUFReader(path)
        self.arch = reader.fields["general.architecture"].contents()
        if self.arch not in ("llama", "qwen3"):
            raise ValueError(f"no reference for architecture {self.arch}")

        def field(name: str, default: float | None = None) -> float:
            found = reader.fields.get(f"{self.arch}.{name}")
            if found is None:
                assert default is not None, name
                return default
            return found.contents()

        self.n_layer = int(field("block_count"))
        self.n_embd = int(field("embedding_length"))
        self.n_head = int(field("attention.head_count"))
        self.n_head_kv = int(field("attention.head_count_kv"))
        self.head_size = int(field("attention.key_length", self.n_embd // self.n_head))
        self.eps = float(field("attention.layer_norm_rms_epsilon"))
        self.freq_base = float(field("rope.freq_base", 10_000.0))
        self.weights = {
            tensor.name: np.array(tensor.data, dtype=np.float64).reshape([int(n) for n in reversed(tensor.shape)])
            for tensor in reader.tensors
        }
        for name, delta in (deltas or {}).items():
            self.weights[name] = self.weights[name] + delta
        self.output = self.weights.get("output.weight", self.weights["token_embd.weight"])

    def hidden(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        directions: Mapping[int, Doubles] | None = None,
        embeddings: Doubles | None = None,
    ) -> Doubles:
        """Return the rows after the last norm, [n_tokens, n_embd].

        `directions` are the rows of a control vector by layer; `embeddings` replaces the rows of `tokens`.
        """
        position = np.arange(len(tokens)) if positions is None else np.asarray(positions)
        x = self.weights["token_embd.weight"][list(tokens)] if embeddings is None else np.asarray(embeddings)
        for layer in range(self.n_layer):
            x = x + self._attention(self._rms(x, f"blk.{layer}.attn_norm.weight"), layer, position)
            h = self._rms(x, f"blk.{layer}.ffn_norm.weight")
            gate = h @ self.weights[f"blk.{layer}.ffn_gate.weight"].T
            up = h @ self.weights[f"blk.{layer}.ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.weights[f"blk.{layer}.ffn_down.weight"].T
            if directions and layer in directions:
                x = x + directions[layer]
        return self._rms(x, "output_norm.weight")

    def logits(self, tokens: Sequence[int], **options: object) -> Doubles:
        """Return the logits of all tokens of one causal sequence, [n_tokens, n_vocab]."""
        return self.hidden(tokens, **options) @ self.output.T

    def greedy(self, prompt: Sequence[int], n_tokens: int) -> list[int]:
        """Return the `n_tokens` most probable next tokens, one after the other."""
        tokens = list(prompt)
        for _ in range(n_tokens):
            tokens.append(int(np.argmax(self.logits(tokens)[-1])))
        return tokens[len(prompt) :]

    def _rms(self, x: Doubles, name: str) -> Doubles:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weights[name]

    def _attention(self, x: Doubles, layer: int, position: NDArray[np.int64]) -> Doubles:
        n, size = len(x), self.head_size
        q = (x @ self.weights[f"blk.{layer}.attn_q.weight"].T).reshape(n, self.n_head, size)
        k = (x @ self.weights[f"blk.{layer}.attn_k.weight"].T).reshape(n, self.n_head_kv, size)
        v = (x @ self.weights[f"blk.{layer}.attn_v.weight"].T).reshape(n, self.n_head_kv, size)
        if self.arch == "qwen3":
            q = self._rms(q, f"blk.{layer}.attn_q_norm.weight")
            k = self._rms(k, f"blk.{layer}.attn_k_norm.weight")
        q, k = self._rope(q, position), self._rope(k, position)
        group = self.n_head // self.n_head_kv
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
        scores = np.where(position[None, :, None] >= position[None, None, :], scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1)
        return mixed @ self.weights[f"blk.{layer}.attn_output.weight"].T

    def _rope(self, x: Doubles, position: NDArray[np.int64]) -> Doubles:
        half = self.head_size // 2
        angle = position[:, None] * self.freq_base ** (-np.arange(half) / half)
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        out = np.empty_like(x)
        if self.arch == "llama":  # pairs are neighbours
            even, odd = x[..., 0::2], x[..., 1::2]
            out[..., 0::2], out[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
        else:  # pairs are half a head apart
            low, high = x[..., :half], x[..., half:]
            out[..., :half], out[..., half:] = low * cos - high * sin, low * sin + high * cos
        return out


def lora_deltas(path: Path, scale: float = 1.0) -> dict[str, Doubles]:
    """Return what a LoRA adapter adds to each matrix: ``scale * alpha / rank * B A``."""
    reader = gguf.GGUFReader(path)
    alpha = float(reader.fields["adapter.lora.alpha"].contents())
    parts = {
        tensor.name: np.array(tensor.data, dtype=np.float64).reshape([int(n) for n in reversed(tensor.shape)])
        for tensor in reader.tensors
    }
    deltas = {}
    for name, a in parts.items():
        if name.endswith(".lora_a"):
            base = name.removesuffix(".lora_a")
            deltas[base] = scale * alpha / len(a) * (parts[base + ".lora_b"] @ a)
    return deltas


def control_directions(path: Path, scale: float = 1.0) -> dict[int, Doubles]:
    """Return the rows of a control vector by layer."""
    return {
        int(tensor.name.rpartition(".")[2]): scale * np.array(tensor.data, dtype=np.float64)
        for tensor in gguf.GGUFReader(path).tensors
    }


def log_softmax(logits: Doubles) -> Doubles:
    """Return the natural logarithm of the softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
