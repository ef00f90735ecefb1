"""What a model is told of tools where its template tells nothing."""

from __future__ import annotations

import json

import pytest

from llamacy.chat.output import format_names, named_format
from tests.chat.output.grammars import filled
from tests.chat.output.recorded import TOOLS


@pytest.mark.parametrize("name", format_names())
def test_example_is_a_call_and_fits_the_grammar(name: str) -> None:
    output_format = named_format(name)
    text = output_format.syntax.example("get_weather", "city", "Rome")
    message = output_format.parse(text, TOOLS)
    (call,) = message.tool_calls
    assert (call.name, json.loads(call.arguments), call.complete) == ("get_weather", {"city": "Rome"}, True)
    assert message.content == ""
    if name != "mistral-id":  # whose ids have nine characters
        grammar = output_format.call_grammar(TOOLS, parallel=False, required=False)
        assert filled(grammar).matches(text[text.index((*grammar.triggers, "")[0]) :])


@pytest.mark.parametrize("name", ["generic", "deepseek-v3.1"])
def test_instructions_show_tools_and_an_example(name: str) -> None:
    output_format = named_format(name)
    text = output_format.instructions(TOOLS)
    for tool in TOOLS:
        assert json.dumps(tool["function"], ensure_ascii=False) in text
    assert text.endswith(output_format.syntax.example("function_name", "parameter", "value"))


def test_instructions_take_tools_that_say_little() -> None:
    text = named_format("generic").instructions([{"type": "function", "function": {"name": "f"}}])
    assert '{"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}' in text
