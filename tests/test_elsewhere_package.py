"""Names that users of llama-cpp-python look for in the package: what is said of them leads somewhere."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import llamacy
from llamacy._elsewhere import _CLASSES, _ENUMERATIONS, _MODULES, _NATIVE, _NO_MEDIA, _PACKAGE_ADVICE
from tests.helpers.process import run_python


def hint_of(name: str) -> str:
    """Return what the error about a name says after the name."""
    with pytest.raises(AttributeError) as raised:
        getattr(llamacy, name)
    start = f"module 'llamacy' has no attribute {name!r}"
    assert str(raised.value).startswith(start)
    return str(raised.value).removeprefix(start)


def found(path: str) -> Any:
    """Return what a path leads to, modules imported on the way."""
    names = path.split(".")
    thing: Any = importlib.import_module(names[0])
    for place, name in enumerate(names[1:], 2):
        try:
            thing = getattr(thing, name)
        except AttributeError:
            thing = importlib.import_module(".".join(names[:place]))
    return thing


def constants() -> dict[str, int | None]:
    """Return the constants of C's headers whose names are looked for, with their values where they are written."""
    include = Path(llamacy.get_include())
    text = "".join(
        (include / name).read_text() for name in ("llama.h", "ggml.h", "ggml-backend.h", "ggml-cpu.h", "gguf.h")
    )
    text = re.sub(r"//.*|/\*.*?\*/", "", text)
    pattern = rf"^\s*(?:#define )?((?:{'|'.join(_ENUMERATIONS)})[A-Z0-9_]+)(?: *=? *(-?\d+))?\s*(?:,|$)"
    return {name: None if value == "" else int(value) for name, value in re.findall(pattern, text, re.MULTILINE)}


CONSTANTS = constants()
# those that count, are gone, or are of no model that is made
_NONE = {
    "GGML_NUMA_STRATEGY_COUNT", "GGML_TYPE_COUNT", "GGUF_TYPE_COUNT", "LLAMA_FTYPE_GUESSED",
    "LLAMA_POOLING_TYPE_COUNT", "LLAMA_ROPE_SCALING_TYPE_MAX_VALUE", "LLAMA_STATE_SEQ_FLAGS_SWA_ONLY",
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_of_the_headers_is_found(name: str) -> None:
    hint = hint_of(name)
    if hint == f"; {_NATIVE}":
        assert name in _NONE
        return
    value = found(hint.removeprefix("; use "))
    assert name.endswith(f"_{value.name}")
    assert CONSTANTS[name] in (None, value)


def test_constants_that_people_write_are_found() -> None:
    assert len(CONSTANTS) > 100
    assert hint_of("LLAMA_POOLING_TYPE_MEAN") == "; use llamacy.PoolingType.MEAN"
    assert hint_of("LLAMA_SPLIT_MODE_LAYER") == "; use llamacy.SplitMode.LAYER"
    assert hint_of("GGML_TYPE_Q8_0") == "; use llamacy.GgmlType.Q8_0"
    assert hint_of("LLAMA_FTYPE_MOSTLY_Q4_K_M") == "; use llamacy.FileType.Q4_K_M"


@pytest.mark.parametrize("start", _ENUMERATIONS)
def test_enumeration_is_found(start: str) -> None:
    kind = found(hint_of(start.removesuffix("_").lower()).removeprefix("; use "))
    assert kind is getattr(llamacy, _ENUMERATIONS[start])
    assert any(name.startswith(start) for name in CONSTANTS)


@pytest.mark.parametrize("name", _CLASSES)
def test_class_is_found(name: str) -> None:
    assert isinstance(found(hint_of(name).removeprefix("; use ")), type)


@pytest.mark.parametrize("name", _MODULES)
def test_module_is_found(name: str) -> None:
    assert isinstance(found(hint_of(name).removeprefix("; use ")), ModuleType)


@pytest.mark.parametrize("name", _PACKAGE_ADVICE)
def test_what_is_no_name_here_is_told(name: str) -> None:
    assert hint_of(name) == f"; {_PACKAGE_ADVICE[name]}"


@pytest.mark.parametrize("name", ["Llava15ChatHandler", "MTMDChatHandler", "Qwen3VLChatHandler"])
def test_handlers_of_images_are_told(name: str) -> None:
    assert hint_of(name) == f"; {_NO_MEDIA}"


@pytest.mark.parametrize("name", ["llama_backend_init", "llama_model_load_from_file", "ggml_init", "LLAMA_TOKEN_NULL"])
def test_functions_of_c_are_told(name: str) -> None:
    assert hint_of(name) == f"; {_NATIVE}"


def test_cython_finds_what_it_is_told() -> None:
    assert (Path(llamacy.__file__).parent / "native" / "llama.pxd").is_file()
    assert "from llamacy.native cimport llama" in _NATIVE


def test_options_that_are_named_are_there() -> None:
    from llamacy.generate.arguments import RequestOptions
    from llamacy.generate.options import SamplingOptions

    there = {*RequestOptions.__dataclass_fields__, *SamplingOptions.__dataclass_fields__}
    assert {"logits_processor", "stopping_criteria", "min_tokens", "seed"} <= there
    for name, option in (
        ("LogitsProcessorList", "logits_processor"), ("StoppingCriteriaList", "stopping_criteria"),
        ("MinTokensLogitsProcessor", "min_tokens"), ("LLAMA_DEFAULT_SEED", "seed"),
    ):  # fmt: skip
        assert option in hint_of(name)


@pytest.mark.parametrize("name", ["Lama", "llama_", "llamas", "Nothing", "gguf", "ChatHandlers"])
def test_hasattr_is_false(name: str) -> None:
    assert not hasattr(llamacy, name)


def test_submodules_are_imported_without_looking_for_hints() -> None:
    run_python(
        """
import sys
from llamacy import checkpoint, grammar, llama, types
assert "llamacy._elsewhere" not in sys.modules
"""
    )
