"""Requests and answers of chats, as tests need them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.helpers import vendor_dir


def user(text: Any) -> list[dict[str, Any]]:
    """Return a chat of one message."""
    return [{"role": "user", "content": text}]


def tool(name: str, properties: dict[str, Any] | None = None, *required: str, **more: Any) -> dict[str, Any]:
    """Return the definition of a tool."""
    parameters = {"type": "object", "properties": properties or {}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


WEATHER = tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}, "city")
PING = tool("ping")


def vendored(name: str) -> str:
    """Return the source of a template of llama.cpp's tree."""
    return (vendor_dir() / "models" / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


def only(completion: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a completion that has one choice."""
    (choice,) = completion["choices"]
    message: dict[str, Any] = choice["message"]
    return message


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return names and arguments of the calls of a message."""
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", ())
    ]


def joined(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the completion that chunks add up to, by the rules of OpenAI's streams."""
    made: dict[int, dict[str, Any]] = {}
    head: dict[str, Any] = {}
    for chunk in chunks:
        head = {**head, **{key: value for key, value in chunk.items() if key != "choices"}}
        for choice in chunk["choices"]:
            entry = made.setdefault(
                choice["index"], {"index": choice["index"], "message": {}, "logprobs": None, "finish_reason": None}
            )
            assert entry["finish_reason"] is None, "a choice goes on after its end"
            _add(entry["message"], choice["delta"])
            if choice["logprobs"] is not None:
                entry["logprobs"] = entry["logprobs"] or {"content": [], "refusal": None}
                entry["logprobs"]["content"] += choice["logprobs"]["content"]
            for key in ("finish_reason", "stop_reason"):
                if key in choice:
                    entry[key] = choice[key]
    for entry in made.values():
        message = entry["message"]
        if message.get("tool_calls") and not message["content"]:
            message["content"] = None
    return {**head, "object": "chat.completion", "choices": [made[index] for index in sorted(made)]}


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "role":
            assert "role" not in message, "the role comes twice"
            message[key] = value
        elif key == "tool_calls":
            calls = message.setdefault(key, [])
            for call in value:
                if call["index"] == len(calls):
                    calls.append({"id": call["id"], "type": call["type"], "function": {"name": "", "arguments": ""}})
                else:
                    assert "id" not in call, "an id comes twice"
                _add(calls[call["index"]]["function"], call["function"])
        elif key == "function_call":
            _add(message.setdefault(key, {}), value)
        else:
            message[key] = message.get(key, "") + value


def without_ids(completion: dict[str, Any]) -> dict[str, Any]:
    """Return what two runs of one request have in common."""
    kept = json.loads(json.dumps(completion["choices"]))
    for choice in kept:
        for call in choice["message"].get("tool_calls", ()):
            assert call.pop("id")
    return kept
