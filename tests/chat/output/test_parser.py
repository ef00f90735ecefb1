"""The parser: what it holds back, what it keeps, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llamacy.chat.output import (
    ContentDelta,
    Event,
    OutputParser,
    ParsedMessage,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    detect,
    format_names,
    named_format,
)
from tests.chat.output.recorded import TOOLS

HERMES = named_format("hermes", "<think></think>")
CALL = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


def test_events_of_a_call_come_in_order() -> None:
    parser = HERMES.parser(TOOLS, make_id=lambda: "id")
    assert parser.feed(f"<think>Hm.</think>\nWell.\n{CALL}") == [
        ReasoningDelta("Hm."),
        ContentDelta("Well."),
        ToolCallStart(0, "id", "ping"),
        ToolArgumentsDelta(0, "{}"),
        ToolCallEnd(0),
    ]
    assert parser.finish() == []


def test_finished_parser_refuses_more_text() -> None:
    parser = HERMES.parser()
    parser.finish()
    with pytest.raises(ValueError, match="finished"):
        parser.feed("x")


def test_unknown_reasoning_is_refused() -> None:
    with pytest.raises(ValueError, match="'all'"):
        HERMES.parser(reasoning="all")


def test_ids_of_the_model_are_kept_and_never_twice() -> None:
    written = named_format("kimi-k2")
    call = "<|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    first, second = written.parse(call + call, TOOLS).tool_calls
    assert first.id == "functions.ping:0"
    assert second.id.startswith("call_")


def test_no_tools_means_no_calls_and_unknown_tools_any_call() -> None:
    assert HERMES.parse(CALL, []).content == CALL
    assert HERMES.parse(CALL, None).tool_calls[0].name == "ping"
    assert HERMES.parse(CALL, TOOLS, parse_tools=False) == ParsedMessage(CALL)


# what is cut off, or breaks


def test_call_that_is_cut_off_before_its_name_is_content() -> None:
    assert HERMES.parse('So: <tool_call>\n{"name": "pi', TOOLS) == ParsedMessage('So: <tool_call>\n{"name": "pi')


def test_call_that_is_cut_off_in_its_arguments_is_a_call_without_end() -> None:
    text = 'So: <tool_call>\n{"name": "get_weather", "arguments": {"city": "Ro'
    message = HERMES.parse(text, TOOLS)
    (call,) = message.tool_calls
    assert (call.name, call.arguments, call.complete) == ("get_weather", '{"city": "Ro', False)
    assert message.content == "So:"


def test_call_that_breaks_in_its_arguments_goes_on_as_content() -> None:
    message = HERMES.parse('<tool_call>{"name": "get_weather", "arguments": {"city": Rome}}</tool_call>', TOOLS)
    (call,) = message.tool_calls
    assert (call.arguments, call.complete) == ('{"city": ', False)
    assert message.content == "}}</tool_call>"


def test_second_call_in_an_array_that_is_none_is_content() -> None:
    text = '[TOOL_CALLS][{"name": "ping", "arguments": {}}, {"name": "rm", "arguments": {}}]'
    message = named_format("mistral-json").parse(text, TOOLS)
    assert [call.name for call in message.tool_calls] == ["ping"]
    assert message.content == '{"name": "rm", "arguments": {}}]'


@pytest.mark.parametrize(
    "text",
    [
        '{"tool_calls": ' * 400,
        '{"tool_calls": [' * 400,
        '{"function": {"function": {"function": {"function": {"name": "ping"}}}}}',
        "[" * 400,
        '{"arguments": {"a": ' + "[" * 400,
    ],
)
def test_deep_text_is_content(text: str) -> None:
    for name in ("generic", "llama-json", "hermes"):
        for before in ("", "<tool_call>"):
            assert named_format(name).parse(before + text, TOOLS) == ParsedMessage(before + text)


@pytest.mark.parametrize(
    ("name", "opener"),
    [
        ("mistral", "[TOOL_CALLS]"),
        ("qwen3-coder", "<function="),
        ("glm", "<tool_call>"),
        ("lfm2", "<|tool_call_start|>"),
    ],
)
def test_name_without_end_is_content_before_the_text_ends(name: str, opener: str) -> None:
    parser = named_format(name).parser()
    events = [*parser.feed(opener), *parser.feed("x" * 1000), *parser.feed("y")]
    assert ParsedMessage.of(events).content == opener + "x" * 1000 + "y"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("generic", "[]"),
        ("generic", '{"tool_calls": []} '),
        ("generic", "```json\n[]\n```"),
        ("pythonic", "[]"),
        ("hermes", "<tool_call>[]</tool_call>"),
        ("minimax-m2", "<minimax:tool_call>\n</minimax:tool_call>"),
        ("kimi-k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>"),
    ],
)
def test_lists_without_calls_are_content(name: str, text: str) -> None:
    assert named_format(name).parse(text, TOOLS) == ParsedMessage(text)


@pytest.mark.parametrize("name", format_names())
def test_text_after_a_call_does_not_wait_for_the_end(name: str) -> None:
    output_format = named_format(name)
    parser = output_format.parser(TOOLS)
    events = parser.feed(output_format.syntax.example("get_weather", "city", "Rome") + "\nand then, ")
    events += parser.feed("more")
    assert ParsedMessage.of(events).content == "and then, more"
    assert any(isinstance(event, ToolCallEnd) for event in events)


# white space


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (" \n a \n ", " \n a \n "),
        (" \n ", " \n "),
        ("<think>x</think> \n a \n ", "a \n "),
        (f" a \n {CALL} \n ", " a"),
        (f" \n {CALL} \n a ", "a "),
        (f"a \n{CALL}\t b", "a \n\t b"),
        (f"{CALL} \n {CALL}", ""),
        (f"<think>x</think>\n\n{CALL}", ""),
    ],
)
def test_white_space_is_left_out_beside_what_is_taken_out(text: str, content: str) -> None:
    assert HERMES.parse(text, TOOLS).content == content


def test_thinking_is_trimmed() -> None:
    assert HERMES.parse("<think>\n a \n\n b \n</think>c") == ParsedMessage("c", "a \n\n b")
    assert HERMES.parse("<think>\n a \n") == ParsedMessage("", "a")


# thinking


@pytest.mark.parametrize(
    ("prompt_suffix", "text", "reasoning", "content"),
    [
        ("", "<think>a</think>b", "a", "b"),
        ("", "\n<think>a</think>b", "a", "b"),
        ("", "a <think>b</think>", "", "a <think>b</think>"),
        ("assistant\n<think>\n", "a</think>b", "a", "b"),
        ("assistant\n<think>\n", "<think>a</think>b", "a", "b"),
        ("assistant\n<think>", "a", "a", ""),
        ("assistant\n<think>\n\n</think>\n\n", "a</think>b", "", "a</think>b"),
        ("assistant\n</think>", "\na", "", "a"),
        ("Say <think> please<|im_end|>assistant\n", "a", "", "a"),
    ],
)
def test_prompt_tells_whether_the_model_thinks(prompt_suffix: str, text: str, reasoning: str, content: str) -> None:
    assert HERMES.parse(text, TOOLS, prompt_suffix=prompt_suffix) == ParsedMessage(content, reasoning)


def test_parser_tells_whether_the_model_thinks() -> None:
    parser = HERMES.parser(TOOLS)
    found = []
    for piece in ("", "<thi", "nk>", "a <tool_call>", "</think>", "b", CALL):
        parser.feed(piece)
        found.append(parser.is_thinking)
    assert found == [False, False, True, True, False, False, False]
    assert HERMES.parser(prompt_suffix="<think>\n").is_thinking
    harmony = named_format("harmony").parser()
    harmony.feed("<|channel|>analysis<|message|>")
    assert harmony.is_thinking


def test_words_around_the_answer_are_left_out() -> None:
    hunyuan = detect("<think></think><answer></answer>")
    assert hunyuan.parse("<think>\na\n</think>\n<answer>\nb\n</answer>") == ParsedMessage("b", "a")


def test_calls_within_thinking_are_thought() -> None:
    message = HERMES.parse(f"<think>Maybe {CALL}?</think>No.", TOOLS)
    assert message == ParsedMessage("No.", f"Maybe {CALL}?")


def test_thinking_comes_again_after_a_call() -> None:
    message = HERMES.parse(f"<think>a</think>{CALL}<think>b</think>c", TOOLS)
    assert (message.reasoning_content, message.content) == ("a\nb", "c")
    message = HERMES.parse(f"<think>\n</think>{CALL}<think>b</think>c", TOOLS)
    assert (message.reasoning_content, message.content) == ("b", "c")


def test_think_tag_is_understood_when_the_template_does_not_say_so() -> None:
    plain_hermes = named_format("hermes")
    assert plain_hermes.thinking is None
    assert plain_hermes.parse("<think>a</think>b") == ParsedMessage("b", "a")


# code


def test_code_after_the_python_tag_is_a_call_of_the_interpreter() -> None:
    tools = [{"type": "function", "function": {"name": "python", "parameters": None}}]
    message = named_format("llama-json").parse('<|python_tag|>print("a")\nb', tools)
    (call,) = message.tool_calls
    assert (call.name, json.loads(call.arguments), call.complete) == ("python", {"code": 'print("a")\nb'}, True)


# cost


@pytest.mark.parametrize("name", format_names())
def test_what_waits_to_be_read_stays_short(name: str) -> None:
    """Each character is looked at as long as it waits; that must not grow with the length of the text."""
    parser = named_format(name).parser(TOOLS)
    opener = (*named_format(name).syntax.openers, "")[0]
    longest = 0
    for text in ("word <b> [x] {y} " * 300, opener, '{"name": "' + "x" * 3000, "[" * 3000, opener * 300):
        for character in text:
            parser.feed(character)
            longest = max(longest, len(parser._turn.source.data))
    assert longest < 64


def test_arguments_do_not_wait_whatever_their_length() -> None:
    parser = HERMES.parser(TOOLS)
    parser.feed('<tool_call>{"name": "run_code", "arguments": {"code": "')
    n_events = 0
    for _ in range(5000):
        n_events += len(parser.feed('x\\n"'[:3]))
        assert len(parser._turn.source.data) < 64
    assert n_events == 5000


def events_of(parser: OutputParser, pieces: list[str]) -> list[Event]:
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize(
    ("name", "pieces", "deltas"),
    [
        ("qwen3-coder", ["<function=run_code><parameter=code>\n", "a", "b\n", "c"], ['{"code": "', "a", "b", "\\nc"]),
        ("lfm2", ["<|tool_call_start|>[run_code(code='", "a", '"', "\\", "n"], ['{"code": "', "a", '\\"', "\\n"]),
        ("gemma-4", ["<|tool_call>call:run_code{code:", '<|"|>', "a<", "b"], ['{"code": ', '"', "a", "<b"]),
        ("mistral", ["[TOOL_CALLS]run_code[ARGS]", '{"code"', ': "a', "b"], ['{"code"', ': "a', "b"]),
        ("harmony", ["<|channel|>commentary to=functions.run_code<|message|>", '{"c":1', "2,"], ['{"c":', "12"]),
    ],
)
def test_arguments_stream_in_every_kind_of_syntax(name: str, pieces: list[str], deltas: list[str]) -> None:
    parser = named_format(name).parser(TOOLS)
    found: list[Any] = [event for event in events_of(parser, pieces) if isinstance(event, ToolArgumentsDelta)]
    assert [event.text for event in found] == deltas
