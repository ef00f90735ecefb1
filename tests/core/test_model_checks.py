"""Model files on which llama.cpp would crash are refused; without the checks, most of these end the process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.gguf import Gguf
from llamacy.core.gguf_header import GgufHeader
from llamacy.core.model import Model
from llamacy.core.model_checks import check
from llamacy.errors import GgufError, LlamacyError, ModelFormatError, ModelLoadError
from llamacy.types import GgmlType, GgufType
from tests.helpers import DATA, data, vendor_dir
from tests.helpers.models import LlamaShape, write_llama_splits

MODELS = sorted(path.name for path in DATA.glob("*.gguf"))


@pytest.fixture
def edit(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a copy of a model with changes."""

    def write(
        name: str,
        values: dict[str, Any] | None = None,
        *,
        without: tuple[str, ...] = (),
        types: dict[str, GgmlType] | None = None,
    ) -> Path:
        path = tmp_path / name
        with Gguf(data(name)) as source, Gguf() as copy:
            for key, value in source.metadata.items():
                if key not in without:
                    copy.metadata.set(key, value, source.metadata.type(key))
            for key, value in (values or {}).items():
                copy.metadata[key] = value
            for tensor, info in source.tensors.items():
                kind = (types or {}).get(tensor)
                if tensor in without:
                    continue
                if kind is None:
                    copy.add_tensor(tensor, source.tensor_data(tensor), type=info.type, shape=info.shape)
                else:
                    n = int(np.prod(info.shape)) // {GgmlType.Q8_1: 32, GgmlType.Q8_0: 32}.get(kind, 1)
                    size = {"F16": 2, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F64": 8, "Q8_1": 36, "Q8_0": 34}
                    copy.add_tensor(tensor, bytes(n * size[kind.name]), type=kind, shape=info.shape)
            copy.write(path)
        return path

    return write


def load_and_decode(path: Path) -> None:
    # two threads: an assertion that fails on a worker thread can't be caught
    with Model(path) as model, Context(model, n_ctx=256, n_threads=2, n_threads_batch=2) as context, Batch(4) as batch:
        batch.extend([1, 261, 262, 263], 0)
        context.decode(batch)


@pytest.mark.parametrize("name", MODELS)
def test_good_model_passes(name: str) -> None:
    check(data(name))
    check(str(data(name)), kv_overrides={"general.name": "x"})
    check(data(name), vocab_only=True)


def test_vocabularies_of_llama_cpp_pass() -> None:
    for path in (vendor_dir() / "models").glob("*.gguf"):
        check(path)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("target.gguf", "qwen3.block_count", 0),
        ("target.gguf", "qwen3.block_count", 513),
        ("target.gguf", "qwen3.block_count", 2**32 - 1),
        ("target.gguf", "qwen3.nextn_predict_layers", 5),
        ("target.gguf", "qwen3.expert_count", 1025),
        ("target.gguf", "qwen3.expert_count", 4),
        ("target.gguf", "qwen3.expert_used_count", 1),
        ("target.gguf", "qwen3.expert_group_count", 2),
        ("target.gguf", "qwen3.attention.layer_norm_rms_epsilon", -1.0),
        ("target.gguf", "qwen3.attention.layer_norm_rms_epsilon", float("nan")),
        ("target.gguf", "qwen3.rope.dimension_count", 7),
        ("target.gguf", "qwen3.rope.dimension_count", 18),
        ("target.gguf", "qwen3.rope.scaling.type", "zigzag"),
        ("target.gguf", "qwen3.classifier.activation", "softplus"),
        ("gemma3.gguf", "gemma3.rope.dimension_count", 0),
        ("qwen35.gguf", "qwen35.rope.dimension_count", 0),
        ("qwen35.gguf", "qwen35.full_attention_interval", 0),
        ("qwen35.gguf", "qwen35.ssm.group_count", 0),
        ("qwen35.gguf", "qwen35.ssm.time_step_rank", 0),
        ("qwen35.gguf", "qwen35.rope.dimension_sections", [0, 0, 0, 0]),
        ("mamba2.gguf", "mamba2.ssm.group_count", 0),
        ("mamba2.gguf", "mamba2.ssm.group_count", 3),
        ("rwkv7.gguf", "rwkv7.wkv.head_size", 0),
    ],
)
def test_metadata_that_crashes_is_refused(edit: Callable[..., Path], name: str, key: str, value: Any) -> None:
    path = edit(name, {key: value})
    with pytest.raises(ModelFormatError) as caught:
        load_and_decode(path)
    message = str(caught.value)
    assert key in message or key.rpartition(".")[0] in message
    assert path.name in message
    with pytest.raises(ModelFormatError):
        check(path)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"expert_count": 4, "expert_used_count": 5}, "expert_used_count"),
        ({"expert_count": 4, "expert_used_count": [2, 2, 2, 9]}, "expert_used_count"),
        ({"expert_count": 4, "expert_used_count": 2, "expert_group_count": 4}, "expert_group_count"),
        ({"expert_count": 5, "expert_used_count": 2, "expert_group_count": 2}, "expert_group_count"),
        ({"expert_count": 4, "expert_used_count": 2, "expert_group_count": 2}, "expert_group_used_count"),
    ],
)
def test_expert_counts_that_contradict_are_refused(edit: Callable[..., Path], values: dict[str, Any], key: str) -> None:
    path = edit("target.gguf", {f"qwen3.{name}": value for name, value in values.items()})
    with pytest.raises(ModelFormatError, match=key):
        load_and_decode(path)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("qwen35.gguf", "attn_qkv.weight"),
        ("qwen35.gguf", "attn_gate.weight"),
        ("qwen35_mtp.gguf", "nextn.eh_proj.weight"),
        ("eagle3_d2t.gguf", "output.weight"),
    ],
)
def test_missing_tensor_that_crashes_is_refused(edit: Callable[..., Path], name: str, tensor: str) -> None:
    with Gguf(data(name)) as gguf:
        tensor = next(known for known in gguf.tensors if known.endswith(tensor))
    with pytest.raises(ModelFormatError, match=tensor):
        load_and_decode(edit(name, without=(tensor,)))


def test_draft_model_without_mask_token_is_refused(edit: Callable[..., Path]) -> None:
    with pytest.raises(ModelFormatError, match="mask_token_id"):
        Model(edit("dflash.gguf", without=("tokenizer.ggml.mask_token_id",)))


@pytest.mark.parametrize("kind", [GgmlType.I8, GgmlType.I16, GgmlType.I32, GgmlType.I64, GgmlType.F64, GgmlType.Q8_1])
@pytest.mark.parametrize(
    "tensor", ["output.weight", "token_embd.weight", "blk.0.attn_q.weight", "blk.2.ffn_down.weight"]
)
def test_weight_of_a_type_without_kernel_is_refused(edit: Callable[..., Path], tensor: str, kind: GgmlType) -> None:
    with pytest.raises(ModelFormatError, match=rf"{tensor}.*{kind.name}"):
        load_and_decode(edit("target.gguf", types={tensor: kind}))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("target.gguf", "output_norm.weight"),
        ("target.gguf", "blk.1.attn_k_norm.weight"),
        ("mamba.gguf", "blk.0.ssm_conv1d.weight"),
        ("mamba.gguf", "blk.0.ssm_a"),
        ("mamba.gguf", "blk.0.ssm_dt.bias"),
        ("rwkv7.gguf", "blk.0.attn_norm_2.weight"),
        ("rwkv7.gguf", "blk.0.time_mix_lerp_fused.weight"),
        ("rwkv7.gguf", "blk.0.time_mix_k_k.weight"),
    ],
)
def test_elementwise_tensor_that_is_not_f32_is_refused(edit: Callable[..., Path], name: str, tensor: str) -> None:
    with pytest.raises(ModelFormatError, match=rf"{tensor}.*F32"):
        load_and_decode(edit(name, types={tensor: GgmlType.F16}))


def test_quantized_and_half_weights_pass(edit: Callable[..., Path]) -> None:
    for kind in (GgmlType.F16, GgmlType.Q8_0):
        load_and_decode(edit("target.gguf", types={"blk.0.attn_q.weight": kind, "token_embd.weight": kind}))


def test_overrides_are_checked_instead_of_the_file(edit: Callable[..., Path]) -> None:
    with pytest.raises(ModelFormatError, match="block_count is 0"):
        Model(data("target.gguf"), kv_overrides={"qwen3.block_count": 0})
    path = edit("target.gguf", {"qwen3.rope.scaling.type": "zigzag"})
    with Model(path, kv_overrides={"qwen3.rope.scaling.type": "linear"}) as model:
        assert model.n_layer == 4
    with Model(path, vocab_only=True) as model:
        assert len(model.vocab) == 288


def test_later_part_of_a_split_model_is_checked(tmp_path: Path) -> None:
    parts = write_llama_splits(tmp_path / "m.gguf", LlamaShape(n_vocab=288, n_layer=2))
    check(parts[0])
    check(parts)
    with Gguf(parts[1]) as source, Gguf() as copy:
        for key, value in source.metadata.items():
            copy.metadata.set(key, value, source.metadata.type(key))
        for tensor, info in source.tensors.items():
            kind = GgmlType.I32 if info.type is GgmlType.F32 and len(info.shape) == 2 else info.type
            copy.add_tensor(tensor, source.tensor_data(tensor), type=kind, shape=info.shape)
        copy.write(tmp_path / "changed.gguf")
    (tmp_path / "changed.gguf").replace(parts[1])
    with pytest.raises(ModelFormatError, match="I32"):
        Model(parts[0])
    with pytest.raises(ModelFormatError, match="I32"):
        Model(parts)


def test_metadata_alone_is_checked() -> None:
    with Gguf(data("target.gguf")) as gguf:
        check(gguf)
        gguf.metadata["qwen3.block_count"] = 0
        with pytest.raises(ModelFormatError, match="block_count"):
            check(gguf)


def test_open_file_is_checked_where_it_stands(tmp_path: Path, edit: Callable[..., Path]) -> None:
    bad = edit("target.gguf", {"qwen3.block_count": 0})
    path = tmp_path / "both"
    path.write_bytes(bytes(100) + bad.read_bytes())
    with path.open("rb") as file:
        file.seek(100)
        with pytest.raises(ModelFormatError, match="block_count"):
            check(file)
        assert file.tell() == 100


def test_file_that_is_no_model_is_left_to_the_loader(tmp_path: Path) -> None:
    for content in (b"", b"GGUF", b"no model at all", data("llama.gguf").read_bytes()[:3000]):
        path = tmp_path / "x.gguf"
        path.write_bytes(content)
        check(path)
        with pytest.raises(ModelLoadError):
            Model(path)
    check(tmp_path / "missing.gguf")
    check(tmp_path)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("target.gguf", "tokenizer.ggml.tokens", ["a"] * 288),
        ("target.gguf", "tokenizer.ggml.tokens", []),
        ("target.gguf", "tokenizer.ggml.token_type", [1]),
        ("target.gguf", "tokenizer.ggml.scores", [0.5]),
        ("target.gguf", "tokenizer.ggml.bos_token_id", 2**32 - 1),
        ("target.gguf", "qwen3.attention.head_count", 0),
        ("target.gguf", "qwen3.attention.head_count", [1] * 600),
        ("target.gguf", "qwen3.embedding_length", 0),
        ("target.gguf", "qwen3.context_length", 0),
        ("target.gguf", "qwen3.feed_forward_length", "many"),
        ("gemma3.gguf", "gemma3.attention.sliding_window", 2**32 - 1),
        ("mamba.gguf", "mamba.ssm.conv_kernel", 0),
        ("mamba.gguf", "mamba.ssm.state_size", 0),
        ("qwen35.gguf", "qwen35.ssm.inner_size", 1),
        ("rwkv7.gguf", "rwkv7.attention.decay_lora_rank", 0),
    ],
)
def test_metadata_that_fails_an_assertion_raises_or_loads(
    edit: Callable[..., Path], name: str, key: str, value: Any
) -> None:
    """No rule names these: assertions of the loader and of the graph builder come out as exceptions."""
    path = edit(name, {key: value}) if value != [] else edit(name)
    if value == []:
        with Gguf(path) as gguf:
            gguf.metadata.set(key, [], GgufType.STRING)
            gguf.write(path)
    with contextlib.suppress(LlamacyError):
        load_and_decode(path)


def test_header_equals_full_reading() -> None:
    for name in MODELS:
        header = GgufHeader(data(name).read_bytes())
        with Gguf(data(name)) as gguf:
            assert header.types == {key: gguf.metadata.type(key) for key in gguf.metadata}
            for key, value in gguf.metadata.items():
                plain = value.tolist() if isinstance(value, memoryview) else None if isinstance(value, list) else value
                assert header.values[key] == plain
            assert header.tensors == {tensor: (info.type, info.ne) for tensor, info in gguf.tensors.items()}


def test_header_of_damaged_data_raises() -> None:
    content = data("llama.gguf").read_bytes()
    for end in range(0, 6000, 7):
        with pytest.raises(GgufError):
            GgufHeader(content[:end])
