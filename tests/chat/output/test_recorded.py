"""Recorded outputs: whole, in pieces, cut off."""

from __future__ import annotations

import json

import pytest

from llamacy.chat.output import ParsedMessage, ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from tests.chat.output.recorded import EVERY_TEMPLATE, RECORDED, TEMPLATES, Recorded, pieces_of, plain, values

every_record = pytest.mark.parametrize("record", RECORDED, ids=lambda record: record.name)
# one of each format is enough where every end of the text is tried
ONE_A_FORMAT = list({record.format.name: record for record in RECORDED if len(record.calls) > 0}.values())


@every_record
def test_parse_of_a_recorded_output_returns_what_it_says(record: Recorded) -> None:
    assert values(record.parse()) == (record.content, record.reasoning, record.calls)


@every_record
def test_feed_in_pieces_says_the_same_as_the_whole(record: Recorded) -> None:
    whole = plain(record.parse())
    for size in (1, 2, 3):
        for first in range(size):
            events = record.stream(pieces_of(record.text, size, first))
            assert plain(ParsedMessage.of(events)) == whole


@every_record
def test_feed_tells_each_call_in_order(record: Recorded) -> None:
    begun: list[int] = []
    ended: list[int] = []
    for event in record.stream(list(record.text)):
        if isinstance(event, ToolCallStart):
            assert event.index == len(begun) == len(ended)
            assert event.name
            assert event.id
            begun.append(event.index)
        elif isinstance(event, ToolArgumentsDelta):
            assert event.index == begun[-1]
            assert event.index not in ended
            assert event.text
        elif isinstance(event, ToolCallEnd):
            ended.append(event.index)
    assert len(begun) == len(record.calls)
    assert begun == ended


@pytest.mark.parametrize("record", ONE_A_FORMAT, ids=lambda record: record.format.name)
def test_parse_of_a_text_that_is_cut_off_returns_a_beginning(record: Recorded) -> None:
    whole = record.parse()
    for end in range(len(record.text)):
        message = record.parse(record.text[:end])
        for number, call in enumerate(message.tool_calls):
            full = whole.tool_calls[number]
            assert call.name == full.name
            assert full.arguments.startswith(call.arguments)
            if call.complete:
                assert call.arguments == full.arguments
            else:
                assert number == len(message.tool_calls) - 1
        if not message.tool_calls and not whole.reasoning_content and not message.content.startswith(whole.content):
            assert message.content.strip() in record.text[:end]


@pytest.mark.parametrize("record", ONE_A_FORMAT, ids=lambda record: record.format.name)
def test_arguments_come_while_they_are_written(record: Recorded) -> None:
    """Every call tells its name before its end is there, and strings are not held back to their end."""
    parser = record.format.parser(prompt_suffix=record.prompt_suffix)
    seen_before_the_end = False
    for character in record.text:
        events = parser.feed(character)
        if any(isinstance(event, ToolCallEnd) for event in events):
            break
        seen_before_the_end |= any(isinstance(event, ToolCallStart) for event in events)
    assert seen_before_the_end or record.calls[0][1] == {}


def test_every_vendored_template_is_recorded() -> None:
    assert sorted(EVERY_TEMPLATE) == sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
    # of these the templates write no calls
    assert [name for name, cases in EVERY_TEMPLATE.items() if not cases] == [
        "HuggingFaceTB-SmolLM3-3B",
        "LFM2-8B-A1B",
        "LFM2.5-Instruct",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "google-gemma-2-2b-it",
        "google-translategemma-4b-it",
        "ibm-granite-granite-3.3-2B-Instruct",
        "llama-cpp-rwkv-world",
        "microsoft-Phi-3.5-mini-instruct",
    ]


def test_recorded_file_is_what_the_templates_write() -> None:
    from tests.data import make_tool_outputs

    assert json.loads(make_tool_outputs.OUTPUT.read_text(encoding="utf-8")) == make_tool_outputs.document()
