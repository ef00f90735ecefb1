"""Tools through `Llama`: what may be called, what must be, what is written into the prompt, and what comes back."""

from __future__ import annotations

import json
import warnings

import jsonschema
import pytest

from llamacy.core.model import Model
from llamacy.errors import GrammarError, SchemaError
from llamacy.llama import Llama
from tests.helpers import scripted
from tests.helpers.chats import PING, WEATHER, calls_of, joined, only, tool, user, vendored, without_ids

ASKED = user("Weather in Rome?")
HERMES = "Qwen-Qwen2.5-7B-Instruct"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
PINGED = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
CALLED = ("get_weather", {"city": "Rome", "days": 2})


@pytest.fixture(scope="module")
def model(model_dir):
    with Model(scripted.write_model(model_dir / "scripted-tools.gguf")) as model:
        yield model


@pytest.fixture
def make(model, closing):
    """Return a function that makes a Llama with a vendored template, or another source."""

    def llama(template=HERMES, **more):
        source = template if "{" in template else vendored(template)
        return closing(Llama(model, n_ctx=4096, n_threads=1, chat_template=source, **more))

    return llama


@pytest.fixture
def hermes(make):
    return make()


@pytest.fixture
def smollm2(closing, smollm2_model):
    return closing(Llama(smollm2_model, n_ctx=1024, n_threads=1, n_threads_batch=1))


def say(llama, text, tools=(WEATHER, PING), *, stream=False, messages=ASKED, **options):
    """Return the completion of a model that writes a text."""
    asked = {"tools": list(tools) if tools else None, "logits_processor": scripted.writing(text), **options}
    result = llama.create_chat_completion(messages, stream=stream, max_tokens=600, truncate_prompt=True, **asked)
    return joined(result) if stream else result


@pytest.mark.parametrize("stream", [False, True])
def test_auto_tells_a_call_from_an_answer(hermes, stream):
    called = say(hermes, f"I look.\n{CALL}", stream=stream)
    assert (only(called)["content"], calls_of(only(called))) == ("I look.", [CALLED])
    assert called["choices"][0]["finish_reason"] == "tool_calls"
    answered = say(hermes, "It rains.", stream=stream)
    assert only(answered) == {"role": "assistant", "content": "It rains."}
    assert answered["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "get_weather", "arguments": {"days": 2',  # the city has to come
        '<tool_call>\n{"name": "get_wealth',
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": 3',
    ],
)
def test_auto_obeys_the_schemas_after_the_trigger(hermes, text):
    with pytest.raises(GrammarError, match="no token is left"):
        say(hermes, text + "!!!")
    assert calls_of(only(say(hermes, CALL))) == [CALLED]


def test_parallel_calls(hermes):
    both = f"{CALL}\n{PINGED}"
    assert calls_of(only(say(hermes, both))) == [CALLED, ("ping", {})]
    assert calls_of(only(say(hermes, both, tool_choice="required"))) == [CALLED, ("ping", {})]
    for choice in ("auto", "required"):
        # after the first call the grammar lets nothing follow, which ends the text
        one = say(hermes, both, tool_choice=choice, parallel_tool_calls=False)
        assert calls_of(only(one)) == [CALLED]
        assert one["choices"][0]["finish_reason"] == "tool_calls"
    ids = [call["id"] for call in only(say(hermes, both))["tool_calls"]]
    assert len(set(ids)) == 2


LISTED = '<tool_call>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}]'
NOTED = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}</tool_call>'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("template", "text", "content"),
    [
        # calls that begin in another way than those of the grammar, so that it doesn't hold
        ("HuggingFaceTB-SmolLM3-3B", f"I look.\n{NOTED}\n{NOTED}\nDone.", "I look."),
        ("HuggingFaceTB-SmolLM3-3B", f"{NOTED} and {NOTED}", "and"),
        ("ibm-granite-granite-3.3-2B-Instruct", f"{LISTED}{LISTED}", None),
        ("ibm-granite-granite-3.3-2B-Instruct", LISTED, None),
    ],
)
@pytest.mark.parametrize("logprobs", [False, True])
def test_second_call_ends_the_text_where_there_may_be_one(make, template, text, content, stream, logprobs):
    llama = make(template)
    several = only(say(llama, text, stream=stream))
    assert calls_of(several) == [CALLED] * text.count("<tool_call>")
    one = say(llama, text, stream=stream, parallel_tool_calls=False, logprobs=logprobs)
    assert calls_of(only(one)) == [CALLED]
    assert (only(one)["content"] or "").strip() == (content or "")
    assert one["choices"][0]["finish_reason"] == "tool_calls"
    # a character a token, up to the arguments of the second call
    n_written = text.rindex('"city"') if text.count("<tool_call>") == 2 else len(text) + 1
    assert one["usage"]["completion_tokens"] == n_written


@pytest.mark.parametrize("choice", [{"type": "function", "function": {"name": "ping"}}, {"name": "ping"}], ids=str)
def test_named_function_is_called_once_and_no_other(hermes, choice):
    assert calls_of(only(say(hermes, f"{PINGED}\n{PINGED}", tool_choice=choice))) == [("ping", {})]
    for text in (CALL, "I can't."):
        with pytest.raises(GrammarError, match="no token is left"):
            say(hermes, text, tool_choice=choice)


def test_required_call_leaves_no_answer(hermes):
    with pytest.raises(GrammarError, match="no token is left"):
        say(hermes, "It rains.", tool_choice="required")


@pytest.mark.parametrize("stream", [False, True])
def test_none_leaves_calls_in_the_content(hermes, stream):
    said = say(hermes, CALL, tool_choice="none", stream=stream)
    assert only(said) == {"role": "assistant", "content": CALL}
    assert said["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\nnothing of that kind</tool_call>",
        '<tool_call>\n{"name": "delete_all", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather"',
        "a < b, <tool> and </tool_call>",
    ],
)
def test_what_is_no_call_stays_in_the_content(hermes, stream, text):
    # the grammar would not let it come; without one that holds, as with a lazy one before its trigger, it may
    from llamacy.grammar import Grammar

    anything = Grammar.from_string(r"root ::= [^\x00]*")
    said = say(hermes, text, stream=stream, grammar=anything)
    assert only(said) == {"role": "assistant", "content": text}


@pytest.mark.parametrize("stream", [False, True])
def test_call_that_is_cut_off_is_told_as_far_as_it_came(hermes, stream):
    text = CALL[: CALL.index(', "days')]
    options = {"stream": stream, "logits_processor": scripted.writing(CALL), "max_tokens": len(text)}
    result = hermes.create_chat_completion(ASKED, tools=[WEATHER], truncate_prompt=True, **options)
    result = joined(result) if stream else result
    (call,) = only(result)["tool_calls"]
    assert CALL.find(call["function"]["arguments"]) > 0
    assert call["function"]["name"] == "get_weather"
    assert result["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "arguments", "reason"),
    [
        (', "days', '{"city": "Rome"', "stop"),
        ("}", '{"city": "Rome", "days": 2', "stop"),
        ("\n</tool_call>", '{"city": "Rome", "days": 2}', "tool_calls"),
    ],
)
def test_only_a_whole_call_at_the_end_is_the_reason(hermes, stream, stop, arguments, reason):
    for text, n in [(CALL, 1), (f"{PINGED}\n{CALL}", 2)]:
        if n == 2 and stop in PINGED:
            continue
        said = say(hermes, text, stream=stream, stop=stop)
        function = only(said)["tool_calls"][n - 1]["function"]
        assert function == {"name": "get_weather", "arguments": arguments}
        assert (said["choices"][0]["finish_reason"], said["choices"][0]["stop_reason"]) == (reason, stop)


@pytest.mark.parametrize(
    "parameters", [{}, {"parameters": None}, {"parameters": {}}, {"parameters": {"type": "object"}}], ids=str
)
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_missing_parameters_are_an_object_without_any(hermes, parameters, choice):
    bare = {"type": "function", "function": {"name": "ping", **parameters}}
    assert calls_of(only(say(hermes, PINGED, [bare], tool_choice=choice))) == [("ping", {})]
    with pytest.raises(GrammarError, match="no token is left"):
        say(hermes, PINGED.replace("{}", '{"a": 1}'), [bare], tool_choice=choice)


def test_one_wrong_tool_among_many_is_named(hermes):
    tools = [tool(f"f{number}", {"x": {"type": "string"}}) for number in range(50)]
    wrong = tool("broken", {"x": {"type": "string", "pattern": "(["}})
    with pytest.raises(GrammarError, match="'broken'") as caught:
        say(hermes, "x", [*tools[:30], wrong, *tools[30:]])
    assert not isinstance(caught.value, TypeError)
    assert only(say(hermes, "x", tools))["content"] == "x"
    with pytest.raises(SchemaError, match="'odd'"):
        say(hermes, "x", [*tools, tool("odd", {"x": {"type": "stri"}})], tool_choice="required")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tool_choice": "sometimes"}, TypeError, "auto"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, ValueError, "get_weather"),
        ({"tool_choice": 3}, TypeError, "tool_choice"),
        ({"tools": None, "tool_choice": "required"}, ValueError, "no tools"),
        ({"tools": [WEATHER, WEATHER]}, ValueError, "same name"),
        ({"tools": {"a": 1}}, TypeError, "list"),
        ({"functions": [PING["function"]]}, TypeError, "functions"),
        ({"tool_choice": "required", "response_format": {"type": "json_object"}}, ValueError, "response_format"),
    ],
    ids=str,
)
def test_wrong_request_for_tools_is_told(hermes, options, error, words):
    with pytest.raises(error, match=words):
        hermes.create_chat_completion(ASKED, **{"tools": [WEATHER], "max_tokens": 1, **options})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", [None, "auto", {"name": "get_weather"}], ids=str)
def test_functions_of_old_are_called_as_they_were(hermes, stream, choice):
    functions = [WEATHER["function"], PING["function"]]
    said = say(hermes, CALL, None, stream=stream, functions=functions, function_call=choice)
    function = only(said)["function_call"]
    assert (function["name"], json.loads(function["arguments"])) == CALLED
    assert said["choices"][0]["finish_reason"] == "function_call"
    assert calls_of(only(say(hermes, CALL, None, functions=functions, function_call="none"))) == []


def test_tools_of_mcp_are_tools(hermes):
    mcp = {
        "name": "get_weather",
        "title": "Weather",
        "description": "Tells it",
        "inputSchema": WEATHER["function"]["parameters"],
        "annotations": {"readOnlyHint": True},
    }
    assert calls_of(only(say(hermes, CALL, [mcp], tool_choice="required"))) == [CALLED]
    assert "readOnlyHint" not in hermes.chat_prompt(ASKED, tools=[mcp])


def test_two_templates_of_one_format_have_grammars_of_their_own(make):
    plain, thinking = make(HERMES), make("Qwen-Qwen3-0.6B")
    thought = f"<think>\nHm.\n</think>\n\n{PINGED}"
    for _ in range(2):
        with pytest.raises(GrammarError, match="no token is left"):
            say(plain, thought, [PING], tool_choice="required")
        message = only(say(thinking, thought, [PING], tool_choice="required"))
        assert (message["reasoning_content"], calls_of(message)) == ("Hm.", [("ping", {})])


def test_choices_have_calls_of_their_own(make):
    llama = make(n_seq_max=2)
    process = scripted.writing(CALL, "It rains.")
    options = {"tools": [WEATHER], "n": 2, "logits_processor": process, "truncate_prompt": True, "max_tokens": 300}
    result = llama.create_chat_completion(ASKED, **options)
    first, second = result["choices"]
    assert calls_of(first["message"]) == [CALLED]
    assert second["message"]["content"] == "It rains."
    assert [first["finish_reason"], second["finish_reason"]] == ["tool_calls", "stop"]
    options["logits_processor"] = scripted.writing(CALL, "It rains.")
    streamed = joined(llama.create_chat_completion(ASKED, stream=True, **options))
    assert without_ids(streamed) == without_ids(result)


# templates that say nothing of tools

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HISTORY = [
    *ASKED,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
            }
            for number, city in enumerate(["Rome", "Oslo"])
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_1", "content": "snow"},
]


def test_template_without_tools_has_them_in_the_system_message(make):
    llama = make(CHATML)
    prompt = llama.chat_prompt(ASKED, tools=[WEATHER])
    system, question = prompt.split("<|im_end|>")[:2]
    assert system.startswith("<|im_start|>system\n")
    assert json.dumps(WEATHER["function"]["parameters"]["properties"]) in system
    assert question.endswith("user\nWeather in Rome?")
    mine = [{"role": "system", "content": "Be brief."}, *ASKED]
    assert llama.chat_prompt(mine, tools=[WEATHER]).startswith("<|im_start|>system\nBe brief.\n\nYou can call")
    for options in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        assert "get_weather" not in llama.chat_prompt(ASKED, **options)


def test_template_without_system_has_them_in_the_first_message_of_the_user(make):
    prompt = make("google-gemma-2-2b-it").chat_prompt(ASKED, tools=[WEATHER])
    assert prompt.index("get_weather") < prompt.index("Weather in Rome?")
    assert prompt.count("<start_of_turn>user") == 1


def test_template_without_calls_has_them_in_texts(make):
    prompt = make(CHATML).chat_prompt(HISTORY, tools=[WEATHER])
    turns = [turn.split("\n", 1) for turn in prompt.split("<|im_start|>")[2:]]
    assert [role for role, _ in turns] == ["user", "assistant", "user", "assistant"]
    calls = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Rome", "Oslo")]
    assert json.loads(turns[1][1].removesuffix("<|im_end|>\n")) == calls
    results = turns[2][1].removesuffix("<|im_end|>\n").splitlines()
    assert results == [f"get_weather returned: {text}" for text in ("rain", "snow")]


@pytest.mark.parametrize("text", ['[{"name": "get_weather", "arguments": {"city": "Rome"}}]', "It rains."])
def test_generic_call_and_answer(make, text):
    message = only(say(make(CHATML), text, [WEATHER]))
    if text.startswith("["):
        assert calls_of(message) == [("get_weather", {"city": "Rome"})]
    else:
        assert message == {"role": "assistant", "content": text}


def test_firefunction_gets_its_variables(make):
    prompt = make("fireworks-ai-llama-3-firefunction-v2").chat_prompt(ASKED, tools=[WEATHER])
    assert '"get_weather"' in prompt
    assert "Weather in Rome?" in prompt


# with a real model


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_forced_call_of_a_real_model_obeys_its_schema(smollm2, seed, stream):
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    }
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}, PING]
    options = {"tools": tools, "max_tokens": 200, "seed": seed, "temperature": 1.0, "stream": stream}
    named = {"type": "function", "function": {"name": "get_weather"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = smollm2.create_chat_completion(user("Is it warm in Rome?"), tool_choice=named, **options)
    result = joined(result) if stream else result
    ((name, arguments),) = calls_of(only(result))
    assert name == "get_weather"
    jsonschema.validate(arguments, schema)
    assert result["choices"][0]["finish_reason"] == "tool_calls"
