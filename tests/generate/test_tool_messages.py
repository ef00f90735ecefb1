"""Tools put into texts, for templates that say nothing of them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from llamacy.chat.output import detect
from llamacy.chat.template import ChatTemplate
from llamacy.generate.tool_messages import tool_messages
from tests.helpers.chats import WEATHER, user, vendored

CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
NO_SYSTEM = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
CALLED = [
    *user("Rain?"),
    {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [{"id": "a", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "no"}]},
    *user("Sure?"),
]


def told(source: str, messages: Any, *tools: Any) -> list[dict[str, Any]]:
    template = ChatTemplate(source)
    before = copy.deepcopy(messages)
    made = tool_messages(messages, template, detect(source), tools)
    assert messages == before, "what the caller gave was changed"
    return [{"role": message["role"], "content": message["content"]} for message in made]


@pytest.mark.parametrize("template", ["Qwen-Qwen2.5-7B-Instruct", "meta-llama-Llama-3.1-8B-Instruct"])
def test_template_that_shows_tools_and_calls_gets_what_was_given(template: str) -> None:
    source = vendored(template)
    assert tool_messages(CALLED, ChatTemplate(source), detect(source), [WEATHER]) is CALLED


def test_messages_without_tools_stay() -> None:
    assert told(CHATML, user("Hi")) == user("Hi")


@pytest.mark.parametrize("messages", [None, 3, "Hi", {"role": "user", "content": "Hi"}], ids=repr)
def test_messages_that_are_no_list_are_refused(messages: Any) -> None:
    with pytest.raises(TypeError, match="messages must be a list of messages"):
        tool_messages(messages, ChatTemplate(CHATML), detect(CHATML), ())


class Message:
    """What a client library returns."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def model_dump(self) -> dict[str, Any]:
        return dict(self._fields)


@pytest.mark.parametrize("at", [1, 2])
def test_calls_and_results_in_models_become_texts_too(at: int) -> None:
    messages: list[Any] = CALLED[: at + 1]
    expected = told(CHATML, messages)
    made = tool_messages([*messages[:at], Message(messages[at])], ChatTemplate(CHATML), detect(CHATML), ())
    assert [{"role": message["role"], "content": message["content"]} for message in made] == expected


def test_calls_and_results_become_texts() -> None:
    _, called, result, last = told(CHATML, CALLED)
    text, calls = called["content"].split("\n")
    assert text == "Let me look."
    assert json.loads(calls) == [{"name": "get_weather", "arguments": {"city": "Rome"}}]
    assert result == {"role": "user", "content": "get_weather returned: no"}
    assert last == user("Sure?")[0]


@pytest.mark.parametrize("arguments", ['{"city": "Ro', "", None], ids=repr)
def test_calls_whose_arguments_are_no_json_are_shown_as_they_are(arguments: Any) -> None:
    messages = copy.deepcopy(CALLED)
    messages[1]["tool_calls"][0]["function"]["arguments"] = arguments
    calls = json.loads(told(CHATML, messages)[1]["content"].split("\n")[1])
    assert calls == [{"name": "get_weather", "arguments": arguments or {}}]


def test_result_of_an_unknown_call_has_no_name() -> None:
    result = {"role": "tool", "tool_call_id": "z", "content": "no"}
    assert told(CHATML, [*user("Hi"), result])[1] == {"role": "user", "content": "The function returned: no"}


def test_function_of_old_has_its_name() -> None:
    result = {"role": "function", "name": "f", "content": "no"}
    assert told(CHATML, [*user("Hi"), result])[1]["content"] == "f returned: no"


@pytest.mark.parametrize("content", ["Be brief.", [{"type": "text", "text": "Be brief."}]], ids=["text", "parts"])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_tools_are_told_after_the_system_message(role: str, content: Any) -> None:
    system, question = told(CHATML, [{"role": role, "content": content}, *user("Hi")], WEATHER)
    assert system["content"].startswith("Be brief.\n\n")
    assert json.dumps(WEATHER["function"]["parameters"]["properties"]) in system["content"]
    assert question == user("Hi")[0]


def test_tools_are_told_by_a_system_message_or_the_user() -> None:
    system, question = told(CHATML, user("Hi"), WEATHER)
    assert (system["role"], question) == ("system", user("Hi")[0])
    (both,) = told(NO_SYSTEM, user("Hi"), WEATHER)
    assert both == {"role": "user", "content": f"{system['content']}\n\nHi"}


def test_tools_are_told_when_nobody_asked() -> None:
    answer = {"role": "assistant", "content": "Hello."}
    first, second = told(NO_SYSTEM, [answer], WEATHER)
    assert (first["role"], second) == ("user", answer)
    assert "get_weather" in first["content"]


def test_media_stay_beside_what_is_told() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    (message,) = told(NO_SYSTEM, user([picture]), WEATHER)
    assert "get_weather" in message["content"][0]["text"]
    assert message["content"][1:] == [picture]
