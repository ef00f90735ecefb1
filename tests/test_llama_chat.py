"""`Llama.create_chat_completion` with a real model: answers, streams, log-probabilities, seeds, stops, prompts."""

from __future__ import annotations

import asyncio
import math
import threading

import numpy as np
import pytest

from llamacy.errors import ContextLengthError
from llamacy.llama import Llama
from tests.helpers.chats import joined, only, user, without_ids
from tests.helpers.process import run_python

pytestmark = pytest.mark.model
ASKED = "Which planet is the largest?"


@pytest.fixture
def smollm2(closing, smollm2_model):
    return closing(Llama(smollm2_model, n_ctx=512, n_threads=1, n_threads_batch=1))


def chatml(*turns, start=True):
    """The prompt of SmolLM2's template for turns, worked out by hand."""
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    return text + ("<|im_start|>assistant\n" if start else "")


SYSTEM = ("system", "You are a helpful AI assistant named SmolLM, trained by Hugging Face")


def test_prompt_is_what_the_template_writes(smollm2):
    assert smollm2.chat_prompt(user("Hi")) == chatml(SYSTEM, ("user", "Hi"))
    chat = [
        {"role": "system", "content": "Be brief."},
        *user("Hi"),
        {"role": "assistant", "content": "Yes?"},
        *user("Bye"),
    ]
    turns = [(message["role"], message["content"]) for message in chat]
    assert smollm2.chat_prompt(chat) == chatml(*turns)
    assert smollm2.chat_prompt(chat, add_generation_prompt=False) == chatml(*turns, start=False)


def test_answer_is_what_the_prompt_is_completed_with(smollm2):
    answer = smollm2.create_chat_completion(user(ASKED), temperature=0, max_tokens=24)
    text = smollm2.create_completion(chatml(SYSTEM, ("user", ASKED)), temperature=0, max_tokens=24)
    assert only(answer) == {"role": "assistant", "content": text["choices"][0]["text"]}
    assert "Jupiter" in only(answer)["content"]
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["prompt_tokens"] == text["usage"]["prompt_tokens"]
    assert answer["choices"][0]["finish_reason"] == text["choices"][0]["finish_reason"]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0, "max_tokens": 30},
        {"temperature": 0, "max_tokens": 30, "stop": ["Jupiter", "nothing"]},
        {"seed": 3, "temperature": 1.0, "max_tokens": 20, "n": 3},
        {"temperature": 0, "max_tokens": 8, "logprobs": True, "top_logprobs": 3},
        {"temperature": 0, "max_tokens": 40, "response_format": {"type": "json_object"}},
        {"temperature": 0, "max_tokens": 0},
    ],
    ids=lambda options: ",".join(options),
)
def test_stream_says_what_the_whole_says(smollm2, options):
    whole = smollm2.create_chat_completion(user(ASKED), **options)
    chunks = list(smollm2.create_chat_completion(user(ASKED), stream=True, **options))
    streamed = joined(chunks)
    ours, theirs = without_ids(streamed), without_ids(whole)
    if options.get("logprobs"):
        for first, second in zip(ours, theirs, strict=True):
            pairs = zip(first.pop("logprobs")["content"], second.pop("logprobs")["content"], strict=True)
            for one, other in pairs:
                assert one["bytes"] == other["bytes"]
                assert math.isclose(one["logprob"], other["logprob"], abs_tol=1e-4)  # a cached prompt, other batches
    assert ours == theirs
    assert streamed["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert [chunk["object"] for chunk in chunks] == ["chat.completion.chunk"] * len(chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1
    roles = [choice["index"] for chunk in chunks for choice in chunk["choices"] if "role" in choice["delta"]]
    assert sorted(roles) == list(range(options.get("n", 1)))


def test_usage_apart_comes_in_a_chunk_without_choices(smollm2):
    asked = {"max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
    chunks = list(smollm2.create_chat_completion(user(ASKED), **asked))
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3
    assert not any("usage" in chunk for chunk in chunks[:-1])


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_ends_the_answer_before_it(smollm2, stream):
    result = smollm2.create_chat_completion(user(ASKED), temperature=0, stop="Jupiter", stream=stream)
    result = joined(result) if stream else result
    assert "Jupiter" not in only(result)["content"]
    assert (result["choices"][0]["finish_reason"], result["choices"][0]["stop_reason"]) == ("stop", "Jupiter")


def test_logprobs_are_those_of_the_softmax(smollm2):
    options = {"temperature": 0, "max_tokens": 6, "logprobs": True, "top_logprobs": 4, "cache_prompt": False}
    result = smollm2.create_chat_completion(user(ASKED), **options)
    entries = result["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == only(result)["content"]
    tokens = smollm2.tokenize(smollm2.chat_prompt(user(ASKED)), special=True)
    for place, entry in enumerate(entries):
        list(smollm2.generate(tokens, max_tokens=1, temperature=0, cache_prompt=False))
        row = np.asarray(smollm2.context.logits(), dtype=np.float64).reshape(-1)
        expected = row - row.max() - np.log(np.exp(row - row.max()).sum())
        best = np.argsort(-expected)[:4]
        assert [top["bytes"] for top in entry["top_logprobs"]] == [
            list(smollm2.detokenize([int(token)], special=True)) for token in best
        ], place
        got = [top["logprob"] for top in entry["top_logprobs"]]
        # one decode of all tokens here, one token at a time there
        np.testing.assert_allclose(got, expected[best], atol=2e-3)
        tokens.append(int(best[0]))


def test_logprobs_without_tops_have_no_tops(smollm2):
    entries = smollm2.create_chat_completion(user(ASKED), max_tokens=2, logprobs=True)["choices"][0]["logprobs"]
    assert [entry["top_logprobs"] for entry in entries["content"]] == [[], []]
    assert entries["refusal"] is None


def test_seeds_and_choices(smollm2):
    options = {"temperature": 1.2, "max_tokens": 12}
    three = smollm2.create_chat_completion(user("Tell me a story."), seed=5, n=3, **options)
    texts = [choice["message"]["content"] for choice in three["choices"]]
    assert len(set(texts)) == 3
    again = smollm2.create_chat_completion(user("Tell me a story."), seed=5, **options)
    other = smollm2.create_chat_completion(user("Tell me a story."), seed=6, **options)
    assert [only(again)["content"], only(other)["content"]] == texts[:2]
    assert three["seed"] == 5


def test_prefill_is_gone_on_with(smollm2):
    chat = [*user("What is the capital of Italy?"), {"role": "assistant", "content": "The capital of Italy is"}]
    for name in ("continue_final_message", "assistant_prefill"):
        result = smollm2.create_chat_completion(chat, temperature=0, max_tokens=4, **{name: True})
        assert only(result)["content"].startswith(" Rome"), name
    prompt = smollm2.chat_prompt(chat, continue_final_message=True)
    assert prompt == chatml(SYSTEM, ("user", "What is the capital of Italy?")) + "The capital of Italy is"


def test_second_turn_computes_what_is_new_only(smollm2):
    first = smollm2.create_chat_completion(user(ASKED), temperature=0, max_tokens=16)
    chat = [*user(ASKED), only(first), *user("What is 2+2?")]
    second = smollm2.create_chat_completion(chat, temperature=0, max_tokens=16)
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["prompt_tokens"]
    alone = smollm2.create_chat_completion(chat, temperature=0, max_tokens=16, cache_prompt=False)
    assert only(second) == only(alone)


def test_chat_that_is_too_long_is_told_with_both_numbers(smollm2):
    with pytest.raises(ContextLengthError) as caught:
        smollm2.create_chat_completion(user("word " * 1000))
    assert caught.value.n_ctx == 512
    assert caught.value.n_prompt > 1000
    assert only(smollm2.create_chat_completion(user(ASKED), max_tokens=2))["content"]
    result = smollm2.create_chat_completion(user("word " * 1000), max_tokens=4, truncate_prompt=True)
    assert result["usage"]["prompt_tokens_details"]["truncated_tokens"] > 500


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n", "é🦙日本語", "\u200d\ufeff", "a\x00b", "<|im_end|>", "𝕳" * 50, "\r\n\t"], ids=repr
)
def test_odd_texts_are_answered(smollm2, text):
    result = smollm2.create_chat_completion(user(text), max_tokens=4, temperature=0)
    assert result["usage"]["completion_tokens"] <= 4
    only(result)["content"].encode()
    assert smollm2.chat_prompt(user(text)) == chatml(SYSTEM, ("user", text))


def test_lone_surrogate_is_an_error(smollm2):
    with pytest.raises(ValueError, match="surrogate"):
        smollm2.create_chat_completion(user("\ud800"), max_tokens=1)


@pytest.mark.parametrize(
    "roles",
    [["assistant"], ["user", "user"], ["assistant", "user"], ["user", "system"], ["system"], ["developer", "user"]],
    ids="-".join,
)
def test_roles_in_odd_order_are_rendered_as_the_template_does(smollm2, roles):
    chat = [{"role": role, "content": f"{role} says"} for role in roles]
    # the template has no developer, who is the system then
    turns = [("system" if role == "developer" else role, f"{role} says") for role in roles]
    if turns[0][0] != "system":
        turns = [SYSTEM, *turns]
    assert smollm2.chat_prompt(chat) == chatml(*turns)
    smollm2.create_chat_completion(chat, max_tokens=1)


def test_messages_may_be_models(smollm2):
    pydantic = pytest.importorskip("pydantic")

    class Message(pydantic.BaseModel):
        role: str
        content: str
        name: str | None = None

    messages = [Message(role="user", content=ASKED)]
    assert smollm2.chat_prompt(messages) == smollm2.chat_prompt(user(ASKED))


@pytest.mark.parametrize(
    ("messages", "error", "words"),
    [
        ([], ValueError, "empty"),
        ("hi", TypeError, "list"),
        ([{"content": "x"}], ValueError, r"messages\[0\]\.role"),
        ([{"role": "user"}], ValueError, r"messages\[0\]\.content"),
        ([{"role": "user", "content": 3}], TypeError, r"messages\[0\]\.content"),
        ([{"role": "wizard", "content": "x"}], ValueError, "wizard"),
        ([3], TypeError, r"messages\[0\]"),
        (user([{"type": "image_url", "image_url": {"url": "x"}}]), ValueError, "image_url"),
    ],
    ids=repr,
)
def test_wrong_messages_are_named_and_the_next_request_is_right(smollm2, messages, error, words):
    with pytest.raises(error, match=words):
        smollm2.create_chat_completion(messages, max_tokens=1)
    assert smollm2.create_chat_completion(user("a"), max_tokens=1)["usage"]["completion_tokens"] <= 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tool": []}, TypeError, "did you mean 'tools'"),
        ({"respose_format": {}}, TypeError, "did you mean 'response_format'"),
        ({"top_logprobs": 2}, ValueError, "logprobs=True"),
        ({"logprobs": 3}, TypeError, "top_logprobs"),
        ({"n": 0}, ValueError, "n must be from 1"),
        ({"n": True}, TypeError, "n must be an int"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, TypeError, "twice"),
        ({"reasoning_format": "deep"}, ValueError, "reasoning"),
        ({"chat_template_kwargs": {"tools": []}}, ValueError, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"bos_token": "x"}}, ValueError, "bos_token"),
        ({"chat_template_kwargs": 3}, TypeError, "chat_template_kwargs"),
        ({"documents": "x"}, TypeError, "documents"),
        ({"stop": [""]}, ValueError, "stop"),
        ({"stream_options": {"x": 1}}, TypeError, "stream_options"),
        ({"stream": "no"}, TypeError, "stream must be True or False"),
        ({"model": 3}, TypeError, "model must be a text"),
        ({"parallel_tool_calls": "no"}, TypeError, "parallel_tool_calls must be"),
        ({"add_generation_prompt": 0}, TypeError, "add_generation_prompt must be"),
        ({"continue_final_message": "no"}, TypeError, "continue_final_message must be"),
        ({"reasoning_format": "deepseek"}, ValueError, 'reasoning_format must be "auto" or "none"'),
        ({"reasoning_budget": 3}, ValueError, "reasoning_budget"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_wrong_options_are_named(smollm2, options, error, words):
    with pytest.raises(error, match=words):
        smollm2.create_chat_completion(user("a"), **{"max_tokens": 1, **options})


def test_none_stands_for_the_default(smollm2):
    from llamacy.generate.chat import ChatArguments

    options = dict.fromkeys([*ChatArguments.__dataclass_fields__, "temperature", "top_k", "seed", "grammar"])
    given = smollm2.create_chat_completion(user(ASKED), **{**options, "max_tokens": 6, "seed": 1})
    plain = smollm2.create_chat_completion(user(ASKED), max_tokens=6, seed=1)
    assert without_ids(given) == without_ids(plain)


def test_threads_take_turns(smollm2):
    expected = {
        text: only(smollm2.create_chat_completion(user(text), temperature=0, max_tokens=8)) for text in ("One", "Two")
    }
    got = []

    def ask(text):
        got.append((text, only(smollm2.create_chat_completion(user(text), temperature=0, max_tokens=8))))

    threads = [threading.Thread(target=ask, args=(text,)) for text in ("One", "Two") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got, key=str) == sorted([(text, expected[text]) for text in ("One", "Two") * 3], key=str)


@pytest.mark.parametrize("when", ["close", "abort"])
def test_stream_that_is_left_leaves_the_next_request_right(smollm2, when):
    expected = only(smollm2.create_chat_completion(user(ASKED), temperature=0, max_tokens=8))
    stream = smollm2.create_chat_completion(user("Tell me a long story."), stream=True, max_tokens=300)
    next(stream)
    next(stream)
    if when == "close":
        stream.close()
    else:
        smollm2.abort()
        assert list(stream)[-1]["choices"][0]["finish_reason"] == "abort"
    assert only(smollm2.create_chat_completion(user(ASKED), temperature=0, max_tokens=8)) == expected


def test_async_chats_take_turns_and_stream(smollm2):
    expected = only(smollm2.create_chat_completion(user(ASKED), temperature=0, max_tokens=6))

    async def ask():
        options = {"temperature": 0, "max_tokens": 6}
        several = [smollm2.acreate_chat_completion(user(ASKED), **options) for _ in range(3)]
        chunks = [chunk async for chunk in await smollm2.acreate_chat_completion(user(ASKED), stream=True, **options)]
        return [only(result) for result in await asyncio.gather(*several)], joined(chunks)

    results, streamed = asyncio.run(ask())
    assert results == [expected] * 3
    assert only(streamed) == expected


def test_ctrl_c_in_a_stream_leaves_the_next_request_right(smollm2_path):
    code = """
import signal, sys, threading, time
from llamacy import Llama
signal.signal(signal.SIGINT, signal.default_int_handler)
with Llama(sys.argv[1], n_ctx=512, n_threads=1, n_threads_batch=1) as llm:
    ask = [{"role": "user", "content": "Which planet is the largest?"}]
    first = llm.create_chat_completion(ask, temperature=0, max_tokens=8)["choices"][0]["message"]
    n_chunks = 0
    try:
        for chunk in llm.create_chat_completion(ask, temperature=0, max_tokens=400, stream=True):
            n_chunks += 1
            if n_chunks == 3:
                threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
        assert chunk["choices"][0]["finish_reason"] == "abort", chunk
    except KeyboardInterrupt:
        pass  # it came between two chunks
    assert 3 <= n_chunks < 400
    again = llm.create_chat_completion(ask, temperature=0, max_tokens=8)["choices"][0]["message"]
    assert first == again, (first, again)
"""
    run_python(code, str(smollm2_path))
