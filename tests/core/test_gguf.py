"""Reading and writing GGUF, against the gguf package and NumPy."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.gguf import Gguf
from llamacy.types import GgmlType, GgufType
from tests.helpers import DATA, data

gguf_py = pytest.importorskip("gguf")

MODELS = sorted(path.name for path in DATA.glob("*.gguf"))


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, memoryview) else value


def read(path: Path) -> Any:
    return gguf_py.GGUFReader(path)


@pytest.mark.parametrize("name", MODELS)
def test_metadata_of_file_equals_reference(name: str) -> None:
    fields = {key: field for key, field in read(data(name)).fields.items() if not key.startswith("GGUF.")}
    with Gguf(data(name)) as gguf:
        assert list(gguf.metadata) == list(fields)
        assert len(gguf.metadata) == len(fields)
        for key, field in fields.items():
            assert plain(gguf.metadata[key]) == field.contents(), key
            assert gguf.metadata.type(key) == field.types[-1], key


@pytest.mark.parametrize("name", MODELS)
def test_tensors_of_file_equal_reference(name: str) -> None:
    expected = read(data(name)).tensors
    with Gguf(data(name)) as gguf:
        assert list(gguf.tensors) == [tensor.name for tensor in expected]
        for tensor in expected:
            info = gguf.tensors[tensor.name]
            found = np.asarray(gguf.tensor_data(tensor.name))
            assert (info.name, info.type, info.n_bytes) == (tensor.name, tensor.tensor_type, tensor.n_bytes)
            assert list(info.ne[: len(tensor.shape)]) == tensor.shape.tolist()
            assert gguf.data_offset + info.offset == tensor.data_offset
            # the file may say dimensions of one element that ggml does not count
            assert found.shape == tensor.data.shape[-found.ndim :]
            assert found.size == tensor.data.size
            assert found.tobytes() == tensor.data.tobytes()
            del found


def test_data_of_buffer_equals_file() -> None:
    content = data("llama.gguf").read_bytes()
    with Gguf(data=content) as gguf, Gguf.open(data("llama.gguf")) as file:
        assert dict(gguf.tensors) == dict(file.tensors)
        assert gguf.path is None
        for name in gguf.tensors:
            assert gguf.tensor_data(name) == file.tensor_data(name)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (GgufType.UINT8, 200),
        (GgufType.INT8, -100),
        (GgufType.UINT16, 60000),
        (GgufType.INT16, -30000),
        (GgufType.UINT32, 2**32 - 1),
        (GgufType.INT32, -(2**31)),
        (GgufType.UINT64, 2**64 - 1),
        (GgufType.INT64, -(2**63)),
        (GgufType.FLOAT32, 0.5),
        (GgufType.FLOAT64, 0.1),
        (GgufType.BOOL, True),
        (GgufType.STRING, "añ\N{GRINNING FACE}"),
    ],
)
def test_set_with_type_writes_that_type(tmp_path: Path, kind: GgufType, value: Any) -> None:
    with Gguf() as gguf:
        gguf.metadata.set("general.architecture", "test")
        gguf.metadata.set("one", value, kind)
        gguf.metadata.set("many", [value, value, value], kind)
        gguf.metadata.set("none", [], kind)
        assert gguf.metadata.type("one") == gguf.metadata.type("none") == kind
        assert gguf.metadata["one"] == value
        assert plain(gguf.metadata["many"]) == [value] * 3
        assert len(gguf.metadata["none"]) == 0
        gguf.write(tmp_path / "types.gguf")
    fields = read(tmp_path / "types.gguf").fields
    assert fields["one"].types == [kind]
    assert fields["one"].contents() == value
    assert fields["many"].types == [GgufType.ARRAY, kind]
    assert fields["many"].contents() == [value] * 3


def test_values_of_reference_writer_are_read(tmp_path: Path) -> None:
    writer = gguf_py.GGUFWriter(tmp_path / "reference.gguf", "test")
    writer.add_uint8("u8", 1)
    writer.add_int64("i64", -5)
    writer.add_float64("f64", 0.25)
    writer.add_bool("flag", True)
    writer.add_array("words", ["", "zwei", "三"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_tensor("matrix", np.arange(12, dtype=np.float16).reshape(3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with Gguf(tmp_path / "reference.gguf") as gguf:
        assert {key: plain(value) for key, value in gguf.metadata.items()} == {
            "general.architecture": "test",
            "u8": 1,
            "i64": -5,
            "f64": 0.25,
            "flag": True,
            "words": ["", "zwei", "三"],
            "numbers": [1, -2, 3],
        }
        assert gguf.tensors["matrix"].shape == (3, 4)
        np.testing.assert_array_equal(np.asarray(gguf.tensor_data("matrix")), np.arange(12).reshape(3, 4))


def test_assignment_chooses_types_as_llama_cpp_reads_them() -> None:
    with Gguf() as gguf:
        metadata = gguf.metadata
        for value, expected in [
            (True, GgufType.BOOL),
            (5, GgufType.UINT32),
            (-5, GgufType.INT32),
            (2**40, GgufType.INT64),
            (2**63, GgufType.UINT64),
            (1.5, GgufType.FLOAT32),
            ("x", GgufType.STRING),
            ([1, 2], GgufType.INT32),
            ([1, 2**31], GgufType.UINT32),
            ([1.5, 2], GgufType.FLOAT32),
            ([True, False], GgufType.BOOL),
            (["a"], GgufType.STRING),
            (array("d", [1.0]), GgufType.FLOAT64),
            (np.array([True, False]), GgufType.BOOL),
            (np.arange(3), GgufType.INT64),
        ]:
            metadata[f"key {value!r}"] = value
            assert metadata.type(f"key {value!r}") == expected, value
            assert plain(metadata[f"key {value!r}"]) == (value if not hasattr(value, "tolist") else value.tolist())


def test_assignment_keeps_type_that_holds_the_value() -> None:
    with Gguf() as gguf:
        gguf.metadata.set("n", 3, GgufType.UINT8)
        gguf.metadata["n"] = 255
        assert gguf.metadata.type("n") == GgufType.UINT8
        gguf.metadata["n"] = 256
        assert gguf.metadata.type("n") == GgufType.UINT32
        gguf.metadata.set("x", 0.5, GgufType.FLOAT64)
        gguf.metadata["x"] = 0.1
        assert gguf.metadata["x"] == 0.1
        gguf.metadata.set("list", [1], GgufType.UINT64)
        gguf.metadata["list"] = []
        assert gguf.metadata.type("list") == GgufType.UINT64


def test_delete_removes_key() -> None:
    with Gguf(data("llama.gguf")) as gguf:
        n = len(gguf.metadata)
        del gguf.metadata["general.name"]
        assert "general.name" not in gguf.metadata
        assert len(gguf.metadata) == n - 1
        assert gguf.metadata.pop("nothing", 7) == 7


def test_arrays_of_metadata_are_views_of_one_memory() -> None:
    with Gguf(data("target.gguf")) as gguf:
        first = np.asarray(gguf.metadata["tokenizer.ggml.scores"])
        second = np.asarray(gguf.metadata["tokenizer.ggml.scores"])
        assert np.shares_memory(first, second)
        assert first.dtype == np.float32
        assert not first.flags.writeable
        del first, second


def test_tensor_views_share_memory_and_are_read_only() -> None:
    with Gguf(data("llama.gguf")) as gguf:
        name = "token_embd.weight"
        first, second = np.asarray(gguf.tensor_data(name)), np.asarray(gguf.tensor_data(name))
        assert np.shares_memory(first, second)
        assert not first.flags.writeable
        assert first.flags.c_contiguous
        with pytest.raises(TypeError):
            gguf.tensor_data(name)[0, 0] = 1.0
        del first, second


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (2, 1, 3, 2), ()])
def test_written_tensor_is_what_reference_reads(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    with Gguf() as gguf:
        gguf.metadata["general.architecture"] = "test"
        gguf.add_tensor("before", np.ones(5, dtype=np.int8))
        gguf.add_tensor("values", values)
        gguf.write(tmp_path / "t.gguf")
        np.testing.assert_array_equal(np.asarray(gguf.tensor_data("values")).reshape(shape), values)
    tensor = read(tmp_path / "t.gguf").tensors[1]
    assert tensor.name == "values"
    np.testing.assert_array_equal(np.asarray(tensor.data).reshape(shape), values)


@pytest.mark.parametrize("stored", [GgmlType.Q8_0, GgmlType.Q4_0, GgmlType.Q4_K, GgmlType.BF16])
def test_quantized_tensor_is_written_from_rows_of_bytes(tmp_path: Path, stored: GgmlType) -> None:
    values = np.random.default_rng(0).standard_normal((4, 256), dtype=np.float32)
    kind = gguf_py.GGMLQuantizationType(stored)
    if stored is GgmlType.Q4_K:  # the reference reads it, but does not write it
        rows = np.zeros((4, 144), dtype=np.uint8)
    else:
        rows = gguf_py.quants.quantize(values, kind)
    with Gguf() as gguf:
        gguf.metadata["general.architecture"] = "test"
        gguf.add_tensor("rows", rows, type=stored)
        gguf.add_tensor("flat", rows.tobytes(), type=stored, shape=(4, 256))
        assert gguf.tensors["rows"].shape == gguf.tensors["flat"].shape == (4, 256)
        gguf.write(tmp_path / "q.gguf")
    for tensor in read(tmp_path / "q.gguf").tensors:
        assert tensor.tensor_type == kind
        np.testing.assert_array_equal(
            gguf_py.quants.dequantize(tensor.data, kind), gguf_py.quants.dequantize(rows, kind)
        )
    with Gguf(tmp_path / "q.gguf") as gguf:
        view = np.asarray(gguf.tensor_data("rows"))
        assert view.dtype == (np.uint16 if stored is GgmlType.BF16 else np.uint8)
        assert view.tobytes() == rows.tobytes()
        del view


def test_copy_of_file_is_the_same_for_reference(tmp_path: Path) -> None:
    with Gguf(data("gemma3.gguf")) as source, Gguf() as copy:
        for key, value in source.metadata.items():
            copy.metadata.set(key, value, source.metadata.type(key))
        for name, info in source.tensors.items():
            copy.add_tensor(name, source.tensor_data(name), type=info.type, shape=info.shape)
        copy.write(tmp_path / "copy.gguf")
    first, second = read(data("gemma3.gguf")), read(tmp_path / "copy.gguf")
    assert {k: f.contents() for k, f in first.fields.items()} == {k: f.contents() for k, f in second.fields.items()}
    for one, other in zip(first.tensors, second.tensors, strict=True):
        assert (one.name, one.tensor_type) == (other.name, other.tensor_type)
        assert one.data.tobytes() == other.data.tobytes()


def test_write_of_opened_file_keeps_it(tmp_path: Path) -> None:
    with Gguf(data("llama.gguf")) as gguf:
        gguf.metadata["general.name"] = "another"
        gguf.add_tensor("extra", np.arange(3, dtype=np.float32))
        gguf.write(tmp_path / "more.gguf")
    reference, written = read(data("llama.gguf")), read(tmp_path / "more.gguf")
    assert written.fields["general.name"].contents() == "another"
    assert [t.name for t in written.tensors] == [*[t.name for t in reference.tensors], "extra"]
    for one, other in zip(reference.tensors, written.tensors, strict=False):
        assert one.data.tobytes() == other.data.tobytes()


def test_write_over_the_opened_file_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "self.gguf"
    path.write_bytes(data("llama.gguf").read_bytes())
    with Gguf(path) as gguf:
        before = np.array(gguf.tensor_data("token_embd.weight"))
        gguf.metadata["general.name"] = "renamed"
        gguf.write(path)
        np.testing.assert_array_equal(before, np.asarray(gguf.tensor_data("token_embd.weight")))
    with Gguf(path) as gguf:
        assert gguf.metadata["general.name"] == "renamed"
        np.testing.assert_array_equal(before, np.asarray(gguf.tensor_data("token_embd.weight")))
    assert [entry.name for entry in tmp_path.iterdir()] == ["self.gguf"]


def test_alignment_is_that_of_the_file_written(tmp_path: Path) -> None:
    with Gguf() as gguf:
        gguf.metadata["general.architecture"] = "test"
        gguf.metadata["general.alignment"] = 256
        assert gguf.alignment == 256
        gguf.add_tensor("a", np.arange(3, dtype=np.float32))
        gguf.add_tensor("b", np.arange(5, dtype=np.float32))
        gguf.write(tmp_path / "aligned.gguf")
    reader = read(tmp_path / "aligned.gguf")
    assert reader.alignment == 256
    assert [t.data_offset % 256 for t in reader.tensors] == [0, 0]
    np.testing.assert_array_equal(reader.tensors[1].data, np.arange(5))
    with Gguf(tmp_path / "aligned.gguf") as gguf:
        assert gguf.alignment == 256
        np.testing.assert_array_equal(np.asarray(gguf.tensor_data("b")), np.arange(5))


def test_text_that_is_not_utf8_survives(tmp_path: Path) -> None:
    raw = b"\xff\xfe caf\xc3\xa9"
    with Gguf() as gguf:
        gguf.metadata["raw"] = raw.decode("utf-8", "surrogateescape")
        gguf.write(tmp_path / "raw.gguf")
    assert bytes(read(tmp_path / "raw.gguf").fields["raw"].parts[-1]) == raw
    with Gguf(tmp_path / "raw.gguf") as gguf:
        assert gguf.metadata["raw"].encode("utf-8", "surrogateescape") == raw


def test_repr_says_what_it_is() -> None:
    gguf = Gguf(data("llama.gguf"))
    assert "llama.gguf" in repr(gguf)
    assert f"{len(gguf.tensors)} tensors" in repr(gguf)
    assert "Gguf" in repr(gguf.metadata)
    assert "Gguf" in repr(gguf.tensors)
    gguf.close()
    assert "closed" in repr(gguf)
