"""Grammars of calls: what models write by themselves fits them, and what fits them is a call."""

from __future__ import annotations

import itertools
import json
import random
from functools import cache
from typing import Any

import jsonschema
import pytest

from llamacy.chat.output import CallGrammar, OutputFormat, detect, format_names, named_format
from llamacy.grammar import Grammar
from llamacy.grammar.parse import parse
from tests.chat.output.grammars import filled
from tests.chat.output.recorded import RECORDED, TOOLS, WRITTEN, Recorded
from tests.grammar.writer import random_text

# what templates write in another way than the grammar: other orders, quotes or white space, which are read all the same
OTHER_STYLE = {
    "ByteDance-Seed-OSS-nested": "an object as Python writes it",
    "LFM2.5-8B-A1B": "strings in single quotes",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16-nested": "a boolean as Python writes it",
    "Qwen3-Coder-nested": "a boolean as Python writes it",
    "Qwen3.5-4B-nested": "a boolean as Python writes it",
    "StepFun3.5-Flash-nested": "a boolean as Python writes it",
    "openbmb-MiniCPM5-1B-nested": "an object as Python writes it",
    "deepseek-ai-DeepSeek-V4-empty": "an empty line",
    "deepseek-ai-DeepSeek-V4-Flash-0731-empty": "an empty line",
    "MiniMax-M2-thinking": "three line feeds",
    "google-gemma-4": "parameters by their names",
    "inclusionai-ling-3.0-flash": "no line feed between parameters",
    "mistralai-Mistral-Nemo-Instruct-2407": "an id after the arguments",
    "CohereForAI-c4ai-command-r-plus-tool_use": "JSON with indents",
}
TEXTS = [
    record
    for record in WRITTEN
    if record.name.rpartition("-")[2] != "text" and not any(record.name.startswith(name) for name in OTHER_STYLE)
]
CONSTRAINED: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "book",
            "parameters": {
                "type": "object",
                "properties": {
                    "note": {"type": "string"},
                    "kind": {"enum": ["one-way", "return"]},
                    "code": {"type": "string", "minLength": 2, "maxLength": 4},
                    "seats": {"type": "integer", "minimum": 1, "maximum": 12},
                    "where": {"$ref": "#/$defs/place"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["kind", "seats"],
                "additionalProperties": False,
                "$defs": {
                    "place": {
                        "type": "object",
                        "properties": {"x": {"type": "number"}},
                        "required": ["x"],
                        "additionalProperties": False,
                    }
                },
            },
        },
    },
    {"type": "function", "function": {"name": "stop", "parameters": None}},
]
SCHEMAS: dict[str, Any] = {
    "book": CONSTRAINED[0]["function"]["parameters"],
    "stop": {"type": "object"},
}


@cache
def required(output_format: OutputFormat, prompt_suffix: str) -> Grammar:
    """Return the grammar for a text that must have calls."""
    return filled(output_format.call_grammar(TOOLS, parallel=True, required=True, prompt_suffix=prompt_suffix))


@pytest.mark.parametrize("record", TEXTS, ids=lambda record: record.name)
def test_required_grammar_matches_what_the_template_writes(record: Recorded) -> None:
    assert required(record.format, record.prompt_suffix).explain(record.text) is None


TWO_MESSAGES = [
    record for record in RECORDED if record.name in ("muse-glimmer-two", "llm-jp-llm-jp-4.1-8b-thinking-two")
]


@pytest.mark.parametrize("record", TWO_MESSAGES, ids=lambda record: record.name)
@pytest.mark.parametrize("is_required", [False, True])
def test_calls_in_messages_of_their_own(record: Recorded, is_required: bool) -> None:
    start = 0 if is_required else record.text.index(record.format.syntax.triggers[0])
    first = record.text.split("<|e")[0][start:]
    for parallel in (False, True):
        call = record.format.call_grammar(
            TOOLS, parallel=parallel, required=is_required, prompt_suffix=record.prompt_suffix
        )
        grammar = filled(call)
        assert grammar.matches(first)
        assert grammar.matches(record.text[start:]) is parallel


@pytest.mark.parametrize("n_tools", [1, 17])
@pytest.mark.parametrize("name", format_names())
def test_parameters_come_in_any_order_on_demand(name: str, n_tools: int) -> None:
    values = {"a": "x", "b": 1, "c": True}
    types = {"a": "string", "b": "integer", "c": "boolean"}
    properties = {key: {"type": types[key], "const": value} for key, value in values.items()}
    tools = [
        {
            "function": {
                "name": f"f{number}",
                "parameters": {"type": "object", "properties": properties, "required": ["b"]},
            }
        }
        for number in range(n_tools)
    ]
    output_format = named_format(name)
    call = output_format.call_grammar(tools, parallel=False, required=False)
    rules = parse(filled(call).text, "root")
    rng = random.Random(name)
    seen = set()
    for _ in range(200):
        prefix = "<|channel|>commentary " if name == "harmony" else ""
        (written,) = output_format.parse(prefix + random_text(rules, rng, 500), tools).tool_calls
        arguments = json.loads(written.arguments)
        assert arguments == {key: values[key] for key in arguments}
        seen.add("".join(arguments))
    # where commas stand between, those that must come stand first
    has_commas = name in {"function-gemma", "gemma-4", "lfm2", "pythonic"}
    declared = {"b", "ba", "bc", "bac"} if has_commas else {"b", "ab", "bc", "abc"}
    orders = {"".join(order) for keys in declared for order in itertools.permutations(keys)}
    # where tools are many, other orders would cost much
    assert seen == (orders if n_tools == 1 else declared)
    required = output_format.call_grammar(tools, parallel=False, required=True)
    assert not required.any_order


def test_harmony_has_one_call_where_its_template_writes_no_more() -> None:
    (record,) = (record for record in RECORDED if record.name == "openai-gpt-oss-120b-one")
    grammar = filled(record.format.call_grammar(TOOLS, parallel=True, required=True, prompt_suffix=""))
    assert grammar.matches(record.text)
    assert not grammar.accepts_prefix(record.text + "<|end|>")


def test_every_format_has_a_text_for_its_grammar() -> None:
    seen = {record.format.name for record in TEXTS}
    # of these there is no template that writes calls, or it writes them in another style
    assert {*format_names()} - seen == {
        "command-r",
        "function-gemma",
        "gemma-4",
        "generic",
        "granite",
        "lfm2",
        "mirothinker",
        "mistral-json",
        "phi-4",
        "pythonic",
    }


@pytest.mark.parametrize("prompt_suffix", ["", "<think>\n", "<think>\n\n</think>\n\n"])
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", format_names())
def test_texts_of_the_grammar_are_calls_with_valid_arguments(name: str, parallel: bool, prompt_suffix: str) -> None:
    output_format = _thinking(name)
    call = output_format.call_grammar(CONSTRAINED, parallel=parallel, required=True, prompt_suffix=prompt_suffix)
    rules = parse(filled(call).text, "root")
    rng = random.Random(f"{name} {parallel} {prompt_suffix}")
    for _ in range(25):
        text = random_text(rules, rng, 60)
        message = output_format.parse(text, CONSTRAINED, prompt_suffix=prompt_suffix)
        assert message.content == "", text
        assert len(message.tool_calls) >= 1, text
        assert parallel or len(message.tool_calls) == 1, text
        for written in message.tool_calls:
            assert written.complete, text
            jsonschema.validate(json.loads(written.arguments), SCHEMAS[written.name])


@pytest.mark.parametrize("name", format_names())
def test_lazy_grammar_begins_with_its_trigger(name: str) -> None:
    output_format = named_format(name)
    call = output_format.call_grammar(TOOLS, parallel=True, required=False)
    grammar = filled(call)
    lazy = grammar.with_triggers(trigger_words=call.triggers, trigger_patterns=call.trigger_patterns)
    assert lazy.lazy
    for word in call.triggers:
        assert grammar.accepts_prefix(word)
        assert word in output_format.markers or name == "harmony"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama-json", '\n{"name": "ping", "parameters": {}}'),
        ("generic", '[{"name": "ping", "arguments": {}}]'),
        ("pythonic", "[ping()]"),
    ],
)
def test_trigger_pattern_finds_the_beginning_of_a_call(name: str, text: str) -> None:
    import re

    call = named_format(name).call_grammar(TOOLS, parallel=True, required=False)
    assert not call.triggers
    (pattern,) = call.trigger_patterns
    found = re.search(pattern, text)
    assert found is not None
    assert filled(call).matches(text[found.start(1) :])
    assert re.search(pattern, f"Like this: {text}") is None


def test_functions_without_parameters_take_an_empty_object() -> None:
    call = named_format("hermes").call_grammar(
        [{"type": "function", "function": {"name": "stop"}}], parallel=False, required=True
    )
    assert filled(call).matches('<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>')


def test_named_tool_is_the_only_one_that_may_be_called() -> None:
    call = named_format("hermes").call_grammar([TOOLS[0]], parallel=False, required=True)
    grammar = filled(call)
    good = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    assert grammar.matches(good)
    assert not grammar.accepts_prefix('<tool_call>\n{"name": "ping"')
    assert not grammar.accepts_prefix(good + "\n<tool_call>")
    assert not grammar.accepts_prefix("Well")


def test_prompt_that_ends_with_an_opener_leaves_it_out_of_the_grammar() -> None:
    output_format = named_format("functionary-v3.2")
    call = output_format.call_grammar(TOOLS, parallel=True, required=True, prompt_suffix="\n\n>>>")
    assert filled(call).matches('ping\n{}>>>get_weather\n{"city": "Rome"}')


def test_no_tools_are_refused() -> None:
    with pytest.raises(ValueError, match="no tools"):
        named_format("hermes").call_grammar([], parallel=False, required=True)


def test_call_grammar_tells_schemas_by_rule() -> None:
    call = named_format("hermes").call_grammar(TOOLS, parallel=False, required=True)
    assert isinstance(call, CallGrammar)
    assert {*call.schemas} == {"args-0", "args-1", "args-2"}
    assert call.schemas["args-0"] == TOOLS[0]["function"]["parameters"]
    tagged = named_format("qwen3-coder").call_grammar(TOOLS, parallel=False, required=True)
    assert {*tagged.patterns, *tagged.schemas} == {"arg-0-0", "arg-0-1", "arg-1-0", "arg-1-1", "arg-1-2", "arg-1-3"}


def _thinking(name: str) -> OutputFormat:
    """Return a format of a model that thinks between the usual tags, if its template may say so."""
    found = named_format(name, "<think></think>")
    assert found == named_format(name) or found.thinking is not None
    return found if name != "kimi-k3" else detect("<|open|><|sep|>")


@pytest.mark.parametrize("name", ["qwen3-coder", "glm", "gemma-4", "kimi-k3", "deepseek-v3.2", "minimax-m3"])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^[A-Z]{3}$"},
        {"type": "string", "pattern": "[0-9]-"},
        {"type": "string", "minLength": 3},
        {"type": "string", "maxLength": 2},
        {"const": "a\nb"},
        {"enum": ["a", "</parameter>", "b c"]},
        {"enum": ["a", 1, None]},
        {"type": ["string", "integer"]},
        {"anyOf": [{"type": "string", "pattern": "^[a-c]+$"}, {"type": "null"}]},
        {"anyOf": [{"enum": ["a", "b"]}, {"type": "array", "items": {"type": "integer"}}]},
        {"$ref": "#/$defs/color"},
        {"allOf": [{"$ref": "#/$defs/color"}], "default": "red"},
        {"anyOf": [{"$ref": "#/$defs/color"}, {"type": "null"}], "default": None},
        {"oneOf": [{"$ref": "#/$defs/short"}, {"type": "boolean"}]},
        {"type": "number", "exclusiveMinimum": 0},
        {"allOf": [{"type": "boolean"}]},
        {},
        True,
    ],
    ids=str,
)
def test_values_in_tags_satisfy_their_schema(name: str, schema: Any) -> None:
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x", "undeclared"]}
    parameters["$defs"] = {"short": {"type": "string", "maxLength": 1}, "color": {"enum": ["red", "blue"]}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    output_format = named_format(name)
    rules = parse(filled(output_format.call_grammar(tools, parallel=False, required=True)).text, "root")
    rng = random.Random(f"{name} {schema}")
    for _ in range(20):
        text = random_text(rules, rng, 30)
        (call,) = output_format.parse(text, tools).tool_calls
        assert call.complete, text
        jsonschema.validate(json.loads(call.arguments), parameters)
