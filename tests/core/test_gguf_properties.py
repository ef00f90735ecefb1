"""Random metadata comes back as it was, and random damage never does worse than an exception."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamacy.core.gguf import Gguf
from llamacy.core.gguf_header import GgufHeader
from llamacy.errors import GgufError
from llamacy.types import GgufType
from tests.helpers import data

RANGES = {
    GgufType.UINT8: (0, 2**8 - 1),
    GgufType.INT8: (-(2**7), 2**7 - 1),
    GgufType.UINT16: (0, 2**16 - 1),
    GgufType.INT16: (-(2**15), 2**15 - 1),
    GgufType.UINT32: (0, 2**32 - 1),
    GgufType.INT32: (-(2**31), 2**31 - 1),
    GgufType.UINT64: (0, 2**64 - 1),
    GgufType.INT64: (-(2**63), 2**63 - 1),
}
TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40)

scalars = st.one_of(
    *[st.tuples(st.just(kind), st.integers(low, high)) for kind, (low, high) in RANGES.items()],
    st.tuples(st.just(GgufType.FLOAT32), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(GgufType.FLOAT64), st.floats(allow_nan=False)),
    st.tuples(st.just(GgufType.BOOL), st.booleans()),
    st.tuples(st.just(GgufType.STRING), TEXT),
)
arrays = st.one_of(
    *[st.tuples(st.just(kind), st.lists(st.integers(low, high), max_size=9)) for kind, (low, high) in RANGES.items()],
    st.tuples(st.just(GgufType.FLOAT32), st.lists(st.floats(width=32, allow_nan=False), max_size=9)),
    st.tuples(st.just(GgufType.FLOAT64), st.lists(st.floats(allow_nan=False), max_size=9)),
    st.tuples(st.just(GgufType.BOOL), st.lists(st.booleans(), max_size=9)),
    st.tuples(st.just(GgufType.STRING), st.lists(TEXT, max_size=9)),
)
keys = TEXT.filter(lambda key: key not in ("", "general.alignment"))

SOURCES = [data(name).read_bytes() for name in ("llama.gguf", "eagle3_d2t.gguf", "gemma3.gguf")]


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, memoryview) else value


def use(content: bytes) -> None:
    """Open, and look at everything."""
    with Gguf(data=content) as gguf:
        for key, value in gguf.metadata.items():
            plain(value)
            gguf.metadata.type(key)
        for name, info in gguf.tensors.items():
            assert gguf.tensor_data(name).nbytes == info.n_bytes
        header = GgufHeader(content)
        assert list(header.values) == list(gguf.metadata)
        assert list(header.tensors) == list(gguf.tensors)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(keys, st.one_of(scalars, arrays), max_size=12))
def test_metadata_survives_write_and_read(tmp_path_factory: Any, values: dict[str, tuple[GgufType, Any]]) -> None:
    path = tmp_path_factory.mktemp("gguf") / "random.gguf"
    with Gguf() as gguf:
        for key, (kind, value) in values.items():
            gguf.metadata.set(key, value, kind)
        gguf.add_tensor("t", np.arange(7, dtype=np.float32))
        gguf.write(path)
    with Gguf(path) as gguf:
        assert {key: (gguf.metadata.type(key), plain(value)) for key, value in gguf.metadata.items()} == values
        assert gguf.tensor_data("t").tolist() == list(range(7))
    header = GgufHeader(path.read_bytes())
    assert {key: kind for key, (kind, _) in values.items()} == header.types


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_bytes_raise_or_are_read(draw: st.DataObject) -> None:
    content = bytearray(SOURCES[draw.draw(st.integers(0, len(SOURCES) - 1))])
    end = 24_000  # where the tensor data begins, about
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, min(end, len(content)) - 9))
        kind = draw.draw(st.sampled_from(["byte", "u32", "u64", "cut", "remove", "insert"]))
        if kind == "byte":
            content[at] = draw.draw(st.integers(0, 255))
        elif kind == "u32":
            content[at : at + 4] = struct.pack("<I", draw.draw(st.sampled_from([0, 1, 9, 2**31, 2**32 - 1])))
        elif kind == "u64":
            content[at : at + 8] = struct.pack("<Q", draw.draw(st.sampled_from([0, 1, 2**31, 2**62, 2**64 - 1])))
        elif kind == "cut":
            del content[at:]
            content += bytes(64)
        elif kind == "remove":
            del content[at : at + draw.draw(st.integers(1, 8))]
        else:
            content[at:at] = draw.draw(st.binary(min_size=1, max_size=8))
    with contextlib.suppress(GgufError):
        use(bytes(content))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=300))
def test_random_bytes_after_magic_raise_or_are_read(rest: bytes) -> None:
    with contextlib.suppress(GgufError):
        use(b"GGUF\x03\0\0\0" + rest)
