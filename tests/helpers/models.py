"""Writers of tiny GGUF models with random, seeded weights: real architectures, no real knowledge.

Each writer takes the path to write and returns it. Weights are F32 unless said. Nothing here uses llamacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.helpers import BOS, EOS, FIRST_BYTE, UNK

Floats = NDArray[np.float32]

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = (
    int(kind) for kind in (gguf.TokenType.NORMAL, gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.BYTE)
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class LlamaShape:
    """Shape of a tiny llama.

    The defaults are the micro model of the benchmarks: next to no arithmetic, but a vocabulary of a real size, so that
    what a binding costs per token is as large a share as it can be.
    """

    n_vocab: int = 49_152
    n_layer: int = 1
    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 96
    n_ctx_train: int = 8192
    rope_freq_base: float = 10_000.0
    rms_eps: float = 1e-5
    seed: int = 1
    tied: bool = False

    @property
    def head_size(self) -> int:
        return self.n_embd // self.n_head


def toy_vocabulary(n_vocab: int = 288) -> tuple[list[bytes], list[float], list[int]]:
    """Return texts, scores and types of an SPM vocabulary: four specials, 256 bytes, space, letters, full stop, words.

    Without room for words (288 tokens) it is the vocabulary of tests/data. Words are " a", " b", … " aa" and so on.
    """
    if n_vocab < 288:
        raise ValueError("the toy vocabulary has at least 288 tokens")
    texts = [b"<unk>", b"<s>", b"</s>", b"<mask>"]
    types = [_UNKNOWN, _CONTROL, _CONTROL, _CONTROL]
    texts += [f"<0x{byte:02X}>".encode() for byte in range(256)]
    types += [_BYTE] * 256
    texts += ["\u2581".encode(), *(letter.encode() for letter in _LETTERS), b"."]
    types += [_NORMAL] * 28
    words = _words()
    while len(texts) < n_vocab:
        texts.append(("\u2581" + next(words)).encode())
        types.append(_NORMAL)
    # SPM merges the pair with the highest score first
    scores = [0.0] * 260 + [-float(index) for index in range(1, n_vocab - 259)]
    return texts, scores, types


def _words() -> Iterator[str]:
    length = 1
    while True:
        for letters in product(_LETTERS, repeat=length):
            yield "".join(letters)
        length += 1


def _add_toy_tokenizer(writer: gguf.GGUFWriter, n_vocab: int, controls: Sequence[str] = ()) -> None:
    texts, scores, types = toy_vocabulary(n_vocab - len(controls))
    texts += [control.encode() for control in controls]
    scores += [0.0] * len(controls)
    types += [_CONTROL] * len(controls)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNK)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _weight(rng: np.random.Generator, *shape: int) -> Floats:
    # keeps the size of what it multiplies, whatever the width
    return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def _norm(rng: np.random.Generator, size: int) -> Floats:
    return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)


def llama_tensors(shape: LlamaShape) -> dict[str, Floats]:
    """Return the weights of a tiny llama by GGUF tensor name, in NumPy order (rows are outputs)."""
    rng = np.random.default_rng(shape.seed)
    n_embd, n_ff = shape.n_embd, shape.n_ff
    n_kv = shape.n_head_kv * shape.head_size
    tensors = {"token_embd.weight": rng.standard_normal((shape.n_vocab, n_embd)).astype(np.float32)}
    for layer in range(shape.n_layer):
        block = f"blk.{layer}."
        tensors |= {
            block + "attn_norm.weight": _norm(rng, n_embd),
            block + "attn_q.weight": _weight(rng, n_embd, n_embd),
            block + "attn_k.weight": _weight(rng, n_kv, n_embd),
            block + "attn_v.weight": _weight(rng, n_kv, n_embd),
            block + "attn_output.weight": _weight(rng, n_embd, n_embd),
            block + "ffn_norm.weight": _norm(rng, n_embd),
            block + "ffn_gate.weight": _weight(rng, n_ff, n_embd),
            block + "ffn_up.weight": _weight(rng, n_ff, n_embd),
            block + "ffn_down.weight": _weight(rng, n_embd, n_ff),
        }
    tensors["output_norm.weight"] = _norm(rng, n_embd)
    if not shape.tied:
        output = _weight(rng, shape.n_vocab, n_embd)
        # specials and bytes get logit 0, which never wins: generation neither ends by itself nor leaves ASCII
        output[: FIRST_BYTE + 256] = 0
        # a table far wider than the rest would make all other logits near ties
        tensors["output.weight"] = output * 4
    return tensors


def _llama_writer(
    path: Path,
    shape: LlamaShape,
    *,
    split_max_tensors: int = 0,
    chat_template: str | Sequence[dict[str, str]] | None = None,
    controls: Sequence[str] = (),
    file_type: gguf.LlamaFileType | None = gguf.LlamaFileType.ALL_F32,
) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=split_max_tensors)
    writer.add_name("tiny-llama")
    writer.add_context_length(shape.n_ctx_train)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_layer_norm_rms_eps(shape.rms_eps)
    writer.add_rope_freq_base(shape.rope_freq_base)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_vocab_size(shape.n_vocab)
    if file_type is not None:
        writer.add_file_type(file_type)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    _add_toy_tokenizer(writer, shape.n_vocab, controls)
    return writer


def write_llama(
    path: Path,
    shape: LlamaShape | None = None,
    *,
    f16: bool = False,
    chat_template: str | Sequence[dict[str, str]] | None = None,
    controls: Sequence[str] = (),
) -> Path:
    """Write a tiny llama; with `f16` its matrices are F16, and `controls` are its last tokens."""
    shape = shape or LlamaShape()
    file_type = gguf.LlamaFileType.MOSTLY_F16 if f16 else gguf.LlamaFileType.ALL_F32
    writer = _llama_writer(path, shape, chat_template=chat_template, controls=controls, file_type=file_type)
    for name, tensor in llama_tensors(shape).items():
        writer.add_tensor(name, tensor.astype(np.float16) if f16 and tensor.ndim == 2 else tensor)
    _finish(writer)
    return path


def write_llama_splits(path: Path, shape: LlamaShape | None = None, *, tensors_per_file: int = 4) -> list[Path]:
    """Write a tiny llama as several files ``<stem>-00001-of-0000N.gguf`` beside `path`, and return them in order."""
    shape = shape or LlamaShape(n_vocab=288, n_layer=2)
    writer = _llama_writer(path, shape, split_max_tensors=tensors_per_file)
    for name, tensor in llama_tensors(shape).items():
        writer.add_tensor(name, tensor)
    _finish(writer)
    return sorted(path.parent.glob(f"{path.stem}-*-of-*.gguf"))


def write_bert(
    path: Path,
    *,
    n_layer: int = 2,
    n_embd: int = 32,
    n_head: int = 4,
    n_ff: int = 64,
    n_ctx_train: int = 64,
    pooling: gguf.PoolingType | None = gguf.PoolingType.MEAN,
    n_labels: int = 0,
    seed: int = 2,
) -> Path:
    """Write a tiny BERT: non-causal, learned positions, no memory; with `n_labels` a classification head."""
    rng = np.random.default_rng(seed)
    letters = list(_LETTERS)
    # phantom-space form: pieces that begin a word have U+2581, those that go on have none
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *("\u2581" + c for c in letters), *letters, "\u2581."]
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("tiny-bert")
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text.encode() for text in texts])
    writer.add_token_types([_CONTROL, _UNKNOWN] + [_CONTROL] * 3 + [_NORMAL] * (len(texts) - 5))
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_eos_token_id(3)
    writer.add_mask_token_id(4)
    writer.add_tensor("token_embd.weight", _weight(rng, len(texts), n_embd) * 4)
    writer.add_tensor("token_types.weight", _weight(rng, 2, n_embd))
    writer.add_tensor("position_embd.weight", _weight(rng, n_ctx_train, n_embd))
    _add_norm_with_bias(writer, rng, "token_embd_norm", n_embd)
    for layer in range(n_layer):
        block = f"blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            _add_linear(writer, rng, block + name, n_embd, n_embd)
        _add_norm_with_bias(writer, rng, block + "attn_output_norm", n_embd)
        _add_linear(writer, rng, block + "ffn_up", n_ff, n_embd)
        _add_linear(writer, rng, block + "ffn_down", n_embd, n_ff)
        _add_norm_with_bias(writer, rng, block + "layer_output_norm", n_embd)
    if n_labels:
        writer.add_classifier_output_labels([f"label{index}" for index in range(n_labels)])
        _add_linear(writer, rng, "cls", n_embd, n_embd)
        _add_linear(writer, rng, "cls.output", n_labels, n_embd)
    _finish(writer)
    return path


def _add_linear(writer: gguf.GGUFWriter, rng: np.random.Generator, name: str, n_out: int, n_in: int) -> None:
    writer.add_tensor(name + ".weight", _weight(rng, n_out, n_in))
    writer.add_tensor(name + ".bias", (0.1 * rng.standard_normal(n_out)).astype(np.float32))


def _add_norm_with_bias(writer: gguf.GGUFWriter, rng: np.random.Generator, name: str, size: int) -> None:
    writer.add_tensor(name + ".weight", _norm(rng, size))
    writer.add_tensor(name + ".bias", (0.1 * rng.standard_normal(size)).astype(np.float32))


def write_t5(path: Path, *, n_layer: int = 2, n_embd: int = 32, n_head: int = 4, n_ff: int = 64, seed: int = 3) -> Path:
    """Write a tiny T5: an encoder, a decoder that reads it, relative position buckets, a UGM vocabulary."""
    rng = np.random.default_rng(seed)
    texts = ["<pad>", "</s>", "<unk>", "\u2581", *("\u2581" + c for c in _LETTERS), *_LETTERS, "."]
    writer = gguf.GGUFWriter(path, "t5")
    writer.add_name("tiny-t5")
    writer.add_context_length(256)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_key_length(n_embd // n_head)
    writer.add_value_length(n_embd // n_head)
    writer.add_layer_norm_eps(1e-6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_relative_attn_buckets_count(32)
    writer.add_decoder_start_token_id(0)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text.encode() for text in texts])
    writer.add_token_scores([0.0] * 3 + [-float(index) for index in range(1, len(texts) - 2)])
    writer.add_token_types([_CONTROL, _CONTROL, _UNKNOWN] + [_NORMAL] * (len(texts) - 3))
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_add_space_prefix(True)
    writer.add_add_eos_token(True)
    writer.add_tensor("token_embd.weight", _weight(rng, len(texts), n_embd) * 4)
    for side in ("enc", "dec"):
        for layer in range(n_layer):
            block = f"{side}.blk.{layer}."
            writer.add_tensor(block + "attn_norm.weight", _norm(rng, n_embd))
            for name in ("attn_q", "attn_k", "attn_v", "attn_o"):
                writer.add_tensor(block + name + ".weight", _weight(rng, n_embd, n_embd))
            if layer == 0:
                writer.add_tensor(block + "attn_rel_b.weight", _weight(rng, 32, n_head))
            if side == "dec":
                writer.add_tensor(block + "cross_attn_norm.weight", _norm(rng, n_embd))
                for name in ("cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_o"):
                    writer.add_tensor(block + name + ".weight", _weight(rng, n_embd, n_embd))
            writer.add_tensor(block + "ffn_norm.weight", _norm(rng, n_embd))
            writer.add_tensor(block + "ffn_up.weight", _weight(rng, n_ff, n_embd))
            writer.add_tensor(block + "ffn_down.weight", _weight(rng, n_embd, n_ff))
        writer.add_tensor(f"{side}.output_norm.weight", _norm(rng, n_embd))
    _finish(writer)
    return path


def write_lora(
    path: Path,
    base: Path,
    *,
    rank: int = 4,
    alpha: float = 8.0,
    seed: int = 4,
    targets: Sequence[str] = ("attn_q", "attn_v", "ffn_down"),
    invocation_tokens: Sequence[int] = (),
    architecture: str | None = None,
) -> Path:
    """Write a LoRA adapter for `base`; with `invocation_tokens` it is an aLoRA."""
    rng = np.random.default_rng(seed)
    reader = gguf.GGUFReader(base)
    arch = architecture or reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, arch)
    writer.add_type("adapter")
    writer.add_name("tiny-lora")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    if invocation_tokens:
        writer.add_key_value(
            "adapter.alora.invocation_tokens",
            list(invocation_tokens),
            gguf.GGUFValueType.ARRAY,
            sub_type=gguf.GGUFValueType.UINT32,
        )
    for name, (n_out, n_in) in lora_targets(base, targets).items():
        writer.add_tensor(name + ".lora_a", _weight(rng, rank, n_in))
        writer.add_tensor(name + ".lora_b", _weight(rng, n_out, rank))
    _finish(writer)
    return path


def lora_targets(base: Path, targets: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the matrices of `base` that are named in `targets`, with their (outputs, inputs)."""
    found = {}
    for tensor in gguf.GGUFReader(base).tensors:
        if any(tensor.name.endswith(f".{target}.weight") for target in targets):
            n_in, n_out = (int(size) for size in tensor.shape)
            found[tensor.name] = (n_out, n_in)
    return found


def write_control_vector(path: Path, base: Path, *, seed: int = 5, scale: float = 0.5) -> Path:
    """Write a control vector for `base`: one direction for each layer but the first."""
    rng = np.random.default_rng(seed)
    fields = gguf.GGUFReader(base).fields
    arch = fields["general.architecture"].contents()
    n_embd = int(fields[f"{arch}.embedding_length"].contents())
    n_layer = int(fields[f"{arch}.block_count"].contents())
    writer = gguf.GGUFWriter(path, "controlvector")
    writer.add_string("controlvector.model_hint", arch)
    writer.add_uint32("controlvector.layer_count", n_layer - 1)
    for layer in range(1, n_layer):
        writer.add_tensor(f"direction.{layer}", (scale * rng.standard_normal(n_embd)).astype(np.float32))
    _finish(writer)
    return path


def write_vocab_none(path: Path) -> Path:
    """Write a tiny llama without a tokenizer, which gives a model whose vocabulary has type NONE."""
    shape = LlamaShape(n_vocab=288)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(shape.n_ctx_train)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_layer_norm_rms_eps(shape.rms_eps)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_tokenizer_model("none")
    for name, tensor in llama_tensors(shape).items():
        writer.add_tensor(name, tensor)
    _finish(writer)
    return path
