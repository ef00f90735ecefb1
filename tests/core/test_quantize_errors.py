"""What quantize must refuse; without the checks, several of these end the process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.gguf import Gguf
from llamacy.core.quantize import quantize
from llamacy.errors import GgufError, LlamacyError, ModelFormatError, ModelNotFoundError, QuantizeError
from llamacy.types import FileType, GgmlType, GgufType
from tests.helpers import data
from tests.helpers.models import LlamaShape, llama_tensors, write_llama

WIDE = LlamaShape(n_vocab=288, n_layer=2, n_embd=256, n_ff=256)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("wide") / "wide.gguf", WIDE)


def even_imatrix() -> dict[str, np.ndarray]:
    shapes = {name: tensor.shape for name, tensor in llama_tensors(WIDE).items()}
    return {name: np.ones(shape[-1], np.float32) for name, shape in shapes.items() if len(shape) == 2}


def changed(path: Path, out: Path, tensors: dict[str, Any] | None = None, **metadata: Any) -> Path:
    """Write a copy with some tensors and keys (``__`` for the dot) replaced."""
    with Gguf(path) as source, Gguf() as copy:
        for key, value in source.metadata.items():
            copy.metadata.set(key, value, source.metadata.type(key))
        for key, value in metadata.items():
            copy.metadata[key.replace("__", ".")] = value
        for name, info in source.tensors.items():
            if tensors and name in tensors:
                copy.add_tensor(name, tensors[name])
            else:
                copy.add_tensor(name, source.tensor_data(name), type=info.type, shape=info.shape)
        copy.write(out)
    return out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ftype": "NVFP4"}, ValueError),
        ({"ftype": "GUESSED"}, ValueError),
        ({"ftype": "nothing"}, ValueError),
        ({"ftype": 12345}, ValueError),
        ({"n_threads": 0}, ValueError),
        ({"n_threads": 513}, ValueError),
        ({"n_threads": 1.5}, TypeError),
        ({"max_buf_size": 0}, ValueError),
        ({"output_tensor_type": "Q8_K"}, ValueError),
        ({"output_tensor_type": "Q8_1"}, ValueError),
        ({"output_tensor_type": "I32"}, ValueError),
        ({"token_embedding_type": "F64"}, ValueError),
        ({"token_embedding_type": 4}, ValueError),
        ({"tensor_types": {"attn": "I8"}}, ValueError),
        ({"tensor_types": {"": "Q8_0"}}, ValueError),
        ({"tensor_types": {"a" * 2000: "Q8_0"}}, ValueError),
        ({"tensor_types": [("a", "Q8_0")]}, TypeError),
        ({"tensor_types": {"((": "Q4_0"}}, QuantizeError),
        ({"ftype": "F16", "tensor_types": {"attn": "Q8_0"}}, ValueError),
        ({"only_copy": True, "pure": True}, ValueError),
        ({"only_copy": True, "output_tensor_type": "Q8_0"}, ValueError),
        ({"quantize_output_tensor": False, "output_tensor_type": "Q8_0"}, ValueError),
        ({"kv_overrides": {"general.alignment": 64}}, ValueError),
        ({"kv_overrides": {"general.alignment": "x"}}, ValueError),
        ({"kv_overrides": {"k": -1}}, ValueError),
        ({"kv_overrides": {"k": 2**32}}, ValueError),
        ({"kv_overrides": {"k": None}}, TypeError),
        ({"kv_overrides": {"llama.block_count": 0}}, ModelFormatError),
        ({"kv_overrides": {"llama.rope.scaling.type": "zigzag"}}, ModelFormatError),
        ({"prune_layers": [2]}, ValueError),
        ({"prune_layers": [-1]}, ValueError),
        ({"prune_layers": [0, 1]}, ValueError),
        ({"prune_layers": ["0"]}, TypeError),
        ({"imatrix": 5}, TypeError),
        ({"imatrix": {}}, ValueError),
        ({"imatrix": {"a": np.ones(3)}}, TypeError),
        ({"imatrix": {"a": np.array([1, -1], np.float32)}}, ValueError),
        ({"imatrix": {"a": np.array([1, np.nan], np.float32)}}, ValueError),
        ({"imatrix": {"a": np.array([1, np.inf], np.float32)}}, ValueError),
        ({"imatrix": {"a": np.array([1, 1e38], np.float32)}}, ValueError),
        ({"imatrix": {"a\0b": np.ones(3, np.float32)}}, TypeError),
        ({"imatrix": "nowhere.gguf"}, FileNotFoundError),
        ({"progress": 5}, TypeError),
        ({"unknown": 5}, TypeError),
    ],
)
def test_wrong_option_raises_before_any_work(tmp_path: Path, wide: Path, options: dict[str, Any], error: Any) -> None:
    options = {"ftype": "Q8_0", "n_threads": 2, **options}
    with pytest.raises(error):
        quantize(wide, tmp_path / "q.gguf", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ftype", ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "Q2_K_S"])
def test_low_bit_type_without_imatrix_raises_before_any_work(tmp_path: Path, wide: Path, ftype: str) -> None:
    with pytest.raises(QuantizeError, match="importance matrix"):
        quantize(wide, tmp_path / "q.gguf", ftype, n_threads=2)
    assert list(tmp_path.iterdir()) == []


def test_imatrix_without_a_tensor_or_of_a_wrong_size_raises_before_any_work(tmp_path: Path, wide: Path) -> None:
    imatrix = even_imatrix()
    del imatrix["blk.1.ffn_up.weight"]
    with pytest.raises(QuantizeError, match=r"blk\.1\.ffn_up\.weight"):
        quantize(wide, tmp_path / "q.gguf", "IQ2_XXS", n_threads=2, imatrix=imatrix)
    imatrix["blk.1.ffn_up.weight"] = np.ones(255, np.float32)
    with pytest.raises(QuantizeError, match="256 values"):
        quantize(wide, tmp_path / "q.gguf", "IQ2_XXS", n_threads=2, imatrix=imatrix)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["IQ2_XXS", "IQ2_XS", "IQ1_S"])
def test_low_bit_embedding_without_imatrix_raises(tmp_path: Path, wide: Path, kind: str) -> None:
    # llama.cpp doesn't ask for one here, and aborts on a worker thread
    for option in ("token_embedding_type", "output_tensor_type"):
        with pytest.raises(QuantizeError, match="importance matrix"):
            quantize(wide, tmp_path / "q.gguf", "Q8_0", n_threads=2, **{option: kind})
    assert list(tmp_path.iterdir()) == []


def test_type_that_does_not_divide_the_rows_raises(tmp_path: Path) -> None:
    for option in ("token_embedding_type", "output_tensor_type"):
        with pytest.raises(QuantizeError, match="multiple of 256"):
            quantize(data("target.gguf"), tmp_path / "q.gguf", "Q8_0", n_threads=2, **{option: "Q4_K"})
    assert list(tmp_path.iterdir()) == []


def test_requantize_raises_before_any_work(tmp_path: Path, wide: Path) -> None:
    quantize(wide, tmp_path / "q8.gguf", "Q8_0", n_threads=1)
    with pytest.raises(QuantizeError, match="allow_requantize"):
        quantize(tmp_path / "q8.gguf", tmp_path / "q4.gguf", "Q4_0", n_threads=1)
    assert [path.name for path in tmp_path.iterdir()] == ["q8.gguf"]


def test_source_as_target_raises(tmp_path: Path, wide: Path) -> None:
    source = tmp_path / "m.gguf"
    source.write_bytes(wide.read_bytes())
    with pytest.raises(ValueError, match="same file"):
        quantize(source, source, "Q8_0")
    with pytest.raises(ValueError, match="same file"):
        quantize(source, tmp_path / ".." / tmp_path.name / "m.gguf", "Q8_0")
    assert source.read_bytes() == wide.read_bytes()


def test_missing_or_damaged_source_raises(tmp_path: Path, wide: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        quantize(tmp_path / "missing.gguf", tmp_path / "q.gguf", "Q8_0")
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(GgufError):
        quantize(tmp_path / "text.gguf", tmp_path / "q.gguf", "Q8_0")
    (tmp_path / "cut.gguf").write_bytes(wide.read_bytes()[:-1000])
    with pytest.raises(GgufError):
        quantize(tmp_path / "cut.gguf", tmp_path / "q.gguf", "Q8_0")
    assert not (tmp_path / "q.gguf").exists()


def test_imatrix_file_that_is_none_raises(tmp_path: Path, wide: Path) -> None:
    with pytest.raises(QuantizeError, match="no importance matrix"):
        quantize(wide, tmp_path / "q.gguf", "Q8_0", imatrix=wide)
    with Gguf() as gguf:
        gguf.add_tensor("a.in_sum2", np.ones((2, 8), np.float32))
        gguf.add_tensor("a.counts", np.ones((3, 1), np.float32))
        gguf.write(tmp_path / "i.gguf")
    with pytest.raises(QuantizeError, match="one count for each row"):
        quantize(wide, tmp_path / "q.gguf", "Q8_0", imatrix=tmp_path / "i.gguf")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("ftype", ["Q8_0", "Q4_K_M", "IQ3_S", "IQ4_XS"])
def test_weights_that_are_no_numbers_raise(tmp_path: Path, wide: Path, value: float, ftype: str) -> None:
    weights = llama_tensors(WIDE)["blk.0.ffn_up.weight"]
    weights[:] = value
    source = changed(wide, tmp_path / "bad.gguf", {"blk.0.ffn_up.weight": weights})
    try:
        quantize(source, tmp_path / "q.gguf", ftype, n_threads=3)
    except QuantizeError:
        assert [path.name for path in tmp_path.iterdir()] == ["bad.gguf"]
    else:
        assert np.isfinite(value)  # large weights are no harm to types that search no grid


@pytest.mark.parametrize("value", [1e30, np.inf])
def test_bfloat16_weights_that_overflow_raise(tmp_path: Path, wide: Path, value: float) -> None:
    bits = np.full((256, 256), np.float32(value).view(np.uint32) >> 16, np.uint16)
    with Gguf(wide) as original, Gguf() as copy:
        for key, item in original.metadata.items():
            copy.metadata.set(key, item, original.metadata.type(key))
        for name, info in original.tensors.items():
            if name == "blk.0.ffn_up.weight":
                copy.add_tensor(name, bits, type=GgmlType.BF16)
            else:
                copy.add_tensor(name, original.tensor_data(name), type=info.type, shape=info.shape)
        copy.write(tmp_path / "bad.gguf")
    with pytest.raises(QuantizeError):
        quantize(tmp_path / "bad.gguf", tmp_path / "q.gguf", "IQ3_S", n_threads=3)


def test_model_with_a_value_for_each_layer_is_not_pruned(tmp_path: Path, wide: Path) -> None:
    source = changed(wide, tmp_path / "array.gguf")
    with Gguf(source) as gguf, Gguf() as copy:
        for key, value in gguf.metadata.items():
            copy.metadata.set(key, value, gguf.metadata.type(key))
        copy.metadata.set("llama.feed_forward_length", [256, 256], GgufType.UINT32)
        for name, info in gguf.tensors.items():
            copy.add_tensor(name, gguf.tensor_data(name), type=info.type, shape=info.shape)
        copy.write(tmp_path / "array2.gguf")
    with pytest.raises(QuantizeError, match="feed_forward_length"):
        quantize(tmp_path / "array2.gguf", tmp_path / "q.gguf", "Q8_0", prune_layers=[0])


def test_target_that_can_not_be_written_raises_os_error(tmp_path: Path, wide: Path) -> None:
    with pytest.raises(FileNotFoundError):
        quantize(wide, tmp_path / "no" / "q.gguf", "Q8_0", n_threads=1)
    with pytest.raises(IsADirectoryError):
        quantize(wide, tmp_path, "Q8_0", n_threads=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="file size limits are of Unix")
def test_full_disk_raises_and_leaves_nothing(tmp_path: Path, wide: Path) -> None:
    from tests.helpers.process import run_python

    run_python(
        "import resource, sys\n"
        "from llamacy.core.quantize import quantize\n"
        "from llamacy.errors import QuantizeError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    quantize(sys.argv[1], sys.argv[2], 'Q8_0', n_threads=2)\n"
        "except QuantizeError as error:\n"
        "    assert error.log\n"
        "else:\n"
        "    raise SystemExit('no error')\n",
        str(wide),
        str(tmp_path / "q.gguf"),
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ftype", [kind for kind in FileType if kind.name not in ("GUESSED", "NVFP4")])
def test_every_type_is_written_or_refused_with_any_importance(tmp_path: Path, wide: Path, ftype: FileType) -> None:
    for value in (0.0, 1e-30, 1.0, 1e10):
        imatrix = {name: np.full_like(entry, value) for name, entry in even_imatrix().items()}
        try:
            quantize(wide, tmp_path / "q.gguf", ftype, n_threads=2, imatrix=imatrix)
        except LlamacyError:
            assert value in (0.0, 1e-30, 1e10)
