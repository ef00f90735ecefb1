"""Filling in the middle: the order of the tokens, and models that can't."""

from __future__ import annotations

import pytest

from llamacy.llama import Llama
from tests.helpers import BOS, data, models, toy_tokens

PRE, SUF, MID = 200, 201, 202


@pytest.fixture(scope="module")
def fim_path(tmp_path_factory):
    """The toy model with three of its tokens declared as those for filling in."""
    path = tmp_path_factory.mktemp("fim") / "fim.gguf"
    shape = models.LlamaShape(n_vocab=288)
    writer = models._llama_writer(path, shape)
    for name, token in (("pre", PRE), ("suf", SUF), ("mid", MID)):
        writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", token)
    for name, tensor in models.llama_tensors(shape).items():
        writer.add_tensor(name, tensor)
    models._finish(writer)
    return path


def prompt_of(llama):
    return llama._engine.slots._sequences[0].tokens.tolist()


@pytest.mark.parametrize("spm", [False, True])
def test_order_of_prefix_and_suffix(closing, fim_path, spm):
    llama = closing(Llama(fim_path, n_ctx=64, n_threads=1, n_threads_batch=1, spm_infill=spm))
    result = llama("ab", suffix="cd", max_tokens=0)
    before = [PRE, *toy_tokens("ab", add_special=False)]
    after = [SUF, *toy_tokens("cd", add_special=False)]
    expected = [BOS, *(after + before if spm else before + after), MID]
    assert prompt_of(llama) == expected
    assert result["usage"]["prompt_tokens"] == len(expected)


def test_special_tokens_are_not_recognised_in_the_texts(closing, fim_path):
    llama = closing(Llama(fim_path, n_ctx=64, n_threads=1))
    llama("<s>", suffix="</s>", max_tokens=0)
    assert prompt_of(llama).count(BOS) == 1


def test_echo_is_what_comes_before(closing, fim_path):
    llama = closing(Llama(fim_path, n_ctx=64, n_threads=1))
    choice = llama("ab", suffix="cd", max_tokens=3, echo=True, logprobs=1, temperature=0)["choices"][0]
    assert choice["text"].startswith("ab")
    assert len(choice["logprobs"]["tokens"]) == 10 + 3
    assert choice["logprobs"]["text_offset"] == sorted(choice["logprobs"]["text_offset"])


@pytest.mark.parametrize(("prompt", "suffix"), [([265], "x"), ("x", [265]), ("x", 5), ("x", "\ud800")])
def test_what_is_no_text_raises(closing, fim_path, prompt, suffix):
    llama = closing(Llama(fim_path, n_ctx=64, n_threads=1))
    with pytest.raises((TypeError, ValueError)):
        llama(prompt, suffix=suffix)


def test_model_without_the_tokens_says_so_before_anything_is_computed(closing):
    llama = closing(Llama(data("llama.gguf"), n_ctx=64, n_threads=1))
    with pytest.raises(ValueError, match="no token for the prefix and the suffix and the middle"):
        llama("ab", suffix="cd")
    assert llama.context.epoch == 0
