"""Answers that have a form: JSON, patterns, grammars; with thinking before them, and with tools that may be called."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from llamacy.chat.output import detect
from llamacy.core.model import Model
from llamacy.errors import (
    GrammarError,
    GrammarSyntaxError,
    SchemaError,
    SchemaRelaxedWarning,
    UnsupportedSchemaError,
)
from llamacy.grammar import Grammar
from llamacy.llama import Llama
from tests.helpers import scripted, vendor_dir
from tests.helpers.chats import PING, calls_of, joined, only, user, vendored

ASKED = user("Who?")
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
ADA = '{"name": "Ada", "age": 36}'
PINGED = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def model(model_dir):
    with Model(scripted.write_model(model_dir / "scripted-answers.gguf")) as model:
        yield model


@pytest.fixture
def make(model, closing):
    """Return a function that makes a Llama with a vendored template."""

    def llama(template="Qwen-Qwen2.5-7B-Instruct"):
        return closing(Llama(model, n_ctx=4096, n_threads=1, chat_template=vendored(template)))

    return llama


@pytest.fixture
def smollm2(closing, smollm2_model):
    return closing(Llama(smollm2_model, n_ctx=512, n_threads=1, n_threads_batch=1))


def say(llama, text, response_format, **options):
    asked = {"response_format": response_format, "truncate_prompt": True, "max_tokens": 600, **options}
    return only(llama.create_chat_completion(ASKED, logits_processor=scripted.writing(text), **asked))


def test_schema_that_is_not_strict_holds_as_far_as_it_can(make):
    schema = {"type": "object", "properties": {"ids": {"type": "array", "uniqueItems": True}}, "required": ["ids"]}
    form = {"type": "json_schema", "json_schema": {"name": "ids", "schema": schema}}
    llama = make()
    for strict in (True, None):
        form["json_schema"]["strict"] = strict
        with pytest.raises(UnsupportedSchemaError, match="uniqueItems"):
            say(llama, "{}", form)
    form["json_schema"]["strict"] = False
    with pytest.warns(SchemaRelaxedWarning, match="uniqueItems"):
        message = say(llama, '{"ids": [1, 1]}', form)
    assert message["content"] == '{"ids": [1, 1]}'
    with pytest.warns(SchemaRelaxedWarning, match="uniqueItems"):
        refuses(llama, '{"ids": 1', form)


def refuses(llama, text, response_format, **options):
    with pytest.raises(GrammarError, match="no token is left"):
        say(llama, text, response_format, **options)


def person_class():
    pydantic = pytest.importorskip("pydantic")
    return pydantic.create_model("Person", name=(str, ...), age=(int, ...))


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ({"type": "json_object"}, '{"a": [1, null]}', "[1]"),
        ({"type": "json_object", "schema": {}}, "{}", '"x"'),
        ({"type": "json_object", "schema": PERSON}, ADA, '{"age'),
        (AS_SCHEMA, ADA, '{"name": 3'),
        ({"type": "json_schema", "schema": PERSON}, ADA, '{"nome'),
        ({"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}, '"yes"', '"maybe'),
        ({"type": "regex", "pattern": "[0-9]{3}-[a-z]"}, "123-x", "12-"),
        ({"type": "grammar", "grammar": 'root ::= call\ncall ::= "a" | "b"'}, "b", "c"),
        (Grammar.from_string('root ::= "one" | "two"'), "two", "tx"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_answer_has_its_form(make, form, good, bad):
    llama = make()
    assert say(llama, good, form) == {"role": "assistant", "content": good}
    refuses(llama, bad, form)


def test_answer_has_the_form_of_a_class(make):
    llama = make()
    assert json.loads(say(llama, ADA, person_class())["content"]) == {"name": "Ada", "age": 36}
    refuses(llama, '{"name": 3', person_class())


@pytest.mark.parametrize("form", [None, {"type": "text"}])
def test_text_has_no_form(make, form):
    assert say(make(), "Just text.", form)["content"] == "Just text."


@pytest.mark.parametrize(
    ("form", "error", "words"),
    [
        ("json", TypeError, "dict with a type"),
        ({"type": "xml"}, ValueError, "unknown"),
        ({}, ValueError, "unknown"),
        ({"type": "json_schema"}, ValueError, "needs its schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, ValueError, "needs its schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}, "strict": "no"}}, TypeError, "True or False"),
        ({"type": "regex"}, ValueError, "pattern"),
        ({"type": "regex", "pattern": "("}, GrammarError, "regular expression|pattern|group"),
        ({"type": "grammar", "grammar": "root ::= ("}, GrammarSyntaxError, "line 1"),
        ({"type": "json_object", "schema": {"type": "strin"}}, SchemaError, "strin"),
    ],
    ids=str,
)
def test_wrong_form_is_told(make, form, error, words):
    with pytest.raises(error, match=words):
        make().create_chat_completion(ASKED, response_format=form, max_tokens=1)


def test_form_and_grammar_contradict_each_other(make):
    with pytest.raises(ValueError, match="give one"):
        make().create_chat_completion(ASKED, response_format=AS_SCHEMA, grammar=Grammar.json())


# thinking comes before the form

THINKING = {
    "Qwen-Qwen3-0.6B": ("<think>\nHm {\n</think>\n\n", "Hm {"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]Hm {[/THINK]", "Hm {"),
    "openai-gpt-oss-120b": (
        "<|channel|>analysis<|message|>Hm {<|end|><|start|>assistant<|channel|>final<|message|>",
        "Hm {",
    ),
    "muse-glimmer": (" to=self<|message|>Hm {<|eom|><|start|>assistant<|message|>", "Hm {"),
    "ByteDance-Seed-OSS": ("<seed:think>Hm {</seed:think>", "Hm {"),
}


@pytest.mark.parametrize("tools", [None, [PING]], ids=["alone", "tools"])
@pytest.mark.parametrize("template", THINKING)
def test_model_thinks_before_an_answer_with_a_form(make, template, tools):
    llama = make(template)
    before, thought = THINKING[template]
    said = say(llama, before + ADA, AS_SCHEMA, tools=tools)
    assert (said["content"], said["reasoning_content"]) == (ADA, thought)
    refuses(llama, before + "It is Ada.", AS_SCHEMA, tools=tools)


def test_thinking_that_the_prompt_began_or_closed(make):
    opened = make("llama-cpp-deepseek-r1")
    assert opened.chat_prompt(ASKED).endswith("<think>\n")
    said = say(opened, f"Hm.\n</think>\n\n{ADA}", AS_SCHEMA)
    assert (said["content"], said["reasoning_content"]) == (ADA, "Hm.")
    refuses(opened, "Hm.\n</think>\n\nAda", AS_SCHEMA)
    closed = make("Qwen-Qwen3-0.6B")
    options = {"chat_template_kwargs": {"enable_thinking": False}}
    assert closed.chat_prompt(ASKED, **options).endswith("</think>\n\n")
    assert say(closed, ADA, AS_SCHEMA, **options) == {"role": "assistant", "content": ADA}
    refuses(closed, "<think>", AS_SCHEMA, **options)


@pytest.mark.parametrize("template", ["openai-gpt-oss-120b", "CohereForAI-c4ai-command-r7b-12-2024-tool_use"])
def test_words_around_an_answer_are_written_and_left_out(make, template):
    before = {"openai-gpt-oss-120b": "<|channel|>final<|message|>"}.get(template, "<|START_RESPONSE|>")
    after = "" if template.startswith("openai") else "<|END_RESPONSE|>"
    assert say(make(template), before + ADA + after, AS_SCHEMA)["content"] == ADA


# a form, or a call


@pytest.mark.parametrize(
    "form",
    [AS_SCHEMA, {"type": "grammar", "grammar": f"root ::= call\ncall ::= {json.dumps(ADA)}"}],
    ids=["schema", "grammar"],
)
def test_answer_with_a_form_or_a_call(make, form):
    llama = make()
    assert say(llama, ADA, form, tools=[PING]) == {"role": "assistant", "content": ADA}
    assert calls_of(say(llama, PINGED, form, tools=[PING])) == [("ping", {})]
    refuses(llama, "It is Ada.", form, tools=[PING])
    refuses(llama, PINGED.replace("ping", "pong"), form, tools=[PING])
    # no call without leave
    refuses(llama, PINGED, form, tools=[PING], tool_choice="none")


def test_lazy_form_and_tools_are_refused(make):
    lazy = Grammar.from_string('root ::= "a"').with_triggers(trigger_words=["a"])
    with pytest.raises(ValueError, match="lazy"):
        make().create_chat_completion(ASKED, response_format=lazy, tools=[PING], max_tokens=1)


def test_one_wrong_tool_is_named_beside_a_form(make):
    wrong = {"type": "function", "function": {"name": "broken", "parameters": {"properties": {"x": {"type": "y"}}}}}
    with pytest.raises(SchemaError, match="'broken'"):
        make().create_chat_completion(ASKED, response_format=AS_SCHEMA, tools=[PING, wrong], max_tokens=1)


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_real_model_writes_what_a_schema_allows(smollm2, seed, stream):
    asked = {"response_format": AS_SCHEMA, "seed": seed, "temperature": 1.0, "max_tokens": 200, "stream": stream}
    result = smollm2.create_chat_completion(user("Describe Ada Lovelace as JSON."), **asked)
    message = only(joined(result) if stream else result)
    jsonschema.validate(json.loads(message["content"]), PERSON)


@pytest.mark.model
def test_real_model_writes_what_a_pattern_matches(smollm2):
    form = {"type": "regex", "pattern": "[A-Z][a-z]{2,9}, [0-9]{4}"}
    message = only(smollm2.create_chat_completion(user("A city and a year?"), response_format=form, seed=1))
    assert re.fullmatch(form["pattern"], message["content"])


# every template

NEEDS_MORE = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "tools",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "tools",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "tools",
    "fireworks-ai-llama-3-firefunction-v2": "tools",
    "google-translategemma-4b-it": "parts of its own",
}
TEMPLATES = sorted(path.stem for path in (vendor_dir() / "models" / "templates").glob("*.jinja"))
HEADERS = {"harmony": "<|channel|>final<|message|>", "atem": "<|message|>"}


@pytest.mark.parametrize("template", [name for name in TEMPLATES if name not in NEEDS_MORE])
def test_answer_comes_back_as_it_is_with_every_template(make, template):
    llama = make(template)
    output = detect(vendored(template))
    for tools in (None, [PING]):
        before = HEADERS.get(output.name, "")
        if output.thinking is not None and output.thinking.is_open(llama.chat_prompt(ASKED, tools=tools)):
            before = f"Hm.{output.thinking.end}"
        assert say(llama, before + ADA, AS_SCHEMA, tools=tools)["content"] == ADA
        text = 'Well: 1 < 2, "yes" {or} [no], it\'s `so`.\n\n* A\n'
        whole, streamed = (
            llama.create_chat_completion(
                ASKED,
                tools=tools,
                stream=stream,
                logits_processor=scripted.writing(before + text),
                truncate_prompt=True,
                max_tokens=300,
            )
            for stream in (False, True)
        )
        message = only(whole)
        assert message["content"] == text
        assert "tool_calls" not in message
        assert only(joined(streamed)) == message
