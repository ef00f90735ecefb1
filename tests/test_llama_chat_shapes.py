"""Responses have OpenAI's shapes: the types of the package `openai` validate them."""

from __future__ import annotations

import sys

import pytest

from llamacy.core.model import Model
from llamacy.llama import Llama
from tests.helpers import scripted
from tests.helpers.chats import PING, WEATHER, only, user, vendored

types = pytest.importorskip("openai.types")
chat_types = pytest.importorskip("openai.types.chat")

ASKED = user("Weather?")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
THOUGHT = "<think>\nHm.\n</think>\n\n"
REQUESTS = {
    "answer": ("It rains.", {}),
    "thinking": (f"{THOUGHT}It rains.", {}),
    "calls": (f"{THOUGHT}Yes.\n{CALL}\n{CALL}", {"tools": [WEATHER, PING]}),
    "functions": (CALL, {"functions": [WEATHER["function"]]}),
    "logprobs": ("It rains é.", {"logprobs": True, "top_logprobs": 2}),
    "length": ("It rains.", {"max_tokens": 3}),
    "stop": ("It rains.", {"stop": "ra"}),
    "JSON": (f'{THOUGHT}{{"a": 1}}', {"response_format": {"type": "json_object"}}),
    "choices": ("It rains.", {"n": 2}),
    "usage apart": ("It rains.", {"stream_options": {"include_usage": True}}),
    "nothing": ("", {}),
}


@pytest.fixture(scope="module")
def model(model_dir):
    with Model(scripted.write_model(model_dir / "scripted-shapes.gguf")) as model:
        yield model


@pytest.fixture
def llama(model, closing):
    return closing(Llama(model, n_ctx=2048, n_threads=1, chat_template=vendored("Qwen-Qwen3-0.6B")))


def ask(llama, request, *, create="create_chat_completion", **more):
    text, options = REQUESTS[request]
    texts = [text] * options.get("n", 1)
    process = [scripted.writing(text)] if len(texts) == 1 else []
    options = {name: value for name, value in options.items() if name != "stream_options" or more.get("stream")}
    return getattr(llama, create)(
        ASKED, **{"max_tokens": 300, "truncate_prompt": True, "logits_processor": process, **options, **more}
    )


def assert_same(given, read):
    """Check that a model read all that it was given, and nothing else that isn't null."""
    dumped = read.model_dump()
    assert _subset(given, dumped) is None
    assert _subset(_without_null(dumped), given) is None


def _subset(one, other, where=""):
    if isinstance(one, dict):
        for key, value in one.items():
            if key not in other:
                return f"{where}.{key} is missing"
            if (found := _subset(value, other[key], f"{where}.{key}")) is not None:
                return found
        return None
    if isinstance(one, list):
        if len(one) != len(other):
            return f"{where} has another length"
        pairs = enumerate(zip(one, other, strict=True))
        return next(
            (found for index, pair in pairs if (found := _subset(*pair, f"{where}[{index}]")) is not None), None
        )
    return None if one == other and type(one) is type(other) else f"{where}: {one!r} is not {other!r}"


def _without_null(value):
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("request_name", [name for name in REQUESTS if name != "usage apart"])
def test_chat_completion_validates(llama, request_name):
    result = ask(llama, request_name)
    assert_same(result, chat_types.ChatCompletion.model_validate(result, strict=True))


@pytest.mark.parametrize("request_name", REQUESTS)
def test_chunks_validate(llama, request_name):
    for chunk in ask(llama, request_name, stream=True):
        assert_same(chunk, chat_types.ChatCompletionChunk.model_validate(chunk, strict=True))


@pytest.mark.parametrize(
    "options",
    [{}, {"echo": True}, {"logprobs": 0}, {"n": 2}, {"best_of": 2}, {"stop": "a"}, {"max_tokens": 0}],
    ids=str,
)
def test_text_completion_validates(llama, options):
    result = llama.create_completion("abc", **{"max_tokens": 5, "seed": 1, **options})
    assert_same(result, types.Completion.model_validate(result, strict=True))


@pytest.mark.parametrize("options", [{}, {"logprobs": 1}, {"stream_options": {"include_usage": True}}], ids=str)
def test_text_chunks_validate(llama, options):
    for chunk in llama.create_completion("abc", max_tokens=5, stream=True, **options):
        for choice in chunk["choices"]:
            # null until the end, as OpenAI's server sends it, though its type doesn't say so
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        assert_same(chunk, types.Completion.model_validate(chunk, strict=True))


@pytest.mark.parametrize("request_name", ["calls", "thinking", "logprobs"])
def test_openai_v1_returns_objects_of_openai(llama, request_name):
    made = ask(llama, request_name, create="create_chat_completion_openai_v1")
    assert type(made) is chat_types.ChatCompletion
    message = made.choices[0].message
    assert type(message) is chat_types.ChatCompletionMessage
    expected = only(ask(llama, request_name))
    assert message.content == expected["content"]
    if request_name == "calls":
        assert [call.function.name for call in message.tool_calls] == ["get_weather"] * 2
        assert message.reasoning_content == "Hm."
    chunks = list(ask(llama, request_name, create="create_chat_completion_openai_v1", stream=True))
    assert {type(chunk) for chunk in chunks} == {chat_types.ChatCompletionChunk}
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert content == (expected["content"] or "")


def test_messages_and_tools_of_openai_can_go_back(llama):
    made = ask(llama, "calls", create="create_chat_completion_openai_v1")
    message = made.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    as_dict = only(ask(llama, "calls"))
    prompts = [llama.chat_prompt([*ASKED, said, result]) for said in (message, as_dict)]
    assert prompts[0] == prompts[1]
    assert '"get_weather"' in prompts[0]


def test_openai_v1_tells_an_abort(llama):
    made = llama.create_chat_completion_openai_v1(ASKED, timeout_s=0, max_tokens=5)
    assert made.choices[0].finish_reason == "abort"


def test_openai_v1_stream_that_is_closed_ends_the_request(llama):
    stream = ask(llama, "calls", create="create_chat_completion_openai_v1", stream=True)
    next(stream)
    stream.close()
    assert only(ask(llama, "answer"))["content"] == "It rains."


def test_openai_v1_without_the_package_says_what_to_do(llama, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai.types.chat", None)
    with pytest.raises(ImportError, match=r"llamacy\[openai\]"):
        llama.create_chat_completion_openai_v1(ASKED)
