"""LoRA adapters: what a context computes with them, against NumPy and against merged weights."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy.core.adapter import LoraAdapter, adapters_get, adapters_set
from llamacy.core.batch import Batch
from tests.helpers import BOS, data, models
from tests.helpers.reference import Reference, lora_deltas

TOKENS = [BOS, 268, 265, 272, 272, 275]
EXACT = {"n_ctx": 256, "type_k": "F32", "type_v": "F32", "flash_attn_type": "DISABLED"}


def logits(context: Any) -> np.ndarray:
    """Return the logits of all of TOKENS on a clean memory."""
    context.memory.clear()
    with Batch(len(TOKENS)) as batch:
        batch.extend(TOKENS, 0, logits="all")
        context.decode(batch)
    return np.array([np.array(context.logits(i)) for i in range(len(TOKENS))])


@pytest.fixture
def context(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> Any:
    return make_context(make_model("llama.gguf"), **EXACT)


@pytest.fixture
def adapter(context: Any, lora_path: Path) -> Iterator[LoraAdapter]:
    adapter = LoraAdapter(context.model, lora_path)
    yield adapter
    if not context.closed:
        adapters_set(context, [])
    adapter.close()


def test_scale_of_zero_equals_base_exactly(context: Any, adapter: LoraAdapter) -> None:
    base = logits(context)
    adapters_set(context, [(adapter, 0.0)])
    assert adapters_get(context) == ((adapter, 0.0),)
    assert np.array_equal(logits(context), base)


@pytest.mark.parametrize("scale", [1.0, 0.5, -2.0])
def test_logits_equal_reference_with_merged_weights(
    context: Any, adapter: LoraAdapter, lora_path: Path, scale: float
) -> None:
    base = logits(context)
    adapters_set(context, [(adapter, scale)])
    got = logits(context)
    expected = Reference(data("llama.gguf"), lora_deltas(lora_path, scale)).logits(TOKENS)
    assert np.abs(got - base).max() > 0.05
    assert np.abs(got - expected).max() <= 1e-3


def test_logits_equal_model_file_with_merged_weights(
    context: Any,
    adapter: LoraAdapter,
    lora_path: Path,
    make_model: Callable[..., Any],
    make_context: Callable[..., Any],
    tmp_path: Path,
) -> None:
    merged = write_merged(tmp_path / "merged.gguf", data("llama.gguf"), lora_deltas(lora_path))
    adapters_set(context, [(adapter, 1)])
    assert np.abs(logits(context) - logits(make_context(make_model(merged), **EXACT))).max() <= 1e-3


def write_merged(path: Path, base: Path, deltas: dict[str, np.ndarray]) -> Path:
    """Write a model with `deltas` added to its weights."""
    reader = gguf.GGUFReader(base)
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        weights = np.array(tensor.data).reshape([int(n) for n in reversed(tensor.shape)])
        writer.add_tensor(tensor.name, (weights + deltas.get(tensor.name, 0)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_adapter_for_embedding_and_output_equals_reference(context: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    path = tmp_path / "lora.gguf"
    base = Reference(data("llama.gguf"))
    n_vocab, n_embd = base.weights["token_embd.weight"].shape
    embd_a, embd_b = rng.standard_normal((n_vocab, 3)), 0.1 * rng.standard_normal((n_embd, 3))
    out_a, out_b = 0.1 * rng.standard_normal((5, n_embd)), 0.1 * rng.standard_normal((n_vocab, 5))
    # rows of A are looked up by token, so it lies the other way round than in other matrices
    write_lora_tensors(
        path,
        {
            "token_embd.weight.lora_a": embd_a,
            "token_embd.weight.lora_b": embd_b,
            "output.weight.lora_a": out_a,
            "output.weight.lora_b": out_b,
        },
        alpha=6.0,
    )
    deltas = {"token_embd.weight": 6.0 / 3 * embd_a @ embd_b.T, "output.weight": 6.0 / 5 * out_b @ out_a}
    expected = Reference(data("llama.gguf"), deltas).logits(TOKENS)
    with LoraAdapter(context.model, path) as adapter:
        adapters_set(context, [(adapter, 1.0)])
        assert np.abs(logits(context) - expected).max() <= 1e-3
        adapters_set(context, [])


def write_lora_tensors(
    path: Path,
    tensors: dict[str, np.ndarray],
    *,
    alpha: float = 1.0,
    architecture: str = "llama",
    metadata: Callable[[gguf.GGUFWriter], None] | None = None,
) -> Path:
    """Write a LoRA file with any tensors; `metadata` replaces what makes it one."""
    writer = gguf.GGUFWriter(path, architecture)
    if metadata is None:
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", alpha)
    else:
        metadata(writer)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.astype(np.float32) if tensor.dtype == np.float64 else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_two_adapters_add_up(context: Any, adapter: LoraAdapter, lora_path: Path, tmp_path: Path) -> None:
    other_path = models.write_lora(tmp_path / "other.gguf", data("llama.gguf"), seed=9, rank=2, targets=["attn_q"])
    deltas = lora_deltas(lora_path, 0.7)
    for name, delta in lora_deltas(other_path, -1.5).items():
        deltas[name] = deltas.get(name, 0) + delta
    with LoraAdapter(context.model, other_path) as other:
        adapters_set(context, [(adapter, 0.7), (other, -1.5)])
        assert adapters_get(context) == ((adapter, 0.7), (other, -1.5))
        assert np.abs(logits(context) - Reference(data("llama.gguf"), deltas).logits(TOKENS)).max() <= 1e-3
        adapters_set(context, [])


def test_empty_list_takes_adapters_off(context: Any, adapter: LoraAdapter) -> None:
    base = logits(context)
    adapters_set(context, [(adapter, 1.0)])
    assert not np.array_equal(logits(context), base)
    adapters_set(context, ())
    assert adapters_get(context) == ()
    assert np.array_equal(logits(context), base)


def test_contexts_of_one_model_apply_adapters_on_their_own(
    context: Any, adapter: LoraAdapter, make_context: Callable[..., Any]
) -> None:
    other = make_context(context.model, **EXACT)
    base = logits(other)
    adapters_set(context, [(adapter, 1.0)])
    assert np.array_equal(logits(other), base)
    assert not np.array_equal(logits(context), base)


@pytest.mark.parametrize("kind", ["path", "str", "file", "file_at_offset", "bytes"])
def test_sources_give_the_same_adapter(context: Any, lora_path: Path, tmp_path: Path, kind: str) -> None:
    padded = tmp_path / "padded"
    padded.write_bytes(b"x" * 33 + lora_path.read_bytes())
    with lora_path.open("rb") as file, padded.open("rb") as padded_file:
        padded_file.seek(33)
        sources = {
            "path": lora_path,
            "str": str(lora_path),
            "file": file,
            "file_at_offset": padded_file,
            "bytes": io.BytesIO(lora_path.read_bytes()),
        }
        with LoraAdapter(context.model, sources[kind]) as adapter:
            assert adapter.path == (str(lora_path) if kind in ("path", "str") else None)
            adapters_set(context, [(adapter, 1.0)])
            expected = Reference(data("llama.gguf"), lora_deltas(lora_path)).logits(TOKENS)
            assert np.abs(logits(context) - expected).max() <= 1e-3
            adapters_set(context, [])
        # the caller's files are as they were
        assert (file.tell(), padded_file.tell()) == (0, 33)
        assert file.read(4) == b"GGUF"


def test_metadata_is_that_of_the_file(context: Any, adapter: LoraAdapter) -> None:
    assert adapter.metadata == {
        "general.architecture": "llama",
        "general.type": "adapter",
        "general.name": "tiny-lora",
        "adapter.type": "lora",
        "adapter.lora.alpha": adapter.metadata["adapter.lora.alpha"],
    }
    assert float(adapter.metadata["adapter.lora.alpha"]) == 8.0
    with pytest.raises(TypeError):
        adapter.metadata["general.name"] = "other"  # type: ignore[index]
    assert adapter.alora_invocation_tokens == ()
    assert "tiny-lora" in repr(adapter)


def test_invocation_tokens_of_activated_lora_are_there(context: Any, tmp_path: Path) -> None:
    path = models.write_lora(tmp_path / "alora.gguf", data("llama.gguf"), invocation_tokens=[1, 265, 268])
    with LoraAdapter(context.model, path) as adapter:
        assert adapter.alora_invocation_tokens == (1, 265, 268)


def test_norm_vectors_in_file_are_left_out(context: Any, tmp_path: Path) -> None:
    # llama.cpp skips them, as converters write them now and then
    a, b = np.zeros((2, 64)), np.zeros((64, 2))
    path = write_lora_tensors(
        tmp_path / "lora.gguf",
        {
            "blk.0.attn_q.weight.lora_a": a,
            "blk.0.attn_q.weight.lora_b": b,
            "blk.0.attn_norm.weight": np.zeros(64),
        },
    )
    base = logits(context)
    with LoraAdapter(context.model, path) as adapter:
        adapters_set(context, [(adapter, 1.0)])
        assert np.abs(logits(context) - base).max() <= 1e-6
        adapters_set(context, [])


@pytest.mark.parametrize("dtype", [np.float16, "q8_0"])
def test_adapter_of_other_type_equals_reference(context: Any, lora_path: Path, tmp_path: Path, dtype: Any) -> None:
    tensors = {}
    for tensor in gguf.GGUFReader(models.write_lora(tmp_path / "f32.gguf", data("llama.gguf"), rank=32)).tensors:
        tensors[tensor.name] = np.array(tensor.data)
    path = tmp_path / "lora.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    for name, tensor in tensors.items():
        if dtype == "q8_0":
            raw = gguf.quants.quantize(tensor, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(name, tensor.astype(dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected = Reference(data("llama.gguf"), lora_deltas(tmp_path / "f32.gguf")).logits(TOKENS)
    with LoraAdapter(context.model, path) as adapter:
        adapters_set(context, [(adapter, 1.0)])
        assert np.abs(logits(context) - expected).max() <= 0.05
        adapters_set(context, [])
