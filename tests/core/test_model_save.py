"""Model.save: what is written is what was loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from llamacy.core.model import Model
from llamacy.errors import ModelSaveError
from tests.helpers import data
from tests.helpers.compute import logits_of
from tests.helpers.gguf_metadata import read_metadata

TOKENS = [1, 260, 268, 265, 272, 272, 275]


@pytest.mark.parametrize("name", ["llama.gguf", "target.gguf", "gemma3.gguf"])
def test_saved_model_equals_loaded_one(tmp_path: Path, name: str, make_model: Callable[..., Model]) -> None:
    model = make_model(name)
    path = tmp_path / "größe saved.gguf"
    model.save(path)
    assert os.listdir(tmp_path) == [path.name]
    originals = {tensor.name: tensor for tensor in gguf.GGUFReader(data(name)).tensors}
    saved = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert set(saved) == set(originals)
    for tensor_name, tensor in saved.items():
        assert tensor.tensor_type == originals[tensor_name].tensor_type
        np.testing.assert_array_equal(tensor.data, originals[tensor_name].data)
    reloaded = make_model(path)
    np.testing.assert_array_equal(logits_of(reloaded, TOKENS), logits_of(model, TOKENS))
    assert read_metadata(path)["tokenizer.ggml.tokens"] == read_metadata(data(name))["tokenizer.ggml.tokens"]
    assert list(reloaded.vocab.tokenize("hello world.")) == list(model.vocab.tokenize("hello world."))


def test_save_replaces_an_existing_file_as_a_whole(tmp_path: Path, llama_model: Model) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"old")
    llama_model.save(path)
    with Model(path) as model:
        assert model.n_params == llama_model.n_params


@pytest.mark.parametrize("kind", [str, os.fsencode])
def test_save_takes_paths_of_any_kind(tmp_path: Path, llama_model: Model, kind: Callable[[Path], object]) -> None:
    llama_model.save(kind(tmp_path / "model.gguf"))
    assert (tmp_path / "model.gguf").stat().st_size > 400_000


@pytest.mark.parametrize("path", ["no/such/folder/model.gguf", "/dev/null/model.gguf"])
def test_save_to_impossible_path_raises_os_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llama_model: Model, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError):
        llama_model.save(path)
    assert os.listdir(tmp_path) == []


def test_save_onto_a_folder_raises_and_leaves_nothing(tmp_path: Path, llama_model: Model) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError):
        llama_model.save(folder)
    assert os.listdir(tmp_path) == ["folder"]


def test_save_does_not_replace_what_is_no_file(tmp_path: Path, llama_model: Model) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="regular"):
        llama_model.save(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_save_where_the_disk_is_full_raises(tmp_path: Path, llama_model: Model) -> None:
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(ModelSaveError):
            llama_model.save(tmp_path / "model.gguf")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == []


def test_save_of_architecture_that_llama_cpp_can_not_write_raises(
    tmp_path: Path, t5_path: Path, make_model: Callable[..., Model]
) -> None:
    # llama_model_saver asserts
    model = make_model(t5_path)
    with pytest.raises(ModelSaveError, match="t5"):
        model.save(tmp_path / "t5.gguf")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("option", ["vocab_only", "no_alloc"])
def test_save_without_weights_raises(tmp_path: Path, option: str, make_model: Callable[..., Model]) -> None:
    model = make_model("llama.gguf", **{option: True})
    with pytest.raises(ModelSaveError, match="weights"):
        model.save(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    "name", ["mamba.gguf", "mamba2.gguf", "rwkv7.gguf", "qwen35.gguf", "eagle3.gguf", "dflash.gguf"]
)
def test_save_of_any_architecture_works_or_raises(tmp_path: Path, name: str, make_model: Callable[..., Model]) -> None:
    model = make_model(name)
    path = tmp_path / "m.gguf"
    try:
        model.save(path)
    except ModelSaveError:
        assert os.listdir(tmp_path) == []
        return
    assert make_model(path).n_params == model.n_params
