"""Public fault cases of the area logprobs; test_llama_completion_logprobs.py has the numbers."""

from __future__ import annotations

import math

import pytest

from llamacy import Llama


@pytest.fixture
def llm(closing, smollm2_model):
    return closing(Llama(smollm2_model, n_ctx=256, n_threads=1, n_threads_batch=1))


def test_lp_001_chosen_token_is_the_one_whose_value_is_told(llm):
    result = llm("The capital of France is", temperature=0, max_tokens=5, logprobs=1)
    entries = result["choices"][0]["logprobs"]
    n = result["usage"]["completion_tokens"]
    assert len(entries["tokens"]) == len(entries["token_logprobs"]) == len(entries["top_logprobs"]) == n
    for token, logprob, tops in zip(entries["tokens"], entries["token_logprobs"], entries["top_logprobs"], strict=True):
        assert tops == {token: logprob}
        assert math.exp(logprob) <= 1


def test_lp_003_held_back_text_delays_its_entries_and_merges_none(llm):
    options = {"temperature": 0, "max_tokens": 12, "logprobs": 2}
    text = llm("1, 2, 3,", **options)["choices"][0]["text"]
    # every token of this could begin the stop string, which never comes
    stop = text[:6] + "xxx"
    chunks = [chunk["choices"][0] for chunk in llm("1, 2, 3,", **options, stop=[stop], stream=True)]
    entries = [chunk["logprobs"] for chunk in chunks if chunk["logprobs"]]
    assert sum(len(part["tokens"]) for part in entries) == 12
    assert all(len(tops) == 2 for part in entries for tops in part["top_logprobs"])
    for chunk in chunks:
        if chunk["logprobs"]:
            assert "".join(chunk["logprobs"]["tokens"]) == chunk["text"]


def test_lp_004_prompt_is_scored(llm):
    scores = {}
    for answer in (" 4", " 5"):
        result = llm("Q: 2+2=\nA:" + answer, echo=True, max_tokens=0, logprobs=1)
        entries = result["choices"][0]["logprobs"]
        assert len(entries["tokens"]) == result["usage"]["prompt_tokens"]
        assert entries["token_logprobs"][0] is None
        scores[answer] = entries["token_logprobs"][-1]
    assert scores[" 4"] != scores[" 5"]


@pytest.mark.parametrize("stop", [[","], [" 6"], [", 6, 7"]])
def test_lp_005_entries_are_those_of_the_text_that_is_returned(llm, stop):
    options = {"temperature": 0, "max_tokens": 20, "logprobs": 1, "stop": stop}
    whole = llm("1, 2, 3, 4,", **options)["choices"][0]
    assert "".join(whole["logprobs"]["tokens"]) == whole["text"]
    chunks = [chunk["choices"][0] for chunk in llm("1, 2, 3, 4,", **options, stream=True)]
    streamed = [token for chunk in chunks if chunk["logprobs"] for token in chunk["logprobs"]["tokens"]]
    assert streamed == whole["logprobs"]["tokens"]


def test_lp_007_scores_do_not_depend_on_order_or_reuse(llm):
    def score(candidate):
        result = llm("on()\noff()\n" + candidate, echo=True, max_tokens=0, logprobs=1)
        return sum(result["choices"][0]["logprobs"]["token_logprobs"][1:])

    names = ["play()", "stop()", "pause()"]
    first = [score(name) for name in names]
    assert [score(name) for name in reversed(names)] == pytest.approx(first[::-1], abs=1e-3)
    assert len(set(first)) == 3
