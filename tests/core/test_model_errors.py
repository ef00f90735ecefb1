"""Model: files that are no models, or not whole."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy.core.model import Model
from llamacy.errors import (
    ClosedError,
    LlamacyError,
    ModelFormatError,
    ModelLoadError,
    ModelNotFoundError,
)
from llamacy.types import LoadMode
from tests.helpers import data, models


@pytest.mark.parametrize("path", ["nowhere.gguf", "no/such/folder/x.gguf", "", "\n"])
def test_missing_file_raises_not_found_with_path(path: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        Model(path)
    assert repr(path) in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, LlamacyError)


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="not a file"):
        Model(tmp_path)


def test_device_file_is_refused() -> None:
    with pytest.raises(ModelLoadError):
        Model("/dev/null")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"G",
        b"GGU",
        b"GGUF",
        b"GGUF\3\0\0\0",
        b"PK\3\4" + bytes(100),
        b"\x7fELF" + bytes(100),
        b"GGUF" + b"\xff" * 60,
    ],
)
def test_foreign_or_empty_file_raises_format_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError) as caught:
        Model(path)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, ValueError)


def test_unreadable_file_raises_os_error(tmp_path: Path) -> None:
    import os

    path = tmp_path / "secret.gguf"
    path.write_bytes(data("llama.gguf").read_bytes())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(PermissionError):
        Model(path)


def test_truncated_file_raises_at_every_length(tmp_path: Path) -> None:
    whole = data("llama.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    rng = random.Random(1)
    lengths = [4, 8, 16, 24, 25, 100, 1000, 5000, len(whole) - 1, len(whole) - 32, len(whole) // 2]
    lengths += [rng.randrange(4, len(whole)) for _ in range(20)]
    for length in lengths:
        path.write_bytes(whole[:length])
        with pytest.raises(ModelLoadError):
            Model(path)


def test_truncated_file_error_has_native_log_lines(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(data("llama.gguf").read_bytes()[:200_000])
    with pytest.raises(ModelFormatError) as caught:
        Model(path)
    assert caught.value.log
    assert all(isinstance(line, str) and line for line in caught.value.log)
    assert "native log" in str(caught.value)
    # what is said belongs to this failure
    assert any("file" in line or "tensor" in line or "data" in line for line in caught.value.log)


def test_log_of_one_failure_is_not_in_the_next(tmp_path: Path) -> None:
    for name in ("first", "second"):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(data("llama.gguf").read_bytes()[:200_000])
    with pytest.raises(ModelFormatError):
        Model(tmp_path / "first.gguf")
    with pytest.raises(ModelFormatError) as caught:
        Model(tmp_path / "second.gguf")
    assert not any("first" in line for line in caught.value.log)


def test_flipped_bytes_of_the_header_never_crash(tmp_path: Path) -> None:
    whole = bytearray(data("llama.gguf").read_bytes())
    path = tmp_path / "flipped.gguf"
    rng = random.Random(2)
    for _ in range(60):
        changed = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(4, 1400)] = rng.randrange(256)
        path.write_bytes(changed)
        with contextlib.suppress(ModelLoadError, MemoryError):
            Model(path).close()


def _write(path: Path, **changes: Any) -> Path:
    """Write the tiny llama with something about it changed."""
    shape = models.LlamaShape(n_vocab=288)
    writer = models._llama_writer(path, shape)
    if "architecture" in changes:
        writer = gguf.GGUFWriter(path, changes["architecture"])
    tensors = models.llama_tensors(shape)
    tensors.update(changes.get("add", {}))
    for name in changes.get("remove", ()):
        del tensors[name]
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    models._finish(writer)
    return path


def test_unknown_architecture_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError) as caught:
        Model(_write(tmp_path / "m.gguf", architecture="nonesuch"))
    assert "nonesuch" in str(caught.value)


def test_missing_tensor_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError) as caught:
        Model(_write(tmp_path / "m.gguf", remove=["blk.0.attn_k.weight"]))
    assert "blk.0.attn_k.weight" in str(caught.value)


def test_extra_tensor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError):
        Model(_write(tmp_path / "m.gguf", add={"blk.0.more.weight": np.zeros(4, dtype=np.float32)}))


def test_tensor_of_wrong_shape_is_refused_with_its_name(tmp_path: Path) -> None:
    wrong = {"output_norm.weight": np.ones(63, dtype=np.float32)}
    with pytest.raises(ModelFormatError) as caught:
        Model(_write(tmp_path / "m.gguf", add=wrong))
    assert "output_norm.weight" in str(caught.value)


def test_adapter_is_refused_as_model(lora_path: Path, control_vector_path: Path) -> None:
    for path in (lora_path, control_vector_path):
        with pytest.raises(ModelFormatError):
            Model(path)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("no_such_option", 1, TypeError),
        ("n_gpu_layers", "many", ValueError),
        ("n_gpu_layers", 1.5, TypeError),
        ("main_gpu", -1, ValueError),
        ("split_mode", 99, ValueError),
        ("load_mode", "no such mode", (ValueError, TypeError)),
        ("tensor_split", [float("nan")], ValueError),
        ("tensor_split", [1.0] * 1000, ValueError),
        ("kv_overrides", {"k" * 128: 1}, ValueError),
        ("kv_overrides", {"key": "v" * 128}, ValueError),
        ("kv_overrides", {"key": None}, TypeError),
        ("kv_overrides", {"": 1}, ValueError),
        ("kv_overrides", {"a\0b": 1}, ValueError),
        ("devices", ["no such device"], LlamacyError),
        ("tensor_buft_overrides", {"x": "no such buffer"}, LlamacyError),
        ("n_cpu_moe", -1, ValueError),
    ],
)
def test_wrong_option_raises_before_anything_is_loaded(option: str, value: Any, error: Any) -> None:
    with pytest.raises(error):
        Model(data("llama.gguf"), **{option: value})


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{2,1}"])
def test_invalid_regular_expression_over_tensor_names_raises(pattern: str) -> None:
    # std::regex throws inside the loader
    with pytest.raises((ValueError, ModelLoadError)):
        Model(data("llama.gguf"), tensor_buft_overrides={pattern: "CPU"})


def _use(model: Model, name: str) -> None:
    value = getattr(model, name)
    if callable(value):
        value(*(("/nowhere.gguf",) if name == "save" else ()))


def test_every_use_after_close_raises_closed_error() -> None:
    model = Model(data("llama.gguf"))
    model.close()
    model.close()
    assert model.closed
    for name in dir(type(model)):
        if name.startswith("_") or name in ("close", "closed", "params", "path", "architecture", "vocab_only"):
            continue
        with pytest.raises(ClosedError):
            _use(model, name)


def test_model_made_without_arguments_raises() -> None:
    with pytest.raises(TypeError):
        Model()
    with pytest.raises(TypeError):
        Model.__new__(Model)


@pytest.mark.parametrize("source", [None, 5, [1.5]])
def test_source_that_is_none_says_what_it_may_be(source: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(f"an open file or a Gguf, not {source!r}")):
        Model(source)


def test_no_alloc_model_gives_sizes_but_no_context() -> None:
    from llamacy.core.context import Context
    from llamacy.errors import ContextCreateError

    with pytest.raises(ValueError, match="load_mode"):
        Model(data("llama.gguf"), no_alloc=True, load_mode=LoadMode.MMAP)
    with Model(data("llama.gguf"), no_alloc=True) as model:
        assert model.n_params > 0
        with pytest.raises(ContextCreateError, match="no_alloc"):
            Context(model)
        with pytest.raises(ModelFormatError):
            model.token_embeddings()


def test_vocab_only_model_gives_no_context() -> None:
    from llamacy.core.context import Context
    from llamacy.errors import ContextCreateError

    with Model(data("llama.gguf"), vocab_only=True) as model:
        with pytest.raises(ContextCreateError, match="vocab_only"):
            Context(model)
        with pytest.raises(ModelFormatError):
            model.token_embeddings()
