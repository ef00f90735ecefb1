"""The helpers of the tests against something that isn't llamacy either."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.helpers import data, models, toy_tokens
from tests.helpers.gguf_metadata import read_metadata
from tests.helpers.reference import Reference, lora_deltas


@pytest.fixture(scope="module")
def goldens() -> dict[str, object]:
    return json.loads(data("arch.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["llama", "target", "draft"])
def test_reference_equals_goldens_of_llama_cpp(name: str, goldens: dict[str, object]) -> None:
    reference = Reference(data(f"{name}.gguf"))
    expected = np.load(data("arch.npz"))[f"{name}.logits"]
    np.testing.assert_allclose(reference.logits(goldens["prompt"])[-1], expected, atol=1e-5)
    assert reference.greedy(goldens["prompt"], 24) == goldens["models"][name]["greedy"]


def test_metadata_reader_agrees_with_gguf_py() -> None:
    path = data("qwen35.gguf")
    fields = gguf.GGUFReader(path).fields
    metadata = read_metadata(path)
    assert set(metadata) == {key for key in fields if not key.startswith("GGUF.")}
    for key, value in metadata.items():
        expected = fields[key].contents()
        if isinstance(value, bytes):
            value = value.decode()
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [text.decode() for text in value]
        assert value == expected, key


def test_toy_vocabulary_is_that_of_the_data_files() -> None:
    texts, _, types = models.toy_vocabulary()
    metadata = read_metadata(data("llama.gguf"))
    assert texts == metadata["tokenizer.ggml.tokens"]
    assert types == metadata["tokenizer.ggml.token_type"]


def test_toy_tokens_spell_prompt_of_goldens(goldens: dict[str, object]) -> None:
    text = "".join(chr(token - 261 + ord("a")) if 261 <= token < 287 else " ." [token == 287] for token in
                   goldens["prompt"][1:])  # fmt: skip
    assert toy_tokens(text[1:]) == goldens["prompt"]


def test_written_models_are_the_same_every_time(tmp_path: Path) -> None:
    shape = models.LlamaShape(n_vocab=288)
    first = models.write_llama(tmp_path / "a.gguf", shape).read_bytes()
    assert models.write_llama(tmp_path / "b.gguf", shape).read_bytes() == first


def test_lora_deltas_have_the_shape_of_their_matrices(lora_path: Path) -> None:
    deltas = lora_deltas(lora_path)
    weights = Reference(data("llama.gguf")).weights
    assert deltas
    assert {name: delta.shape for name, delta in deltas.items()} == {name: weights[name].shape for name in deltas}
