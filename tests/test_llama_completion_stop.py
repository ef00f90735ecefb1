"""Stop strings that spell special tokens, which leave no text of their own."""

from __future__ import annotations

import pytest

from llamacy.core.model import Model
from llamacy.llama import Llama
from tests.helpers import scripted
from tests.helpers.chats import joined, user

CONTROLS = ("<|user|>", "<|next|>")


@pytest.fixture(scope="module")
def model(model_dir):
    with Model(scripted.write_model(model_dir / "scripted-stops.gguf", controls=CONTROLS)) as model:
        yield model


@pytest.fixture
def llama(closing, model):
    return closing(Llama(model, n_ctx=256, n_threads=1, n_threads_batch=1, chat_format="chatml"))


WRITTEN = "one<|next|>two\n<|user|>three"
CASES = [
    # stop strings, the text before the one that fires, that one
    (["<|user|>"], "onetwo\n", "<|user|>"),
    (["\n<|user|>"], "onetwo", "\n<|user|>"),
    (["<|user|>th"], "onetwo\n", "<|user|>th"),
    (["o<|next|>", "<|user|>"], "onetwo\nthree", None),
    (["<|next|>two\n<|user|>"], "one", "<|next|>two\n<|user|>"),
    (["<|user|>none", "<|next|>none"], "onetwo\nthree", None),
    (["r", "<|user|>"], "onetwo\n", "<|user|>"),
]
CASES[3] = (["o<|next|>", "<|user|>no"], "onetwo\nthree", None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("logprobs", [None, 1])
@pytest.mark.parametrize(("stop", "text", "fired"), CASES)
def test_stop_string_with_a_special_token_ends_the_text(llama, stream, logprobs, stop, text, fired):
    writing = scripted.writing(WRITTEN, controls=CONTROLS)
    result = llama(
        "a", max_tokens=60, temperature=0, stop=stop, stream=stream, logprobs=logprobs, logits_processor=writing
    )
    choices = [chunk["choices"][0] for chunk in result] if stream else result["choices"]
    assert "".join(choice["text"] for choice in choices) == text
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", fired)
    if logprobs:
        tokens = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
        # special tokens are told though they leave no text, but for those that were cut off
        told = "".join(tokens).removesuffix("</s>")
        for control in CONTROLS:
            told = told.replace(control, "")
        assert told == text


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_with_a_special_token_ends_an_answer(llama, stream):
    asked = {"max_tokens": 60, "temperature": 0, "stop": "<|user|>", "stream": stream}
    result = llama.create_chat_completion(
        user("a"), logits_processor=scripted.writing(WRITTEN, controls=CONTROLS), **asked
    )
    choice = (joined(result) if stream else result)["choices"][0]
    assert choice["message"]["content"] == "onetwo\n"
    assert choice["finish_reason"] == "stop"
