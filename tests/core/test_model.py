"""Model: what it says about a file, against gguf-py and the goldens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy.core.model import Model
from llamacy.types import FileType, RopeType
from tests.helpers import N_TOY_VOCAB, data, models
from tests.helpers.gguf_metadata import read_metadata
from tests.helpers.reference import Reference

NAMES = ["target", "llama", "gemma3", "mamba", "mamba2", "rwkv7", "qwen35", "qwen35_mtp"]


@pytest.fixture(scope="module")
def goldens() -> dict[str, Any]:
    return json.loads(data("arch.json").read_text(encoding="utf-8"))


def as_text(value: Any) -> str:
    """Spell a metadata value as llama.cpp's gguf_kv_to_str does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6f}"
    return value.decode() if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize("name", NAMES)
def test_metadata_equals_scalars_of_file(name: str) -> None:
    expected = {
        key: as_text(value) for key, value in read_metadata(data(f"{name}.gguf")).items() if not isinstance(value, list)
    }
    with Model(data(f"{name}.gguf"), vocab_only=True) as model:
        assert dict(model.metadata) == expected


def test_metadata_is_a_read_only_mapping(llama_model: Model) -> None:
    metadata = llama_model.metadata
    assert metadata["general.architecture"] == "llama"
    assert "no.such.key" not in metadata
    with pytest.raises(TypeError):
        metadata["general.name"] = "other"  # type: ignore[index]


def test_metadata_with_long_and_non_ascii_values_is_whole(tmp_path: Path) -> None:
    name = "naïve 模型 🦙 " + "x" * 5000
    path = tmp_path / "long.gguf"
    writer = models._llama_writer(path, models.LlamaShape(n_vocab=288))
    writer.add_string("general.description", name)
    writer.add_string("custom." + "k" * 200, "v")
    models._finish(writer)
    with Model(path, vocab_only=True) as model:
        assert model.metadata["general.description"] == name
        assert model.metadata["custom." + "k" * 200] == "v"


@pytest.mark.parametrize("name", NAMES)
def test_sizes_equal_file(name: str, goldens: dict[str, Any], make_model: Callable[..., Model]) -> None:
    path = data(f"{name}.gguf")
    metadata = read_metadata(path)
    tensors = gguf.GGUFReader(path).tensors
    golden = goldens["models"][name]
    arch = metadata["general.architecture"].decode()
    model = make_model(path, load_mtp=True)
    assert model.architecture == arch
    assert model.name == metadata["general.name"].decode()
    assert model.n_embd == metadata[f"{arch}.embedding_length"]
    assert model.n_embd_inp == model.n_embd_out == model.n_embd
    assert model.n_ctx_train == metadata[f"{arch}.context_length"]
    assert model.n_layer == golden["n_layer"]
    assert model.n_layer_nextn == golden["n_layer_nextn"]
    assert model.n_swa == golden["n_swa"]
    assert model.n_vocab == len(model.vocab) == N_TOY_VOCAB
    assert model.n_params == sum(int(np.prod(tensor.shape)) for tensor in tensors)
    assert model.size_bytes == sum(int(tensor.n_bytes) for tensor in tensors)
    assert model.is_recurrent == bool(golden["recurrent"])
    assert model.is_hybrid == bool(golden["hybrid"])
    assert not model.has_encoder
    assert model.has_decoder
    assert model.decoder_start_token is None
    assert not model.is_diffusion
    assert model.n_expert == 0
    assert model.cls_labels == ()
    assert model.path == str(path)


@pytest.mark.parametrize(("name", "heads", "heads_kv"), [("llama", 4, 2), ("target", 4, 2), ("gemma3", 4, 1)])
def test_heads_equal_file(name: str, heads: int, heads_kv: int, make_model: Callable[..., Model]) -> None:
    metadata = read_metadata(data(f"{name}.gguf"))
    arch = metadata["general.architecture"].decode()
    assert (heads, heads_kv) == (metadata[f"{arch}.attention.head_count"], metadata[f"{arch}.attention.head_count_kv"])
    model = make_model(f"{name}.gguf")
    assert (model.n_head, model.n_head_kv) == (heads, heads_kv)


@pytest.mark.parametrize(
    ("name", "rope"),
    [("llama", RopeType.NORM), ("target", RopeType.NEOX), ("mamba", RopeType.NONE), ("qwen35", RopeType.IMROPE)],
)
def test_rope_type_is_that_of_the_architecture(name: str, rope: RopeType, make_model: Callable[..., Model]) -> None:
    model = make_model(f"{name}.gguf")
    assert model.rope_type is rope
    assert model.rope_freq_scale_train == 1.0


def test_file_type_is_that_of_the_file(tmp_path: Path, llama_model: Model) -> None:
    assert llama_model.ftype is FileType.F32
    path = tmp_path / "f16.gguf"
    writer = models._llama_writer(path, models.LlamaShape(n_vocab=288), file_type=gguf.LlamaFileType.MOSTLY_F16)
    for name, tensor in models.llama_tensors(models.LlamaShape(n_vocab=288)).items():
        writer.add_tensor(name, tensor.astype(np.float16) if tensor.ndim == 2 else tensor)
    models._finish(writer)
    with Model(path) as model:
        assert model.ftype is FileType.F16


def test_file_type_is_told_by_tensors_where_the_file_does_not_say(tmp_path: Path, vocab_none_path: Path) -> None:
    assert "general.file_type" not in read_metadata(vocab_none_path)
    with Model(vocab_none_path) as model:
        assert model.ftype is FileType.F32
    path = tmp_path / "f16.gguf"
    writer = models._llama_writer(path, models.LlamaShape(n_vocab=288), file_type=None)
    for name, tensor in models.llama_tensors(models.LlamaShape(n_vocab=288)).items():
        writer.add_tensor(name, tensor.astype(np.float16) if tensor.ndim == 2 else tensor)
    models._finish(writer)
    with Model(path) as model:
        assert model.ftype is FileType.F16


@pytest.mark.parametrize("number", [4, 99, -1])
def test_file_type_without_a_name_is_none(number: int, make_model: Callable[..., Model]) -> None:
    assert make_model("llama.gguf", kv_overrides={"general.file_type": number}).ftype is None


def test_draft_models_name_the_layers_they_read(make_model: Callable[..., Model]) -> None:
    assert make_model("eagle3.gguf").target_layer_ids == tuple(
        read_metadata(data("eagle3.gguf"))["eagle3.target_layers"]
    )
    assert make_model("dflash.gguf").target_layer_ids == (1, 3)
    assert make_model("dflash.gguf").dflash_selector_top_k == 0


def test_encoder_decoder_model_says_so(t5_path: Path, make_model: Callable[..., Model]) -> None:
    model = make_model(t5_path)
    assert model.has_encoder
    assert model.has_decoder
    assert model.decoder_start_token == 0


def test_classifier_names_its_labels(tmp_path: Path, make_model: Callable[..., Model]) -> None:
    path = models.write_bert(tmp_path / "cls.gguf", pooling=gguf.PoolingType.RANK, n_labels=3)
    assert make_model(path).cls_labels == ("label0", "label1", "label2")


def test_chat_templates_are_those_of_the_file(tmp_path: Path, llama_model: Model) -> None:
    templates = [
        {"name": "default", "template": "{{ messages }}"},
        {"name": "tool_use", "template": "{{ tools }}"},
    ]
    path = tmp_path / "chat.gguf"
    writer = models._llama_writer(path, models.LlamaShape(n_vocab=288))
    writer.add_chat_template(templates)
    models._finish(writer)
    with Model(path, vocab_only=True) as model:
        assert model.chat_template() == "{{ messages }}"
        assert model.chat_template("tool_use") == "{{ tools }}"
        assert model.chat_template("none such") is None
        assert model.chat_templates == {"default": "{{ messages }}", "tool_use": "{{ tools }}"}
    assert llama_model.chat_template() is None
    assert llama_model.chat_templates == {}


def test_kv_overrides_show_in_metadata_and_effect(make_model: Callable[..., Model]) -> None:
    model = make_model(
        "llama.gguf",
        kv_overrides={
            "llama.context_length": 777,
            "llama.attention.layer_norm_rms_epsilon": 0.25,
            "tokenizer.ggml.add_bos_token": False,
            "general.name": "renamed ü",
        },
    )
    assert model.n_ctx_train == 777
    assert not model.vocab.add_bos
    assert list(model.vocab.tokenize("a")) == [260, 261]


def test_kv_override_changes_logits_as_in_the_reference(
    make_model: Callable[..., Model], make_context: Callable[..., Any]
) -> None:
    from llamacy.core.batch import Batch

    model = make_model("llama.gguf", kv_overrides={"llama.attention.layer_norm_rms_epsilon": 0.25})
    context = make_context(model)
    tokens = [1, 260, 268, 265]
    with Batch(4) as batch:
        batch.extend(tokens, 0)
        context.decode(batch)
        logits = np.asarray(context.logits(-1)).copy()
    reference = Reference(data("llama.gguf"))
    reference.eps = 0.25
    np.testing.assert_allclose(logits, reference.logits(tokens)[-1], rtol=1e-2, atol=5e-3)


def test_token_embeddings_are_those_of_the_file(llama_model: Model) -> None:
    (expected,) = (
        tensor.data for tensor in gguf.GGUFReader(data("llama.gguf")).tensors if tensor.name == "token_embd.weight"
    )
    table = llama_model.token_embeddings()
    assert table.shape == (288, 64)
    assert table.format == "f"
    np.testing.assert_array_equal(np.asarray(table), expected)


def test_token_embeddings_of_f16_model_are_converted(tmp_path: Path, make_model: Callable[..., Model]) -> None:
    shape = models.LlamaShape(n_vocab=288)
    model = make_model(models.write_llama(tmp_path / "f16.gguf", shape, f16=True))
    expected = models.llama_tensors(shape)["token_embd.weight"].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(model.token_embeddings()), expected)


def test_devices_are_devices(llama_model: Model) -> None:
    from llamacy.core.backend import Device

    assert all(isinstance(device, Device) for device in llama_model.devices)


def test_repr_describes_the_model_and_the_closed_model() -> None:
    model = Model(data("llama.gguf"))
    assert repr(model) == f"<Model {model.description!r} 0.4 MiB, n_ctx_train={model.n_ctx_train}>"
    # 98,624 parameters by the shapes of its tensors, which gguf's own reader tells
    n_params = sum(int(np.prod(tensor.shape)) for tensor in gguf.GGUFReader(data("llama.gguf")).tensors)
    assert model.description == f"tiny-llama, llama, {n_params / 1e3:.1f}K parameters, F32"
    model.close()
    assert repr(model) == "<Model closed>"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (None, "a-model.Q8_0"),
        ("", "a-model.Q8_0"),
        ("two\nlines\t", "two lines"),
        ("模" * 60, "模" * 60),
        ("模" * 61, "模" * 59 + "…"),
    ],
)
def test_description_begins_with_a_name_that_a_user_recognises(tmp_path: Path, name: str | None, shown: str) -> None:
    path = tmp_path / "a-model.Q8_0.gguf"
    writer = models._llama_writer(path, models.LlamaShape(n_vocab=288))
    del writer.kv_data[0]["general.name"]
    if name is not None:
        writer.add_name(name)
    models._finish(writer)
    with Model(path, vocab_only=True) as model:
        assert model.description == f"{shown}, llama, F32"


def test_description_of_a_model_without_name_and_path() -> None:
    with data("llama.gguf").open("rb") as file, Model(file) as model:
        assert model.path is None
        assert model.description.startswith("tiny-llama, llama, ")


@pytest.mark.model
def test_description_of_smollm2_has_its_own_size(smollm2_model: Model) -> None:
    assert smollm2_model.description == "Smollm2 135M 8k Lc100K Mix1 Ep2, llama, 134.5M parameters, Q4_1"
    assert "256M" not in repr(smollm2_model)


def test_params_are_kept(llama_model: Model) -> None:
    assert llama_model.params.values["vocab_only"] is False
    assert "vocab_only" in repr(llama_model.params)


def test_subclass_may_add_state_and_methods() -> None:
    class Named(Model):
        label = "mine"

        def shout(self) -> str:
            return f"{self.label} {self.architecture}".upper()

    with Named(data("llama.gguf")) as model:
        assert model.shout() == "MINE LLAMA"
        model.label = "your"
        assert model.shout() == "YOUR LLAMA"
