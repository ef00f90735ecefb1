"""Turns a BERT checkpoint of sentence-transformers into a GGUF.

Only what starter models need: WordPiece in lower case, learned positions, mean pooling.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llamacy.errors import ModelFormatError
from llamacy.types import FileType, GgufType, PoolingType

_SPECIALS = {
    "bos": "[CLS]",
    "seperator": "[SEP]",  # spelled so in the format
    "unknown": "[UNK]",
    "padding": "[PAD]",
    "cls": "[CLS]",
    "mask": "[MASK]",
}
_NORMAL, _CONTROL = 1, 3
_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
    "pooler.dense": "cls",
}


def convert_bert(
    checkpoint: Path,
    path: Path,
    name: str,
    *,
    half: bool = True,
    head: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None,
) -> None:
    """Write the GGUF of a checkpoint.

    Parameters
    ----------
    checkpoint
        Folder with `catalog.CHECKPOINT_FILES`.
    path
        What to write.
    name
        Name of the model, for its metadata.
    half
        Store matrices as float16, float32 otherwise. Norms, biases and positions are float32 always.
    head
        Weight (labels, width) and bias (labels,) of a classifier behind the checkpoint's pooler, which makes
        the model a reranker. Without one the pooler is left out.

    Raises
    ------
    ModelFormatError
        The checkpoint isn't a BERT of this kind.

    Source: ``conversion/bert.py`` of llama.cpp.
    """
    from llamacy.core.gguf import Gguf

    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "bert" or config.get("position_embedding_type", "absolute") != "absolute":
        raise ModelFormatError(f"{checkpoint} isn't a BERT with learned positions")
    with Gguf() as gguf:
        pooling = PoolingType.MEAN if head is None else PoolingType.RANK
        for key, value in _metadata(config, name, pooling, half).items():
            gguf.metadata.set(key, value, GgufType.UINT32 if type(value) is int else None)
        texts, types = _vocabulary(checkpoint / "vocab.txt", config["vocab_size"])
        gguf.metadata["tokenizer.ggml.tokens"] = texts
        gguf.metadata.set("tokenizer.ggml.token_type", types, GgufType.INT32)
        for key, token in _SPECIALS.items():
            gguf.metadata.set(f"tokenizer.ggml.{key}_token_id", texts.index(token), GgufType.UINT32)
        tensors = read_safetensors(checkpoint / "model.safetensors")
        if head is not None:
            gguf.metadata["bert.classifier.output_labels"] = [f"LABEL_{label}" for label in range(len(head[1]))]
            tensors |= {"cls.output.weight": head[0], "cls.output.bias": head[1]}
        for source, tensor in tensors.items():
            target = _tensor_name(source.removeprefix("bert."))
            if target is None or (target.startswith("cls.") and head is None):
                continue
            kept_whole = tensor.ndim == 1 or target in ("position_embd.weight", "token_types.weight")
            dtype = np.float16 if half and not kept_whole else np.float32
            gguf.add_tensor(target, np.ascontiguousarray(tensor, dtype))
        gguf.write(path)


def read_safetensors(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Return the float32 tensors of a safetensors file, mapped from the file.

    Raises
    ------
    ModelFormatError
        The file isn't what its header says, or not what it should be.
    """
    data = np.memmap(path, np.uint8, "r")
    try:
        (length,) = struct.unpack("<Q", data[:8].tobytes())
        header: dict[str, Any] = json.loads(data[8 : 8 + length].tobytes())
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__" or entry["dtype"] != "F32":
                continue
            begin, end = entry["data_offsets"]
            tensors[name] = data[8 + length + begin : 8 + length + end].view("<f4").reshape(entry["shape"])
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise ModelFormatError(f"{path} is damaged or no safetensors file: {error}") from error
    return tensors


def _metadata(config: dict[str, Any], name: str, pooling: PoolingType, half: bool) -> dict[str, Any]:
    return {
        "general.architecture": "bert",
        "general.type": "model",
        "general.name": name,
        "general.license": "apache-2.0",
        "general.file_type": int(FileType.F16 if half else FileType.F32),
        "bert.context_length": config["max_position_embeddings"],
        "bert.embedding_length": config["hidden_size"],
        "bert.block_count": config["num_hidden_layers"],
        "bert.feed_forward_length": config["intermediate_size"],
        "bert.attention.head_count": config["num_attention_heads"],
        "bert.attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "bert.attention.causal": False,
        "bert.pooling_type": int(pooling),
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.token_type_count": config["type_vocab_size"],
        "tokenizer.ggml.add_bos_token": True,
    }


def _vocabulary(path: Path, n_vocab: int) -> tuple[list[str], list[int]]:
    """Return the texts, as llama.cpp has them, and types of the tokens.

    WordPiece marks pieces that go on with a word (``##ing``); llama.cpp marks those that begin one, with U+2581.
    """
    specials = set(_SPECIALS.values())
    pieces = path.read_text(encoding="utf-8").split("\n")
    if not pieces[-1]:
        pieces.pop()
    if len(pieces) != n_vocab or not specials <= set(pieces):
        raise ModelFormatError(f"{path} isn't a WordPiece vocabulary of {n_vocab} tokens")
    texts = [
        piece if piece in specials else piece[2:] if piece.startswith("##") else f"\u2581{piece}" for piece in pieces
    ]
    return texts, [_CONTROL if piece in specials else _NORMAL for piece in pieces]


def _tensor_name(source: str) -> str | None:
    """Return what llama.cpp calls a tensor, or None for one that it has no use for."""
    if source.startswith("cls.output."):
        return source
    stem, _, kind = source.rpartition(".")
    block = ""
    if stem.startswith("encoder.layer."):
        _, _, layer, stem = stem.split(".", 3)
        block = f"blk.{layer}."
    return f"{block}{_NAMES[stem]}.{kind}" if stem in _NAMES else None
