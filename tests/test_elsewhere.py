"""Names of other packages: what is said of them leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import llamacy
import llamacy.checkpoint
from llamacy import Embedding, Llama
from llamacy._elsewhere import _ATTRIBUTES, _CLASSES, _SETTINGS
from tests.helpers import data


@pytest.fixture(scope="module")
def llama() -> Any:
    with Llama(data("llama.gguf"), n_ctx=64, n_threads=1, n_threads_batch=1) as made:
        made([1, 2, 3], max_tokens=1)
        yield made


def follow(start: Any, path: str) -> Any:
    """Return what a hint leads to; what ends in parentheses is called only where something follows."""
    names = path.split(".")
    for name in names[:-1]:
        start = getattr(start, name.removesuffix("()"))
        if name.endswith("()"):
            start = start()
    return getattr(start, names[-1].removesuffix("()"))


@pytest.mark.parametrize("name", _CLASSES)
def test_class_of_another_package_is_found(name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(llamacy, name)
    assert not hasattr(llamacy, name)
    found = re.fullmatch(rf"module 'llamacy' has no attribute '{name}'; use llamacy\.([\w.]+)", str(raised.value))
    assert found is not None
    assert isinstance(follow(llamacy, found[1]), type)


@pytest.mark.parametrize("name", _ATTRIBUTES)
def test_attribute_of_another_package_is_found(llama: Llama, name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(llama, name)
    found = re.fullmatch(rf"'Llama' object has no attribute '{name}'; use (.+)", str(raised.value))
    assert found is not None
    path = found[1]
    target = follow(llamacy, path.removeprefix("llamacy.")) if path.startswith("llamacy.") else follow(llama, path)
    # a method is written as one, and nothing else is
    assert callable(target) == (path.endswith("()") or path.startswith("llamacy."))


@pytest.mark.parametrize("name", _SETTINGS)
def test_setting_of_another_package_is_told(llama: Llama, name: str) -> None:
    with pytest.raises(AttributeError, match=r"seed=…|verbose=True"):
        getattr(llama, name)


def test_other_names_are_as_python_has_them(llama: Llama, closing: Callable[[Any], Any], bert_path: Any) -> None:
    with pytest.raises(AttributeError, match=r"'Llama' object has no attribute 'tokenise'$") as raised:
        llama.tokenise  # type: ignore[attr-defined]  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("tokenise", llama)
    with pytest.raises(AttributeError, match=r"module 'llamacy' has no attribute 'Lama'$"):
        llamacy.Lama  # type: ignore[attr-defined]  # noqa: B018
    assert closing(Embedding(bert_path, n_threads=1)).n_embd == 32


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("all-minilm-l6-v2", "; llamacy.starter.pull('all-minilm-l6-v2') fetches it and returns its path"),
        (
            "org/a-model",
            "; Llama.from_pretrained('org/a-model', filename) fetches a GGUF file from the Hugging Face Hub",
        ),
        ("models/one.gguf", ""),
        ("/models", ""),
        ("./models/one", ""),
        ("nothing", ""),
    ],
)
@pytest.mark.parametrize("kind", [Llama, Embedding])
def test_model_that_is_not_there_is_told_how_to_fetch(
    kind: Any, path: str, hint: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = path if path[0] != "/" else f"{tmp_path}{path}"
    with pytest.raises(llamacy.ModelNotFoundError) as raised:
        kind(path)
    assert str(raised.value) == f"there is no model file {path!r}{hint}"
