"""Tools in words, for a model whose template doesn't know of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamacy.chat.output.format import OutputFormat
    from llamacy.chat.template import ChatTemplate

Message = dict[str, Any]


def with_tools_in_text(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], template: ChatTemplate, output: OutputFormat
) -> list[Message]:
    """Return messages that tell of tools, calls and results in words where the template leaves them out.

    Parameters
    ----------
    messages
        As `normalise_messages` returns them without a template.
    tools
        The tools that the model may call; they are told in the first system message.
    template
        What renders the messages.
    output
        How the model writes calls.
    """
    traits = template.traits
    made = list(messages)
    if not (traits.object_arguments or traits.text_arguments):
        made = _with_calls_in_text(made, output)
    if tools and not traits.tools:
        made = _with_instructions(made, output.instructions(tools), takes_system=traits.system)
    return made


def _with_calls_in_text(messages: Sequence[Message], output: OutputFormat) -> list[Message]:
    made: list[Message] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.get("tool_calls"):
            calls = [
                (call["function"]["name"], _json(call["function"].get("arguments"))) for call in message["tool_calls"]
            ]
            names.update({call["id"]: call["function"]["name"] for call in message["tool_calls"] if "id" in call})
            rest = {key: value for key, value in message.items() if key != "tool_calls"}
            text = _text(message.get("content"))
            made.append({**rest, "content": "\n".join(filter(None, (text, output.syntax.text_of(calls))))})
        elif message["role"] == "tool":
            name = message.get("name") or names.get(message.get("tool_call_id", ""), "")
            result = f"Result of {name}:\n" if name else "Result:\n"
            made.append({"role": "user", "content": result + _text(message.get("content"))})
        else:
            made.append(message)
    return _merged(made)


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Return messages with results of several calls in one: many templates refuse two messages of the user in a row."""
    made: list[Message] = []
    for message in messages:
        if made and _is_user_text(made[-1]) and _is_user_text(message):
            made[-1] = {**made[-1], "content": f"{made[-1]['content']}\n\n{message['content']}"}
        else:
            made.append(message)
    return made


def _is_user_text(message: Message) -> bool:
    return message["role"] == "user" and isinstance(message["content"], str)


def _with_instructions(messages: Sequence[Message], text: str, *, takes_system: bool) -> list[Message]:
    role = "system" if takes_system else "user"
    made = list(messages)
    for index, message in enumerate(made):
        if message["role"] in {role, "developer"} and (role == "user" or index == 0):
            content = message.get("content")
            if isinstance(content, str) or content is None:
                made[index] = {**message, "content": f"{text}\n\n{content}" if content else text}
            else:
                made[index] = {**message, "content": [{"type": "text", "text": text}, *content]}
            return made
        if role == "system":
            break
    return [{"role": role, "content": text}, *made]


def _json(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments or "{}"
    return json.dumps(arguments or {}, ensure_ascii=False)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or () if isinstance(part, Mapping))
