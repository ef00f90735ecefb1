"""All templates of llama.cpp's tree, rendered as transformers renders them: tests/data/make_template_goldens.py."""

from __future__ import annotations

import json
import lzma
from typing import Any

import pytest

from llamacy.chat.template import ChatTemplate
from llamacy.errors import ChatTemplateError
from tests.data.make_template_goldens import CONVERSATIONS, NOW, TOKENS
from tests.helpers import data, vendor_dir

GOLDENS: dict[str, Any] = json.loads(lzma.decompress(data("template-goldens.json.xz").read_bytes()))
SPECIAL = {name: text for name, text in TOKENS.items() if name not in ("bos_token", "eos_token")}

#: What transformers can't do and llama.cpp can, by what transformers says.
MORE = (
    "No filter named 'from_json' found.",
    "Object of type generator is not JSON serializable",
    "access to attribute 'append' of 'list' object is unsafe.",
)


def template(name: str) -> ChatTemplate:
    source = (vendor_dir() / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(
        source, bos_token=TOKENS["bos_token"], eos_token=TOKENS["eos_token"], special_tokens=SPECIAL, name=name
    )


def test_goldens_are_of_all_templates_and_conversations() -> None:
    names = {path.stem for path in (vendor_dir() / "models" / "templates").glob("*.jinja")}
    assert set(GOLDENS["templates"]) == names
    assert GOLDENS["conversations"] == list(CONVERSATIONS)
    rendered = [row for rows in GOLDENS["templates"].values() for row in rows if isinstance(row, int)]
    assert len(rendered) > 1500


@pytest.mark.parametrize("name", GOLDENS["templates"])
def test_template_renders_as_transformers_does(name: str) -> None:
    chat_template = template(name)
    for conversation, expected in zip(GOLDENS["conversations"], GOLDENS["templates"][name], strict=True):
        given = CONVERSATIONS[conversation]
        if isinstance(expected, int):
            assert chat_template.render(**given, now=lambda: NOW) == GOLDENS["texts"][expected], conversation
            continue
        kind, message = expected
        if message in MORE:
            assert chat_template.render(**given, now=lambda: NOW)
            continue
        with pytest.raises(ChatTemplateError) as raised:
            chat_template.render(**given, now=lambda: NOW)
        if kind == "TemplateError":
            assert str(raised.value) == raised.value.refusal == message, conversation
        elif given.get("continue_final_message"):
            assert raised.value.refusal is None
        else:
            assert message in str(raised.value), conversation
            assert raised.value.refusal is None
