"""Fingerprints: equal where a state fits, different with a reason where it doesn't."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy.checkpoint.fingerprint import Fingerprint, context_fingerprint, files_of
from llamacy.core.adapter import LoraAdapter
from llamacy.core.control_vector import ControlVector
from llamacy.errors import CheckpointError, ClosedError
from tests.helpers import data

from .conftest import MakeContext


def changed_byte(source: Path, target: Path, offset: int) -> Path:
    """Copy a file with one byte changed."""
    content = bytearray(source.read_bytes())
    content[offset] ^= 1
    target.write_bytes(content)
    return target


def test_difference_names_fact_and_both_values() -> None:
    here, there = Fingerprint({"a": 1, "type_k": "F16"}), Fingerprint({"type_k": "Q8_0", "b": True})
    assert (
        here.difference(there) == "a: 1 here, nothing there; b: nothing here, true there; type_k: F16 here, Q8_0 there"
    )
    assert here.difference(here) == ""
    assert here != there
    assert here == Fingerprint({"type_k": "F16", "a": 1})
    assert len({here, there, Fingerprint(dict(here))}) == 2
    assert json.loads(here.json) == {"a": 1, "type_k": "F16"}


@pytest.mark.parametrize("facts", [{"a": [1]}, {1: "a"}, {"a": b""}])
def test_what_is_no_scalar_is_refused(facts: Any) -> None:
    with pytest.raises(TypeError):
        Fingerprint(facts)


def test_same_file_in_two_models_is_the_same(make_kind: MakeContext) -> None:
    first, second = make_kind("llama"), make_kind("llama", n_ctx=64, n_batch=32, n_ubatch=32)
    assert context_fingerprint(first) == context_fingerprint(second)


def test_copy_of_file_is_the_same(make_kind: MakeContext, make_model: Callable[..., Any], tmp_path: Path) -> None:
    copy = make_model(Path(shutil.copy(data("llama.gguf"), tmp_path / "other name.gguf")))
    assert context_fingerprint(make_kind("llama", copy)) == context_fingerprint(make_kind("llama"))


@pytest.mark.parametrize(
    ("params", "fact"),
    [
        ({"type_k": "f16"}, "type_k: F32 here, F16 there"),
        ({"type_v": "f16"}, "type_v: F32 here, F16 there"),
        ({"flash_attn_type": "enabled"}, "flash_attn_type: DISABLED here, ENABLED there"),
        ({"n_seq_max": 2}, "n_streams: 1 here, 2 there"),
        ({"rope_freq_base": 5000.0}, "rope_freq_base: 0.0 here, 5000.0 there"),
        ({"rope_freq_scale": 0.5}, "rope_freq_scale: 0.0 here, 0.5 there"),
    ],
)
def test_context_parameter_makes_a_difference(make_kind: MakeContext, params: dict[str, Any], fact: str) -> None:
    here, there = (context_fingerprint(make_kind("llama", **values)) for values in ({}, params))
    assert here.difference(there) == fact


def test_unified_memory_has_one_stream(make_kind: MakeContext) -> None:
    one, many = make_kind("llama"), make_kind("llama", n_seq_max=4, kv_unified=True)
    assert context_fingerprint(one) == context_fingerprint(many)


def test_other_architecture_makes_a_difference(make_kind: MakeContext) -> None:
    text = context_fingerprint(make_kind("llama")).difference(context_fingerprint(make_kind("mamba")))
    assert "architecture: llama here, mamba there" in text
    assert "weights: " in text


def test_one_byte_of_any_small_tensor_makes_a_difference(
    make_kind: MakeContext, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    expected = context_fingerprint(make_kind("llama"))
    reader = gguf.GGUFReader(data("llama.gguf"))
    small = [tensor for tensor in reader.tensors if tensor.n_bytes <= 3 * 4096]
    assert small
    for number, tensor in enumerate((small[0], small[-1])):
        # the lowest byte of a weight, so that no number becomes invalid
        path = changed_byte(data("llama.gguf"), tmp_path / f"{number}.gguf", int(tensor.data_offset))
        found = context_fingerprint(make_kind("llama", make_model(path)))
        assert expected.difference(found).startswith("weights: ")


def test_begin_middle_and_end_of_a_large_tensor_make_a_difference(
    make_kind: MakeContext, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    expected = context_fingerprint(make_kind("llama"))
    large = max(gguf.GGUFReader(data("llama.gguf")).tensors, key=lambda tensor: tensor.n_bytes)
    n, start = int(large.n_bytes), int(large.data_offset)
    assert n > 4 * 4096
    for offset in (0, n // 8 * 4, n - 4):
        path = changed_byte(data("llama.gguf"), tmp_path / f"{offset}.gguf", start + offset)
        found = context_fingerprint(make_kind("llama", make_model(path)))
        assert expected.difference(found).startswith("weights: ")


def test_override_of_metadata_makes_a_difference(make_kind: MakeContext, make_model: Callable[..., Any]) -> None:
    other = make_model("llama.gguf", kv_overrides={"llama.rope.freq_base": 5000.0})
    found = context_fingerprint(make_kind("llama", other))
    text = context_fingerprint(make_kind("llama")).difference(found)
    assert text == 'kv_overrides: nothing here, {"llama.rope.freq_base": 5000.0} there'


def test_model_without_a_path_is_only_the_same_object(make_kind: MakeContext, make_model: Callable[..., Any]) -> None:
    with data("llama.gguf").open("rb") as file:
        model = make_model(file)
    first, second = (context_fingerprint(make_kind("llama", model)) for _ in range(2))
    assert first == second
    assert "weights: " in first.difference(context_fingerprint(make_kind("llama")))


@pytest.mark.parametrize(
    ("path", "count", "files"),
    [
        ("m.gguf", None, ["m.gguf"]),
        ("m-00001-of-00003.gguf", "3", [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]),
        # the names of the other files aren't known then
        ("first.gguf", "3", []),
        ("m-00001-of-00002.gguf", "3", []),
        (None, None, []),
    ],
)
def test_files_of_a_model_are_those_of_its_parts(path: str | None, count: str | None, files: list[str]) -> None:
    model: Any = SimpleNamespace(path=path, metadata={} if count is None else {"split.count": count})
    assert files_of(model) == files


def test_adapters_and_scales_make_a_difference(make_kind: MakeContext, lora_path: Path, tmp_path: Path) -> None:
    context = make_kind("llama")
    without = context_fingerprint(context)
    with LoraAdapter(context.model, lora_path) as adapter:
        context.set_adapters_lora([(adapter, 0.5)])
        half = context_fingerprint(context)
        context.set_adapters_lora([(adapter, 1.0)])
        whole = context_fingerprint(context)
        context.set_adapters_lora([])
    with LoraAdapter(context.model, shutil.copy(lora_path, tmp_path / "copy.gguf")) as adapter:
        context.set_adapters_lora([(adapter, 0.5)])
        assert context_fingerprint(context) == half
        context.set_adapters_lora([])
    assert context_fingerprint(context) == without
    assert len({without, half, whole}) == 3
    assert " at 0.5 here" in half.difference(whole)


def test_control_vector_makes_a_difference(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    without = context_fingerprint(context)
    n_embd, n_layer = context.model.n_embd, context.model.n_layer
    found = set()
    for value, il_start in ((0.1, 1), (0.2, 1), (0.1, 2)):
        rows = np.full((n_layer - 1, n_embd), value, np.float32)
        context.set_adapter_cvec(ControlVector(rows, il_start))
        found.add(context_fingerprint(context))
    context.set_adapter_cvec(None)
    assert context_fingerprint(context) == without
    assert len(found | {without}) == 4


def test_rotation_switched_off_makes_a_difference(make_kind: MakeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    before = context_fingerprint(make_kind("llama"))
    monkeypatch.setenv("LLAMA_ATTN_ROT_DISABLE", "1")
    assert before.difference(context_fingerprint(make_kind("llama"))) == "attn_rot_disable: null here, 1 there"


def test_vanished_file_is_refused(make_kind: MakeContext, make_model: Callable[..., Any], tmp_path: Path) -> None:
    path = Path(shutil.copy(data("llama.gguf"), tmp_path / "model.gguf"))
    context = make_kind("llama", make_model(path))
    path.unlink()
    with pytest.raises(CheckpointError, match=r"model\.gguf"):
        context_fingerprint(context)


def test_closed_context_is_refused(make_kind: MakeContext) -> None:
    context = make_kind("llama")
    context_fingerprint(context)
    context.close()
    with pytest.raises(ClosedError):
        context_fingerprint(context)
