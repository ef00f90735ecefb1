"""Parameters of llama-cpp-python's constructor that are not here: taken where they ask for nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamacy import Embedding, Llama
from llamacy.generate.options import SamplingOptions
from llamacy.generate.spellings import _ASKING_NOTHING
from llamacy.types import LoadMode
from tests.helpers import data

ONE: dict[str, Any] = {"n_ctx": 64, "n_threads": 1}
# the signature of its constructor, without the old names of load_mode, which mean the same (and nothing there)
DEFAULTS: dict[str, Any] = {
    "mmproj_path": None, "n_gpu_layers": "auto", "cpu_moe": False, "n_cpu_moe": 0, "split_mode": 1, "load_mode": -1,
    "main_gpu": 0, "tensor_split": None, "kv_overrides": None, "vocab_only": False, "check_tensors": False,
    "use_extra_bufts": True, "no_host": False, "no_alloc": False, "load_mtp": False, "seed": 0xFFFFFFFF, "n_ctx": 512,
    "n_keep": 256, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_rs_seq": 0, "n_outputs_max": 0,
    "n_outputs_max_per_seq": 1, "n_threads": None, "n_threads_batch": None, "ctx_type": 0, "rope_scaling_type": -1,
    "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1, "rope_freq_base": 0.0, "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0, "yarn_attn_factor": 1.0, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0,
    "yarn_orig_ctx": 0, "logits_all": False, "embeddings": False, "offload_kqv": True, "no_perf": False,
    "op_offload": None, "swa_full": None, "kv_unified": None, "ctx_checkpoints": 16, "checkpoint_interval": 4096,
    "checkpoint_on_device": False, "last_n_tokens_size": 64, "numa": False, "chat_format": None, "chat_handler": None,
    "draft_model": None, "speculative": None, "tokenizer": None, "type_k": None, "type_v": None, "spm_infill": False,
    "verbose": False, "verbosity": None, "log_filters": None, "log_filters_case_sensitive": True,
    "chat_template_name": None, "chat_handler_kwargs": {},
}  # fmt: skip
OLD: dict[str, Any] = {
    "use_mmap": None, "use_mlock": None, "use_direct_io": None, "flash_attn": None, "embedding": None,
    "lora_base": None, "lora_path": None, "rpc_servers": None, "clip_model_path": None, "lora_scale": 1.0,
    "logits_all": True,
}  # fmt: skip


def text(llama: Llama) -> str:
    return llama("the cat", max_tokens=4, temperature=0)["choices"][0]["text"]


@pytest.mark.parametrize("name", [*DEFAULTS, *OLD])
def test_default_of_llama_cpp_python_is_taken(closing: Callable[[Any], Any], name: str) -> None:
    llama = closing(Llama(data("llama.gguf"), **{**ONE, name: {**DEFAULTS, **OLD}[name]}))
    assert text(llama)


def test_all_defaults_of_llama_cpp_python_are_taken_at_once(closing: Callable[[Any], Any]) -> None:
    llama = closing(Llama(data("llama.gguf"), **{**DEFAULTS, "n_threads": 1, "n_threads_batch": 1}))
    assert text(llama)


@pytest.mark.parametrize("kind", [Llama, Embedding])
@pytest.mark.parametrize("name", [*_ASKING_NOTHING, "type_k", "type_v", "use_mmap", "use_mlock", "flash_attn"])
def test_none_asks_for_nothing(kind: Any, name: str, closing: Callable[[Any], Any]) -> None:
    plain, made = (closing(kind(data("llama.gguf"), **ONE, **given)) for given in ({}, {name: None}))
    assert made.context.params.values == plain.context.params.values
    assert made.model.params.values == plain.model.params.values
    assert made.model.params.values["load_mode"] == LoadMode.AUTO


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("numa", True), ("numa", 1), ("numa", "distribute"), ("chat_handler", object()), ("chat_handler", False),
        ("draft_model", "draft.gguf"), ("speculative", object()), ("vocab_only", True), ("vocab_only", 0),
        ("tokenizer", object()), ("last_n_tokens_size", 128), ("last_n_tokens_size", 64.0), ("verbosity", 3),
        ("log_filters", ["x"]), ("log_filters_case_sensitive", False), ("log_filters_case_sensitive", 1),
        ("chat_handler_kwargs", {"a": 1}), ("mmproj_path", "p.gguf"), ("clip_model_path", ""), ("no_alloc", True),
        ("additional_files", ["x"]), ("local_dir_use_symlinks", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [Llama, Embedding])
def test_what_asks_for_something_is_refused(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"there is no option '{name}'; "):
        kind(data("llama.gguf"), **ONE, **{name: value})


@pytest.mark.parametrize("name", ["nothing", "chathandler", "n_ctx_max", "cache_type", "temperature"])
def test_none_of_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"there is no option '{name}'"):
        Llama(data("llama.gguf"), **ONE, **{name: None})


def test_every_value_that_asks_for_nothing_is_a_default_there() -> None:
    # of from_pretrained, and of versions before
    others = {"additional_files": None, "local_dir_use_symlinks": "auto", "clip_model_path": None}
    for name, values in _ASKING_NOTHING.items():
        default = {**DEFAULTS, **others}[name]
        assert default is None or default in values
    assert SamplingOptions().penalty_last_n == DEFAULTS["last_n_tokens_size"]


def test_from_pretrained_takes_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamacy.generate import hub

    monkeypatch.setattr(hub, "fetch", lambda *_, **__: data("llama.gguf"))
    given: dict[str, Any] = {"additional_files": None, "local_dir_use_symlinks": "auto", "chat_handler": None}
    with Llama.from_pretrained("org/model", "*.gguf", **ONE, **given) as llama:
        assert text(llama)
