"""Each format of calls through `Llama`: a model with a vendored template writes what was recorded, token by token."""

from __future__ import annotations

import pytest

from llamacy.core.model import Model
from llamacy.llama import Llama
from tests.chat.output.recorded import TOOLS, WRITTEN, source_of
from tests.chat.output.test_call_grammar import OTHER_STYLE
from tests.helpers import scripted
from tests.helpers.chats import calls_of, joined, only, user, without_ids

ASKED = user("Question?")
CASES = ("two", "nested", "thinking")
# a template that wants variables of its own, see test_firefunction_gets_its_variables
RECORDS = [
    record
    for record in WRITTEN
    if record.name.rpartition("-")[2] in CASES
    and not any(record.name.startswith(name) for name in OTHER_STYLE)
    and not record.name.startswith("fireworks")
]


@pytest.fixture(scope="module")
def model(model_dir):
    with Model(scripted.write_model(model_dir / "scripted.gguf")) as model:
        yield model


@pytest.fixture
def llama_with(model, closing):
    """Return a function that makes a Llama with a vendored template."""

    def make(template):
        return closing(Llama(model, n_ctx=2048, n_threads=1, chat_template=source_of(template)))

    return make


def written_after(prompt, record):
    """What a model that was given a prompt writes to say what a record says: text, thoughts and calls."""
    calls = [tuple(call) for call in record.calls]
    tags = record.format.thinking
    if tags is not None and prompt.rstrip().endswith(tags.end):
        return record.text.removeprefix(tags.end).lstrip(), record.reasoning, calls
    if tags is None or tags.is_open(record.prompt_suffix) == tags.is_open(prompt):
        return record.text, record.reasoning, calls
    if tags.is_open(prompt) and not record.reasoning:
        # the prompt has begun to think, which the history never shows
        return f"Hm.{tags.end}\n\n{record.text.removeprefix(tags.end).lstrip()}", "Hm.", calls
    return record.text, record.reasoning, calls


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_recorded_calls_come_out_whole_and_streamed(llama_with, record):
    llama = llama_with(record.name.rpartition("-")[0])
    prompt = llama.chat_prompt(ASKED, tools=TOOLS)
    tags = record.format.thinking
    if tags is not None and record.reasoning and prompt.rstrip().endswith(tags.end):
        pytest.skip("the prompt of a first turn ends the thinking that is in the record")
    text, reasoning, calls = written_after(prompt, record)
    asked = {"tools": TOOLS, "truncate_prompt": True, "max_tokens": 900}
    whole = llama.create_chat_completion(ASKED, logits_processor=scripted.writing(text), **asked)
    message = only(whole)
    assert message["content"] == (record.content or None)
    assert (message.get("reasoning_content", ""), calls_of(message)) == (reasoning, calls)
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    chunks = llama.create_chat_completion(ASKED, stream=True, logits_processor=scripted.writing(text), **asked)
    assert without_ids(joined(chunks)) == without_ids(whole)


TWO = [record for record in RECORDS if record.name.endswith("two")]


@pytest.mark.parametrize("record", TWO, ids=lambda record: record.name)
def test_recorded_calls_fit_what_a_required_call_obeys(llama_with, record):
    llama = llama_with(record.name.rpartition("-")[0])
    asked = {"tools": TOOLS, "tool_choice": "required", "truncate_prompt": True, "max_tokens": 900}
    text, _, calls = written_after(llama.chat_prompt(ASKED, tools=TOOLS), record)
    message = only(llama.create_chat_completion(ASKED, logits_processor=scripted.writing(text), **asked))
    assert calls_of(message) == calls
