"""Render the chat templates of llama.cpp with Hugging Face's transformers, for tests/chat/test_template_goldens.py.

    pip install "transformers==5.24.0" jinja2
    python tests/data/make_template_goldens.py

It writes tests/data/template-goldens.json.xz: for each template and each conversation the text that
`apply_chat_template` returns, or the error that it raises. Texts that occur more than once are stored once.
"""

from __future__ import annotations

import datetime
import json
import lzma
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent
TEMPLATES = DATA.parents[1] / "vendor" / "llama.cpp" / "models" / "templates"
NOW = datetime.datetime(2025, 2, 3, 4, 5, 6)  # noqa: DTZ001 - templates know local time only
TOKENS = {"bos_token": "<BOS>", "eos_token": "<EOS>", "unk_token": "<UNK>", "pad_token": "<PAD>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Weather of a place, "now" or later <soon>',
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town, e.g. Zürich"},
                "days": {"type": "integer", "description": "How many", "default": 1},
                "unit": {"type": "string", "description": "Of the result", "enum": ["C", "F"]},
            },
            "required": ["place"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "array", "description": "Words", "items": {"type": "string"}},
                "options": {
                    "type": "object",
                    "description": "How",
                    "properties": {"safe": {"type": "boolean", "description": "Safe only"}},
                },
            },
            "required": ["query"],
        },
    },
}
TOOLS = [WEATHER, SEARCH]
SYSTEM = {"role": "system", "content": "Answer briefly."}
USER = {"role": "user", "content": "What is 2+2?"}
ANSWER = {"role": "assistant", "content": "4"}
AGAIN = {"role": "user", "content": "And 3+3?"}
ASK = {"role": "user", "content": "Weather in Zürich?"}


def call(name: str, arguments: Any, number: int) -> dict[str, Any]:
    """Return one tool call."""
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the turn of an assistant that calls tools."""
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **more}


def result(content: Any, number: int, name: str = "get_weather") -> dict[str, Any]:
    """Return the result of a tool call."""
    return {"role": "tool", "tool_call_id": f"call0000{number}", "name": name, "content": content}


PLACE = {"place": "Zürich", "days": 2}
ONE_CALL = [ASK, calling(call("get_weather", PLACE, 1)), result('{"t": 21}', 1)]
THOUGHTS = "First I add.\nThen I look."

#: What `render` gets, by name.
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "user": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, ANSWER, AGAIN]},
    "no-generation-prompt": {"messages": [SYSTEM, USER, ANSWER, AGAIN], "add_generation_prompt": False},
    "answered": {"messages": [USER, ANSWER], "add_generation_prompt": False},
    "continue": {"messages": [SYSTEM, USER, {"role": "assistant", "content": "It is"}], "continue_final_message": True},
    "continue-space": {
        "messages": [USER, {"role": "assistant", "content": "It is "}],
        "continue_final_message": True,
    },
    "continue-parts": {
        "messages": [USER, {"role": "assistant", "content": [{"type": "text", "text": "It is"}]}],
        "continue_final_message": True,
    },
    "tools": {"messages": [SYSTEM, ASK], "tools": TOOLS},
    "tools-no-system": {"messages": [ASK], "tools": [WEATHER]},
    "call": {"messages": ONE_CALL, "tools": TOOLS},
    "call-null": {
        "messages": [ASK, calling(call("get_weather", PLACE, 1), content=None), result("21", 1)],
        "tools": TOOLS,
    },
    "call-text-arguments": {
        "messages": [ASK, calling(call("get_weather", '{"place": "Zürich", "days": 2}', 1)), result('{"t": 21}', 1)],
        "tools": TOOLS,
    },
    "calls": {
        "messages": [
            SYSTEM,
            ASK,
            calling(
                call("get_weather", PLACE, 1),
                call("search", {"query": ['a "b"', "<c>"], "options": {"safe": True}}, 2),
                content="I look.",
            ),
            result('{"t": 21}', 1),
            result("", 2, "search"),
            {"role": "assistant", "content": "Warm."},
            AGAIN,
        ],
        "tools": TOOLS,
    },
    "reasoning": {"messages": [USER, {**ANSWER, "reasoning_content": THOUGHTS}, AGAIN]},
    "reasoning-last": {
        "messages": [USER, {**ANSWER, "reasoning_content": THOUGHTS}],
        "add_generation_prompt": False,
    },
    "reasoning-call": {
        "messages": [ASK, calling(call("get_weather", PLACE, 1), reasoning_content=THOUGHTS), result('{"t": 21}', 1)],
        "tools": TOOLS,
    },
    "reasoning-inline": {"messages": [USER, {"role": "assistant", "content": "<think>\nSum.\n</think>\n\n4"}, AGAIN]},
    "thinking-off": {"messages": [SYSTEM, USER], "enable_thinking": False, "thinking": False},
    "thinking-on": {"messages": [SYSTEM, USER], "enable_thinking": True, "thinking": True},
    "parts": {
        "messages": [
            SYSTEM,
            {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "2+2?"}]},
        ]
    },
    "image": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]},
    "documents": {
        "messages": [USER],
        "documents": [{"title": "Sums", "text": "2+2 is 4."}, {"title": "T", "text": '"quoted" <b>'}],
    },
    "functions": {"messages": [SYSTEM, USER], "functions": "[]", "datetime": "now", "tools": [], "documents": []},
    "developer": {"messages": [{"role": "developer", "content": "Be kind."}, USER]},
    "users": {"messages": [USER, AGAIN]},
    "special": {
        "messages": [
            {"role": "user", "content": "  <a href=\"x\">&amp; 'q' {{ b }} {% c %} \\n \n\n日本 🦙\t "},
            {"role": "assistant", "content": "\n ok \n"},
            {"role": "user", "content": ""},
        ]
    },
}


def main() -> None:
    """Write the goldens."""
    import tokenizers
    import transformers
    from transformers.utils import chat_template_utils

    class Clock(datetime.datetime):
        @classmethod
        def now(cls) -> Clock:
            return cls(*NOW.timetuple()[:6])

    chat_template_utils.datetime = Clock
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel({"<UNK>": 0}, unk_token="<UNK>")), **TOKENS
    )
    texts: dict[str, int] = {}
    renders: dict[str, list[Any]] = {}
    for path in sorted(TEMPLATES.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        rows: list[Any] = []
        for given in CONVERSATIONS.values():
            options = {"add_generation_prompt": not given.get("continue_final_message"), **given}
            messages = options.pop("messages")
            try:
                text = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **options)
            except Exception as error:
                rows.append([type(error).__name__, str(error)])
            else:
                rows.append(texts.setdefault(text, len(texts)))
        renders[path.stem] = rows
    goldens = {
        "made_with": {"transformers": transformers.__version__, "python": sys.version.split()[0]},
        "conversations": list(CONVERSATIONS),
        "texts": list(texts),
        "templates": renders,
    }
    blob = json.dumps(goldens, ensure_ascii=False, separators=(",", ":")).encode()
    (DATA / "template-goldens.json.xz").write_bytes(lzma.compress(blob, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
