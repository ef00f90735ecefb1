"""Control vectors: what a context computes with them, against NumPy, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy.core.control_vector import ControlVector, control_vector_get, control_vector_set
from llamacy.errors import AdapterError, ClosedError
from tests.core.test_adapter import EXACT, TOKENS, logits
from tests.helpers import data, models
from tests.helpers.reference import Reference, control_directions

N_EMBD = 64


@pytest.fixture
def context(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> Any:
    """A context of a model with 4 layers."""
    return make_context(make_model("target.gguf"), **EXACT)


@pytest.fixture
def directions() -> np.ndarray:
    return (0.5 * np.random.default_rng(3).standard_normal((3, N_EMBD))).astype(np.float32)


def reference(rows: dict[int, np.ndarray]) -> np.ndarray:
    return Reference(data("target.gguf")).logits(TOKENS, directions=rows)


@pytest.mark.parametrize(("il_start", "il_end"), [(1, None), (1, 3), (2, 3), (2, 2), (3, 3), (1, 1)])
def test_logits_equal_reference_for_layers_asked_for(
    context: Any, directions: np.ndarray, il_start: int, il_end: int | None
) -> None:
    base = logits(context)
    vector = ControlVector(directions, il_start, il_end)
    assert (vector.il_start, vector.il_end) == (il_start, il_end or 3)
    control_vector_set(context, vector)
    assert control_vector_get(context) is vector
    got = logits(context)
    rows = {layer: directions[layer - 1] for layer in range(il_start, (il_end or 3) + 1)}
    assert np.abs(got - base).max() > 0.05
    assert np.abs(got - reference(rows)).max() <= 1e-3


def test_none_takes_vector_off(context: Any, directions: np.ndarray) -> None:
    base = logits(context)
    control_vector_set(context, None)
    control_vector_set(context, ControlVector(directions))
    assert not np.array_equal(logits(context), base)
    control_vector_set(context, None)
    assert control_vector_get(context) is None
    assert np.array_equal(logits(context), base)


def test_zero_vector_equals_base_exactly(context: Any) -> None:
    base = logits(context)
    control_vector_set(context, ControlVector(np.zeros((3, N_EMBD), np.float32)))
    assert np.array_equal(logits(context), base)


def test_shorter_vector_leaves_nothing_of_longer_one_behind(context: Any, directions: np.ndarray) -> None:
    # llama.cpp keeps the rows of the vector before where the new one has none
    control_vector_set(context, ControlVector(directions))
    logits(context)
    control_vector_set(context, ControlVector(directions[:1]))
    expected = reference({1: directions[0]})
    assert np.abs(logits(context) - expected).max() <= 1e-3
    control_vector_set(context, ControlVector(directions, 3))
    assert np.abs(logits(context) - reference({3: directions[2]})).max() <= 1e-3


def test_vector_is_a_copy_and_exports_it(directions: np.ndarray) -> None:
    vector = ControlVector(directions)
    expected = directions.copy()
    directions[:] = 0
    view = np.asarray(vector)
    assert view.dtype == np.float32
    assert not view.flags.writeable
    assert np.array_equal(view, expected)
    assert np.shares_memory(np.asarray(vector), np.asarray(vector))
    del vector
    assert np.array_equal(view, expected)
    assert (ControlVector(expected).n_layers, ControlVector(expected).n_embd) == (3, N_EMBD)
    assert repr(ControlVector(expected, 2)) == "<ControlVector of 64 for layers 2 to 3>"


def test_vector_takes_rows_of_numbers() -> None:
    assert np.asarray(ControlVector([[1, 2], [3.5, 4]])).tolist() == [[1, 2], [3.5, 4]]
    assert np.asarray(ControlVector(iter([(1.0, 2.0)]))).tolist() == [[1, 2]]


@pytest.mark.parametrize("scale", [1.0, -0.25])
def test_vector_from_file_equals_reference(
    make_model: Callable[..., Any], make_context: Callable[..., Any], tmp_path: Path, scale: float
) -> None:
    path = models.write_control_vector(tmp_path / "vector.gguf", data("target.gguf"))
    context = make_context(make_model("target.gguf"), **EXACT)
    vector = ControlVector.from_gguf(path, scale=scale)
    assert (vector.n_layers, vector.n_embd, vector.model_hint) == (3, N_EMBD, "qwen3")
    control_vector_set(context, vector)
    assert np.abs(logits(context) - reference(control_directions(path, scale))).max() <= 1e-3


def write_vector(path: Path, tensors: dict[str, np.ndarray], architecture: str = "controlvector") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_layers_without_direction_in_file_are_zero(tmp_path: Path) -> None:
    row = np.arange(4, dtype=np.float32)
    vector = ControlVector.from_gguf(write_vector(tmp_path / "v.gguf", {"direction.3": row, "direction.1": row + 1}))
    assert np.asarray(vector).tolist() == [[1, 2, 3, 4], [0, 0, 0, 0], [0, 1, 2, 3]]
    assert vector.model_hint is None


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"direction.0": np.zeros(4, np.float32)},
        {"direction.x": np.zeros(4, np.float32)},
        {"direction.1.weight": np.zeros(4, np.float32)},
        {"direction.99999999999999999999": np.zeros(4, np.float32)},
        {"other": np.zeros(4, np.float32)},
        {"direction.1": np.zeros((2, 4), np.float32)},
        {"direction.1": np.zeros(4, np.float16)},
        {"direction.1": np.zeros(4, np.float32), "direction.2": np.zeros(5, np.float32)},
        {"direction.1": np.full(4, np.nan, np.float32)},
    ],
    ids=["none", "layer 0", "no number", "suffix", "huge", "name", "2-D", "f16", "widths", "nan"],
)
def test_file_that_is_no_control_vector_is_refused(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    with pytest.raises(AdapterError):
        ControlVector.from_gguf(write_vector(tmp_path / "v.gguf", tensors))


def test_other_files_are_refused(tmp_path: Path, lora_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no vector")
    for path in (data("llama.gguf"), lora_path, text, tmp_path, tmp_path / "missing", "nul\0byte"):
        with pytest.raises(AdapterError):
            ControlVector.from_gguf(path)


@pytest.mark.parametrize(
    ("data_", "il_start", "il_end"),
    [
        (np.zeros((0, 4), np.float32), 1, None),
        (np.zeros((4, 0), np.float32), 1, None),
        (np.zeros(4, np.float32), 1, None),
        (np.zeros((2, 2, 2), np.float32), 1, None),
        (np.zeros((2, 4), np.float64), 1, None),
        (np.zeros((2, 4), np.int32), 1, None),
        (np.zeros((2, 8), np.float32)[:, ::2], 1, None),
        (np.full((2, 4), np.inf, np.float32), 1, None),
        ([[1.0], [1.0, 2.0]], 1, None),
        ([], 1, None),
        (np.zeros((2, 4), np.float32), 0, None),
        (np.zeros((2, 4), np.float32), -1, 1),
        (np.zeros((2, 4), np.float32), 3, None),
        (np.zeros((2, 4), np.float32), 1, 3),
        (np.zeros((2, 4), np.float32), 2, 1),
        (np.zeros((2, 4), np.float32), 1, 2**40),
    ],
)
def test_vector_of_wrong_shape_or_layers_is_refused(data_: Any, il_start: int, il_end: int | None) -> None:
    with pytest.raises(AdapterError):
        ControlVector(data_, il_start, il_end)


@pytest.mark.parametrize("shape", [(3, 63), (3, 65), (3, 1), (4, 64), (100, 64)])
def test_vector_that_does_not_fit_model_is_refused_and_changes_nothing(
    context: Any, directions: np.ndarray, shape: tuple[int, int]
) -> None:
    vector = ControlVector(directions)
    control_vector_set(context, vector)
    expected = logits(context)
    with pytest.raises(AdapterError, match=r"width|layers"):
        control_vector_set(context, ControlVector(np.ones(shape, np.float32)))
    assert control_vector_get(context) is vector
    assert np.array_equal(logits(context), expected)


def test_model_with_one_layer_takes_no_vector(
    make_model: Callable[..., Any], make_context: Callable[..., Any], tmp_path: Path
) -> None:
    path = models.write_llama(tmp_path / "one.gguf", models.LlamaShape(n_vocab=288))
    context = make_context(make_model(path), **EXACT)
    with pytest.raises(AdapterError, match="layers up to 0"):
        control_vector_set(context, ControlVector(np.ones((1, N_EMBD), np.float32)))
    control_vector_set(context, None)
    logits(context)


def test_closed_context_is_refused(context: Any, directions: np.ndarray) -> None:
    context.close()
    with pytest.raises(ClosedError):
        control_vector_set(context, ControlVector(directions))
    with pytest.raises(ClosedError):
        control_vector_set(context, None)
    with pytest.raises(ClosedError):
        control_vector_get(context)
