"""LoRA files and calls that are refused, most of which would end the process in llama.cpp."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy.core.adapter import LoraAdapter, adapters_get, adapters_set
from llamacy.errors import AdapterError, ClosedError, InUseError
from tests.core.test_adapter import EXACT, logits, write_lora_tensors
from tests.helpers import data, models

Q = "blk.0.attn_q.weight"


@pytest.fixture
def model(make_model: Callable[..., Any]) -> Any:
    return make_model("llama.gguf")


def pair(name: str = Q, n_in: int = 64, n_out: int = 64, rank: int = 2) -> dict[str, np.ndarray]:
    return {f"{name}.lora_a": np.zeros((rank, n_in)), f"{name}.lora_b": np.zeros((n_out, rank))}


def test_model_file_is_not_an_adapter(model: Any) -> None:
    with pytest.raises(AdapterError) as caught:
        LoraAdapter(model, data("llama.gguf"))
    assert any("adapter" in line for line in caught.value.log)


def test_missing_unreadable_or_wrong_file_is_refused(model: Any, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no adapter")
    for source in (tmp_path / "missing", tmp_path, "nul\0byte", text, io.BytesIO(b""), io.BytesIO(b"GGUF")):
        with pytest.raises(AdapterError):
            LoraAdapter(model, source)
    with pytest.raises((TypeError, AttributeError, AdapterError)):
        LoraAdapter(model, 5)
    with pytest.raises(TypeError):
        LoraAdapter(None, text)


def test_truncated_file_is_refused_at_any_length(model: Any, lora_path: Path) -> None:
    whole = lora_path.read_bytes()
    for size in [*range(0, 400, 7), *range(400, len(whole), 997), len(whole) - 1]:
        with pytest.raises(AdapterError):
            LoraAdapter(model, io.BytesIO(whole[:size]))


def test_adapter_of_other_architecture_is_refused(model: Any, tmp_path: Path) -> None:
    path = models.write_lora(tmp_path / "lora.gguf", data("llama.gguf"), architecture="qwen3")
    with pytest.raises(AdapterError) as caught:
        LoraAdapter(model, path)
    assert any("arch" in line for line in caught.value.log)


@pytest.mark.parametrize(
    "tensors",
    [
        pair("blk.9.attn_q.weight"),
        pair(n_in=32),
        pair(n_out=32),
        {f"{Q}.lora_a": np.zeros((2, 64))},
        {f"{Q}.lora_b": np.zeros((64, 2))},
        {f"{Q}.lora_a": np.zeros((2, 64)), f"{Q}.lora_b": np.zeros((64, 3))},
        {"something": np.zeros((2, 2))},
    ],
    ids=["no such layer", "inputs", "outputs", "no b", "no a", "ranks", "suffix"],
)
def test_adapter_that_does_not_fit_is_refused_with_log(
    model: Any, tmp_path: Path, tensors: dict[str, np.ndarray]
) -> None:
    with pytest.raises(AdapterError) as caught:
        LoraAdapter(model, write_lora_tensors(tmp_path / "lora.gguf", tensors))
    assert caught.value.log


@pytest.mark.parametrize(
    "tensors",
    [
        # three of each: the product of matrices is checked in the graph, by an assertion
        {f"{Q}.lora_a": np.zeros((3, 2, 64)), f"{Q}.lora_b": np.zeros((3, 64, 2))},
        {f"{Q}.lora_a": np.zeros((2, 64)), f"{Q}.lora_b": np.zeros((2, 1, 64, 2))},
        {"token_embd.weight.lora_a": np.zeros((288, 4)), "token_embd.weight.lora_b": np.zeros((64, 2))},
        {f"{Q}.lora_a": np.zeros((2, 64), np.int32), f"{Q}.lora_b": np.zeros((64, 2))},
        {f"{Q}.lora_a": np.zeros((2, 64), np.float32), f"{Q}.lora_b": np.zeros((64, 2), np.int8)},
    ],
    ids=["3-D", "4-D", "ranks of embedding", "int32", "int8"],
)
def test_adapter_that_aborts_in_first_decode_is_refused_at_load(
    model: Any, tmp_path: Path, tensors: dict[str, np.ndarray]
) -> None:
    with pytest.raises(AdapterError):
        LoraAdapter(model, write_lora_tensors(tmp_path / "lora.gguf", tensors))


@pytest.mark.parametrize(
    "metadata",
    [
        lambda writer: writer.add_uint32("general.type", 1),
        lambda writer: (writer.add_type("adapter"), writer.add_uint32("adapter.type", 1)),
        lambda writer: (
            writer.add_type("adapter"),
            writer.add_string("adapter.type", "lora"),
            writer.add_string("adapter.lora.alpha", "8"),
        ),
        lambda writer: (writer.add_type("adapter"), writer.add_string("adapter.type", "other")),
        lambda writer: (
            writer.add_type("adapter"),
            writer.add_string("adapter.type", "lora"),
            writer.add_key_value(
                "adapter.alora.invocation_tokens",
                [1],
                gguf.GGUFValueType.ARRAY,
                sub_type=gguf.GGUFValueType.INT64,
            ),
        ),
        lambda writer: (
            writer.add_type("adapter"),
            writer.add_string("adapter.type", "lora"),
            writer.add_uint32("adapter.alora.invocation_tokens", 1),
        ),
    ],
    ids=["general.type", "adapter.type", "alpha", "other adapter", "tokens of int64", "one token"],
)
def test_metadata_of_wrong_type_is_refused(model: Any, tmp_path: Path, metadata: Callable[..., Any]) -> None:
    with pytest.raises(AdapterError):
        LoraAdapter(model, write_lora_tensors(tmp_path / "lora.gguf", pair(), metadata=metadata))


def test_model_without_weights_is_refused(make_model: Callable[..., Any], lora_path: Path) -> None:
    for params in ({"vocab_only": True}, {"no_alloc": True}):
        with pytest.raises(AdapterError, match="without weights"):
            LoraAdapter(make_model("llama.gguf", **params), lora_path)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_scale_that_is_not_finite_is_refused(
    model: Any, make_context: Callable[..., Any], lora_path: Path, scale: float
) -> None:
    context = make_context(model, **EXACT)
    with LoraAdapter(model, lora_path) as adapter:
        with pytest.raises(AdapterError, match="finite"):
            adapters_set(context, [(adapter, scale)])
        assert adapters_get(context) == ()


def test_wrong_lists_are_refused_and_change_nothing(
    model: Any, make_model: Callable[..., Any], make_context: Callable[..., Any], lora_path: Path
) -> None:
    context = make_context(model, **EXACT)
    other = make_model("llama.gguf")
    with LoraAdapter(model, lora_path) as adapter, LoraAdapter(other, lora_path) as foreign:
        adapters_set(context, [(adapter, 2.0)])
        with pytest.raises(AdapterError, match="another model"):
            adapters_set(context, [(adapter, 1.0), (foreign, 1.0)])
        with pytest.raises(AdapterError, match="twice"):
            adapters_set(context, [(adapter, 1.0), (adapter, 2.0)])
        for wrong in ([(model, 1.0)], [(None, 1.0)], [adapter], [(adapter, "x")], [(adapter,)]):
            with pytest.raises((TypeError, ValueError)):
                adapters_set(context, wrong)
        assert adapters_get(context) == ((adapter, 2.0),)
        adapters_set(context, [])


def test_closed_adapter_is_refused(model: Any, make_context: Callable[..., Any], lora_path: Path) -> None:
    context = make_context(model, **EXACT)
    adapter = LoraAdapter(model, lora_path)
    adapter.close()
    adapter.close()
    assert adapter.closed
    assert repr(adapter) == "<LoraAdapter closed>"
    with pytest.raises(ClosedError):
        adapters_set(context, [(adapter, 1.0)])
    with pytest.raises(ClosedError):
        adapter.metadata  # noqa: B018
    with pytest.raises(ClosedError):
        adapter.alora_invocation_tokens  # noqa: B018
    context.close()
    with pytest.raises(ClosedError):
        adapters_get(context)
    with pytest.raises(ClosedError):
        adapters_set(context, [])


def test_close_while_applied_is_refused_and_leaves_adapter_working(
    model: Any, make_context: Callable[..., Any], lora_path: Path
) -> None:
    context = make_context(model, **EXACT)
    adapter = LoraAdapter(model, lora_path)
    adapters_set(context, [(adapter, 1.0)])
    before = logits(context)
    with pytest.raises(InUseError):
        adapter.close()
    assert np.array_equal(logits(context), before)
    adapters_set(context, [])
    adapter.close()
