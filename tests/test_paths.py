"""Names that no file can have: whoever takes a path says so with the error that it has for files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llamacy import Batch, Embedding, Gguf, Grammar, Llama, LoraAdapter, Model, quantize
from llamacy._paths import file_name
from llamacy.checkpoint import DiskStore
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.core.control_vector import ControlVector
from llamacy.errors import (
    AdapterError,
    CheckpointError,
    CorruptCheckpointError,
    LlamacyError,
    ModelNotFoundError,
    ModelSaveError,
    StateError,
)
from tests.helpers import data

# what Python's own functions refuse with ValueError: a NUL character, and a character that UTF-8 has no bytes for
NAMES = ["a\0b.gguf", b"a\0b.gguf", Path("a\0b.gguf"), "folder\0/model.gguf", "a\ud800.gguf"]

Call = Callable[..., object]

READERS: dict[str, tuple[Call, type[Exception]]] = {
    "Model": (lambda path, **_: Model(path), ModelNotFoundError),
    "Model of several files": (lambda path, **_: Model([path, path]), ModelNotFoundError),
    "Llama": (lambda path, **_: Llama(path), ModelNotFoundError),
    "Embedding": (lambda path, **_: Embedding(path), ModelNotFoundError),
    "quantize": (lambda path, tmp, **_: quantize(path, tmp / "to.gguf", "Q8_0"), ModelNotFoundError),
    "Gguf": (lambda path, **_: Gguf(path), OSError),
    "imatrix": (
        lambda path, tmp, **_: quantize(data("llama.gguf"), tmp / "to.gguf", "Q8_0", imatrix=path),
        OSError,
    ),
    "LoraAdapter": (lambda path, model, **_: LoraAdapter(model, path), AdapterError),
    "ControlVector": (lambda path, **_: ControlVector.from_gguf(path), AdapterError),
    "Grammar": (lambda path, **_: Grammar.from_file(path), OSError),
    "Snapshot": (lambda path, **_: Snapshot.load(path), CorruptCheckpointError),
    "state": (lambda path, context, **_: context.state.load_file(path, 16), StateError),
    "state of a sequence": (lambda path, context, **_: context.state.seq_load_file(path, 0, 16), StateError),
}

WRITERS: dict[str, tuple[Call, type[Exception]]] = {
    "Model": (lambda path, model, **_: model.save(path), ModelSaveError),
    "Model that was not repacked": (lambda path, plain, **_: plain.save(path), ModelSaveError),
    "Gguf": (lambda path, **_: Gguf().write(path), OSError),
    "quantize": (lambda path, **_: quantize(data("llama.gguf"), path, "Q8_0"), OSError),
    "quantize in parts": (
        lambda path, **_: quantize(data("llama.gguf"), path, "Q8_0", keep_split=True),
        OSError,
    ),
    "DiskStore": (lambda path, **_: DiskStore(path), CheckpointError),
    "state": (lambda path, context, **_: context.state.save_file(path, [1]), StateError),
    "state of a sequence": (lambda path, context, **_: context.state.seq_save_file(path, 0, [1]), StateError),
}


@pytest.fixture
def objects(llama_model, make_model, make_context, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context = make_context(llama_model, n_ctx=64)
    with Batch(4) as batch:
        batch.extend([1, 2, 3], 0)
        context.decode(batch)
    plain = make_model(use_extra_bufts=False)
    return {"model": llama_model, "plain": plain, "context": context, "tmp": tmp_path}


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(("call", "error"), READERS.values(), ids=READERS)
def test_reading_from_a_name_that_no_file_has_raises(objects, call, error, name):
    with pytest.raises(error) as raised:
        call(name, **objects)
    assert isinstance(raised.value, OSError | LlamacyError)
    assert repr(os.fsdecode(name)) in str(raised.value)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(("call", "error"), WRITERS.values(), ids=WRITERS)
def test_writing_to_a_name_that_no_file_can_have_raises_and_leaves_nothing(objects, call, error, name):
    with pytest.raises(error) as raised:
        call(name, **objects)
    assert isinstance(raised.value, OSError | LlamacyError)
    assert repr(os.fsdecode(name)) in str(raised.value)
    assert not list(objects["tmp"].iterdir())


@pytest.mark.parametrize("name", ["a", b"a", Path("a"), "ä \n.gguf", os.fsdecode(b"\xff.gguf")], ids=ascii)
def test_name_that_a_file_can_have_is_given_back(tmp_path, name):
    (tmp_path / os.fsdecode(name)).write_bytes(b"x")
    assert (tmp_path / file_name(name)).read_bytes() == b"x"


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_name_that_no_file_can_have_is_no_argument_for_the_system(name):
    with pytest.raises(OSError, match="No file can have this name") as raised:
        file_name(name)
    assert raised.value.errno == errno.EINVAL
    assert raised.value.filename == os.fsdecode(name)


@pytest.mark.parametrize("wrong", [None, 1, ["a"]])
def test_something_else_than_a_path_raises(wrong):
    with pytest.raises(TypeError):
        file_name(wrong)
