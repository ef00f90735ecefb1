"""Files of a repository: patterns and split models, without the network."""

from __future__ import annotations

import sys

import pytest

from llamacy.embedding import Embedding
from llamacy.generate import hub
from llamacy.llama import Llama
from tests.helpers import data

FILES = [
    "README.md",
    "model-q4_k_m.gguf",
    "model-q8_0.gguf",
    "big-q4_0-00001-of-00003.gguf",
    "big-q4_0-00002-of-00003.gguf",
    "big-q4_0-00003-of-00003.gguf",
]


def test_match_one_file():
    assert hub.match(FILES, "*q4_k_m.gguf") == "model-q4_k_m.gguf"


def test_match_split_model_is_its_first_part():
    assert hub.match(FILES, "big-*.gguf") == "big-q4_0-00001-of-00003.gguf"


@pytest.mark.parametrize(("pattern", "message"), [("*.bin", "no file"), ("model-*", "2 files")])
def test_match_none_or_several_raises(pattern, message):
    with pytest.raises(ValueError, match=message):
        hub.match(FILES, pattern)


def test_parts_of_a_split_model_are_all_named():
    assert hub.parts("big-q4_0-00001-of-00003.gguf") == FILES[3:]
    assert hub.parts("model-q8_0.gguf") == ["model-q8_0.gguf"]


@pytest.mark.parametrize("made", [Llama, Embedding])
def test_from_pretrained_without_the_package_says_what_to_install(monkeypatch, made):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"llamacy\[hub\]"):
        made.from_pretrained("org/model", "model.gguf")


@pytest.mark.parametrize("made", [Llama, Embedding])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("additional_files", "all parts of a split model are fetched with its first one"),
        ("local_dir_use_symlinks", "huggingface_hub has no such option any more"),
        ("n_ctxx", "did you mean 'n_ctx'"),
    ],
)
def test_from_pretrained_refuses_an_option_before_it_fetches_anything(monkeypatch, made, option, message):
    monkeypatch.setattr(hub, "fetch", lambda *_, **__: pytest.fail("it is fetched"))
    with pytest.raises(TypeError, match=message):
        made.from_pretrained("org/model", "model.gguf", n_ctx=64, flash_attn=True, **{option: 1})


@pytest.mark.parametrize("made", [Llama, Embedding])
def test_from_pretrained_hands_all_options_on(monkeypatch, made):
    monkeypatch.setattr(hub, "fetch", lambda *_, **__: str(data("llama.gguf")))
    options = {
        "n_ctx": 64,
        "n_threads": 1,
        "embedding": True,
        "flash_attn": False,
        "verbose": False,
        "use_mlock": False,
    }
    with made.from_pretrained("org/model", "model.gguf", **options) as model:
        assert model.n_threads == 1
