"""Quantizing, against the gguf package's own quantizers."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.gguf import Gguf
from llamacy.core.quantize import quantize
from llamacy.errors import QuantizeCancelledError
from llamacy.types import FileType, GgmlType
from tests.helpers import data
from tests.helpers.compute import logits_of
from tests.helpers.models import LlamaShape, llama_tensors, write_llama, write_llama_splits

gguf_py = pytest.importorskip("gguf")

WIDE = LlamaShape(n_vocab=288, n_layer=3, n_embd=256, n_ff=256)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama whose rows have a multiple of 256 elements, as most types need."""
    return write_llama(tmp_path_factory.mktemp("wide") / "wide.gguf", WIDE)


def read(path: Path | str) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in gguf_py.GGUFReader(path).tensors}


def even_imatrix(value: float = 1.0) -> dict[str, np.ndarray]:
    shapes = {name: tensor.shape for name, tensor in llama_tensors(WIDE).items()}
    return {name: np.full(shape[-1], value, np.float32) for name, shape in shapes.items() if len(shape) == 2}


@pytest.mark.parametrize("ftype", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_pure_quantization_equals_reference(tmp_path: Path, wide: Path, ftype: str, n_threads: int) -> None:
    result = quantize(wide, tmp_path / "q.gguf", ftype, n_threads=n_threads, pure=True)
    kind = gguf_py.GGMLQuantizationType[ftype]
    written = read(tmp_path / "q.gguf")
    assert result.paths == (str(tmp_path / "q.gguf"),)
    for name, values in llama_tensors(WIDE).items():
        expected = kind if values.ndim == 2 else gguf_py.GGMLQuantizationType.F32
        assert written[name].tensor_type == expected == result.tensor_types[name]
        np.testing.assert_array_equal(
            gguf_py.quants.dequantize(written[name].data, expected),
            gguf_py.quants.dequantize(gguf_py.quants.quantize(values, expected), expected),
        )


@pytest.mark.parametrize("ftype", ["Q4_K_M", "Q2_K", "Q6_K", "IQ4_XS", "TQ1_0", "IQ3_S", "MXFP4_MOE", "Q1_0"])
def test_result_says_what_is_in_the_file(tmp_path: Path, wide: Path, ftype: str) -> None:
    result = quantize(wide, tmp_path / "q.gguf", ftype, n_threads=1)
    written = read(tmp_path / "q.gguf")
    assert {name: tensor.tensor_type for name, tensor in written.items()} == result.tensor_types
    assert sum(tensor.n_bytes for tensor in written.values()) == result.n_bytes
    assert sum(tensor.nbytes for tensor in llama_tensors(WIDE).values()) == result.n_bytes_source
    fields = gguf_py.GGUFReader(tmp_path / "q.gguf").fields
    assert fields["general.file_type"].contents() == FileType[ftype]


def test_quantized_model_computes_nearly_the_same(tmp_path: Path, wide: Path, make_model: Any) -> None:
    quantize(wide, tmp_path / "q8.gguf", FileType.Q8_0, n_threads=1)
    tokens = [1, 270, 265, 272, 260, 261]
    exact = logits_of(make_model(wide), tokens)
    found = logits_of(make_model(tmp_path / "q8.gguf"), tokens)
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()
    assert np.abs(found - exact).max() > 0


def test_dry_run_writes_nothing_and_says_the_same(tmp_path: Path, wide: Path) -> None:
    planned = quantize(wide, tmp_path / "q.gguf", "Q4_K_M", dry_run=True)
    assert planned.paths == ()
    assert list(tmp_path.iterdir()) == []
    done = quantize(wide, tmp_path / "q.gguf", "Q4_K_M", n_threads=1)
    assert planned._replace(paths=done.paths) == done


def test_types_of_single_tensors_are_taken(tmp_path: Path, wide: Path) -> None:
    result = quantize(
        wide,
        tmp_path / "q.gguf",
        "Q4_0",
        n_threads=1,
        output_tensor_type="F16",
        token_embedding_type=GgmlType.Q5_1,
        tensor_types={r"attn_(q|k)\.weight": "q8_0", r"blk\.1\..*\.weight": GgmlType.Q6_K},
    )
    types = result.tensor_types
    assert types["output.weight"] == GgmlType.F16
    assert types["token_embd.weight"] == GgmlType.Q5_1
    assert types["blk.0.attn_q.weight"] == types["blk.1.attn_q.weight"] == GgmlType.Q8_0
    assert types["blk.1.attn_v.weight"] == GgmlType.Q6_K
    assert types["blk.0.attn_v.weight"] == GgmlType.Q4_0
    assert types["blk.1.attn_norm.weight"] == GgmlType.F32


def test_output_tensor_is_left_alone_on_demand(tmp_path: Path, wide: Path) -> None:
    result = quantize(wide, tmp_path / "q.gguf", "Q8_0", n_threads=1, quantize_output_tensor=False)
    assert result.tensor_types["output.weight"] == GgmlType.F32


def test_only_copy_copies_every_byte(tmp_path: Path, wide: Path) -> None:
    quantize(wide, tmp_path / "copy.gguf", "Q8_0", n_threads=1, only_copy=True)
    before, after = read(wide), read(tmp_path / "copy.gguf")
    assert sorted(before) == sorted(after)
    assert all(before[name].data.tobytes() == after[name].data.tobytes() for name in before)


def test_requantize_of_quantized_model_is_allowed_on_demand(tmp_path: Path, wide: Path) -> None:
    quantize(wide, tmp_path / "q8.gguf", "Q8_0", n_threads=1, pure=True)
    quantize(tmp_path / "q8.gguf", tmp_path / "q4.gguf", "Q4_0", n_threads=1, pure=True, allow_requantize=True)
    q8 = gguf_py.GGMLQuantizationType.Q8_0
    q4 = gguf_py.GGMLQuantizationType.Q4_0
    middle, final = read(tmp_path / "q8.gguf"), read(tmp_path / "q4.gguf")
    name = "blk.0.ffn_up.weight"
    expected = gguf_py.quants.quantize(gguf_py.quants.dequantize(middle[name].data, q8), q4)
    assert final[name].data.tobytes() == expected.tobytes()


def test_pruned_layers_are_left_out_and_the_rest_renumbered(tmp_path: Path, wide: Path, make_model: Any) -> None:
    quantize(wide, tmp_path / "p.gguf", "Q8_0", n_threads=1, prune_layers=[1], only_copy=True)
    values = llama_tensors(WIDE)
    written = read(tmp_path / "p.gguf")
    expected = {
        name.replace("blk.2.", "blk.1."): tensor for name, tensor in values.items() if not name.startswith("blk.1.")
    }
    assert sorted(written) == sorted(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(np.asarray(written[name].data).reshape(tensor.shape), tensor)
    assert make_model(tmp_path / "p.gguf").n_layer == 2


def test_pruning_with_imatrix_takes_importance_of_the_old_layer(tmp_path: Path, wide: Path) -> None:
    rng = np.random.default_rng(1)
    imatrix = {name: rng.random(256, dtype=np.float32) for name in even_imatrix()}
    quantize(wide, tmp_path / "all.gguf", "IQ2_XXS", n_threads=1, imatrix=imatrix, pure=True)
    quantize(wide, tmp_path / "p.gguf", "IQ2_XXS", n_threads=1, imatrix=imatrix, pure=True, prune_layers=(0,))
    whole, pruned = read(tmp_path / "all.gguf"), read(tmp_path / "p.gguf")
    assert pruned["blk.0.ffn_up.weight"].data.tobytes() == whole["blk.1.ffn_up.weight"].data.tobytes()
    assert pruned["blk.1.attn_q.weight"].data.tobytes() == whole["blk.2.attn_q.weight"].data.tobytes()


@pytest.mark.parametrize("ftype", ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "Q2_K_S"])
def test_low_bit_types_are_written_with_an_imatrix(tmp_path: Path, wide: Path, ftype: str) -> None:
    result = quantize(wide, tmp_path / "q.gguf", ftype, n_threads=2, imatrix=even_imatrix())
    written = read(tmp_path / "q.gguf")
    assert {name: tensor.tensor_type for name, tensor in written.items()} == result.tensor_types
    name = "blk.1.ffn_up.weight"
    values = gguf_py.quants.dequantize(written[name].data, written[name].tensor_type)
    exact = llama_tensors(WIDE)[name]
    assert np.corrcoef(values.ravel(), exact.ravel())[0, 1] > 0.7


def test_imatrix_of_file_is_the_average_of_its_sums(tmp_path: Path, wide: Path) -> None:
    rng = np.random.default_rng(2)
    sums = {name: rng.random(256, dtype=np.float32) * 8 for name in even_imatrix()}
    with Gguf() as gguf:
        gguf.metadata["general.type"] = "imatrix"
        for name, values in sums.items():
            gguf.add_tensor(name + ".in_sum2", values.reshape(1, 256))
            gguf.add_tensor(name + ".counts", np.full((1, 1), 4, np.float32))
        gguf.write(tmp_path / "imatrix.gguf")
    averages = {name: values / 4 for name, values in sums.items()}
    quantize(wide, tmp_path / "a.gguf", "IQ2_XS", n_threads=1, imatrix=averages)
    quantize(wide, tmp_path / "b.gguf", "IQ2_XS", n_threads=1, imatrix=tmp_path / "imatrix.gguf")
    quantize(wide, tmp_path / "c.gguf", "IQ2_XS", n_threads=1, imatrix=even_imatrix())
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert (tmp_path / "a.gguf").read_bytes() != (tmp_path / "c.gguf").read_bytes()


def test_overrides_are_in_the_new_file(tmp_path: Path, wide: Path) -> None:
    overrides = {"general.name": "other", "test.flag": True, "test.n": 7, "test.x": 0.5}
    quantize(wide, tmp_path / "q.gguf", "Q8_0", n_threads=1, kv_overrides=overrides)
    fields = gguf_py.GGUFReader(tmp_path / "q.gguf").fields
    assert {key: fields[key].contents() for key in overrides} == overrides


def test_source_of_another_alignment_gives_a_readable_file(tmp_path: Path, wide: Path) -> None:
    aligned = tmp_path / "aligned.gguf"
    with Gguf(wide) as source, Gguf() as copy:
        copy.metadata["general.alignment"] = 4096
        for key, value in source.metadata.items():
            copy.metadata.set(key, value, source.metadata.type(key))
        for name, info in source.tensors.items():
            copy.add_tensor(name, source.tensor_data(name), type=info.type, shape=info.shape)
        copy.write(aligned)
    quantize(aligned, tmp_path / "a.gguf", "Q8_0", n_threads=1)
    quantize(wide, tmp_path / "b.gguf", "Q8_0", n_threads=1)
    one, other = read(tmp_path / "a.gguf"), read(tmp_path / "b.gguf")
    assert {name: t.data.tobytes() for name, t in one.items()} == {name: t.data.tobytes() for name, t in other.items()}


def test_small_buffer_gives_the_same_file(tmp_path: Path, wide: Path) -> None:
    quantize(wide, tmp_path / "a.gguf", "Q4_K_M", n_threads=1)
    quantize(wide, tmp_path / "b.gguf", "Q4_K_M", n_threads=2, max_buf_size=5000)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_parts_are_kept_on_demand(tmp_path: Path) -> None:
    parts = write_llama_splits(tmp_path / "source.gguf")
    whole = quantize(parts[0], tmp_path / "whole.gguf", "Q8_0", n_threads=1)
    split = quantize(parts[0], tmp_path / "split.gguf", "Q8_0", n_threads=1, keep_split=True)
    assert [Path(path).name for path in split.paths] == [
        f"split-{part:05d}-of-{len(parts):05d}.gguf" for part in range(1, len(parts) + 1)
    ]
    together = {}
    for path in split.paths:
        together |= read(path)
    expected = read(tmp_path / "whole.gguf")
    assert sorted(together) == sorted(expected)
    assert all(together[name].data.tobytes() == expected[name].data.tobytes() for name in expected)
    assert split.n_bytes == whole.n_bytes
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_progress_counts_every_tensor(tmp_path: Path, wide: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    quantize(wide, tmp_path / "q.gguf", "Q8_0", n_threads=2, progress=lambda *event: seen.append(event))
    n = len(llama_tensors(WIDE))
    assert [(done, total) for done, total, _ in seen] == [(i, n) for i in range(n + 1)]
    assert sorted(name for _, _, name in seen[:-1]) == sorted(llama_tensors(WIDE))
    assert seen[-1][2] == ""


def test_progress_of_pruned_model_ends_at_its_total(tmp_path: Path, wide: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    quantize(
        wide, tmp_path / "q.gguf", "Q8_0", n_threads=1, prune_layers=[0], progress=lambda *event: seen.append(event)
    )
    assert [done for done, _, _ in seen] == list(range(len(seen)))
    assert seen[-1][:2] == (len(seen) - 1, len(seen) - 1)


def test_progress_bar_is_shown(tmp_path: Path, wide: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    quantize(wide, tmp_path / "q.gguf", "Q8_0", n_threads=1, progress=True)
    n = len(llama_tensors(WIDE))
    assert f"{n}/{n}" in capfd.readouterr().err


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("stop_at", [0, 1, 7])
def test_progress_that_returns_false_stops_and_leaves_the_old_file(
    tmp_path: Path, wide: Path, n_threads: int, stop_at: int
) -> None:
    path = tmp_path / "q.gguf"
    path.write_bytes(b"old")
    seen = []

    def progress(done: int, total: int, name: str) -> bool:
        seen.append(done)
        return done < stop_at

    with pytest.raises(QuantizeCancelledError):
        quantize(wide, path, "Q8_0", n_threads=n_threads, progress=progress)
    assert seen == list(range(stop_at + 1))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    quantize(wide, path, "Q8_0", n_threads=n_threads)  # nothing is left of the one that was stopped
    assert len(read(path)) == len(llama_tensors(WIDE))


def test_exception_of_progress_comes_out_and_nothing_is_written(tmp_path: Path, wide: Path) -> None:
    class MyError(Exception):
        pass

    def progress(done: int, total: int, name: str) -> None:
        if done == 4:
            raise MyError(name)

    with pytest.raises(MyError):
        quantize(wide, tmp_path / "q.gguf", "Q8_0", n_threads=2, progress=progress)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
def test_ctrl_c_stops_and_nothing_is_written(tmp_path: Path, wide: Path) -> None:
    def progress(done: int, total: int, name: str) -> None:
        if done == 3:
            # from another thread, so that Python only notes it here
            thread = threading.Thread(target=signal.pthread_kill, args=(threading.main_thread().ident, signal.SIGINT))
            thread.start()
            thread.join()

    with pytest.raises(KeyboardInterrupt):
        quantize(wide, tmp_path / "q.gguf", "Q8_0", n_threads=2, progress=progress)
    assert list(tmp_path.iterdir()) == []


def test_runs_at_the_same_time_do_not_disturb_each_other(tmp_path: Path, wide: Path) -> None:
    def run(index: int) -> list[int]:
        seen: list[int] = []
        quantize(wide, tmp_path / f"{index}.gguf", "Q4_K_M", n_threads=1, progress=lambda done, *_: seen.append(done))
        return seen

    with ThreadPoolExecutor(4) as pool:
        events = list(pool.map(run, range(4)))
    assert events == [list(range(len(llama_tensors(WIDE)) + 1))] * 4
    assert len({(tmp_path / f"{index}.gguf").read_bytes() for index in range(4)}) == 1


def test_other_architectures_are_quantized(tmp_path: Path) -> None:
    for name in ("mamba.gguf", "qwen35.gguf", "rwkv7.gguf", "gemma3.gguf"):
        result = quantize(data(name), tmp_path / name, "Q8_0", n_threads=1)
        assert GgmlType.Q8_0 in result.tensor_types.values()
        assert sum(tensor.n_bytes for tensor in read(tmp_path / name).values()) == result.n_bytes
