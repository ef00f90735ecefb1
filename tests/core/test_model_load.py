"""Model: everything a model can be loaded from, and what may happen on the way."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy.core.gguf import Gguf
from llamacy.core.model import Model
from llamacy.errors import LoadCancelledError, ModelFormatError
from llamacy.types import GgmlType, LoadMode
from tests.helpers import data, models
from tests.helpers.compute import logits_of
from tests.helpers.process import run_python
from tests.helpers.reference import Reference

TOKENS = [1, 260, 268, 265, 272, 272, 275]


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return Reference(data("llama.gguf")).logits(TOKENS)[-1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "copy.gguf"
    path.write_bytes(data("llama.gguf").read_bytes())
    return path


class PathLike:
    """Something that says where a file is, and nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.mark.parametrize("kind", [str, Path, os.fsencode, PathLike])
def test_load_path_of_any_kind_gives_reference_logits(kind: Any, expected: np.ndarray) -> None:
    with Model(kind(data("llama.gguf"))) as model:
        np.testing.assert_allclose(logits_of(model, TOKENS), expected, rtol=1e-4, atol=1e-4)
        assert model.path == str(data("llama.gguf"))


@pytest.mark.parametrize("name", ["mit Leerzeichen", "größe-模型-🦙", "quote'\"", "%s%n", "new\nline"])
def test_load_path_of_any_spelling(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    path = folder / f"{name}.gguf"
    path.write_bytes(data("llama.gguf").read_bytes())
    with Model(path) as model:
        assert model.path == str(path)


def test_load_path_that_is_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\xfe.gguf"
    try:
        Path(os.fsdecode(path)).write_bytes(data("llama.gguf").read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with Model(path) as model:
        assert os.fsencode(model.path) == path


def test_load_relative_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data("llama.gguf").parent)
    with Model("llama.gguf") as model:
        assert model.architecture == "llama"


def test_load_symbolic_link(tmp_path: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(data("llama.gguf"))
    with Model(link) as model:
        assert model.architecture == "llama"


@pytest.mark.parametrize("mode", LoadMode)
def test_load_mode_gives_reference_logits(mode: LoadMode, expected: np.ndarray) -> None:
    with Model(data("llama.gguf"), load_mode=mode) as model:
        np.testing.assert_allclose(logits_of(model, TOKENS), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{"use_extra_bufts": False}, {"no_host": True}, {"check_tensors": True}])
def test_load_option_gives_reference_logits(options: dict[str, Any], expected: np.ndarray) -> None:
    with Model(data("llama.gguf"), **options) as model:
        np.testing.assert_allclose(logits_of(model, TOKENS), expected, rtol=1e-4, atol=1e-4)


def test_load_without_memory_map_survives_removal_of_file(copy: Path, expected: np.ndarray) -> None:
    with Model(copy, load_mode=LoadMode.NONE) as model:
        copy.write_bytes(b"\0" * copy.stat().st_size)
        copy.unlink()
        np.testing.assert_allclose(logits_of(model, TOKENS), expected, rtol=1e-4, atol=1e-4)


# split models


@pytest.fixture
def splits(tmp_path: Path) -> list[Path]:
    return models.write_llama_splits(tmp_path / "split.gguf")


@pytest.fixture(scope="module")
def split_expected(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    shape = models.LlamaShape(n_vocab=288, n_layer=2)
    path = models.write_llama(tmp_path_factory.mktemp("whole") / "whole.gguf", shape)
    return Reference(path).logits(TOKENS)[-1]


def test_load_first_split_finds_the_others(splits: list[Path], split_expected: np.ndarray) -> None:
    assert len(splits) > 2
    with Model(splits[0]) as model:
        np.testing.assert_allclose(logits_of(model, TOKENS), split_expected, rtol=1e-4, atol=1e-4)


def test_load_list_of_splits_of_any_name(splits: list[Path], split_expected: np.ndarray) -> None:
    renamed = [path.rename(path.with_name(f"part {index}.bin")) for index, path in enumerate(splits)]
    with Model(renamed) as model:
        np.testing.assert_allclose(logits_of(model, TOKENS), split_expected, rtol=1e-4, atol=1e-4)
        assert model.path == str(renamed[0])


def test_load_other_than_first_split_is_refused(splits: list[Path]) -> None:
    with pytest.raises(ModelFormatError):
        Model(splits[1])


def test_load_with_a_split_missing_is_refused(splits: list[Path]) -> None:
    splits[2].unlink()
    with pytest.raises(OSError, match="split") as caught:
        Model(splits[0])
    assert "00003" in str(caught.value) or str(splits[0]) in str(caught.value)
    with pytest.raises(OSError):
        Model(splits)
    with pytest.raises(OSError):
        Model(splits[:2])


def test_load_splits_in_wrong_order_is_refused(splits: list[Path]) -> None:
    with pytest.raises(ModelFormatError):
        Model([splits[0], splits[2], splits[1], *splits[3:]])


def test_load_no_splits_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one path"):
        Model([])


# file objects


@pytest.mark.parametrize("buffering", [-1, 0])
def test_load_file_object(buffering: int, expected: np.ndarray) -> None:
    with data("llama.gguf").open("rb", buffering=buffering) as file, Model(file) as model:
        np.testing.assert_allclose(logits_of(model, TOKENS), expected, rtol=1e-4, atol=1e-4)
        assert model.path is None
        assert file.tell() == 0
        assert file.read(4) == b"GGUF"


def test_load_file_object_may_be_closed_afterwards(expected: np.ndarray) -> None:
    with data("llama.gguf").open("rb") as file:
        model = Model(file)
    with model:
        np.testing.assert_allclose(logits_of(model, TOKENS), expected, rtol=1e-4, atol=1e-4)


def test_load_file_object_leaves_no_descriptor_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with data("llama.gguf").open("rb") as file, Model(file):
            pass
        with Model(data("llama.gguf")):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("offset", [32, 4096, 5000 // 32 * 32])
def test_load_file_object_at_an_offset_or_refuse(tmp_path: Path, offset: int, expected: np.ndarray) -> None:
    path = tmp_path / "container.bin"
    path.write_bytes(b"x" * offset + data("llama.gguf").read_bytes())
    with path.open("rb") as file:
        file.seek(offset)
        with Model(file) as model:
            np.testing.assert_allclose(logits_of(model, TOKENS), expected, rtol=1e-4, atol=1e-4)
        assert file.tell() == offset


@pytest.mark.parametrize("position", [1, 7])
def test_load_file_object_where_no_gguf_begins_is_refused(position: int) -> None:
    with data("llama.gguf").open("rb") as file:
        file.seek(position)
        with pytest.raises(ModelFormatError, match=f"position {position}"):
            Model(file)
        assert file.tell() == position


def test_load_from_pipe_is_refused() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"GGUF" + bytes(60))
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as file, pytest.raises(OSError):
        Model(file)


@pytest.mark.parametrize("source", [io.BytesIO(b"GGUF"), io.StringIO("GGUF")])
def test_load_from_memory_file_is_refused(source: Any) -> None:
    with pytest.raises(OSError):
        Model(source)


def test_load_from_closed_or_write_only_file_is_refused(tmp_path: Path) -> None:
    with data("llama.gguf").open("rb") as file:
        pass
    with pytest.raises((ValueError, OSError)):
        Model(file)
    with (tmp_path / "new.gguf").open("wb") as file, pytest.raises((ValueError, OSError)):
        Model(file)


@pytest.mark.parametrize("source", [None, 5, 1.5, object()])
def test_load_from_something_else_raises_type_error(source: Any) -> None:
    with pytest.raises(TypeError):
        Model(source)


@pytest.mark.parametrize("source", ["a\0b.gguf", b"a\0b.gguf", ["a\0b.gguf"]])
def test_load_path_with_nul_is_refused(source: Any) -> None:
    with pytest.raises((ValueError, FileNotFoundError)):
        Model(source)


# from metadata and data of the caller


def _user_source(path: Path) -> tuple[Gguf, dict[str, np.ndarray]]:
    tensors = {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}
    return Gguf(path), tensors


def test_load_from_user_gives_reference_logits(expected: np.ndarray) -> None:
    metadata, tensors = _user_source(data("llama.gguf"))
    asked: dict[str, tuple[Any, tuple[int, ...]]] = {}

    def set_tensor(name: str, kind: GgmlType, shape: tuple[int, ...]) -> Any:
        asked[name] = (kind, shape)
        if name in tensors:
            return np.ascontiguousarray(tensors[name], dtype=np.float32)
        # tensors that the architecture may have are asked for too: those that change nothing
        return np.zeros(shape, np.float32) if name.endswith("bias") else np.ones(shape, np.float32)

    with metadata, Model(metadata, set_tensor=set_tensor) as model:
        np.testing.assert_allclose(logits_of(model, TOKENS), expected, rtol=1e-4, atol=1e-4)
        assert model.path is None
    assert set(asked) >= set(tensors)
    assert {name: shape for name, (_, shape) in asked.items() if name in tensors} == {
        name: tensor.shape for name, tensor in tensors.items()
    }
    assert all(isinstance(kind, GgmlType) for kind, _ in asked.values())


def test_load_from_user_exception_of_callback_comes_through() -> None:
    metadata, _ = _user_source(data("llama.gguf"))

    def set_tensor(name: str, kind: GgmlType, shape: tuple[int, ...]) -> Any:
        raise KeyError(name)

    with metadata, pytest.raises(KeyError):
        Model(metadata, set_tensor=set_tensor)


@pytest.mark.parametrize("value", [b"", b"too short", None, 5, np.zeros((2, 2), dtype=np.float32)[:, ::2]])
def test_load_from_user_wrong_data_raises(value: Any) -> None:
    metadata, _ = _user_source(data("llama.gguf"))
    with metadata, pytest.raises((ValueError, TypeError, BufferError)):
        Model(metadata, set_tensor=lambda *_: value)


def test_load_from_user_needs_both_parts() -> None:
    with Gguf(data("llama.gguf")) as metadata, pytest.raises(TypeError, match="go together"):
        Model(metadata)
    with pytest.raises(TypeError, match="go together"):
        Model(data("llama.gguf"), set_tensor=lambda *_: b"")


def test_load_from_user_with_metadata_alone_missing_keys_is_refused() -> None:
    with Gguf() as metadata, pytest.raises(OSError):
        Model(metadata, set_tensor=lambda *_: b"")


# progress


def test_progress_rises_to_one() -> None:
    seen: list[float] = []
    with Model(data("target.gguf"), progress_callback=lambda value: seen.append(value)):
        pass
    assert seen
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert all(0 <= value <= 1 for value in seen)


@pytest.mark.parametrize("result", [True, None, 0, "", []])
def test_progress_goes_on_unless_false(result: Any) -> None:
    with Model(data("llama.gguf"), progress_callback=lambda _: result) as model:
        assert model.architecture == "llama"


def test_progress_false_cancels_with_typed_error() -> None:
    calls = []

    def progress(value: float) -> bool:
        calls.append(value)
        return False

    with pytest.raises(LoadCancelledError, match=r"llama\.gguf"):
        Model(data("llama.gguf"), progress_callback=progress)
    assert len(calls) == 1


def test_progress_exception_comes_through_as_it_is() -> None:
    error = RuntimeError("mine")

    def progress(value: float) -> bool:
        raise error

    with pytest.raises(RuntimeError) as caught:
        Model(data("llama.gguf"), progress_callback=progress)
    assert caught.value is error
    with Model(data("llama.gguf")) as model:  # nothing is left of it
        assert model.architecture == "llama"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_progress_base_exception_comes_through(error: type[BaseException]) -> None:
    def progress(value: float) -> bool:
        raise error

    with pytest.raises(error):
        Model(data("llama.gguf"), progress_callback=progress)


def test_progress_not_callable_is_refused() -> None:
    with pytest.raises(TypeError, match="progress_callback"):
        Model(data("llama.gguf"), progress_callback=5)


def test_progress_may_load_another_model() -> None:
    inner: list[str] = []

    def progress(value: float) -> None:
        if not inner:
            with Model(data("target.gguf")) as model:
                inner.append(model.architecture)

    with Model(data("llama.gguf"), progress_callback=progress) as model:
        assert model.architecture == "llama"
    assert inner == ["qwen3"]


def test_progress_is_called_on_loading_thread_and_gil_is_free_meanwhile() -> None:
    names: set[str] = set()
    done = threading.Event()

    def work() -> None:
        with Model(data("llama.gguf"), progress_callback=lambda _: names.add(threading.current_thread().name)):
            done.set()

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    assert done.wait(30)
    thread.join()
    assert names == {"loader"}


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_during_load_raises_keyboard_interrupt() -> None:
    # the signal arrives while native code loads; it is noticed when progress is reported
    def progress(value: float) -> None:
        if not sent:
            sent.append(value)
            signal.raise_signal(signal.SIGINT)

    sent: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        Model(data("llama.gguf"), progress_callback=progress)
    with Model(data("llama.gguf")) as model:
        assert model.architecture == "llama"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_from_outside_during_load_raises_keyboard_interrupt(tmp_path: Path) -> None:
    shape = models.LlamaShape(n_vocab=20_000, n_layer=40, n_embd=256, n_ff=1024)
    path = models.write_llama(tmp_path / "large.gguf", shape)
    done = run_python(
        f"""
import os, signal, threading
from llamacy.core.model import Model
started = threading.Event()
def kill():
    started.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=kill).start()
seen = []
try:
    while True:
        Model({str(path)!r}, load_mode=0, progress_callback=lambda value: (seen.append(value), started.set()) and None)
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    assert done.stdout == "interrupted\n"


def test_two_threads_load_at_once() -> None:
    results: list[str] = []

    def work(name: str) -> None:
        for _ in range(3):
            with Model(data(name)) as model:
                results.append(model.architecture)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("llama.gguf", "target.gguf", "mamba.gguf")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["llama"] * 3 + ["mamba"] * 3 + ["qwen3"] * 3


def test_load_moves_expert_tensors_and_overrides_by_name(make_model: Callable[..., Model]) -> None:
    model = make_model("llama.gguf", cpu_moe=True, n_cpu_moe=1, tensor_buft_overrides={r"ffn_.*": "CPU"})
    np.testing.assert_allclose(
        logits_of(model, TOKENS), Reference(data("llama.gguf")).logits(TOKENS)[-1], rtol=1e-4, atol=1e-4
    )
