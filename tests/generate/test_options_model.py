"""Options that bound a text, with a real model."""

from __future__ import annotations

import pytest

import llamacy


@pytest.fixture(scope="module")
def llm(smollm2_path):
    with llamacy.Llama(smollm2_path, n_ctx=512, n_threads=1) as llm:
        yield llm


CHAT = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def short(llm):
    """What the model answers of itself, up to and without the end."""
    tokens = list(llm.generate(llm.model.vocab.tokenize(CHAT, parse_special=True), max_tokens=100, temperature=0))
    ends = [i for i, token in enumerate(tokens) if llm.model.vocab.is_eog(token)]
    return tokens[: ends[0]] if ends else tokens


def generate(llm, **options):
    return list(llm.generate(llm.model.vocab.tokenize(CHAT, parse_special=True), temperature=0, **options))


def test_min_tokens_lets_a_text_go_on(llm, short):
    assert 0 < len(short) < 40
    tokens = generate(llm, max_tokens=100, min_tokens=len(short) + 10)
    without_end = [token for token in tokens if not llm.model.vocab.is_eog(token)]
    assert without_end[: len(short)] == short
    assert len(without_end) >= len(short) + 10


def test_ignore_eos_never_ends(llm, short):
    tokens = generate(llm, max_tokens=60, ignore_eos=True)
    assert len(tokens) == 60
    assert not any(llm.model.vocab.is_eog(token) for token in tokens)


def test_suppressed_tokens_never_come(llm, short):
    tokens = generate(llm, max_tokens=40, suppress_tokens=short)
    assert tokens
    assert not set(tokens) & set(short)


def test_reasoning_is_ended_and_the_text_goes_on(llm):
    message = " That is enough.\n"
    options = {"reasoning_budget_message": message, "reasoning_start_in_prompt": True, "ignore_eos": True}
    free = generate(llm, max_tokens=30, ignore_eos=True)
    tokens = generate(llm, max_tokens=30, reasoning_budget=7, **options)
    assert tokens[:7] == free[:7]
    written = llm.model.vocab.detokenize(tokens[7:]).decode()
    assert written.startswith(message + "</think>")
    assert len(written) > len(message + "</think>")
    assert written.count("</think>") == 1


def test_penalty_knows_the_prompt(llm):
    prompt = list(llm.tokenize("one two three one two three one two"))
    text = list(llm.generate(prompt, max_tokens=40, temperature=0))
    first = next(i for i, token in enumerate(text) if token in prompt + text[:i])
    prompt += text[:first]
    assert next(llm.generate(prompt, max_tokens=1, temperature=0)) == text[first]
    penalised = llm.generate(prompt, max_tokens=1, temperature=0, presence_penalty=100.0, penalty_last_n=-1)
    assert next(penalised) not in prompt


def test_seed_gives_the_same_text_with_every_sampler(llm):
    options = {
        "repeat_penalty": 1.1,
        "dry_multiplier": 0.5,
        "top_n_sigma": 2.0,
        "typical_p": 0.95,
        "xtc_probability": 0.5,
        "dynatemp_range": 0.3,
        "adaptive_target": 0.5,
    }
    first, second = (list(llm.generate(llm.tokenize("Once"), max_tokens=24, seed=5, **options)) for _ in range(2))
    assert first == second
    assert first != list(llm.generate(llm.tokenize("Once"), max_tokens=24, seed=6, **options))
