"""`llamacy info`: the card against the gguf package."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest

from tests.helpers import data, rewrite

from .conftest import Run


@pytest.mark.parametrize("name", ["target.gguf", "gemma3.gguf", "qwen35.gguf", "mamba.gguf", "rwkv7.gguf"])
def test_card_agrees_with_gguf_package(run: Run, name: str) -> None:
    reader = gguf.GGUFReader(data(name))

    def field(key: str) -> object:
        return reader.fields[key].contents()

    card = json.loads(run("info", str(data(name)), "--json").stdout)["card"]
    architecture = field("general.architecture")
    assert card["architecture"] == architecture
    assert card["name"] == field("general.name")
    assert card["parameters"] == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert card["tensors"] == len(reader.tensors)
    assert card["size_bytes"] == data(name).stat().st_size
    assert card["context_length"] == field(f"{architecture}.context_length")
    assert card["layers"] == field(f"{architecture}.block_count")
    assert card["vocabulary"] == len(field("tokenizer.ggml.tokens"))  # type: ignore[arg-type]
    assert card["chat_template"] is False


def test_card_tells_rerankers_and_embedders_from_models_that_write(
    run: Run, bert_path: Path, rank_path: Path, tmp_path: Path
) -> None:
    more = {
        "tokenizer.chat_template.rerank": rewrite.string("{query} {document}"),
        "qwen3.pooling_type": rewrite.number(4),
    }
    reranker = rewrite.rewrite(tmp_path / "qwen3.gguf", data("target.gguf"), more)
    expected = {bert_path: "mean", rank_path: "rank", reranker: "rank", data("llama.gguf"): None}
    for path, pooling in expected.items():
        card = json.loads(run("info", str(path), "--json").stdout)["card"]
        assert (card["pooling"], card["chat_template"]) == (pooling, False)
    assert "pooling           rank" in run("info", str(rank_path)).stdout.decode().splitlines()


def test_metadata_lists_all_keys_and_shortens_arrays(run: Run) -> None:
    reader = gguf.GGUFReader(data("target.gguf"))
    keys = {key for key in reader.fields if not key.startswith("GGUF.")}
    shown = json.loads(run("info", str(data("target.gguf")), "--json", "--metadata").stdout)["metadata"]
    assert set(shown) == keys
    assert shown["tokenizer.ggml.tokens"] == {
        "n_items": 288,
        "first": reader.fields["tokenizer.ggml.tokens"].contents()[:6],
    }
    text = run("info", "--model", str(data("target.gguf")), "--metadata").stdout.decode()
    assert max(map(len, text.splitlines())) < 200
    assert "288 items]" in text


def test_split_model_counts_all_parts(run: Run, tmp_path: Path) -> None:
    for number in (1, 2):
        writer = gguf.GGUFWriter(tmp_path / f"m-0000{number}-of-00002.gguf", "llama")
        writer.add_uint16("split.count", 2)
        writer.add_uint16("split.no", number - 1)
        import numpy as np

        writer.add_tensor(f"t{number}", np.zeros((3, 5), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    card = json.loads(run("info", str(tmp_path / "m-00001-of-00002.gguf"), "--json").stdout)["card"]
    assert (card["parts"], card["tensors"], card["parameters"]) == (2, 2, 30)
    assert card["size_bytes"] == sum(path.stat().st_size for path in tmp_path.glob("*.gguf"))


def test_chat_template_and_licence_are_shown(run: Run, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_string("tokenizer.chat_template", "{{ messages }}\n" * 50)
    writer.add_string("general.license", "mit")
    writer.add_file_type(7)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    lines = run("info", str(tmp_path / "m.gguf"), "--metadata").stdout.decode().splitlines()
    card = {line.split("  ")[0]: line.split()[-1] for line in lines[: lines.index("")]}
    assert card["chat template"] == "yes"
    assert card["licence"] == "mit"
    assert card["quantization"] == "Q8_0"
    assert any(line.startswith("tokenizer.chat_template") and "(750 characters)" in line for line in lines)
