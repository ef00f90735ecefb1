"""Public fault cases of the area streaming-utf8-stop that need a model; the others are in core/test_text.py."""

from __future__ import annotations

import pytest

from llamacy import Llama
from llamacy.core.text import TextAssembler
from tests.helpers import data


@pytest.fixture
def llm(closing, smollm2_model):
    return closing(Llama(smollm2_model, n_ctx=256, n_threads=1, n_threads_batch=1))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("stop", "fired"), [(["FOO", " 9"], " 9"), ([" 9", " 8"], " 8"), (["8, 9", ", 9"], "8, 9")])
def test_st_019_stop_string_that_fired_is_told(llm, stream, stop, fired):
    result = llm("1, 2, 3, 4, 5, 6, 7,", max_tokens=20, temperature=0, stop=stop, stream=stream)
    choices = [chunk["choices"][0] for chunk in result] if stream else [result["choices"][0]]
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", fired)
    assert fired not in "".join(choice["text"] for choice in choices)


@pytest.mark.parametrize("stop", [["", None, "X", "X"], [""], [None], "", ["X", 5], ["\ud800"], 5])
def test_st_021_stop_that_is_none_is_refused_before_anything_is_computed(llm, stop):
    epoch = llm.context.epoch
    with pytest.raises((ValueError, TypeError), match="stop"):
        llm("1, 2,", stop=stop)
    assert llm.context.epoch == epoch


@pytest.mark.parametrize("stop", [None, [], (), ["9", "9"], "9", iter(["9"])])
def test_st_021_duplicates_and_no_stop_at_all_are_fine(llm, stop):
    choice = llm("1, 2, 3, 4, 5, 6, 7,", max_tokens=8, temperature=0, stop=stop)["choices"][0]
    assert choice["finish_reason"] == ("stop" if stop else "length")


@pytest.mark.parametrize("stream", [False, True])
def test_st_022_finish_reason_says_what_ended_it(llm, stream):
    def last(prompt, **options):
        result = llm(prompt, temperature=0, stream=stream, **options)
        return list(result)[-1] if stream else result

    assert last("1,2,3,", max_tokens=-1, stop=["9"])["choices"][0]["finish_reason"] == "stop"
    result = last("x", max_tokens=3)
    assert (result["choices"][0]["finish_reason"], result["usage"]["completion_tokens"]) == ("length", 3)
    result = last("x y z", max_tokens=0)
    assert (result["choices"][0]["finish_reason"], result["usage"]["completion_tokens"]) == ("length", 0)
    assert llm.context.memory.seq_pos_max(0) == result["usage"]["prompt_tokens"] - 1


def test_st_024_default_limit_is_in_the_result_and_in_the_documentation(llm):
    result = llm("Tell a story", temperature=0)
    assert (result["max_tokens"], result["choices"][0]["finish_reason"]) == (16, "length")
    assert "16 by default" in Llama.create_completion.__doc__


def test_st_025_text_that_begins_with_bos_gets_no_second_one(closing):
    llm = closing(Llama(data("llama.gguf"), n_ctx=64, n_threads=1))
    bos = llm.model.vocab.bos
    for prompt in ("<s>hi", "hi"):
        llm(prompt, max_tokens=0)
        tokens = llm._engine.slots._sequences[0].tokens.tolist()
        assert tokens.count(bos) == 1
        assert tokens[0] == bos


@pytest.mark.parametrize("name", ["smollm2", "llama"])
@pytest.mark.parametrize("text", ["text", " text", "  two", "\n\tx", "ü", "", "a\u200db", "<|im_start|>", "<s>"])
def test_st_026_user_text_comes_back_as_it_was(llm, closing, name, text):
    llm = llm if name == "smollm2" else closing(Llama(data("llama.gguf"), n_ctx=64, n_threads=1))
    assert llm.detokenize(llm.tokenize(text, add_bos=False, special=False)).decode() == text


def test_st_028_special_tokens_put_no_space_into_the_text(llm):
    text = "<|im_start|>analysis<|im_end|>hi"
    tokens = llm.tokenize(text, add_bos=False, special=True)
    assembler = TextAssembler(llm.model.vocab, special=True)
    assert "".join(assembler.feed_token(token) for token in tokens) + assembler.finish() == text
    assert llm.detokenize(tokens, special=True).decode() == text
