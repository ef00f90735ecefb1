"""Refuse model files on which native code would crash instead of failing.

llama.cpp checks what its own converters could get wrong. A file that was damaged or made up can divide by zero, follow
a null pointer or fail an assertion on a worker thread, and then takes the process with it. Every rule here stands for
such a crash of the pinned version; assertions on the calling thread that have no rule are caught by `_abort`.
"""

from __future__ import annotations

import math
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from llamacy._paths import file_name
from llamacy.core.gguf import Gguf
from llamacy.core.gguf_header import GgufHeader
from llamacy.errors import GgufError, ModelFormatError
from llamacy.types import GgmlType, StrPath

__all__ = ["check", "parts"]

_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
_MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS

_QWEN_LINEAR = frozenset({"clef", "qwen3next", "qwen35", "qwen35moe", "qwen4exp"})
_MAMBA2 = frozenset({"falcon-h1", "granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe"})
_INDEXER = frozenset({"deepseek32", "dots3note", "glm-dsa", "hy_v4", "minimax-m3"})

# keys that these architectures divide by, or that make them read tensors they don't have, when they are zero
_NOT_ZERO: Mapping[str, frozenset[str]] = {
    "full_attention_interval": _QWEN_LINEAR | {"minimax-01"},
    "ssm.group_count": _QWEN_LINEAR | _MAMBA2,
    "ssm.time_step_rank": _QWEN_LINEAR | _MAMBA2,
    "wkv.head_size": frozenset({"arwkv7", "rwkv6", "rwkv6qwen2", "rwkv7"}),
    "interleave_moe_layer_step": frozenset({"ernie4_5-moe"}),
    "experts_per_group": frozenset({"grovemoe"}),
    "attention.group_norm_groups": frozenset({"wavtokenizer-dec"}),
    "attention.head_count": frozenset({"deepseek2", "deepseek2-ocr", "olmo2", "phimoe"}),
    "attention.head_count_kv": frozenset({"neo-bert"}),
    "attention.indexer.head_count": _INDEXER,
    "attention.sliding_window": frozenset({"afmoe"}),
    "attention.key_length_mla": frozenset({"kimi-k3", "kimi-linear"}),
    "attention.value_length_mla": frozenset({"kimi-k3", "kimi-linear"}),
    "expert_feed_forward_length": frozenset({"mimo2", "step35"}),
}
# and those among them that must be there
_REQUIRED = frozenset(
    {("attention.head_count", arch) for arch in ("deepseek2", "deepseek2-ocr", "olmo2", "phimoe")}
) | {("attention.sliding_window", "afmoe")}

# always M-RoPE (llama_model_rope_type of llama-model.cpp)
_MROPE = frozenset(
    {"clef", "paddleocr", "qwen2vl", "qwen35", "qwen35moe", "qwen3tts", "qwen3vl", "qwen3vlmoe", "qwen4exp"}
)

# types that no kernel multiplies with
_NO_WEIGHTS = frozenset(
    {GgmlType.I8, GgmlType.I16, GgmlType.I32, GgmlType.I64, GgmlType.F64, GgmlType.Q8_1, GgmlType.Q8_K}
)
# added or multiplied element by element, for which the CPU has F32 only
_ELEMENTWISE = re.compile(
    r"_norm(_\d+)?(\.|$)|\.bias$|\.ssm_(a|d|conv1d)(\.|$)|_mix_lerp|\.time_mix_(ln|a0|v0|w0|k_a|k_k|r_k|first|decay)(\.|$)"
)


class _Facts:
    """Metadata and tensors, with overrides in force."""

    def __init__(
        self, name: str, values: Mapping[str, Any], tensors: Mapping[str, tuple[int, tuple[int, ...]]]
    ) -> None:
        self.name = name
        self.values = values
        self.tensors = tensors
        self.arch = values.get("general.architecture")

    def fail(self, message: str) -> ModelFormatError:
        return ModelFormatError(f"{self.name}: {message}")

    def number(self, suffix: str) -> Any:
        """Return a number of the architecture, or None; what is of another type native code refuses by itself."""
        value = self.values.get(f"{self.arch}.{suffix}")
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def numbers(self, suffix: str) -> list[Any]:
        """Return the value for each layer, or the one for all, as a list."""
        value = self.values.get(f"{self.arch}.{suffix}")
        if isinstance(value, list):
            return value
        return [] if value is None or isinstance(value, str) else [value]


def check(source: StrPath | Gguf, *, kv_overrides: Mapping[str, Any] | None = None, vocab_only: bool = False) -> None:
    """Refuse a model that native code would crash on.

    Parameters
    ----------
    source : path, sequence of paths, open file, or Gguf
        A file (of a split model, its first part), all parts of a split model, a file in which a GGUF begins at the
        current position, or metadata without tensors.
    kv_overrides : mapping of str to bool, int, float or str, optional
        Metadata to use instead of what the file says.
    vocab_only : bool
        Only the vocabulary is going to be loaded.

    Raises
    ------
    ModelFormatError
        Says which key or tensor is wrong, its value, and what is wanted.

    A file that is no GGUF, or a damaged one, passes: the native loader says what is wrong with it.
    """
    if vocab_only:
        return
    facts = _facts(source)
    if facts is None:
        return
    if kv_overrides:
        facts.values = {**facts.values, **kv_overrides}
    if not isinstance(facts.arch, str) or facts.arch == "clip":
        return
    _check_layers(facts)
    _check_experts(facts)
    _check_numbers(facts)
    _check_rope(facts)
    _check_drafters(facts)
    _check_types(facts)
    _check_missing(facts)


def tokenizer_model(source: StrPath | Sequence[StrPath] | BinaryIO | Gguf) -> str | None:
    """Return which tokenizer a model says that it has, or None when it says nothing; `source` is as for `check`."""
    if isinstance(source, Gguf):
        value = source.metadata.get("tokenizer.ggml.model")
    else:
        header = (
            _header(os.fsdecode(source))
            if isinstance(source, (str, bytes, os.PathLike))
            else _header(os.fsdecode(source[0]))
            if isinstance(source, Sequence)
            else _header_of_file(source, source.tell())
        )
        value = None if header is None else header.values.get("tokenizer.ggml.model")
    return value if isinstance(value, str) else None


def _facts(source: StrPath | Sequence[StrPath] | BinaryIO | Gguf) -> _Facts | None:
    if isinstance(source, Gguf):
        return _Facts(repr(source), _metadata(source), {})
    if isinstance(source, (str, bytes, os.PathLike)):
        source = parts(os.fsdecode(source))
    if isinstance(source, Sequence):
        return _from_headers(os.fsdecode(source[0]), [_header(os.fsdecode(path)) for path in source])
    return _from_headers(str(getattr(source, "name", source)), [_header_of_file(source, source.tell())])


def _metadata(gguf: Gguf) -> dict[str, Any]:
    values = {}
    for key in gguf.metadata:
        # the arrays of tokens are long, and of no interest
        if not key.startswith("tokenizer.ggml.") or key.endswith("_token_id"):
            value = gguf.metadata[key]
            values[key] = value.tolist() if isinstance(value, memoryview) else value
    return values


def _from_headers(name: str, headers: list[GgufHeader | None]) -> _Facts | None:
    tensors: dict[str, tuple[int, tuple[int, ...]]] = {}
    for header in headers:
        if header is None:
            return None  # damaged, or not there, which the native loader says better
        tensors.update(header.tensors)
    first = headers[0]
    return None if first is None else _Facts(repr(name), first.values, tensors)


def _header(path: str) -> GgufHeader | None:
    try:
        with Path(file_name(path)).open("rb") as file:
            return _header_of_file(file, 0)
    except OSError:
        return None


def _header_of_file(file: BinaryIO, position: int) -> GgufHeader | None:
    try:
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping,
            memoryview(mapping) as whole,
            whole[position:] as data,
        ):
            return GgufHeader(data)
    except (GgufError, OSError, ValueError):
        return None


def parts(path: str) -> list[str]:
    """Return the paths of all parts of a split model of which `path` is the first, or `path` alone."""
    header = _header(path)
    count = None if header is None else header.values.get("split.count")
    match = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path, re.DOTALL)
    if match is None or not isinstance(count, int):
        return [path]
    return [path, *(f"{match[1]}-{part:05d}-of-{match[2]}.gguf" for part in range(2, min(count, 99999) + 1))]


def _check_layers(facts: _Facts) -> None:
    n_layer = facts.number("block_count")
    if n_layer is None:
        return
    if not 0 < n_layer <= _MAX_LAYERS:
        raise facts.fail(f"{facts.arch}.block_count is {n_layer}; llama.cpp takes 1 to {_MAX_LAYERS} layers")
    for suffix in ("nextn_predict_layers", "posnet.block_count", "convnext.block_count"):
        value = facts.number(suffix)
        if value is not None and not value <= n_layer:
            raise facts.fail(f"{facts.arch}.{suffix} is {value}, more than the {n_layer} of {facts.arch}.block_count")


def _check_experts(facts: _Facts) -> None:
    """See the assertions of llama_model_base::load_hparams()."""
    arch = facts.arch
    n_expert = facts.number("expert_count") or 0
    used = max((n for n in facts.numbers("expert_used_count") if isinstance(n, int)), default=0)
    groups = facts.number("expert_group_count") or 0
    groups_used = facts.number("expert_group_used_count") or 0
    if arch in ("hunyuan_vl", "hunyuan-dense") and n_expert <= 1:
        return
    if n_expert > _MAX_EXPERTS:
        raise facts.fail(f"{arch}.expert_count is {n_expert}; llama.cpp takes at most {_MAX_EXPERTS} experts")
    if used > n_expert or (n_expert and not used):
        raise facts.fail(f"{arch}.expert_used_count is {used}; of {n_expert} experts, 1 to {n_expert} can be used")
    if groups and groups >= n_expert:
        raise facts.fail(f"{arch}.expert_group_count is {groups}; it must be less than the {n_expert} experts")
    if groups > 1 and n_expert % groups:
        raise facts.fail(f"{arch}.expert_group_count is {groups}, which does not divide the {n_expert} experts")
    if groups > 1 and not 0 < groups_used < groups:
        raise facts.fail(
            f"{arch}.expert_group_used_count is {groups_used}; of {groups} groups, 1 to {groups - 1} can be used"
        )


def _check_numbers(facts: _Facts) -> None:
    arch = facts.arch
    for suffix, archs in _NOT_ZERO.items():
        if arch not in archs:
            continue
        values = facts.numbers(suffix)
        if not values and (suffix, arch) in _REQUIRED:
            raise facts.fail(f"{arch}.{suffix} is missing; models of this architecture need it")
        if values and not any(values):
            raise facts.fail(f"{arch}.{suffix} is 0; it must be at least 1")
    heads, groups = facts.number("ssm.time_step_rank"), facts.number("ssm.group_count")
    if arch in _MAMBA2 and heads and groups and heads % groups:
        raise facts.fail(f"{arch}.ssm.time_step_rank is {heads}, not a multiple of {arch}.ssm.group_count, {groups}")
    groups, width = facts.number("attention.group_norm_groups"), facts.number("posnet.embedding_length")
    if arch == "wavtokenizer-dec" and groups and width and groups > width:
        raise facts.fail(f"{arch}.attention.group_norm_groups is {groups}, more than the {width} channels")
    for suffix in ("layer_norm_epsilon", "layer_norm_rms_epsilon", "group_norm_epsilon"):
        value = facts.number(f"attention.{suffix}")
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise facts.fail(f"{arch}.attention.{suffix} is {value}; it must be a number from 0")
    activation = facts.values.get(f"{arch}.classifier.activation")
    if isinstance(activation, str) and activation not in ("gelu", "silu", "tanh"):
        raise facts.fail(f"{arch}.classifier.activation is {activation!r}; llama.cpp knows 'gelu', 'silu' and 'tanh'")


def _check_rope(facts: _Facts) -> None:
    arch = facts.arch
    scaling = facts.values.get(f"{arch}.rope.scaling.type")
    if isinstance(scaling, str) and scaling not in ("none", "linear", "yarn", "longrope"):
        raise facts.fail(
            f"{arch}.rope.scaling.type is {scaling!r}; llama.cpp knows 'none', 'linear', 'yarn' and 'longrope'"
        )
    for swa in ("", "_swa"):
        n_dims = facts.number(f"rope.dimension_count{swa}")
        if n_dims is None:
            continue
        size = facts.number(f"attention.key_length{swa}") or facts.number("attention.key_length") or _head_size(facts)
        if n_dims == 0 and not size:
            continue  # what llama.cpp writes for models without attention
        if n_dims <= 0 or n_dims % 2 or (size and n_dims > size):
            limit = f" and at most {size}, the size of a head" if size else ""
            raise facts.fail(f"{arch}.rope.dimension_count{swa} is {n_dims}; it must be even, at least 2{limit}")
    sections = facts.values.get(f"{arch}.rope.dimension_sections")
    if arch in _MROPE and not any(
        n > 0 for n in (sections if isinstance(sections, list) else [])[:3] if isinstance(n, int)
    ):
        raise facts.fail(f"{arch}.rope.dimension_sections is {sections}; one of the first three must be greater than 0")


def _head_size(facts: _Facts) -> int:
    width, heads = facts.number("embedding_length"), facts.number("attention.head_count")
    return width // heads if width and heads else 0


def _check_drafters(facts: _Facts) -> None:
    tensors = facts.tensors
    if facts.arch == "dflash" and tensors:
        if "tokenizer.ggml.mask_token_id" not in facts.values:
            raise facts.fail("tokenizer.ggml.mask_token_id is missing; a DFlash draft model fills its blocks with it")
        if "markov_w1.weight" in tensors and facts.number("block_size") is None:
            raise facts.fail("dflash.block_size is missing; a DSpark draft model needs it")
    if "d2t" in tensors and "output.weight" not in tensors:
        raise facts.fail("tensor 'output.weight' is missing; with 'd2t', the draft model needs an output of its own")


def _check_types(facts: _Facts) -> None:
    for name, (number, _) in facts.tensors.items():
        try:
            kind = GgmlType(number)
        except ValueError:
            return  # a type that llama.cpp does not read either
        if kind in _NO_WEIGHTS and name.endswith(".weight") and not name.endswith("tid2eid.weight"):
            raise facts.fail(f"tensor {name!r} is of type {kind.name}, with which llama.cpp can't compute")
        if kind is not GgmlType.F32 and _ELEMENTWISE.search(name):
            raise facts.fail(f"tensor {name!r} is of type {kind.name}; it must be F32")


def _check_missing(facts: _Facts) -> None:
    """Refuse a layer without tensors that the loader lets be missing, and the graph then reads."""
    arch, tensors = facts.arch, facts.tensors
    if not tensors:
        return
    layers: dict[int, set[str]] = {}
    for name in tensors:
        match = re.match(r"blk\.(\d{1,4})\.(.+)", name)
        if match:
            layers.setdefault(int(match[1]), set()).add(match[2])
    for layer, names in sorted(layers.items()):
        missing = _missing(str(arch), names)
        if missing:
            raise facts.fail(f"tensor 'blk.{layer}.{missing}' is missing")


def _missing(arch: str, names: set[str]) -> str | None:
    wanted: tuple[str, ...] = ()
    if arch in ("phi3", "pockettts") and "attn_qkv.weight" not in names:
        wanted = ("attn_q.weight", "attn_k.weight", "attn_v.weight")
    elif arch in _QWEN_LINEAR and "ssm_a" in names and "ssm_in.weight" not in names:
        wanted = ("attn_qkv.weight", "attn_gate.weight")
    elif arch in ("falcon-h1", "granitehybrid") and "ssm_conv1d.weight" in names:
        wanted = ("ssm_conv1d.bias",)
    elif arch == "hy_v3" and "ffn_down_exps.weight" in names and "ffn_gate_up_exps.weight" not in names:
        wanted = ("ffn_gate_exps.weight", "ffn_up_exps.weight")
    elif any(name.startswith("nextn.") for name in names):
        wanted = ("nextn.eh_proj.weight",)
    return next((name for name in wanted if name not in names), None)
