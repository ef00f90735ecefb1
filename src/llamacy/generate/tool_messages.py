"""Messages for templates that say nothing of tools: which there are, and what was called, are put into their texts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamacy.chat.messages import normalise_messages

if TYPE_CHECKING:
    from llamacy.chat.output.format import OutputFormat
    from llamacy.chat.template import ChatTemplate


def tool_messages(
    messages: Sequence[Any], template: ChatTemplate, output: OutputFormat, tools: Sequence[Mapping[str, Any]]
) -> Sequence[Any]:
    """Return the messages of a request, with what the template would leave out of tools in their texts.

    Parameters
    ----------
    messages
        Messages as the caller gave them.
    template, output
        The template, and how a model with it writes.
    tools
        The tools that may be called.

    Raises
    ------
    TypeError, ValueError
        A message is wrong.
    """
    traits = template.traits
    hides_tools = bool(tools) and not traits.tools
    hides_calls = not (traits.object_arguments or traits.text_arguments)
    if not hides_tools and not (hides_calls and _may_speak_of_calls(messages)):
        return messages
    made = normalise_messages(messages)
    if hides_calls:
        made = _with_calls_in_texts(made, output)
    return _with_instructions(made, output.instructions(tools), takes_system=traits.system) if hides_tools else made


def _may_speak_of_calls(messages: Any) -> bool:
    """Tell whether there may be calls, or results of them: there are none in a list of dicts without such keys."""
    if not isinstance(messages, (list, tuple)):
        return True
    return any(
        not isinstance(message, dict)
        or message.get("role") in ("tool", "function")
        or "tool_calls" in message
        or "function_call" in message
        for message in messages
    )


def _with_calls_in_texts(messages: list[dict[str, Any]], output: OutputFormat) -> list[dict[str, Any]]:
    """Return messages in which calls are in the text of the assistant, and results in that of the user."""
    made: list[dict[str, Any]] = []
    names: dict[Any, str] = {}
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            name = message.get("name") or names.get(message.get("tool_call_id"), "")
            results.append(f"{name or 'The function'} returned: {message['content']}")
            if len(results) > 1:
                made.pop()
            made.append({"role": "user", "content": "\n".join(results)})
            continue
        results = []
        calls = message.get("tool_calls")
        if calls:
            names.update({call.get("id"): call["function"]["name"] for call in calls})
            written = output.syntax.text_of([_call(call["function"]) for call in calls])
            message = {key: value for key, value in message.items() if key != "tool_calls"}
            message["content"] = f"{message['content']}\n{written}" if message["content"] else written
        made.append(message)
    return made


def _call(function: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and the arguments as JSON text; what a model wrote may be cut off, and is shown as a string."""
    arguments = function["arguments"]
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments)
    return function["name"], json.dumps(arguments, ensure_ascii=False)


def _with_instructions(messages: list[dict[str, Any]], text: str, *, takes_system: bool) -> list[dict[str, Any]]:
    """Return messages of which the first one for the system, or of the user, has a text more."""
    roles = ("system", "developer") if takes_system else ("user",)
    first = messages[0]
    if first["role"] not in roles:
        if takes_system:
            return [{"role": "system", "content": text}, *messages]
        place = next((index for index, message in enumerate(messages) if message["role"] == "user"), None)
        if place is None:
            return [{"role": "user", "content": text}, *messages]
    else:
        place = 0
    message = messages[place]
    content = message["content"]
    if isinstance(content, str):
        pair = (content, text) if takes_system else (text, content)
        joined: Any = "\n\n".join(part for part in pair if part)
    else:
        joined = [{"type": "text", "text": text}, *content]
    return [*messages[:place], {**message, "content": joined}, *messages[place + 1 :]]
