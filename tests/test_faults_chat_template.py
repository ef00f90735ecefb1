"""Public fault cases of the area chat-tools that chat templates and messages reach, and ST-025."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from llamacy.chat.messages import normalise_messages
from llamacy.chat.template import ChatTemplate
from llamacy.errors import ChatTemplateError
from tests.helpers import vendor_dir

USER = {"role": "user", "content": "w?"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
CALLED = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "42"},
]
PRINT = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.tool_calls if m.tool_calls is defined }};{% endfor %}"
TEMPLATES = sorted(path.stem for path in (vendor_dir() / "models" / "templates").glob("*.jinja"))


def vendored(name: str) -> ChatTemplate:
    source = (vendor_dir() / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", name=name)


def render(template: ChatTemplate, messages: list[Any], **more: Any) -> str:
    return template.render(normalise_messages(messages, template), keep_null=True, **more)


def test_ct_001_helpers_of_hugging_face_are_there() -> None:
    template = ChatTemplate("{{ strftime_now('%Y') }}|{{ raise_exception is defined }}|{{ messages|tojson }}")
    before = datetime.datetime.now().year  # noqa: DTZ005
    year, defined, messages = template.render([{"role": "user", "content": "<ü>"}]).split("|")
    assert int(year) in (before, before + 1)
    assert defined == "True"
    assert messages == '[{"role": "user", "content": "<ü>"}]'


def test_ct_002_filters_tests_and_methods_of_jinja_are_there() -> None:
    source = (
        "{% for m in messages|rejectattr('role','equalto','system') %}{{ m.role }};{% endfor %}"
        "{{ 'a b'.split()|join('-') }}{{ x|default('d') }}"
    )
    chat = [{"role": role, "content": ""} for role in ("system", "user", "assistant")]
    assert ChatTemplate(source).render(chat) == "user;assistant;a-bd"


def test_ct_004_tokens_are_texts_also_when_the_vocabulary_has_none() -> None:
    source = "{{ bos_token + 'x' }}{{ eos_token }}"
    assert ChatTemplate(source).render([USER]) == "x"
    assert ChatTemplate(source, bos_token="<s>", eos_token="</s>").render([USER]) == "<s>x</s>"


def test_ct_005_refusal_of_a_template_is_loud() -> None:
    source = (
        "{% if messages[0].role=='user' and messages[1].role=='user' %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
    )
    with pytest.raises(ChatTemplateError) as raised:
        ChatTemplate(source).render([USER, USER])
    assert str(raised.value) == "roles must alternate"


def test_ct_007_null_content_beside_tool_calls_is_empty_text() -> None:
    assert render(ChatTemplate(PRINT), CALLED).startswith("user:w?;assistant:[")
    assert "None" not in render(ChatTemplate(PRINT), CALLED)


@pytest.mark.parametrize("arguments", ['{"a":1,"b":"x"}', {"a": 1, "b": "x"}])
def test_ct_008_arguments_are_what_the_template_wants(arguments: Any) -> None:
    function = {"name": "f", "arguments": arguments}
    chat = [USER, {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}]
    items = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{% for k,v in c.function.arguments|items %}{{k}}={{v}};{% endfor %}{% endfor %}{{ m.content }}{% endfor %}"
    )
    assert render(ChatTemplate(items), chat) == "w?a=1;b=x;"
    text = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name + c.function.arguments }}{% endfor %}{{ m.content }}{% endfor %}"
    )
    written = render(ChatTemplate(text), chat)
    assert written in ('w?f{"a":1,"b":"x"}', 'w?f{"a": 1, "b": "x"}')


@pytest.mark.parametrize("name", TEMPLATES)
def test_ct_007_008_010_chat_with_calls_renders_in_every_template(name: str) -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "f",
            "description": "d",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "d"}}},
        },
    }
    template = vendored(name)
    call = {**CALL, "id": "call00001"}
    chat = [
        USER,
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "name": "f", "content": ""},
        {"role": "assistant", "content": "done", "reasoning_content": "so"},
        {"role": "user", "content": "more"},
    ]
    if not (template.traits.object_arguments or template.traits.text_arguments):
        with pytest.raises(ChatTemplateError, match=r"messages\[1\] has tool calls"):
            normalise_messages(chat, template)
        return
    more = {"functions": "[]", "datetime": "now"} if "firefunction" in name else {}
    if name == "google-translategemma-4b-it":
        # it takes texts with the languages beside them only
        with pytest.raises(ChatTemplateError) as raised:
            render(template, chat)
        assert raised.value.refusal
        return
    prompt = render(template, chat, tools=[tool], documents=[], **more)
    assert "done" in prompt
    assert "more" in prompt


def test_ct_010_absent_keys_are_undefined_and_not_null() -> None:
    source = (
        "{% for m in messages %}{% for key in m %}{{ key }},{% endfor %}{% for c in m.tool_calls %}"
        "{{ c.function.name }}{% endfor %};{% endfor %}"
    )
    chat = [
        {"role": "user", "content": "w?", "name": None, "tool_calls": None},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [CALL], "refusal": None},
        {"role": "tool", "tool_call_id": "1", "content": ""},
    ]
    made = normalise_messages(chat)
    assert [sorted(message) for message in made] == [
        ["content", "role"],
        ["content", "reasoning_content", "role", "tool_calls"],
        ["content", "role", "tool_call_id"],
    ]
    assert "name" not in ChatTemplate(source).render(made)


def test_st_025_template_with_bos_makes_exactly_one() -> None:
    for name in TEMPLATES:
        template = vendored(name)
        if not template.traits.takes_text or "firefunction" in name or "translategemma" in name:
            continue
        assert render(template, [USER], tools=[], documents=[]).count("<s>") <= 1, name


@pytest.mark.model
def test_st_025_prompt_of_smollm2_is_what_its_makers_write(smollm2_model: Any) -> None:
    vocab = smollm2_model.vocab
    bos, eos = (vocab.text(token) for token in (vocab.bos, vocab.eos))
    template = ChatTemplate(smollm2_model.chat_template(), bos_token=bos, eos_token=eos)
    prompt = render(template, [{"role": "user", "content": "Hello"}])
    # the system message is the template's own
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    tokens = vocab.tokenize(prompt, add_special=False, parse_special=True)
    # its BOS is what begins every message
    assert (bos, eos) == ("<|im_start|>", "<|im_end|>")
    assert list(tokens).count(vocab.bos) == 3
    assert tokens[0] == vocab.bos
