"""Recorded outputs of models, with what they say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from llamacy.chat.output import Event, OutputFormat, ParsedMessage, detect, named_format
from tests.helpers import REPO

OUTPUTS = REPO / "tests" / "data" / "tool_outputs"
TEMPLATES = REPO / "vendor" / "llama.cpp" / "models" / "templates"

_DOCUMENT = json.loads((OUTPUTS / "templates.json").read_text(encoding="utf-8"))
TOOLS: list[dict[str, Any]] = _DOCUMENT["tools"]
# what templates write in another way than the rest
_CONTENT_IS_THINKING = {("llm-jp-llm-jp-4.1-8b-thinking", "text"), ("openai-gpt-oss-120b", "text")}
_CONTENT_AFTER_SPACE = {("Reka-Edge", "text")}

Calls = list[tuple[str, Any, bool]]


@dataclass(frozen=True)
class Recorded:
    """A text, and what it says."""

    name: str
    format: OutputFormat
    prompt_suffix: str
    text: str
    content: str
    reasoning: str
    calls: list[list[Any]]

    def parse(self, text: str | None = None) -> ParsedMessage:
        """Parse the text, or another in its place, as a whole."""
        return self.format.parse(self.text if text is None else text, TOOLS, prompt_suffix=self.prompt_suffix)

    def stream(self, pieces: list[str]) -> list[Event]:
        """Return the events of a text in pieces."""
        parser = self.format.parser(TOOLS, prompt_suffix=self.prompt_suffix)
        return [*(event for piece in pieces for event in parser.feed(piece)), *parser.finish()]


def source_of(template: str) -> str:
    """Return the source of a vendored template."""
    return (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")


def plain(message: ParsedMessage) -> tuple[str, str, list[tuple[str, str, bool]]]:
    """Return what a message says, without ids."""
    calls = [(call.name, call.arguments, call.complete) for call in message.tool_calls]
    return message.content, message.reasoning_content, calls


def values(message: ParsedMessage) -> tuple[str, str, list[list[Any]]]:
    """Return what a message says, with arguments as values."""
    calls = [[call.name, json.loads(call.arguments)] for call in message.tool_calls]
    return message.content, message.reasoning_content, calls


def pieces_of(text: str, size: int, first: int = 0) -> list[str]:
    """Cut a text, the first piece being of another size."""
    return [text[:first], *(text[start : start + size] for start in range(first, len(text), size))]


def _written() -> list[Recorded]:
    found = []
    for template, cases in _DOCUMENT["templates"].items():
        output_format = detect(source_of(template)) if cases else None
        for name, case in cases.items():
            assert output_format is not None
            expected = _DOCUMENT["expected"][name]
            content, reasoning = expected.get("content", ""), expected.get("reasoning", "")
            if (template, name) in _CONTENT_IS_THINKING:
                content, reasoning = "", content
            if (template, name) in _CONTENT_AFTER_SPACE:
                content = " " + content
            found.append(
                Recorded(
                    f"{template}-{name}",
                    output_format,
                    case["prompt_suffix"],
                    case["text"],
                    content,
                    reasoning,
                    expected["calls"],
                )
            )
    return found


def _handwritten() -> list[Recorded]:
    return [
        Recorded(
            f"{case['format']}-{case['name']}",
            named_format(case["format"], case.get("template", "")),
            case.get("prompt_suffix", ""),
            case["text"],
            case["content"],
            case["reasoning"],
            case["calls"],
        )
        for case in json.loads((OUTPUTS / "handwritten.json").read_text(encoding="utf-8"))
    ]


WRITTEN = _written()
RECORDED = WRITTEN + _handwritten()
EVERY_TEMPLATE: dict[str, Any] = _DOCUMENT["templates"]
