"""Messages as people send them, made into what a template wants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llamacy.chat.plain import Plain, object_fields, short
from llamacy.chat.template import ChatTemplate
from llamacy.errors import ChatTemplateError

ROLES = frozenset(["system", "developer", "user", "assistant", "tool", "function"])
# those that every template knows under these names
_PLAIN_ROLES = frozenset(["system", "user", "assistant"])
MEDIA_TYPES = frozenset(
    ["image", "image_url", "input_image", "audio", "audio_url", "input_audio", "video", "video_url", "input_video"]
)
# templates and llama.cpp put text parts on lines of their own
_BETWEEN_PARTS = "\n"


def normalise_messages(
    messages: Any,
    template: ChatTemplate | None = None,
    *,
    media_marker: str | None = None,
    merge_system: bool = False,
    text_only: bool = False,
) -> list[dict[str, Any]]:
    """Return messages in the shape that a template renders.

    Accepted are dicts and objects with `model_dump`, with contents that are a text, a list of parts, or null where that
    means nothing: beside tool calls, and as the result of a tool. `function_call` and the role ``function`` become
    `tool_calls` and ``tool``. Keys that are absent, or null, stay absent. What the caller gave is never changed.

    Parameters
    ----------
    messages
        The messages of a request.
    template
        The template that they are for. Without one, texts stay texts and the arguments of calls stay as they are.
    media_marker
        The text that stands for an image, audio or video where the template doesn't render them. Without one, such a
        part is an error for such a template.
    merge_system
        Put system messages into the next message of the user when the template takes none.
    text_only
        Refuse all parts but texts, also where the template has a place for them: nobody reads them.

    Returns
    -------
    list of dict
        New messages, to be rendered with ``keep_null=True``.

    Raises
    ------
    TypeError, ValueError
        A message is wrong; the error names its index.
    ChatTemplateError
        The template would leave out a system message, tool calls or media.

    Thread safety
    -------------
    May be called by several threads at once.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, (list, tuple)):
        raise TypeError(
            f"messages must be a list of messages, not {type(messages).__name__}; "
            "one is {'role': 'user', 'content': 'Hello'}"
        )
    if not messages:
        raise ValueError("messages is empty: give at least one message")
    normaliser = _Normaliser(template, media_marker, text_only)
    made = [normaliser.message(message, f"messages[{index}]") for index, message in enumerate(messages)]
    if template is not None and not template.traits.system:
        made = _without_system(made, template, merge_system)
    return made


class _Normaliser:
    """What `normalise_messages` needs to know for each message."""

    def __init__(self, template: ChatTemplate | None, media_marker: str | None, text_only: bool) -> None:
        self.traits = None if template is None else template.traits
        self.media_marker = media_marker
        self._text_only = text_only
        self._takes_text = self.traits is None or self.traits.takes_text

    def message(self, message: Any, where: str) -> dict[str, Any]:
        """Return one message."""
        if type(message) is dict and len(message) == 2 and self._takes_text:
            # what nearly all messages are
            role, content = message.get("role"), message.get("content")
            if type(role) is str and role in _PLAIN_ROLES and type(content) is str:
                return {"role": role, "content": content}
        fields = _fields(message, where)
        given = {key: value for key, value in fields.items() if value is not None}
        role = self._role(given, where)
        made: dict[str, Any] = {"role": role}
        calls = self._calls(given, role, where)
        if role == "assistant" and calls and not given.get("content") and self.traits and self.traits.null_content:
            made["content"] = None
        else:
            made["content"] = self._content(given.get("content"), role, where)
        for key, value in given.items():
            if key not in ("role", "content", "tool_calls", "function_call"):
                made[key] = Plain().copy(value, f"{where}.{key}")
        reasoning = made.get("reasoning_content", "")
        if not isinstance(reasoning, str):
            raise TypeError(f"{where}.reasoning_content must be a text, not {type(reasoning).__name__}")
        if calls:
            made["tool_calls"] = calls
        return made

    def _role(self, given: dict[str, Any], where: str) -> str:
        role = given.get("role")
        if not isinstance(role, str):
            what = "is missing" if role is None else f"must be a text, not {type(role).__name__}"
            raise (ValueError if role is None else TypeError)(f"{where}.role {what}")
        known = self.traits.words if self.traits else frozenset()
        if role not in ROLES and role not in known:
            raise ValueError(f"{where}.role is {short(role)}; known roles are {', '.join(sorted(ROLES))}")
        if role == "developer" and self.traits and role not in known:
            return "system"
        return "tool" if role == "function" else str(role)

    def _content(self, content: Any, role: str, where: str) -> Any:
        if content is None:
            if role in ("assistant", "tool"):
                content = ""
            else:
                raise ValueError(f"{where}.content is missing; a message of the role {role!r} needs one")
        if isinstance(content, str):
            only_parts = self.traits is not None and not self.traits.takes_text
            return [{"type": "text", "text": str(content)}] if only_parts else str(content)
        if not isinstance(content, (list, tuple)):
            raise TypeError(f"{where}.content must be a text or a list of parts, not {type(content).__name__}")
        parts = [self._part(part, f"{where}.content[{index}]") for index, part in enumerate(content)]
        media = [part["type"] for part in parts if part["type"] in MEDIA_TYPES]
        if self.traits is None:
            return parts if media else _joined(parts)
        if role in self.traits.part_roles and (not media or self.traits.media):
            return parts
        if media and self.media_marker is None:
            raise ChatTemplateError(
                f"{where}.content has a part of type {media[0]!r}, which the chat template leaves out"
            )
        parts = [{"type": "text", "text": self.media_marker} if part["type"] in MEDIA_TYPES else part for part in parts]
        return _joined(parts) if self.traits.takes_text else parts

    def _part(self, part: Any, where: str) -> dict[str, Any]:
        if isinstance(part, str):
            return {"type": "text", "text": str(part)}
        fields = {key: value for key, value in _fields(part, where).items() if value is not None}
        kind = fields.get("type")
        if not isinstance(kind, str):
            examples = "'text'" if self._text_only else "'text' or 'image_url'"
            raise ValueError(f"{where}.type must be a text such as {examples}, not {kind!r}")
        if self._text_only and (kind in MEDIA_TYPES or kind in ("file", "input_file")):
            raise ValueError(
                f"{where} is a part of the type {short(kind)}, but this release of llamacy reads text only: images, "
                "audio, video and files can't be given yet"
            )
        if kind in MEDIA_TYPES:
            # not copied: who reads the medium wants the object that was given
            return {**fields, "type": str(kind)}
        if kind in ("input_text", "output_text"):
            kind = "text"
        elif kind == "refusal":
            fields, kind = {"text": fields.get("refusal")}, "text"
        if kind == "text" and not isinstance(fields.get("text"), str):
            raise TypeError(f"{where}.text must be a text, not {short(fields.get('text'))}")
        if kind != "text" and (self.traits is None or kind not in self.traits.words):
            raise ValueError(f"{where}.type is {short(kind)}, which is neither text nor a medium")
        copied: dict[str, Any] = Plain().copy({**fields, "type": kind}, where)
        return copied

    def _calls(self, given: dict[str, Any], role: str, where: str) -> list[dict[str, Any]]:
        calls = given.get("tool_calls", [])
        if not isinstance(calls, (list, tuple)):
            raise TypeError(f"{where}.tool_calls must be a list, not {type(calls).__name__}")
        calls = [self._call(_fields(call, name), name) for call, name in _named(calls, f"{where}.tool_calls")]
        if "function_call" in given:
            name = f"{where}.function_call"
            calls.append(self._call({"function": given["function_call"]}, name))
        if calls and role != "assistant":
            raise ValueError(f"{where} has tool calls, but its role is {role!r}, not 'assistant'")
        if calls and self.traits and not (self.traits.object_arguments or self.traits.text_arguments):
            raise ChatTemplateError(f"{where} has tool calls, which the chat template leaves out")
        return calls

    def _call(self, call: dict[str, Any], where: str) -> dict[str, Any]:
        function = _fields(call.get("function"), f"{where}.function")
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"{where}.function.name must be a text that isn't empty, not {short(name)}")
        more = {key: value for key, value in call.items() if value is not None and key not in ("type", "function")}
        made: dict[str, Any] = Plain().copy(more, where)
        arguments = self._arguments(function.get("arguments"), f"{where}.function.arguments")
        return {**made, "type": "function", "function": {"name": str(name), "arguments": arguments}}

    def _arguments(self, arguments: Any, where: str) -> Any:
        """Return the arguments of a call as JSON text or an object, whichever the template renders."""
        if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
            arguments = "{}"
        if isinstance(arguments, str):
            if self.traits is None or self.traits.text_arguments:
                return str(arguments)
            return _parsed(arguments, where)
        if not isinstance(arguments, Mapping):
            raise TypeError(f"{where} must be JSON text or an object, not {type(arguments).__name__}")
        copied = Plain().copy(arguments, where)
        if self.traits is None or self.traits.object_arguments:
            return copied
        return json.dumps(copied, ensure_ascii=False)


def _fields(value: Any, where: str) -> dict[str, Any]:
    """Return the fields of a dict or model, without copying what is in them."""
    if isinstance(value, Mapping):
        fields = dict(value)
    else:
        dumped = object_fields(value)
        if dumped is None:
            raise TypeError(f"{where} must be a dict or a model, not {type(value).__name__}")
        fields = dumped
    for key in fields:
        if not isinstance(key, str):
            raise TypeError(f"{where} has a key that is no text: {short(key)}")
    return fields


def _named(values: Any, where: str) -> list[tuple[Any, str]]:
    return [(value, f"{where}[{index}]") for index, value in enumerate(values)]


def _joined(parts: list[dict[str, Any]]) -> str:
    return _BETWEEN_PARTS.join(part["text"] for part in parts if part.get("text"))


def _parsed(arguments: str, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{where} is no JSON ({error}); the chat template needs an object: {short(arguments)}"
        ) from error
    if not isinstance(parsed, dict):
        raise ValueError(f"{where} must be a JSON object for this chat template, not {short(arguments)}")
    return parsed


def _without_system(messages: list[dict[str, Any]], template: ChatTemplate, merge_system: bool) -> list[dict[str, Any]]:
    """Return messages for a template that takes no system messages."""
    made: list[dict[str, Any]] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "system":
            if not merge_system:
                raise _system_error(messages, index, template)
            waiting.append(_text(message["content"]))
        elif message["role"] == "user" and waiting:
            made.append({**message, "content": _before(waiting, message["content"])})
            waiting = []
        else:
            made.append(message)
    if waiting:
        made.append(
            {"role": "user", "content": _before(waiting, "") if template.traits.takes_text else _before(waiting, [])}
        )
    return made


def _text(content: Any) -> str:
    return content if isinstance(content, str) else _joined(content)


def _before(texts: list[str], content: Any) -> Any:
    """Return a content with texts put in front."""
    if isinstance(content, str):
        return "\n\n".join([*texts, content] if content else texts)
    return [*({"type": "text", "text": text} for text in texts), *content]


def _system_error(messages: list[dict[str, Any]], index: int, template: ChatTemplate) -> ChatTemplateError:
    """Return the error for a system message, with what the template says about it."""
    refusal = None
    try:
        template.render(messages)
    except ChatTemplateError as error:
        refusal = error.refusal
    says = f" (it says: {refusal})" if refusal else ""
    return ChatTemplateError(
        f"messages[{index}]: the chat template takes no system messages{says}; "
        "put the text into a message of the user, or merge it",
        refusal=refusal,
    )
