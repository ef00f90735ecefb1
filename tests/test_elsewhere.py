"""Names of other packages: what is said of them leads somewhere."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import llamacy
import llamacy.checkpoint
from llamacy import Embedding, Llama
from llamacy._elsewhere import _ATTRIBUTES, _CLASSES, _OPTION_ADVICE, _SETTINGS
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
    with pytest.raises(AttributeError, match=r"seed=…|verbose=True|embed\(…, normalize=True\)"):
        getattr(llama, name)


def test_other_names_are_as_python_has_them(llama: Llama, closing: Callable[[Any], Any], bert_path: Any) -> None:
    with pytest.raises(AttributeError, match=r"'Llama' object has no attribute 'tokenise'$") as raised:
        llama.tokenise  # type: ignore[attr-defined]  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("tokenise", llama)
    with pytest.raises(AttributeError, match=r"module 'llamacy' has no attribute 'Lama'$"):
        llamacy.Lama  # type: ignore[attr-defined]  # noqa: B018
    assert closing(Embedding(bert_path, n_threads=1)).n_embd == 32


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_new_tokens", "did you mean 'max_tokens'?"),
        ("n_predict", "did you mean 'max_tokens'?"),
        ("stop_sequences", "did you mean 'stop'?"),
        ("last_n_tokens_size", "did you mean 'penalty_last_n'?"),
        ("ctx_size", "'n_ctx' is given when the model is loaded, as Llama(n_ctx=…)"),
        ("n_gpu_layers", "'n_gpu_layers' is given when the model is loaded, as Llama(n_gpu_layers=…)"),
        ("response_format", "'response_format' is an option of requests, as create_chat_completion"),
        ("do_sample", "temperature=0 takes the most likely token"),
        ("tfs_z", "llama.cpp has no such sampler any more"),
        ("temprature", "did you mean 'temperature'?"),
    ],
)
def test_option_that_a_request_has_not_leads_to_the_one_meant(llama: Llama, name: str, hint: str) -> None:
    with pytest.raises(TypeError) as raised:
        llama([1, 2, 3], max_tokens=1, **{name: 1})
    assert str(raised.value) == f"there is no option {name!r}; {hint}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ngl", "did you mean 'n_gpu_layers'?"),
        ("num_ctx", "did you mean 'n_ctx'?"),
        ("temperature", "'temperature' is an option of requests, as create_completion"),
        ("n_predict", "'max_tokens' is an option of requests, as create_completion"),
        ("tools", "'tools' is an option of requests, as create_chat_completion"),
        ("vocab_only", "llamacy.Model(path, vocab_only=True) loads the vocabulary alone"),
    ],
)
def test_option_that_loading_has_not_leads_to_the_one_meant(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as raised:
        Llama(data("llama.gguf"), **{name: 1})
    assert str(raised.value) == f"there is no option {name!r}; {hint}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("normalize_embeddings", "did you mean 'normalize'?"),
        ("show_progress_bar", "did you mean 'progress'?"),
        ("prompt_name", "did you mean 'prompt'?"),
        ("convert_to_numpy", "embed() returns a NumPy array"),
        ("batch_size", _OPTION_ADVICE["batch_size"]),
        ("normalise", "did you mean 'normalize'?"),
        ("n_batch", "'n_batch' is given when the model is loaded, as Llama(n_batch=…)"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "method"),
    [(Llama, "embed"), (Llama, "aembed"), (Embedding, "embed"), (Embedding, "aembed"), (Embedding, "embed_batches")],
)
def test_option_that_embedding_has_not_leads_to_the_one_meant(
    kind: Any, method: str, bert_path: Any, closing: Callable[[Any], Any], name: str, hint: str
) -> None:
    model = closing(kind(bert_path, n_threads=1, n_threads_batch=1))
    with pytest.raises(TypeError) as raised:
        made = getattr(model, method)(["a"], **{name: True})
        asyncio.run(made)
    assert str(raised.value) == f"there is no option {name!r}; {hint}"


@pytest.mark.parametrize("name", ["normalize_embeddings", "show_progress_bar", "prompt_name"])
def test_option_of_embedding_is_none_of_loading(bert_path: Any, name: str) -> None:
    with pytest.raises(TypeError, match=r"'(normalize|progress|prompt)' is an option of requests, as embed$"):
        Embedding(bert_path, **{name: True})


def test_methods_with_hints_keep_their_signatures() -> None:
    for method in (Embedding.embed, Embedding.embed_batches, Embedding.create_embedding, Llama.embed):
        assert "normalize" in inspect.signature(method).parameters
        assert method.__doc__


@pytest.mark.parametrize("kind", [Llama, Embedding])
@pytest.mark.parametrize("name", _OPTION_ADVICE)
def test_option_with_advice_is_not_there(kind: Any, name: str) -> None:
    with pytest.raises(TypeError) as raised:
        kind(data("llama.gguf"), **{name: 1})
    assert str(raised.value) == f"there is no option {name!r}; {_OPTION_ADVICE[name]}"


def test_vocab_only_and_numa_are_where_the_advice_says() -> None:
    from llamacy.core.backend import numa_init

    assert callable(numa_init)
    with llamacy.Model(data("llama.gguf"), vocab_only=True) as model:
        assert model.vocab_only


def test_messages_as_a_prompt_lead_to_chats(llama: Llama) -> None:
    with pytest.raises(TypeError, match="create_chat_completion takes messages"):
        llama([{"role": "user", "content": "Hello"}])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("all-minilm-l6-v2", "; llamacy.starter.pull('all-minilm-l6-v2') fetches it and returns its path"),
        (
            "org/a-model",
            "; Llama.from_pretrained('org/a-model', filename) fetches a GGUF file from the Hugging Face Hub",
        ),
        (
            "sentence-transformers/all-MiniLM-L6-v2",
            "; llamacy.starter.pull('all-minilm-l6-v2') fetches it and returns its path",
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
