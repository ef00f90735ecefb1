"""`normalise_messages`: shapes that people send, and what templates want of them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from llamacy.chat.classic import classic_template
from llamacy.chat.messages import normalise_messages
from llamacy.chat.template import ChatTemplate
from llamacy.errors import ChatTemplateError
from tests.helpers import vendor_dir

USER = {"role": "user", "content": "hello"}
PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}

#: Templates that want contents and arguments in different shapes.
TEXT = ChatTemplate("{% for m in messages %}{{ m.role + ':' + m.content }}{% endfor %}")
PART = ChatTemplate("{% for m in messages %}{{ m.role }}{% for p in m.content %}{{ p.text }},{% endfor %}{% endfor %}")
BOTH = ChatTemplate(
    "{% for m in messages %}{{ m.role }}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{{ p.text if p.type == 'text' else '<image>' }},{% endfor %}{% endif %}{% endfor %}"
)


def calls(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    return [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]},
    ]


def calling(argument: str) -> ChatTemplate:
    """Return a template that writes the arguments of calls in some way."""
    return ChatTemplate(
        "{% for m in messages %}{{ m.role + ':' + m.content }}{% for c in m.tool_calls or [] %}"
        + argument
        + "{% endfor %}{% endfor %}"
    )


def vendored(name: str) -> ChatTemplate:
    source = (vendor_dir() / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>")


def test_text_parts_are_joined_for_a_template_that_wants_text() -> None:
    (message,) = normalise_messages([{"role": "user", "content": PARTS}], TEXT)
    assert message == {"role": "user", "content": "a\nb"}
    assert normalise_messages([{"role": "user", "content": ["a", "b"]}]) == [message]


def test_text_becomes_a_part_for_a_template_that_wants_parts() -> None:
    (message,) = normalise_messages([USER], PART)
    assert message["content"] == [{"type": "text", "text": "hello"}]
    assert PART.render([message]) == "userhello,"


def test_both_stay_as_they_are_for_a_template_that_takes_both() -> None:
    chat = [USER, {"role": "user", "content": PARTS}]
    assert normalise_messages(chat, BOTH) == chat
    assert BOTH.render(normalise_messages(chat, BOTH)) == "userhellousera,b,"


def test_medium_is_kept_for_a_template_that_writes_it() -> None:
    chat = [{"role": "user", "content": [IMAGE, *PARTS]}]
    assert normalise_messages(chat, BOTH) == chat
    assert normalise_messages(chat) == chat
    part = normalise_messages(chat, BOTH)[0]["content"][0]
    assert part["image_url"] is IMAGE["image_url"], "a medium isn't copied"


def test_medium_is_marked_or_refused_for_a_template_that_leaves_it_out() -> None:
    chat = [USER, {"role": "user", "content": [IMAGE, *PARTS]}]
    with pytest.raises(ChatTemplateError, match=r"messages\[1\].content has a part of type 'image_url'"):
        normalise_messages(chat, TEXT)
    made = normalise_messages(chat, TEXT, media_marker="<__media__>")
    assert made[1]["content"] == "<__media__>\na\nb"


@pytest.mark.parametrize("given", ['{"a": [1, "ü"]}', {"a": [1, "ü"]}])
def test_arguments_are_made_into_what_the_template_writes(given: Any) -> None:
    def arguments(template: ChatTemplate | None) -> Any:
        return normalise_messages(calls(given), template)[1]["tool_calls"][0]["function"]["arguments"]

    value = {"a": [1, "ü"]}
    assert arguments(None) == given
    assert arguments(calling("{{ c.function.arguments|tojson }}")) == value
    assert arguments(calling("{% for k, v in c.function.arguments.items() %}{{ k }}{{ v }}{% endfor %}")) == value
    assert json.loads(arguments(calling("{{ '' + c.function.arguments }}"))) == value
    # printed as Python does it would be no JSON
    assert json.loads(arguments(calling("{{ c.function.arguments }}"))) == value
    either = "{{ c.function.arguments if c.function.arguments is string else c.function.arguments|tojson }}"
    assert arguments(calling(either)) == given


@pytest.mark.parametrize("given", ["", "  ", None, "{}", {}])
def test_arguments_that_say_nothing_are_an_empty_object(given: Any) -> None:
    for template, expected in (
        (calling("{{ c.function.arguments|tojson }}"), {}),
        (calling("{{ '' + c.function.arguments }}"), "{}"),
    ):
        made = normalise_messages(calls(given), template)
        assert made[1]["tool_calls"][0]["function"]["arguments"] == expected


@pytest.mark.parametrize("given", ["{", "[1]", "3", "9" * 5000, "[" * 100_000])
def test_arguments_that_are_no_object_are_refused_where_one_is_needed(given: str) -> None:
    template = calling("{{ c.function.arguments|tojson }}")
    with pytest.raises(ValueError, match=r"messages\[1\]\.tool_calls\[0\]\.function\.arguments"):
        normalise_messages(calls(given), template)
    assert normalise_messages(calls(given))[1]["tool_calls"][0]["function"]["arguments"] == given


def test_calls_that_the_template_leaves_out_are_refused() -> None:
    with pytest.raises(ChatTemplateError, match=r"messages\[1\] has tool calls"):
        normalise_messages(calls({}), TEXT)


def test_null_content_is_kept_for_the_template_that_asks_for_it() -> None:
    deepseek = vendored("deepseek-ai-DeepSeek-R1-Distill-Llama-8B")
    for content in (None, ""):
        chat = calls('{"a": 1}')
        chat[1]["content"] = content
        made = normalise_messages(chat, deepseek)
        assert made[1]["content"] is None
        assert '{"a": 1}' in deepseek.render(made, keep_null=True)
    assert normalise_messages(calls("{}"), vendored("Qwen-Qwen3-0.6B"))[1]["content"] == ""


@pytest.mark.parametrize(
    ("name", "text", "parts", "objects", "texts", "system"),
    [
        # read off the sources of the templates
        ("Qwen-Qwen3-0.6B", True, False, True, True, True),
        ("Qwen3-Coder", True, False, True, False, True),
        ("GLM-4.6", True, True, True, False, True),
        ("google-gemma-2-2b-it", True, False, False, False, False),
        ("meetkai-functionary-medium-v3.2", True, False, False, True, True),
        ("Qwen3.5-4B", True, True, True, False, True),
        ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", True, False, True, True, True),
    ],
)
def test_traits_of_known_templates(
    name: str, text: bool, parts: bool, objects: bool, texts: bool, system: bool
) -> None:
    traits = vendored(name).traits
    assert (traits.takes_text, "user" in traits.part_roles) == (text, parts)
    assert (traits.object_arguments, traits.text_arguments) == (objects, texts)
    assert traits.system is system


def test_template_that_needs_variables_of_its_own_changes_nothing() -> None:
    template = ChatTemplate("{{ mine.x }}{{ messages[0].content }}")
    assert normalise_messages([USER], template) == [USER]
    assert template.render([USER], mine={"x": 1}) == "1hello"


def test_developer_is_system_where_the_template_does_not_know_it() -> None:
    developer = {"role": "developer", "content": "x"}
    assert normalise_messages([developer, USER])[0]["role"] == "developer"
    assert normalise_messages([developer, USER], TEXT)[0]["role"] == "system"
    assert normalise_messages([developer, USER], vendored("openai-gpt-oss-120b"))[0]["role"] == "developer"


@pytest.mark.parametrize(
    "template",
    [vendored("google-gemma-2-2b-it"), classic_template("gemma"), ChatTemplate("{{ messages[-1].content }}")],
)
def test_system_message_is_refused_or_merged_where_there_is_none(template: ChatTemplate) -> None:
    chat = [{"role": "system", "content": "be brief"}, USER]
    with pytest.raises(ChatTemplateError, match=r"messages\[0\]: the chat template takes no system messages") as raised:
        normalise_messages(chat, template)
    assert raised.value.refusal is None or raised.value.refusal in str(raised.value)
    assert normalise_messages(chat, template, merge_system=True) == [{"role": "user", "content": "be brief\n\nhello"}]
    assert normalise_messages(chat[:1], template, merge_system=True) == [{"role": "user", "content": "be brief"}]


def test_refusal_of_gemma_is_told() -> None:
    with pytest.raises(ChatTemplateError, match="System role not supported"):
        normalise_messages([{"role": "system", "content": "x"}, USER], vendored("google-gemma-2-2b-it"))


def test_roles_that_the_template_knows_are_accepted() -> None:
    chat = [{"role": "critic", "content": "x"}]
    with pytest.raises(ValueError, match=r"messages\[0\]\.role is 'critic'"):
        normalise_messages(chat, TEXT)
    template = ChatTemplate("{% for m in messages %}{% if m.role == 'critic' %}!{% endif %}{{ m.content }}{% endfor %}")
    assert template.render(normalise_messages(chat, template)) == "!x"


def test_functions_of_old_become_tool_calls() -> None:
    chat = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ]
    assert normalise_messages(chat) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "1", "name": "f"},
    ]


def test_models_are_messages() -> None:
    pydantic = pytest.importorskip("pydantic")
    function = pydantic.create_model("Function", name=(str, "f"), arguments=(str, "{}"))
    call = pydantic.create_model("Call", id=(str, "1"), type=(str, "function"), function=(function, function()))
    message = pydantic.create_model(
        "Message",
        role=(str, "assistant"),
        content=(str | None, None),
        refusal=(str | None, None),
        tool_calls=(list[call], [call()]),
    )
    assert normalise_messages([message()]) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        }
    ]


def test_other_parts_and_keys_are_kept() -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "no"}, {"type": "output_text", "text": "x"}],
    }
    more = {"name": "n", "reasoning_content": "hm", "own": {"a": [1]}}
    assert normalise_messages([{**message, **more}]) == [{"role": "assistant", "content": "no\nx", **more}]


def test_what_the_caller_gave_is_never_changed() -> None:
    chat = [
        {"role": "developer", "content": PARTS},
        {"role": "user", "content": [IMAGE, *PARTS], "own": [1]},
        *calls({"a": {"b": [1]}})[1:],
        {"role": "tool", "tool_call_id": "1", "content": None},
    ]
    before = copy.deepcopy(chat)
    for template in (None, TEXT, PART, BOTH, calling("{{ c.function.arguments|tojson }}")):
        try:
            made = normalise_messages(chat, template, media_marker="<m>", merge_system=True)
        except ChatTemplateError:
            made = []
        for message in made:
            message["role"] = "changed"
            for value in message.values():
                if isinstance(value, list):
                    value.append("changed")
        assert chat == before


@pytest.mark.parametrize(
    ("message", "error", "match"),
    [
        (3, TypeError, r"messages\[1\] must be a dict"),
        ({"content": "x"}, ValueError, r"messages\[1\]\.role is missing"),
        ({"role": None, "content": "x"}, ValueError, r"messages\[1\]\.role is missing"),
        ({"role": 3, "content": "x"}, TypeError, r"messages\[1\]\.role must be a text"),
        ({"role": "bot", "content": "x"}, ValueError, r"messages\[1\]\.role is 'bot'"),
        ({"role": "user"}, ValueError, r"messages\[1\]\.content is missing"),
        ({"role": "system", "content": None}, ValueError, r"messages\[1\]\.content is missing"),
        ({"role": "user", "content": 3}, TypeError, r"messages\[1\]\.content must be"),
        ({"role": "user", "content": {"type": "text"}}, TypeError, r"messages\[1\]\.content must be"),
        ({"role": "user", "content": [3]}, TypeError, r"messages\[1\]\.content\[0\] must be a dict"),
        ({"role": "user", "content": [{}]}, ValueError, r"messages\[1\]\.content\[0\]\.type"),
        ({"role": "user", "content": [{"type": "text"}]}, TypeError, r"messages\[1\]\.content\[0\]\.text"),
        ({"role": "user", "content": [{"type": "odour"}]}, ValueError, r"messages\[1\]\.content\[0\]\.type is 'odour'"),
        (
            {"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]},
            ValueError,
            r"messages\[1\] has tool",
        ),
        ({"role": "assistant", "tool_calls": "x"}, TypeError, r"messages\[1\]\.tool_calls must be a list"),
        ({"role": "assistant", "tool_calls": [3]}, TypeError, r"messages\[1\]\.tool_calls\[0\] must be a dict"),
        ({"role": "assistant", "tool_calls": [{}]}, TypeError, r"messages\[1\]\.tool_calls\[0\]\.function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, ValueError, r"tool_calls\[0\]\.function\.name"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}, TypeError, "arguments"),
        ({"role": "assistant", "reasoning_content": [1]}, TypeError, r"messages\[1\]\.reasoning_content"),
        ({3: 4}, TypeError, r"messages\[1\] has a key"),
    ],
)
def test_wrong_message_is_named(message: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        normalise_messages([USER, message])


@pytest.mark.parametrize(
    ("messages", "error"), [(None, TypeError), ("x", TypeError), (USER, TypeError), (3, TypeError), ([], ValueError)]
)
def test_wrong_list_is_refused(messages: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="messages"):
        normalise_messages(messages)


def test_message_that_holds_itself_is_refused() -> None:
    message: dict[str, Any] = {"role": "user", "content": "x"}
    message["own"] = message
    with pytest.raises(ValueError, match=r"messages\[0\]\.own"):
        normalise_messages([message])
    arguments: dict[str, Any] = {}
    arguments["a"] = arguments
    with pytest.raises(ValueError, match=r"messages\[1\].*arguments"):
        normalise_messages(calls(arguments))


def test_model_that_fails_is_named() -> None:
    class Model:
        def model_dump(self) -> Any:
            raise RuntimeError("no")

    with pytest.raises(ValueError, match="model_dump of a Model failed: no"):
        normalise_messages([Model()])
