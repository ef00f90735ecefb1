"""Public fault cases of the area chat-tools that concern what a model writes, and of streams where calls are in them.

Those that concern prompts are with the templates.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from llamacy.chat.output import (
    ContentDelta,
    Event,
    OutputFormat,
    OutputParser,
    ParsedMessage,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    format_names,
    named_format,
)

HERMES = named_format("hermes", "<think></think>")


def tool(name: str, properties: dict[str, Any] | None = None, required: list[str] | None = None) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties or {}, "required": required or []}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def hermes_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def streamed(parser: OutputParser, text: str) -> list[Event]:
    return [*(event for character in text for event in parser.feed(character)), *parser.finish()]


def test_ct_011_tool_call_does_not_stay_in_the_content() -> None:
    message = HERMES.parse('<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>', [tool("f")])
    (call,) = message.tool_calls
    assert (call.name, call.arguments, message.content) == ("f", '{"x": 1}', "")


def test_ct_011_two_calls_are_two_entries() -> None:
    text = hermes_call("f", '{"x": 1}') + "\n" + hermes_call("f", '{"x": 2}')
    message = HERMES.parse(text, [tool("f")])
    assert [json.loads(call.arguments) for call in message.tool_calls] == [{"x": 1}, {"x": 2}]
    assert len({call.id for call in message.tool_calls}) == 2


def test_ct_012_optional_parameter_before_a_required_one_is_read() -> None:
    search = tool("search", {"path": {"type": "string"}, "pattern": {"type": "string"}}, ["pattern"])
    message = HERMES.parse(hermes_call("search", '{"path":"src","pattern":"x"}'), [search])
    assert message.tool_calls[0].arguments == '{"path":"src","pattern":"x"}'


def test_ct_014_required_parameters_are_read_in_any_order() -> None:
    three = tool("f", {key: {"type": "integer"} for key in "abc"}, ["a", "b", "c"])
    tagged = "".join(f"<parameter={key}>\n{number}\n</parameter>\n" for number, key in enumerate("cab"))
    text = f"<tool_call>\n<function=f>\n{tagged}</function>\n</tool_call>"
    (call,) = named_format("qwen3-coder").parse(text, [three]).tool_calls
    assert json.loads(call.arguments) == {"c": 0, "a": 1, "b": 2}
    (call,) = HERMES.parse(hermes_call("f", '{"c": 0, "a": 1, "b": 2}'), [three]).tool_calls
    assert json.loads(call.arguments) == {"c": 0, "a": 1, "b": 2}


def test_ct_014_missing_required_argument_shows_when_the_arguments_are_validated() -> None:
    one = tool("f", {"a": {"type": "integer"}}, ["a"])
    (call,) = HERMES.parse(hermes_call("f", "{}"), [one]).tool_calls
    with pytest.raises(jsonschema.ValidationError, match="'a' is a required property"):
        jsonschema.validate(json.loads(call.arguments), one["function"]["parameters"])


QUOTED = "<think>the tag `</think>` closes it\n</think>\nAnswer"


def test_ct_015_quoted_end_tag_does_not_end_the_thinking() -> None:
    message = HERMES.parse(QUOTED)
    assert message.reasoning_content == "the tag `</think>` closes it"
    assert message.content == "Answer"
    assert ParsedMessage.of(streamed(HERMES.parser(), QUOTED)) == message


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ('<think>say "</think>" now</think>A', 'say "</think>" now', "A"),
        ("<think>say '</think>' now</think>A", "say '</think>' now", "A"),
        ("<think>use `x`</think>`x`", "use `x`", "`x`"),
        ('<think>"x"</think>"x"', '"x"', '"x"'),
        ("<think>a `b\nc `</think>` d</think>A", "a `b\nc `</think>` d", "A"),
        ("<think>`</think>", "`", ""),
        ("<think>a</think>`b`", "a", "`b`"),
    ],
)
def test_ct_015_only_a_tag_within_a_pair_of_marks_is_quoted(text: str, reasoning: str, content: str) -> None:
    message = HERMES.parse(text)
    assert (message.reasoning_content, message.content) == (reasoning, content)
    assert ParsedMessage.of(streamed(HERMES.parser(), text)) == message


@pytest.mark.parametrize("text", ["<think>a</think>b", "\na</think>b", "<think>\na\n</think>\n\nb ", "a</think>b"])
@pytest.mark.parametrize("prompt_suffix", ["", "<think>\n"])
def test_ct_017_thinking_that_is_not_told_apart_keeps_its_tags(text: str, prompt_suffix: str) -> None:
    whole = HERMES.parse(text, reasoning="none", prompt_suffix=prompt_suffix)
    assert whole == ParsedMessage(text)
    events = streamed(HERMES.parser(reasoning="none", prompt_suffix=prompt_suffix), text)
    assert ParsedMessage.of(events) == whole


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_ct_018_arguments_come_in_pieces_that_make_up_json(size: int) -> None:
    code = 'a\n"b"'
    text = hermes_call("f", json.dumps({"code": code})) + hermes_call("g", "{}")
    parser = HERMES.parser([tool("f"), tool("g")])
    events = [
        event for start in range(0, len(text), size) for event in parser.feed(text[start : start + size])
    ] + parser.finish()
    arguments = ["", ""]
    for event in events:
        if isinstance(event, ToolArgumentsDelta):
            # an escape is never cut
            assert not event.text.endswith("\\") or event.text.endswith("\\\\")
            arguments[event.index] += event.text
    assert [json.loads(text) for text in arguments] == [{"code": code}, {}]
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert [(start.index, start.name) for start in starts] == [(0, "f"), (1, "g")]


def test_ct_018_arguments_come_while_they_are_written() -> None:
    parser = HERMES.parser([tool("f")])
    parser.feed('<tool_call>\n{"name": "f", "arguments": {"code": "')
    assert parser.feed("x = 1;") == [ToolArgumentsDelta(0, "x = 1;")]
    assert parser.feed(' y = "') == [ToolArgumentsDelta(0, ' y = "')]


def test_ct_018_order_with_content_is_kept() -> None:
    events = streamed(HERMES.parser([tool("f")]), "Well.\n" + hermes_call("f", "{}") + "\nDone.")
    kinds = [type(event) for event in events]
    assert kinds.index(ToolCallStart) > kinds.index(ContentDelta)
    assert kinds.index(ToolCallEnd) < len(kinds) - 1 - kinds[::-1].index(ContentDelta)


@pytest.mark.parametrize(("text", "has_calls"), [(hermes_call("f", "{}"), True), ("Well.", False)])
def test_ct_020_events_tell_whether_the_reason_is_tool_calls(text: str, has_calls: bool) -> None:
    """The finish reason is ``"tool_calls"`` when a call has begun; a call that was cut off has no end."""
    events = streamed(HERMES.parser([tool("f")]), text)
    assert any(isinstance(event, ToolCallStart) for event in events) == has_calls
    assert any(isinstance(event, ToolCallEnd) for event in events) == has_calls


def test_st_014_text_that_is_no_marker_is_sent_as_soon_as_that_is_known() -> None:
    parser = HERMES.parser([tool("f")])
    assert parser.feed("Hi <to") == [ContentDelta("Hi")]
    assert parser.feed("ol") == []
    assert parser.feed("s>") == [ContentDelta(" <tools>")]
    assert parser.feed("!") == [ContentDelta("!")]


def test_st_017_marker_in_pieces_is_never_shown() -> None:
    events = [*(event for piece in ("ok", "<th", "ink", ">") for event in HERMES.parser().feed(piece))]
    assert ContentDelta("<") not in events
    parser = HERMES.parser()
    events = [event for piece in ("<th", "ink", ">x", "</th", "ink>", "y") for event in parser.feed(piece)]
    assert events == [ReasoningDelta("x"), ContentDelta("y")]


def test_st_015_text_that_ends_within_a_marker_is_sent_at_the_end() -> None:
    parser = HERMES.parser()
    assert parser.feed("t<tool_") == [ContentDelta("t")]
    assert parser.finish() == [ContentDelta("<tool_")]
    assert parser.finish() == []


def test_st_018_markers_with_one_beginning_are_told_apart_and_sent_at_the_end() -> None:
    parser = named_format("minicpm", "<think></think>").parser()
    assert parser.feed("<think>t</fun") == [ReasoningDelta("t</fun")]
    assert parser.feed("</th") == []
    assert parser.finish() == [ReasoningDelta("</th")]


@pytest.mark.parametrize("name", format_names())
def test_st_004_characters_of_many_code_points_stay_whole(name: str) -> None:
    text = "🏋️‍♂️ 안녕 é\u200d "
    output_format: OutputFormat = named_format(name)
    assert ParsedMessage.of(streamed(output_format.parser([tool("f")]), text)).content == text
