"""What a template wants of its messages, found by rendering probes with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import nodes

from llamacy.chat.sandbox import environment
from llamacy.errors import ChatTemplateError

if TYPE_CHECKING:
    from llamacy.chat.template import ChatTemplate

_TEXT = "qzprobetextqz"
_KEY, _VALUE = "qzprobekey", "qzprobevalue"
_NAME, _ID = "qzprobename", "qzprobeid"
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "probe",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "string", "description": "probe"}},
            "required": ["x"],
        },
    },
}
# some templates refuse an answer without
_THOUGHTS = {"reasoning_content": "thoughts", "thinking": "thoughts"}
_MEDIA: list[dict[str, Any]] = [
    {"type": "image", "image": "x"},
    {"type": "image_url", "image_url": {"url": "x"}},
    {"type": "audio", "audio": "x"},
    {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
    {"type": "video", "video": "x"},
]


@dataclass(frozen=True)
class TemplateTraits:
    """What a chat template does with the parts of a request.

    Attributes
    ----------
    takes_text
        Whether it renders contents that are a text.
    part_roles
        The roles whose contents may be lists of parts.
    media
        The types of parts, other than text, that it writes something for.
    null_content
        Whether the content beside tool calls must be null, since the calls are left out otherwise.
    object_arguments, text_arguments
        Whether it renders the arguments of tool calls when they are an object, and when they are JSON text.
    system
        Whether it renders system messages.
    tools
        Whether it shows the model the tools.
    words
        The constants and names in its source: roles, keys and types that it knows.
    """

    takes_text: bool
    part_roles: frozenset[str]
    media: frozenset[str]
    null_content: bool
    object_arguments: bool
    text_arguments: bool
    system: bool
    tools: bool
    words: frozenset[str]


def probe(template: ChatTemplate) -> TemplateTraits:
    """Return what a template wants, as its renderings of small chats show.

    A template that renders none of them, since it needs a variable of its own, gets the traits that change nothing.

    Parameters
    ----------
    template
        The template.
    """
    words = template_words(template.source)
    parts = [{"type": "text", "text": _TEXT}]
    takes_text = _TEXT in _render(template, _chat("user", _TEXT, "hello"))
    takes_parts = _is_written(_render(template, _chat("user", parts, parts)))
    if not takes_text and not takes_parts:
        return TemplateTraits(True, frozenset(), frozenset(), False, True, True, True, True, words)
    plain: Any = "hello" if takes_text else [{"type": "text", "text": "hello"}]
    roles = ("user", "system", "assistant", "tool")
    part_roles = {role for role in roles if _is_written(_render(template, _chat(role, parts, plain)))}
    empty: Any = "" if takes_text else []
    as_object, as_text = _render_calls(template, plain, empty)
    null_content = False
    if _KEY not in as_object + as_text:
        with_null = _render_calls(template, plain, None)
        if _KEY in "".join(with_null):
            null_content = True
            as_object, as_text = with_null
    system: Any = _TEXT if takes_text else parts
    return TemplateTraits(
        takes_text=takes_text,
        part_roles=frozenset(part_roles),
        media=frozenset(part["type"] for part in _MEDIA if _takes_media(template, part))
        if takes_parts
        else frozenset(),
        null_content=null_content,
        # Python's way of writing an object is no JSON, and text that is encoded again isn't what a model learnt
        object_arguments=_KEY in as_object and _VALUE in as_object and f"'{_KEY}'" not in as_object,
        text_arguments=_KEY in as_text and _VALUE in as_text and f'\\"{_KEY}' not in as_text,
        system=_TEXT in _render(template, _chat("system", system, plain)),
        tools=_NAME in _render(template, _chat("user", plain, plain), [_TOOL]),
        words=words,
    )


def template_words(source: str) -> frozenset[str]:
    """Return the text constants and the names of attributes in the source of a template.

    Parameters
    ----------
    source
        The Jinja source.
    """
    tree = environment.parse(source)
    texts = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    return frozenset(texts | {node.attr for node in tree.find_all(nodes.Getattr)})


def _is_written(prompt: str) -> bool:
    # a template that writes a list as Python or JSON does isn't made for lists
    return _TEXT in prompt and "'type'" not in prompt and '"type": "text"' not in prompt


def _render_calls(template: ChatTemplate, plain: Any, content: Any) -> tuple[str, str]:
    """Return prompts with a call whose arguments are an object, and JSON text."""
    arguments = {_KEY: _VALUE}
    as_object = _render(template, _call(plain, arguments, content))
    return as_object, _render(template, _call(plain, json.dumps(arguments), content))


def _chat(role: str, content: Any, plain: Any) -> list[dict[str, Any]]:
    """Return a chat with a message of a role, in a place where templates expect it."""
    if role == "user":
        return [{"role": "user", "content": content}]
    if role == "system":
        return [{"role": "system", "content": content}, {"role": "user", "content": plain}]
    if role == "assistant":
        user = {"role": "user", "content": plain}
        return [user, {"role": role, "content": content, **_THOUGHTS}, user]
    chat = _call(plain, {_KEY: _VALUE}, "" if isinstance(plain, str) else [])
    chat[-1]["content"] = content
    return chat


def _call(plain: Any, arguments: Any, content: Any) -> list[dict[str, Any]]:
    calls = [{"id": _ID, "type": "function", "function": {"name": _NAME, "arguments": arguments}}]
    return [
        {"role": "user", "content": plain},
        {"role": "assistant", "content": content, "tool_calls": calls, **_THOUGHTS},
        {"role": "tool", "tool_call_id": _ID, "name": _NAME, "content": plain},
    ]


def _render(template: ChatTemplate, messages: list[dict[str, Any]], tools: Any = None) -> str:
    """Return the prompt, or nothing where the template refuses the messages with and without tools."""
    for offered in [tools] if tools else [None, [_TOOL]]:
        try:
            return template.render_plain(messages, tools=offered, documents=[] if offered else None)
        except ChatTemplateError:
            continue
    return ""


def _takes_media(template: ChatTemplate, part: dict[str, Any]) -> bool:
    text = {"type": "text", "text": _TEXT}
    plain = _render(template, [{"role": "user", "content": [text]}])
    prompt = _render(template, [{"role": "user", "content": [part, text]}])
    return _TEXT in prompt and prompt != plain
