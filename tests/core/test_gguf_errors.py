"""Nothing that a file or a caller says to Gguf may do harm; without the checks, most of these end the process."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.gguf import Gguf
from llamacy.errors import ClosedError, GgufError
from llamacy.types import GgmlType, GgufType
from tests.helpers import data


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def header(n_tensors: int = 0, n_keys: int = 0, *, magic: bytes = b"GGUF", version: int = 3) -> bytes:
    return magic + struct.pack("<IQQ", version, n_tensors, n_keys)


def tensor(name: str, ne: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, offset)


DAMAGED = {
    "empty": b"",
    "short": b"GG",
    "magic": header(magic=b"GGML"),
    "version 0": header(version=0),
    "version 1": header(version=1),
    "version 9": header(version=9),
    "other byte order": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "no counts": b"GGUF" + struct.pack("<I", 3),
    "absurd key count": header(n_keys=2**62),
    "negative key count": header(n_keys=2**64 - 1),
    "absurd tensor count": header(n_tensors=2**62),
    "negative tensor count": header(n_tensors=2**64 - 1),
    "absurd key length": header(n_keys=1) + struct.pack("<Q", 2**62),
    "empty key": header(n_keys=1) + text("") + struct.pack("<II", 4, 1),
    "unknown type": header(n_keys=1) + text("k") + struct.pack("<II", 99, 0),
    "array of arrays": header(n_keys=1) + text("k") + struct.pack("<IIQ", 9, 9, 1),
    "absurd array length": header(n_keys=1) + text("k") + struct.pack("<IIQ", 9, 0, 2**63),
    "absurd string length": header(n_keys=1) + text("k") + struct.pack("<IQ", 8, 2**40),
    "absurd string in array": header(n_keys=1) + text("k") + struct.pack("<IIQQ", 9, 8, 1, 2**60),
    "two keys of one name": header(n_keys=2) + 2 * (text("k") + struct.pack("<II", 4, 1)),
    "two keys that differ after NUL": header(n_keys=2)
    + text("k\0a")
    + struct.pack("<II", 4, 1)
    + text("k\0b")
    + struct.pack("<II", 4, 1),
    "alignment 0": header(n_keys=1) + text("general.alignment") + struct.pack("<II", 4, 0),
    "alignment 3": header(n_keys=1) + text("general.alignment") + struct.pack("<II", 4, 3),
    "alignment of another type": header(n_keys=1) + text("general.alignment") + struct.pack("<IQ", 10, 32),
    "alignment beyond the end": header(1, 1)
    + text("general.alignment")
    + struct.pack("<II", 4, 2**31)
    + tensor("t", [1])
    + bytes(64),
    "five dimensions": header(1) + tensor("t", [1, 1, 1, 1, 1]) + bytes(64),
    "negative dimension": header(1) + tensor("t", [2**64 - 1]) + bytes(64),
    "overflowing dimensions": header(1) + tensor("t", [2**40, 2**40]) + bytes(64),
    "overflowing size": header(1) + tensor("t", [2**62], kind=28) + bytes(64),
    "unknown tensor type": header(1) + tensor("t", [1], kind=4242) + bytes(64),
    "removed tensor type": header(1) + tensor("t", [32], kind=4) + bytes(64),
    "row of a part of a block": header(1) + tensor("t", [31], kind=8) + bytes(64),
    "long tensor name": header(1) + tensor("t" * 64, [1]) + bytes(64),
    "two tensors of one name": header(2) + tensor("t", [8]) + tensor("t", [8], offset=32) + bytes(128),
    "two tensors that differ after NUL": header(2) + tensor("t\0a", [8]) + tensor("t\0b", [8], offset=32) + bytes(128),
    "tensor at a wrong offset": header(1) + tensor("t", [8], offset=64) + bytes(256),
    "data cut short": header(1) + tensor("t", [64]) + bytes(128),
    "no data": header(1) + tensor("t", [64]),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_file_raises_gguf_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError):
        Gguf(path)
    with pytest.raises(GgufError):
        Gguf(data=content)


def test_file_cut_at_any_place_raises_gguf_error() -> None:
    content = data("llama.gguf").read_bytes()
    with Gguf(data=content) as gguf:
        begin = gguf.data_offset
    for end in [*range(0, begin, max(1, begin // 400)), begin, (begin + len(content)) // 2, len(content) - 1]:
        with pytest.raises(GgufError):
            Gguf(data=content[:end])


def test_open_of_missing_file_raises_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Gguf(tmp_path / "missing.gguf")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(IsADirectoryError):
        Gguf(tmp_path)


def test_unknown_key_and_tensor_raise_key_error() -> None:
    with Gguf(data("llama.gguf")) as gguf:
        for key in ("nothing", "", "a\0b", 5):
            with pytest.raises(KeyError):
                gguf.metadata[key]
            assert key not in gguf.metadata
        with pytest.raises(KeyError):
            gguf.tensors["nothing"]
        with pytest.raises(KeyError):
            gguf.tensor_data("nothing")
        with pytest.raises(KeyError):
            del gguf.metadata["nothing"]
        with pytest.raises(KeyError):
            gguf.metadata.type("nothing")


@pytest.mark.parametrize(
    ("key", "value", "kind", "error"),
    [
        ("", 1, None, ValueError),
        ("a\0b", 1, None, ValueError),
        (5, 1, None, TypeError),
        ("k", None, None, TypeError),
        ("k", object(), None, TypeError),
        ("k", "a\0b", None, ValueError),
        ("k", ["a", "b\0"], None, ValueError),
        ("k", ["a", 1], None, TypeError),
        ("k", [True, 1.0, "x"], None, TypeError),
        ("k", [[1], [2]], None, TypeError),
        ("k", [], None, ValueError),
        ("k", 300, GgufType.UINT8, ValueError),
        ("k", -1, GgufType.UINT32, ValueError),
        ("k", 2**64, None, ValueError),
        ("k", [2**64], None, ValueError),
        ("k", 1.5, GgufType.INT32, TypeError),
        ("k", "1", GgufType.INT32, TypeError),
        ("k", 1, GgufType.STRING, TypeError),
        ("k", 1e300, GgufType.FLOAT32, ValueError),
        ("k", 1, GgufType.ARRAY, ValueError),
        ("k", 1, 99, ValueError),
        ("k", [1, "a"], GgufType.INT32, TypeError),
        ("k", [1, 2], GgufType.STRING, TypeError),
        ("k", np.zeros((2, 2), dtype=np.int32), None, TypeError),
        ("k", np.zeros(4, dtype=np.int32)[::2], None, TypeError),
        ("k", np.zeros(4, dtype=np.complex64), None, TypeError),
        ("general.alignment", 3, None, ValueError),
        ("general.alignment", 0, None, ValueError),
        ("general.alignment", 2**32, None, ValueError),
        ("general.alignment", 32, GgufType.UINT64, TypeError),
        ("general.alignment", "32", None, TypeError),
        ("general.alignment", 32.0, None, TypeError),
        ("general.alignment", True, None, TypeError),
        ("general.alignment", [32], None, TypeError),
    ],
)
def test_set_of_wrong_value_raises_and_changes_nothing(key: Any, value: Any, kind: Any, error: Any) -> None:
    with Gguf() as gguf:
        gguf.metadata["k"] = 7
        with pytest.raises(error):
            gguf.metadata.set(key, value, kind)
        assert dict(gguf.metadata) == {"k": 7}


def test_alignment_can_not_change_under_tensors() -> None:
    with Gguf() as gguf:
        gguf.metadata["general.alignment"] = 64
        gguf.add_tensor("t", np.zeros(4, dtype=np.float32))
        with pytest.raises(GgufError, match="before tensors"):
            gguf.metadata["general.alignment"] = 128
        with pytest.raises(GgufError, match="before tensors"):
            del gguf.metadata["general.alignment"]
        gguf.metadata["general.alignment"] = 64
        assert gguf.alignment == 64


@pytest.mark.parametrize(
    ("name", "values", "options", "error"),
    [
        ("", np.zeros(4, np.float32), {}, ValueError),
        ("a\0b", np.zeros(4, np.float32), {}, ValueError),
        ("n" * 64, np.zeros(4, np.float32), {}, ValueError),
        (5, np.zeros(4, np.float32), {}, TypeError),
        ("taken", np.zeros(4, np.float32), {}, ValueError),
        ("t", 5, {}, TypeError),
        ("t", np.zeros(4, np.uint8), {}, TypeError),
        ("t", np.zeros(4, np.complex64), {}, TypeError),
        ("t", np.zeros((4, 4), np.float32)[:, ::2], {}, ValueError),
        ("t", np.zeros((2, 2, 2, 2, 2), np.float32), {}, ValueError),
        ("t", np.zeros(0, np.float32), {}, ValueError),
        ("t", np.zeros((2, 33), np.uint8), {"type": GgmlType.Q8_0}, ValueError),
        ("t", np.zeros(34, np.uint8), {"type": GgmlType.Q8_0, "shape": (31,)}, ValueError),
        ("t", np.zeros(34, np.uint8), {"type": GgmlType.Q8_0, "shape": (64,)}, ValueError),
        ("t", np.zeros(4, np.float32), {"shape": (5,)}, ValueError),
        ("t", np.zeros(4, np.float32), {"shape": (-1, -4)}, ValueError),
        ("t", np.zeros(4, np.float32), {"shape": (2**62, 4)}, ValueError),
        ("t", np.zeros(4, np.float32), {"type": GgmlType.F16}, ValueError),
        ("t", np.zeros(4, np.float32), {"type": 4}, ValueError),
    ],
)
def test_add_of_wrong_tensor_raises_and_adds_nothing(name: Any, values: Any, options: Any, error: Any) -> None:
    with Gguf() as gguf:
        gguf.add_tensor("taken", np.zeros(4, np.float32))
        with pytest.raises(error):
            gguf.add_tensor(name, values, **options)
        assert list(gguf.tensors) == ["taken"]


def test_path_and_data_together_raise() -> None:
    with pytest.raises(TypeError):
        Gguf(data("llama.gguf"), data=b"")
    with pytest.raises(ValueError, match="contiguous"):
        Gguf(data=np.zeros(64, np.uint8)[::2])


def test_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    with Gguf(data("llama.gguf")) as gguf:
        with pytest.raises(FileNotFoundError) as caught:
            gguf.write(tmp_path / "no" / "where.gguf")
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(IsADirectoryError):
            gguf.write(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="special files of Unix")
def test_write_over_special_file_raises_and_leaves_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with Gguf(data("llama.gguf")) as gguf, pytest.raises(OSError, match="regular file"):
        gguf.write(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs symbolic links")
def test_write_over_link_replaces_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    with Gguf(data("llama.gguf")) as gguf:
        gguf.write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_bytes() == data("llama.gguf").read_bytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="file size limits are of Unix")
def test_write_without_space_raises_os_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    from tests.helpers.process import run_python

    path = tmp_path / "old.gguf"
    path.write_bytes(b"old")
    run_python(
        """
        import errno, resource, sys
        from llamacy.core.gguf import Gguf
        gguf = Gguf(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            gguf.write(sys.argv[2])
        except OSError as error:
            assert error.errno == errno.EFBIG, error
        else:
            raise SystemExit("no error")
        """.replace("\n        ", "\n"),
        str(data("llama.gguf")),
        str(path),
    )
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_closed_gguf_raises_closed_error() -> None:
    gguf = Gguf(data("llama.gguf"))
    metadata, tensors = gguf.metadata, gguf.tensors
    gguf.close()
    for use in (
        lambda: gguf.metadata,
        lambda: gguf.tensors,
        lambda: gguf.version,
        lambda: gguf.tensor_data("token_embd.weight"),
        lambda: gguf.add_tensor("t", np.zeros(1, np.float32)),
        lambda: gguf.write("nowhere"),
        lambda: metadata["general.name"],
        lambda: metadata.set("a", 1),
        lambda: list(metadata),
        lambda: len(tensors),
        lambda: tensors["token_embd.weight"],
        gguf.__enter__,
    ):
        with pytest.raises(ClosedError):
            use()
