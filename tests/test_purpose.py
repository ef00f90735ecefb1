"""Models that can't do what `Llama` is asked for: the error names what can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llamacy
from llamacy import Embedding, Llama
from tests.helpers import data

_CHAT = [{"role": "user", "content": "hi"}]
_ONE = {"n_threads": 1, "n_threads_batch": 1}


def _asked(llm: Llama) -> list[Callable[[], Any]]:
    return [
        lambda: llm("hi"),
        lambda: list(llm.generate([1, 2])),
        lambda: llm.create_chat_completion(_CHAT),
        lambda: llm.chat_template,
    ]


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("bert_path", "; embed() makes vectors of texts"),
        ("rank_path", "; llamacy.Embedding scores pairs and texts with it: rerank() and classify()"),
        ("t5_path", "; embed() makes vectors with the encoder, and Context.encode() and decode() are there"),
    ],
)
def test_model_that_makes_no_text_says_what_it_is_for(path: str, advice: str, request: pytest.FixtureRequest) -> None:
    file: Path = request.getfixturevalue(path)
    with Llama(file, **_ONE) as llm:
        for ask in _asked(llm):
            with pytest.raises((llamacy.InvalidBatchError, llamacy.ChatTemplateError)) as raised:
                ask()
            assert advice in str(raised.value)
            assert "create_completion" not in str(raised.value)
        assert len(llm.embed("hi"))
    with Llama(file, chat_format="chatml", **_ONE) as llm, pytest.raises(llamacy.InvalidBatchError) as raised:
        llm.create_chat_completion(_CHAT)
    assert advice in str(raised.value)


def test_reranker_does_what_the_error_says(rank_path: Path) -> None:
    with Embedding(rank_path, **_ONE) as model:
        assert len(model.rerank("hi", ["one", "two"])) == 2
        assert model.classify("hi").label


@pytest.mark.parametrize("kind", [Llama, Embedding])
@pytest.mark.parametrize(
    ("path", "advice"), [("lora_path", "give it as lora_path"), ("control_vector_path", "set_control_vector()")]
)
def test_file_that_is_no_model_is_told(kind: Any, path: str, advice: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(llamacy.ModelFormatError) as raised:
        kind(request.getfixturevalue(path))
    assert advice in str(raised.value)
    assert raised.value.log


@pytest.mark.parametrize("kind", [Llama, Embedding])
@pytest.mark.parametrize("name", ["eagle3.gguf", "dflash.gguf"])
def test_draft_model_alone_is_told(kind: Any, name: str) -> None:
    with pytest.raises(llamacy.ContextCreateError, match="can't be used alone: it drafts for another model"):
        kind(data(name), **_ONE)
