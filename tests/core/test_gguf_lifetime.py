"""Views of a Gguf keep it alive, and it does not let go of memory that they look into."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from llamacy.core._handle import live_handles
from llamacy.core.gguf import Gguf
from llamacy.core.gguf_values import ArrayExport
from llamacy.errors import GgufError
from tests.helpers import data


def test_close_with_live_tensor_view_raises_and_keeps_all() -> None:
    gguf = Gguf(data("llama.gguf"))
    view = np.asarray(gguf.tensor_data("output_norm.weight"))
    before = view.copy()
    with pytest.raises(BufferError):
        gguf.close()
    assert not gguf.closed
    np.testing.assert_array_equal(view, before)
    del view
    gguf.close()
    gguf.close()
    assert gguf.closed


def test_close_and_change_with_live_array_raise() -> None:
    gguf = Gguf(data("target.gguf"))
    scores = gguf.metadata["tokenizer.ggml.scores"]
    part = scores[3:5]
    scores.release()
    for change in (
        gguf.close,
        lambda: gguf.metadata.set("new", 1),
        lambda: gguf.metadata.pop("general.name"),
        lambda: gguf.metadata.clear(),
    ):
        with pytest.raises(BufferError):
            change()
    part.release()
    gguf.metadata["new"] = 1
    gguf.close()


def test_view_outlives_the_name_of_its_gguf() -> None:
    gguf = Gguf(data("llama.gguf"))
    expected = bytes(gguf.tensor_data("output_norm.weight"))
    view = np.asarray(gguf.tensor_data("output_norm.weight"))
    alive = weakref.ref(gguf)
    del gguf
    gc.collect()
    assert alive() is not None
    assert view.tobytes() == expected
    del view
    gc.collect()
    assert alive() is None


def test_added_data_is_held_and_locked_until_close() -> None:
    values = bytearray(16)
    with Gguf() as gguf:
        gguf.add_tensor("t", values, type=0, shape=(4,))
        with pytest.raises(BufferError):
            values.append(0)
        values[0] = 1
        assert bytes(gguf.tensor_data("t"))[0] == 1
    values.append(0)


def test_source_buffer_is_locked_until_close() -> None:
    content = bytearray(data("llama.gguf").read_bytes())
    with Gguf(data=content), pytest.raises(BufferError):
        content.clear()
    content.clear()


def test_handles_are_counted() -> None:
    before = live_handles()["gguf"]
    gguf = Gguf()
    assert live_handles()["gguf"] == before + 1
    gguf.close()
    assert live_handles()["gguf"] == before
    with pytest.raises(GgufError):
        Gguf(data=b"nothing of the kind")
    assert live_handles()["gguf"] == before


def test_gguf_in_cycle_with_view_is_collected() -> None:
    before = live_handles()["gguf"]
    gguf = Gguf(data("llama.gguf"))
    cycle = [gguf, gguf.tensor_data("output_norm.weight")]
    cycle.append(cycle)
    del gguf, cycle
    gc.collect()
    assert live_handles()["gguf"] == before


def test_file_is_unmapped_after_close(tmp_path: Path) -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    path = tmp_path / "mapped.gguf"
    path.write_bytes(data("llama.gguf").read_bytes())
    gguf = Gguf(path)
    assert str(path) in Path("/proc/self/maps").read_text()
    gguf.close()
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_opening_damaged_files_leaves_no_references(tmp_path: Path) -> None:
    content = data("llama.gguf").read_bytes()[:5000]
    before = sys.getrefcount(content)
    for _ in range(50):
        with pytest.raises(GgufError):
            Gguf(data=content)
    gc.collect()
    assert sys.getrefcount(content) == before


def test_exports_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError):
        ArrayExport()


def test_close_and_change_during_write_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write lets other threads run; here they come in when it syncs the file."""
    gguf = Gguf(data("llama.gguf"))
    caught: list[type[BaseException]] = []

    def interfere(fd: int) -> None:
        for change in (gguf.close, lambda: gguf.metadata.set("new", 1)):
            try:
                change()
            except BufferError as error:
                caught.append(type(error))

    monkeypatch.setattr("os.fsync", interfere)
    gguf.write(tmp_path / "copy.gguf")
    assert caught == [BufferError, BufferError]
    gguf.close()
    assert (tmp_path / "copy.gguf").read_bytes() == data("llama.gguf").read_bytes()


def test_close_during_load_from_metadata_raises() -> None:
    from llamacy.core.model import Model

    gguf = Gguf(data("llama.gguf"))
    caught: list[type[BaseException]] = []

    def set_tensor(name: str, kind: object, shape: tuple[int, ...]) -> np.ndarray:
        try:
            gguf.close()
        except BufferError as error:
            caught.append(type(error))
        return np.zeros(shape, np.float32)

    Model(gguf, set_tensor=set_tensor).close()
    assert set(caught) == {BufferError}
    gguf.close()
