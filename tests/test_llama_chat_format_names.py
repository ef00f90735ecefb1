"""Names of chat formats that llama-cpp-python has: each is there, or its error says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llamacy import Llama
from llamacy._elsewhere import _NO_MEDIA, _OF_IMAGES, _OF_MODEL, _OF_TOOLS
from llamacy.chat.classic import chat_format_names, register_chat_format
from tests.helpers import data

ONE: dict[str, Any] = {"n_ctx": 64, "n_threads": 1}
# what it registers (llama_chat_format.py), and what its server knows beside that (server/model.py)
REGISTERED = """
alpaca baichuan baichuan-2 chatglm3 chatml chatml-function-calling functionary functionary-v1 functionary-v2 gemma intel
llama-2 llama-3 mistral-instruct mistrallite oasst_llama open-orca openbuddy openchat phind pygmalion qwen
redpajama-incite saiga snoozy vicuna zephyr
"""
OF_SERVER = """
hf-autotokenizer hf-tokenizer-config llava-1-5 llava-1-6 llama-3-vision-alpha minicpm-v-2.6 moondream nanollava obsidian
"""


@pytest.mark.parametrize("name", [*REGISTERED.split(), *OF_SERVER.split(), *_OF_TOOLS, *_OF_MODEL, *_OF_IMAGES])
def test_format_of_llama_cpp_python_is_there_or_told(closing: Callable[[Any], Any], name: str) -> None:
    if name in chat_format_names():
        assert closing(Llama(data("llama.gguf"), chat_format=name, **ONE)).chat_template.name == name
        return
    with pytest.raises(ValueError) as raised:
        Llama(data("llama.gguf"), chat_format=name, **ONE)
    hint = str(raised.value).removeprefix(f"there is no chat format {name!r}; ")
    if "function" in name:
        assert hint == "tools work with the model's own template; leave chat_format out"
    elif name.startswith(("hf-", "chat_template")):
        assert hint == "the model's own template is taken where chat_format is left out"
    else:
        assert hint == _NO_MEDIA


@pytest.mark.parametrize(("name", "hint"), [("chatm", "did you mean 'chatml'"), ("no such", "known are alpaca, ")])
def test_other_names_are_told_what_is_near(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"there is no chat format '{name}'; {hint}"):
        Llama(data("llama.gguf"), chat_format=name, **ONE)
    for wrong in (5, ["chatml"], {}):
        with pytest.raises(TypeError, match="the name of a chat format is a text"):
            Llama(data("llama.gguf"), chat_format=wrong, **ONE)  # type: ignore[arg-type]


def test_format_of_that_name_that_was_added_is_taken(
    closing: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from llamacy.chat import classic

    monkeypatch.setattr(classic, "_formats", dict(classic._formats))
    register_chat_format("functionary-v2", "{{ messages[0].content }}")
    llama = closing(Llama(data("llama.gguf"), chat_format="functionary-v2", **ONE))
    assert llama.chat_prompt([{"role": "user", "content": "the cat"}]) == "the cat"
