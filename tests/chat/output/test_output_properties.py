"""Texts at random: nothing is lost, nothing raises, and pieces say what the whole says."""

from __future__ import annotations

import json

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llamacy.chat.output import (
    ContentDelta,
    Event,
    OutputFormat,
    ParsedMessage,
    ReasoningDelta,
    format_names,
    named_format,
)
from llamacy.chat.output.sinks import Prose
from tests.chat.output.recorded import RECORDED, TOOLS, plain

FORMATS = [named_format(name, source) for name in format_names() for source in ("", "<think></think>")]
formats = st.sampled_from(FORMATS)
letters = st.text(alphabet="aZ1 \n\t{}[]()<>|/=:,;\"'`\\-_.é東🏋\u200d\x00", max_size=12)
SHARED = ['{"name": "ping"', ', "arguments": ', "{}", "}", "ping", "get_weather", '"city": "x"', "\n", "```", "<think>"]


@st.composite
def outputs(draw: st.DrawFn) -> tuple[OutputFormat, str]:
    """Return a format, and a text of what it is made of."""
    output_format = draw(formats)
    parts = st.one_of(st.sampled_from([*output_format.markers, *SHARED]), letters)
    return output_format, "".join(draw(st.lists(parts, max_size=14)))


@st.composite
def changed_records(draw: st.DrawFn) -> tuple[OutputFormat, str]:
    """Return a format, and a recorded text in which something is missing or something was put."""
    record = draw(st.sampled_from(RECORDED))
    start = draw(st.integers(0, len(record.text)))
    end = min(len(record.text), start + draw(st.integers(0, 6)))
    return record.format, record.text[:start] + draw(letters) + record.text[end:]


def in_pieces(output_format: OutputFormat, text: str, cuts: list[int], **options: object) -> ParsedMessage:
    """Parse a text that is cut at some places."""
    parser = output_format.parser(TOOLS, **options)  # type: ignore[arg-type]
    places = sorted({min(cut, len(text)) for cut in cuts})
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    return ParsedMessage.of([*(event for piece in pieces for event in parser.feed(piece)), *parser.finish()])


@settings(deadline=None, max_examples=600)
@given(st.one_of(outputs(), changed_records()), st.lists(st.integers(0, 120), max_size=12), st.booleans())
def test_pieces_say_what_the_whole_says(output: tuple[OutputFormat, str], cuts: list[int], keep_thinking: bool) -> None:
    output_format, text = output
    reasoning = "none" if keep_thinking else "auto"
    whole = output_format.parse(text, TOOLS, reasoning=reasoning)
    assert plain(in_pieces(output_format, text, cuts, reasoning=reasoning)) == plain(whole)
    assert plain(in_pieces(output_format, text, [*range(len(text))], reasoning=reasoning)) == plain(whole)


def by_the_short_way(output_format: OutputFormat, text: str, cuts: list[int], **options: object) -> ParsedMessage:
    """Parse as `in_pieces`, but ask `content_of` and `reasoning_of` first, as streams do."""
    parser = output_format.parser(TOOLS, **options)  # type: ignore[arg-type]
    places = sorted({min(cut, len(text)) for cut in cuts})
    events: list[Event] = []
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        content = parser.content_of(text[start:end])
        if content is not None:
            events.append(ContentDelta(content))
        elif (thought := parser.reasoning_of(text[start:end])) is not None:
            events.append(ReasoningDelta(thought))
        else:
            events += parser.feed(text[start:end])
    return ParsedMessage.of([*events, *parser.finish()])


@settings(deadline=None, max_examples=600)
@given(st.one_of(outputs(), changed_records()), st.lists(st.integers(0, 120), max_size=12), st.booleans())
def test_content_of_pieces_and_feed_together_say_what_the_whole_says(
    output: tuple[OutputFormat, str], cuts: list[int], keep_thinking: bool
) -> None:
    output_format, text = output
    reasoning = "none" if keep_thinking else "auto"
    whole = output_format.parse(text, TOOLS, reasoning=reasoning)
    assert plain(by_the_short_way(output_format, text, cuts, reasoning=reasoning)) == plain(whole)
    assert plain(by_the_short_way(output_format, text, [*range(len(text))], reasoning=reasoning)) == plain(whole)


def test_content_of_takes_words_of_an_answer_and_nothing_else() -> None:
    parser = named_format("hermes").parser(TOOLS)
    pieces = ["Hello", ",", " you", "\n", "there", " <", "b>", "<tool_call>", '{"name": "ping"', ', "arguments": {}}']
    taken = []
    for piece in pieces:
        taken.append(parser.content_of(piece))
        if taken[-1] is None:
            parser.feed(piece)
    # the first piece may be thinking; white space waits; "<" may begin a call
    assert taken == [None, ",", " you", "", "\nthere", None, None, None, None, None]
    parser.finish()
    assert parser.content_of("more") is None


def test_reasoning_of_takes_words_of_thinking_and_nothing_else() -> None:
    parser = named_format("hermes", "<think></think>").parser(TOOLS)
    pieces = ["<think>", "\n", "Well", ",", " so", "\n\n", "it", " `", "x", "</", "think>", "Yes", "."]
    taken = []
    for piece in pieces:
        assert piece == "." or parser.content_of(piece) is None
        taken.append(parser.reasoning_of(piece))
        if taken[-1] is None:
            parser.feed(piece)
    # the first word is at a cut; what may be quoted, or end it, has to be read
    assert taken == [None, None, None, ",", " so", "", "\n\nit", None, "x", None, None, None, None]
    assert parser.reasoning_of("more") is None


def test_quote_that_was_passed_is_remembered() -> None:
    output_format = named_format("hermes", "<think></think>")
    for text, thought in (
        ("<think>a\n`b\nc`</think>`d</think>e", "a\n`b\nc`</think>`d"),
        ("<think>a `b`</think>`d</think>e", "a `b`"),
        ("<think>it's'</think>' so</think>e", "it's'</think>' so"),
    ):
        assert output_format.parse(text).reasoning_content == thought
        assert by_the_short_way(output_format, text, [*range(len(text))]).reasoning_content == thought


def test_passed_leaves_the_text_at_a_cut_to_write() -> None:
    written: list[str] = []
    prose = Prose(written.append, trimmed=True)
    assert prose.passed("word") is None
    prose.write(" word ")
    assert [prose.passed(piece) for piece in ("word\n", "\t", "word", "")] == [" word", "", "\n\tword", None]
    prose.cut()
    assert prose.passed("word") is None
    assert written == ["word"]


@settings(deadline=None, max_examples=600)
@given(st.one_of(outputs(), changed_records()))
def test_complete_calls_have_an_object_for_a_known_function(output: tuple[OutputFormat, str]) -> None:
    output_format, text = output
    message = output_format.parse(text, TOOLS)
    for call in message.tool_calls:
        assert call.name in {"ping", "get_weather", "run_code"}
        if call.complete:
            assert isinstance(json.loads(call.arguments), dict)
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)


@settings(deadline=None, max_examples=600)
@given(
    formats, st.one_of(st.text(max_size=60), st.lists(letters).map("".join)), st.lists(st.integers(0, 60), max_size=5)
)
def test_text_without_markers_comes_back_as_it_is(output_format: OutputFormat, text: str, cuts: list[int]) -> None:
    assume(not any(marker in text for marker in output_format.markers))
    assume(not text.lstrip().startswith("to="))
    assert plain(in_pieces(output_format, text, cuts)) == (text, "", [])


@settings(deadline=None, max_examples=300)
@given(outputs())
def test_calls_that_are_not_parsed_are_content(output: tuple[OutputFormat, str]) -> None:
    output_format, text = output
    assume(output_format.name not in {"harmony", "atem"})
    message = output_format.parse(text, TOOLS, parse_tools=False, reasoning="none")
    assert message.tool_calls == ()
    assert message.reasoning_content == ""
    dropped = [word for word in output_format.layout.words if word not in ("<think>", "</think>")]
    assume(not any(word in text for word in dropped))
    assert message.content == text


@settings(deadline=None, max_examples=300)
@given(outputs())
def test_content_is_a_part_of_the_text_in_order(output: tuple[OutputFormat, str]) -> None:
    output_format, text = output
    assume(output_format.name not in {"harmony", "atem"})  # these put messages on lines of their own
    message = output_format.parse(text, TOOLS)
    rest = iter(text)
    assert all(character in rest for character in message.content)
