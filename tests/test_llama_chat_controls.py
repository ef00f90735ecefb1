"""Markers that are control tokens of the vocabulary: spelled for the parser and the grammar, and nothing else is."""

from __future__ import annotations

import pytest

from llamacy.core.model import Model
from llamacy.errors import GrammarError, TokenizeError
from llamacy.llama import Llama
from tests.helpers import N_TOY_VOCAB, models, scripted
from tests.helpers.chats import PING, WEATHER, calls_of, joined, only, user, vendored

CONTROLS = (
    "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]",
    "<|im_start|>", "<|im_end|>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>",
    "<|call|>", "<|constrain|>", "<|odd|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_call_start|>",
    "<|tool_call_end|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
)  # fmt: skip
# by the template: what the model writes, its thoughts and the call
TEXTS = {
    "Qwen-Qwen3-0.6B": (
        '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>',
        "Hm.",
    ),
    "mistralai-Ministral-3-14B-Reasoning-2512": (
        '[THINK]Hm.[/THINK][TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}',
        "Hm.",
    ),
    "openai-gpt-oss-120b": (
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
            '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}'
        ),
        "Hm.",
    ),
    "google-gemma-4-31B-it": ('<|tool_call>call:get_weather{city:<|"|>Rome<|"|>}<tool_call|>', ""),
    "LFM2-8B-A1B": ('<|tool_call_start|>[get_weather(city="Rome")]<|tool_call_end|>', ""),
    "moonshotai-Kimi-K2": (
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
            '{"city": "Rome"}<|tool_call_end|><|tool_calls_section_end|>'
        ),
        "",
    ),
}
ASKED = user("Weather?")


@pytest.fixture(scope="module")
def model(model_dir):
    path = scripted.write_model(model_dir / "controls.gguf", controls=CONTROLS)
    with Model(path) as model:
        yield model


@pytest.fixture
def make(model, closing):
    def llama(template):
        return closing(Llama(model, n_ctx=4096, n_threads=1, chat_template=vendored(template)))

    return llama


def writing(text):
    return scripted.writing(text, controls=CONTROLS)


def say(llama, text, **options):
    asked = {"tools": [WEATHER, PING], "truncate_prompt": True, "max_tokens": 400, **options}
    result = llama.create_chat_completion(ASKED, logits_processor=writing(text), **asked)
    return only(joined(result) if options.get("stream") else result)


def test_vocabulary_has_them_as_single_tokens(model):
    for number, control in enumerate(CONTROLS):
        assert list(model.vocab.tokenize(control, add_special=False, parse_special=True)) == [N_TOY_VOCAB + number]


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("template", TEXTS)
def test_calls_are_read_and_constrained_by_single_tokens(make, template, stream, choice):
    llama = make(template)
    text, thoughts = TEXTS[template]
    message = say(llama, text, stream=stream, tool_choice=choice)
    assert calls_of(message) == [("get_weather", {"city": "Rome"})]
    assert message.get("reasoning_content", "") == thoughts
    assert message["content"] is None
    with pytest.raises(GrammarError, match="no token is left"):
        say(llama, text.replace("city", "town"), tool_choice=choice)


@pytest.mark.parametrize("tools", [None, [PING]])
@pytest.mark.parametrize("stream", [False, True])
def test_other_control_tokens_leave_no_text(make, stream, tools):
    message = say(make("Qwen-Qwen3-0.6B"), "It <|odd|>rains.[ARGS]", tools=tools, stream=stream)
    assert message == {"role": "assistant", "content": "It rains."}


@pytest.mark.parametrize("control", ["<|odd|>", "<|im_end|>"])
def test_other_control_tokens_are_not_in_what_a_grammar_allows(make, control):
    llama = make("Qwen-Qwen3-0.6B")
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ro' + control + 'me"}}\n</tool_call>'
    for choice in ("auto", "required"):
        with pytest.raises(GrammarError, match="no token is left"):
            say(llama, call, tool_choice=choice)
    with pytest.raises(GrammarError, match="no token is left"):
        say(llama, '{"a": "' + control + '"}', response_format={"type": "json_object"}, tools=None)


def test_thinking_before_a_form_is_read_by_single_tokens(make):
    form = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}
    message = say(make("Qwen-Qwen3-0.6B"), '<think>Hm.</think>"yes"', response_format=form, tools=None)
    assert (message["content"], message["reasoning_content"]) == ('"yes"', "Hm.")


def test_vocabulary_that_cannot_spell_a_marker_has_no_token_for_it(model_dir, closing, monkeypatch):
    texts, scores, types = models.toy_vocabulary()
    # without the tokens of single bytes there is no way to write "<", "/" and ">"
    texts[4:260] = [f"byte{byte}".encode() for byte in range(256)]
    types[4:260] = [types[-1]] * 256
    monkeypatch.setattr(models, "toy_vocabulary", lambda *_: (list(texts), list(scores), list(types)))
    path = scripted.write_model(model_dir / "no-bytes.gguf", controls=["<think>"])
    template = "{{ messages[0].content }}{% if messages|length > 9 %}<think></think><tool_call>{% endif %}"
    llama = closing(Llama(path, n_ctx=64, n_threads=1, n_threads_batch=1, chat_template=template))
    with pytest.raises(TokenizeError):
        llama.tokenize(b"</think>", add_bos=False, special=True)
    for stream in (False, True):
        processor = scripted.writing("<think>so ab", controls=["<think>"])
        said = llama.create_chat_completion(user("a b"), logits_processor=processor, stream=stream)
        message = only(joined(said) if stream else said)
        assert (message["reasoning_content"], message["content"]) == ("so ab", "")
