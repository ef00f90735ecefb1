"""Thinking: apart from the answer, in the prompt or not, as text, with a budget, and beside stop strings."""

from __future__ import annotations

import pytest

from llamacy.core.model import Model
from llamacy.errors import GrammarError
from llamacy.llama import Llama
from tests.helpers import scripted
from tests.helpers.chats import PING, calls_of, joined, only, user, vendored

ASKED = user("Why?")


@pytest.fixture(scope="module")
def model(model_dir):
    with Model(scripted.write_model(model_dir / "scripted-reasoning.gguf")) as model:
        yield model


@pytest.fixture
def make(model, closing):
    def llama(template):
        return closing(Llama(model, n_ctx=1024, n_threads=1, chat_template=vendored(template)))

    return llama


def say(llama, text, *, stream=False, **options):
    asked = {"logits_processor": scripted.writing(text), "max_tokens": 300, **options}
    result = llama.create_chat_completion(ASKED, stream=stream, **asked)
    return joined(result) if stream else result


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("template", "text", "reasoning", "content"),
    [
        ("Qwen-Qwen3-0.6B", "<think>\nSo.\nYes.\n</think>\n\nBecause.", "So.\nYes.", "Because."),
        ("Qwen-Qwen3-0.6B", "Because.", None, "Because."),
        ("Qwen-Qwen3-0.6B", "<think>\n\n</think>\n\nBecause.", None, "Because."),
        ("Qwen-Qwen3-0.6B", "<think>\nSo", "So", ""),
        ("llama-cpp-deepseek-r1", "So.\n</think>\n\nBecause.", "So.", "Because."),
        ("llama-cpp-deepseek-r1", "So, still", "So, still", ""),
        ("openai-gpt-oss-120b", "<|channel|>final<|message|>Because.", None, "Because."),
    ],
)
def test_thinking_is_apart(make, template, text, reasoning, content, stream):
    message = only(say(make(template), text, stream=stream))
    assert (message["content"], message.get("reasoning_content")) == (content, reasoning)


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_that_the_prompt_closed_is_text(make, stream):
    options = {"chat_template_kwargs": {"enable_thinking": False}, "stream": stream}
    message = only(say(make("Qwen-Qwen3-0.6B"), "Use <think> tags.", **options))
    assert message == {"role": "assistant", "content": "Use <think> tags."}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["<think>a</think>b", "<think>\na\n</think>\n\nb", "a</think>b"])
def test_ct_017_thinking_stays_in_the_text_when_asked(make, stream, text):
    message = only(say(make("Qwen-Qwen3-0.6B"), text, stream=stream, reasoning_format="none"))
    assert message == {"role": "assistant", "content": text}


@pytest.mark.parametrize("stream", [False, True])
def test_ct_015_quoted_end_tag_does_not_end_thinking(make, stream):
    text = "<think>the tag `</think>` closes it\n</think>\nAnswer"
    message = only(say(make("Qwen-Qwen3-0.6B"), text, stream=stream))
    assert (message["reasoning_content"], message["content"]) == ("the tag `</think>` closes it", "Answer")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("begun", "text", "reasoning", "content"),
    [
        ("<think>\nLet me", " see.\n</think>\n\nYes.", "see.", "Yes."),
        ("<think>\nSo.\n</think>\n\nYe", "s.", None, "s."),
        ("Ye", "s.", None, "s."),
    ],
)
def test_thinking_that_the_last_message_began_is_gone_on_with(make, stream, begun, text, reasoning, content):
    # a template that leaves contents as they are; Qwen's takes thoughts out of them
    llama = make("Qwen-Qwen2.5-7B-Instruct")
    template = llama.chat_template.source + "{# <think> #}"
    thinking = Llama(llama.model, n_ctx=1024, n_threads=1, chat_template=template)
    chat = [*ASKED, {"role": "assistant", "content": begun}]
    with thinking:
        result = thinking.create_chat_completion(
            chat,
            continue_final_message=True,
            stream=stream,
            logits_processor=scripted.writing(text),
            max_tokens=100,
        )
        message = only(joined(result) if stream else result)
    assert (message["content"], message.get("reasoning_content")) == (content, reasoning)


@pytest.mark.parametrize(
    "options",
    [
        {"tools": [PING], "tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
        {"tools": [PING], "response_format": {"type": "json_object"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("begun", ["Well,", "<think>\nSo.\n</think>\n\nWell,"])
def test_answer_that_was_begun_is_not_thought_about_again(make, options, begun):
    llama = make("Qwen-Qwen2.5-7B-Instruct")
    called = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>' if "tool_choice" in options else '{"a": 1}'
    template = llama.chat_template.source + "{# <think> #}"
    with Llama(llama.model, n_ctx=1024, n_threads=1, chat_template=template) as thinking:

        def answer(text, chat, **more):
            return only(
                thinking.create_chat_completion(
                    chat, logits_processor=scripted.writing(text), max_tokens=100, **options, **more
                )
            )

        chat = [*ASKED, {"role": "assistant", "content": begun}]
        message = answer(called, chat, continue_final_message=True)
        assert message["content"] == called or [name for name, _ in calls_of(message)] == ["ping"]
        with pytest.raises(GrammarError):
            answer(f"<think>Hm.</think>{called}", chat, continue_final_message=True)
        assert answer(f"<think>Hm.</think>{called}", ASKED)["reasoning_content"] == "Hm."


def test_history_of_thinking_reaches_the_template(make):
    chat = [*ASKED, {"role": "assistant", "content": "", "reasoning_content": "Deep.", "tool_calls": None}]
    assert "Deep." in make("Qwen-Qwen3-0.6B").chat_prompt(chat)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("template", ["Qwen-Qwen3-0.6B", "llama-cpp-deepseek-r1"])
def test_budget_ends_thinking_with_the_tag_of_the_template(make, template, stream):
    llama = make(template)
    is_open = llama.chat_prompt(ASKED).rstrip().endswith("<think>")
    budget = 5
    # what the budget forces comes whatever the logits say
    thought = [*scripted.tokens_of("" if is_open else "<think>"), *scripted.tokens_of("abcdefghijklm")]

    def process(ids, scores, start=[]):  # noqa: B006
        start.append(len(ids))
        place = len(ids) - start[0]
        scores[:] = -100
        scores[thought[place] if place < len(thought) else scripted.tokens_of("z")[0]] = 0

    options = {"logits_processor": process, "reasoning_budget": budget, "temperature": 0, "max_tokens": 40}
    result = llama.create_chat_completion(ASKED, stream=stream, **options)
    message = only(joined(result) if stream else result)
    assert message["reasoning_content"] == "abcde"
    assert message["content"].endswith("zz")


def test_budget_without_tags_is_refused(make):
    with pytest.raises(ValueError, match="reasoning_budget"):
        say(make("openai-gpt-oss-120b"), "x", reasoning_budget=3)


CALL = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
HARMONY_CALL = "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("template", "text", "reasoning", "content"),
    [
        # what opens a call is spoken of, in ways that no grammar of calls allows
        ("Qwen-Qwen3-0.6B", f"<think>\nA <tool_call> it is.\n</think>\n\n{CALL}", "A <tool_call> it is.", None),
        ("Qwen-Qwen3-0.6B", "<think>\nNo <tool_call>.\n</think>\n\nNo.", "No <tool_call>.", "No."),
        (
            "Qwen-Qwen3-0.6B",
            f"<think>\nIs `</think>` <tool_call> so?\n</think>{CALL}",
            "Is `</think>` <tool_call> so?",
            None,
        ),
        ("Qwen-QwQ-32B", f"A <tool_call> it is.\n</think>\n\n{CALL}", "A <tool_call> it is.", None),
        (
            "openai-gpt-oss-120b",
            f"<|channel|>analysis<|message|>A to=functions.x.<|end|><|start|>assistant{HARMONY_CALL}",
            "A to=functions.x.",
            None,
        ),
    ],
)
def test_call_that_is_thought_of_is_none(make, template, text, reasoning, content, stream):
    message = only(
        say(make(template), text, tools=[PING], stream=stream, chat_template_kwargs={"enable_thinking": True})
    )
    assert (message["content"], message["reasoning_content"]) == (content, reasoning)
    assert calls_of(message) == ([("ping", {})] if content is None else [])


@pytest.mark.parametrize(
    ("template", "thought", "call"),
    [
        ("Qwen-Qwen3-0.6B", "<think>\nA <tool_call> it is.\n</think>\n\n", "<tool_call>\nso"),
        ("Qwen-QwQ-32B", "A <tool_call> it is.\n</think>\n\n", "<tool_call>\nso"),
        ("Qwen-Qwen3-0.6B", "", "<tool_call>\nso"),
        (
            "openai-gpt-oss-120b",
            "<|channel|>analysis<|message|>A.<|end|><|start|>assistant",
            "<|channel|>commentary to=functions.x",
        ),
    ],
)
def test_call_after_thinking_obeys_the_grammar(make, template, thought, call):
    with pytest.raises(GrammarError, match="no token is left"):
        say(make(template), thought + call, tools=[PING], chat_template_kwargs={"enable_thinking": True})


def test_thinking_that_began_long_before_the_end_of_the_prompt(model, closing):
    template = "{# <|channel|> <|message|> #}{{ begun }}"
    llama = closing(Llama(model, n_ctx=1024, n_threads=1, chat_template=template))
    thought = "A thought that is much longer than what tells the prompts of most models apart, and goes on and on."
    for channel in ("final", "analysis", "final"):
        asked = {"logits_processor": scripted.writing(" to=functions.x"), "tools": [PING], "max_tokens": 40}
        begun = {"begun": f"<|start|>assistant<|channel|>{channel}<|message|>{thought}"}
        if channel == "analysis":
            said = llama.create_chat_completion(ASKED, chat_template_kwargs=begun, **asked)
            assert only(said)["reasoning_content"].endswith("to=functions.x")
        else:
            with pytest.raises(GrammarError, match="no token is left"):
                llama.create_chat_completion(ASKED, chat_template_kwargs=begun, **asked)
