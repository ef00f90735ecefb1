"""Chains of sampling options: their links, and what they choose beside llama.cpp's own order and beside NumPy."""

from __future__ import annotations

import math
from array import array
from dataclasses import fields

import gguf
import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.model import Model
from llamacy.core.reasoning_budget import closing_tokens, reasoning_state
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.generate.options import SamplingOptions
from tests.core import sampler_reference as reference
from tests.helpers import models

PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture(scope="module")
def vocab(llama_model):
    return llama_model.vocab


@pytest.fixture(scope="module")
def suppressing_vocab(tmp_path_factory):
    """A vocabulary whose file says that 7, 9 and 200 must not come."""
    path = tmp_path_factory.mktemp("suppressing") / "model.gguf"
    writer = models._llama_writer(path, models.LlamaShape(n_vocab=288))
    writer.add_key_value(
        "tokenizer.ggml.suppress_tokens", [7, 9, 200], gguf.GGUFValueType.ARRAY, sub_type=gguf.GGUFValueType.INT32
    )
    models._finish(writer)
    with Model(path, vocab_only=True) as model:
        yield model.vocab


def rows(n, n_vocab, seed=0, spread=2.0):
    return np.random.default_rng(seed).normal(0, spread, (n, n_vocab)).astype(np.float32)


def history(n, seed=3):
    """A prompt of few different tokens, so that it repeats itself."""
    return [int(token) for token in np.random.default_rng(seed).integers(10, 18, n)]


def kinds(options, vocab):
    with options.chain(vocab, n_ctx=256) as chain:
        return [link.kind for link in chain]


def apply(chain, logits):
    candidates = Candidates(logits)
    chain.apply(candidates)
    return candidates


# links


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ["top_k", "top_p", "min_p", "temp", "dist"]),
        ({"temperature": 0}, ["greedy"]),
        ({"temperature": -1.0}, ["greedy"]),
        ({"temperature": 1}, ["top_k", "top_p", "min_p", "dist"]),
        (PLAIN, ["dist"]),
        ({"temperature": 0, "repeat_penalty": 1.1, "dry_multiplier": 1}, ["penalties", "dry", "greedy"]),
        ({"temperature": 0, "typical_p": 0.5}, ["top_k", "typical", "top_p", "min_p", "greedy"]),
        ({"temperature": 0, "dynatemp_range": 0.5}, ["top_k", "top_p", "min_p", "temp_ext", "dist"]),
        ({"temperature": 0, "samplers": "kptm"}, ["greedy"]),
        ({"temperature": 0.8, "samplers": "k"}, ["top_k", "dist"]),
        ({"penalty_last_n": 0, "repeat_penalty": 1.1}, ["top_k", "top_p", "min_p", "temp", "dist"]),
        ({"mirostat_mode": 1}, ["temp", "mirostat"]),
        ({"mirostat_mode": 2, "logit_bias": {5: 1}}, ["logit_bias", "temp", "mirostat_v2"]),
        ({"mirostat_mode": 2, "temperature": 0}, ["greedy"]),
        ({"adaptive_target": 0.5}, ["top_k", "top_p", "min_p", "temp", "adaptive_p"]),
        ({"samplers": ["adaptive_p", "top_k"]}, ["top_k", "adaptive_p"]),
        ({"use_infill": True}, ["top_k", "top_p", "min_p", "infill", "temp", "dist"]),
        ({"samplers": "kpi"}, ["top_k", "top_p", "infill", "dist"]),
        ({"xtc_probability": 1, "xtc_threshold": 0.6}, ["top_k", "top_p", "min_p", "temp", "dist"]),
        ({"ignore_eos": True, "min_tokens": 5, "temperature": 0}, ["logit_bias", "greedy"]),
        (
            {"reasoning_budget": 5, "logit_bias": {5: 1}, "min_tokens": 5, "repeat_penalty": 1.1, "temperature": 0},
            ["reasoning_budget", "logit_bias", "min_tokens", "penalties", "greedy"],
        ),
        (
            {
                "repeat_penalty": 1.1,
                "dry_multiplier": 1,
                "top_n_sigma": 1,
                "typical_p": 0.9,
                "xtc_probability": 0.5,
                "dynatemp_range": 0.5,
            },
            [
                *("penalties", "dry", "top_n_sigma", "top_k", "typical", "top_p", "min_p", "xtc", "temp_ext", "dist"),
            ],
        ),
    ],
    ids=str,
)
def test_chain_has_the_links_that_do_something(vocab, arguments, expected):
    assert kinds(SamplingOptions(**arguments), vocab) == expected


def test_minus_1_stands_for_the_size_of_the_context(vocab):
    options = SamplingOptions(repeat_penalty=1.1, penalty_last_n=-1, dry_multiplier=1, dry_penalty_last_n=-1)
    with options.chain(vocab, n_ctx=100) as chain:
        assert (chain[0].values["penalty_last_n"], chain[1].values["dry_penalty_last_n"]) == (100, 100)
    with pytest.raises(ValueError, match=r"penalty_last_n=-1 .* n_ctx must be given"):
        options.chain(vocab)


@pytest.mark.parametrize("name", ["logit_bias", "suppress_tokens"])
def test_token_that_is_not_in_the_vocabulary_raises(vocab, name):
    options = SamplingOptions(**{name: [(5, 1), (288, 1)] if name == "logit_bias" else [5, 288]})
    with pytest.raises(ValueError, match=f"{name}: there is no token 288; the vocabulary has 288"):
        options.chain(vocab)


def test_infill_whose_end_is_banned_raises(vocab):
    with pytest.raises(ValueError, match="infill ends the text with token 2, which is banned"):
        SamplingOptions(use_infill=True, suppress_tokens=[2]).chain(vocab)


def test_budget_whose_end_is_banned_raises(vocab):
    token = closing_tokens(vocab, "</think>")[-1]
    with pytest.raises(ValueError, match=f"token {token} of what ends the reasoning, '</think>', is banned"):
        SamplingOptions(reasoning_budget=1, logit_bias={token: False}).chain(vocab)


# beside llama.cpp's own order

COMBINATIONS = [
    {},
    {"temperature": 1.3, "seed": 5},
    {"top_k": 0},
    {"top_k": 5, "top_p": 0.5, "min_keep": 3},
    {"min_p": 0.3, "top_p": 1.0},
    {"typical_p": 0.6},
    {"top_n_sigma": 1.5, "top_k": 0},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"dynatemp_range": 0.6, "dynatemp_exponent": 1.5},
    {"temperature": 0, "dynatemp_range": 0.6},
    {"repeat_penalty": 1.3, "penalty_last_n": 30},
    {"frequency_penalty": 0.4, "presence_penalty": 0.3, "penalty_last_n": -1},
    {"dry_multiplier": 0.9, "dry_allowed_length": 1, "dry_penalty_last_n": -1},
    {"dry_multiplier": 0.9, "dry_base": 1.2, "dry_seq_breakers": ["b"]},
    {"logit_bias": {20: 4.0, 30: -4.0, 40: -math.inf}},
    {"mirostat_mode": 1, "mirostat_tau": 3.0},
    {"mirostat_mode": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.3},
    {"adaptive_target": 0.3, "adaptive_decay": 0.5},
    {"temperature": 0.0},
    {"temperature": 0.0, "repeat_penalty": 1.5, "frequency_penalty": 0.5},
    {"temperature": 0.0, "xtc_probability": 0.5},
    {"temperature": 0.0, "typical_p": 0.2},
    {"temperature": -2.0, "adaptive_target": 0.5},
    {"mirostat_mode": 2, "temperature": 0.0},
    {"samplers": "tmpk", "temperature": 1.5},
    {"samplers": "mte", "repeat_penalty": 1.5},
    {"samplers": []},
]


def upstream_chain(vocab, arguments, prompt, n_ctx):
    """Make the chain of common_sampler_init with all its links, and accept each token of the prompt."""
    o = {
        "temperature": 0.8,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 1.0,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "mirostat_mode": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 64,
        "dry_seq_breakers": ("\n", ":", '"', "*"),
        "penalty_last_n": 64,
        "repeat_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "logit_bias": {},
        "min_keep": 0,
        "samplers": "edskypmxt",
    } | arguments
    penalty_last_n, dry_last_n = (n_ctx if n < 0 else n for n in (o["penalty_last_n"], o["dry_penalty_last_n"]))
    make = {
        "e": lambda: Sampler.penalties(
            vocab.n_tokens, penalty_last_n, o["repeat_penalty"], o["frequency_penalty"], o["presence_penalty"]
        ),
        "d": lambda: Sampler.dry(
            vocab, o["dry_multiplier"], o["dry_base"], o["dry_allowed_length"], dry_last_n, o["dry_seq_breakers"]
        ),
        "s": lambda: Sampler.top_n_sigma(o["top_n_sigma"]),
        "k": lambda: Sampler.top_k(o["top_k"]),
        "y": lambda: Sampler.typical(o["typical_p"], o["min_keep"]),
        "p": lambda: Sampler.top_p(o["top_p"], o["min_keep"]),
        "m": lambda: Sampler.min_p(o["min_p"], o["min_keep"]),
        "x": lambda: Sampler.xtc(o["xtc_probability"], o["xtc_threshold"], o["min_keep"], o["seed"]),
        "t": lambda: Sampler.temp_ext(o["temperature"], o["dynatemp_range"], o["dynatemp_exponent"]),
    }
    links = [Sampler.logit_bias(vocab.n_tokens, o["logit_bias"])] if o["logit_bias"] else []
    if o["mirostat_mode"] == 0:
        links += [make[letter]() for letter in o["samplers"]]
        if "adaptive_target" in o:
            links.append(Sampler.adaptive_p(o["adaptive_target"], o.get("adaptive_decay", 0.9), o["seed"]))
        else:
            links.append(Sampler.dist(o["seed"]))
    elif o["mirostat_mode"] == 1:
        links.append(Sampler.temp(o["temperature"]))
        links.append(Sampler.mirostat(vocab.n_tokens, o["seed"], o["mirostat_tau"], o["mirostat_eta"], 100))
    else:
        links.append(Sampler.temp(o["temperature"]))
        links.append(Sampler.mirostat_v2(o["seed"], o["mirostat_tau"], o["mirostat_eta"]))
    chain = SamplerChain(links)
    for token in prompt:
        chain.accept(token)
    return chain


@pytest.mark.parametrize("arguments", COMBINATIONS, ids=str)
def test_tokens_are_those_of_llama_cpps_order(vocab, arguments):
    prompt = history(300)
    arguments = {"seed": 11} | arguments
    chosen = []
    with (
        SamplingOptions(**arguments).chain(vocab, array("i", prompt), n_ctx=200) as chain,
        upstream_chain(vocab, arguments, prompt, 200) as upstream,
    ):
        for logits in rows(150, vocab.n_tokens):
            logits[10:18] += 2  # what the prompt is made of comes often
            tokens = [apply(one, logits).token for one in (chain, upstream)]
            assert tokens[0] == tokens[1], len(chosen)
            for one in (chain, upstream):
                one.accept(tokens[0])
            chosen.append(tokens[0])
    assert len(set(chosen)) > 10


@pytest.mark.parametrize("prompt", [history(300), tuple(history(5)), [], array("i", history(70))], ids=len)
def test_prompt_may_be_any_sequence_of_tokens(vocab, prompt):
    logits = rows(1, vocab.n_tokens)[0]
    with SamplingOptions(**PLAIN, presence_penalty=2.0).chain(vocab, prompt) as chain:
        left = np.asarray(apply(chain, logits).logits)
    expected = logits.copy()
    expected[sorted(set(prompt))] -= 2
    np.testing.assert_allclose(left, expected, rtol=1e-6)


def test_wrong_token_of_the_prompt_raises(vocab):
    with pytest.raises(ValueError, match="no token 288"):
        SamplingOptions(presence_penalty=2.0).chain(vocab, [5, 288])


# beside NumPy, in float64


def expected_row(logits, prompt, arguments):
    """Return the candidates that llama.cpp's order leaves, and their logits, of a row in float64."""
    o = arguments.get
    logits = logits.astype(np.float64)
    for token, bias in o("logit_bias", {}).items():
        logits[token] += bias
    logits = reference.penalties(
        logits,
        prompt,
        o("penalty_last_n", 64),
        o("repeat_penalty", 1.0),
        o("frequency_penalty", 0.0),
        o("presence_penalty", 0.0),
    )
    if o("dry_multiplier", 0) > 0:
        values = (o("dry_base", 1.75), o("dry_allowed_length", 2), o("dry_penalty_last_n", 64))
        logits = reference.dry(logits, prompt, o("dry_multiplier"), *values, set())
    if o("top_n_sigma", -1) > 0:
        logits = reference.top_n_sigma(logits, o("top_n_sigma"))
    ids, logits = reference.top_k(np.arange(len(logits)), logits, o("top_k", 40) or len(logits))
    keep = max(1, o("min_keep", 0))
    if o("typical_p", 1) < 1:
        ids, logits = reference.typical(ids, logits, o("typical_p"), keep)
    if o("top_p", 0.95) < 1:
        ids, logits = reference.top_p(ids, logits, o("top_p", 0.95), keep)
    if o("min_p", 0.05) > 0:
        ids, logits = reference.min_p(ids, logits, o("min_p", 0.05), keep)
    if o("xtc_probability", 0) == 1:
        ids, logits = reference.xtc(ids, logits, o("xtc_threshold", 0.1), keep)
    temperature = o("temperature", 0.8)
    if o("dynatemp_range", 0) > 0:
        values = (o("dynatemp_range"), o("dynatemp_exponent", 1.0))
        temperature = reference.dynamic_temperature(logits, temperature, *values)
    return ids, logits / temperature


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"temperature": 1.7},
        {"temperature": 1.0, "dynatemp_range": 0.5},
        {"temperature": 1.0, "dynatemp_range": 0.5, "dynatemp_exponent": 2.0},
        {"top_k": 7},
        {"top_k": 0, "top_p": 1.0},
        {"top_p": 0.4},
        {"top_p": 0.1, "min_keep": 6},
        {"min_p": 0.4},
        {"typical_p": 0.5},
        {"top_n_sigma": 1.3},
        {"xtc_probability": 1.0, "xtc_threshold": 0.06},
        {"repeat_penalty": 1.4},
        {"repeat_penalty": 1.4, "penalty_last_n": 3},
        {"frequency_penalty": 0.2},
        {"presence_penalty": 1.5},
        {"dry_multiplier": 0.8, "dry_seq_breakers": []},
        {"dry_multiplier": 0.8, "dry_seq_breakers": [], "dry_base": 3.0},
        {"dry_multiplier": 0.8, "dry_seq_breakers": [], "dry_allowed_length": 1},
        {"dry_multiplier": 0.8, "dry_seq_breakers": [], "dry_penalty_last_n": 20},
        {"logit_bias": {33: 6.0, 44: -6.0}},
    ],
    ids=str,
)
def test_probabilities_are_those_of_numpy(vocab, arguments):
    prompt = history(200)
    for seed in range(20):
        logits = rows(1, vocab.n_tokens, seed)[0]
        with SamplingOptions(**arguments, seed=1).chain(vocab, prompt) as chain:
            candidates = apply(chain, logits)
        ids, expected = expected_row(logits, prompt, arguments)
        order = np.argsort(np.asarray(candidates.ids))
        assert np.asarray(candidates.ids)[order].tolist() == sorted(ids)
        np.testing.assert_allclose(
            np.asarray(candidates.probs)[order], reference.softmax(expected)[np.argsort(ids)], rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        ({"mirostat_mode": 1, "mirostat_tau": 4.0, "mirostat_eta": 0.2}, reference.Mirostat(288, 9, 4.0, 0.2, 100)),
        ({"mirostat_mode": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.3}, reference.MirostatV2(9, 3.0, 0.3)),
    ],
    ids=["1", "2"],
)
def test_mirostat_follows_the_paper(vocab, arguments, model):
    chosen = set()
    with SamplingOptions(temperature=0.5, seed=9, **arguments).chain(vocab) as chain:
        for logits in rows(60, vocab.n_tokens):
            token = apply(chain, logits).token
            assert token == model.sample(np.arange(vocab.n_tokens), logits.astype(np.float64) / 0.5)
            chain.accept(token)
            chosen.add(token)
    assert len(chosen) > 5


def test_adaptive_p_follows_its_description(vocab):
    model = reference.AdaptiveP(0.3, 0.6, 9)
    chosen = set()
    with SamplingOptions(**PLAIN, adaptive_target=0.3, adaptive_decay=0.6, seed=9).chain(vocab) as chain:
        for logits in rows(60, vocab.n_tokens, spread=4.0):
            token = apply(chain, logits).token
            assert token == model.sample(logits.astype(np.float64))
            chain.accept(token)
            chosen.add(token)
    assert len(chosen) > 5


def test_draw_is_that_of_the_seed(vocab):
    random = reference.MersenneTwister(9)
    with SamplingOptions(**PLAIN, seed=9).chain(vocab) as chain:
        for logits in rows(60, vocab.n_tokens):
            assert apply(chain, logits).token == random.choice(reference.softmax(logits.astype(np.float64)))


def test_bias_changes_a_logit_by_just_that_much(vocab):
    logits = np.zeros(vocab.n_tokens, np.float32)
    options = SamplingOptions(**PLAIN, logit_bias={"5": 2.5, 6: -3.0, 7: False})
    with options.chain(vocab) as chain:
        left = np.asarray(apply(chain, logits).logits)
    assert {i: float(left[i]) for i in np.flatnonzero(left)} == {5: 2.5, 6: -3.0, 7: -math.inf}


# bans


def banned(options, vocab, n_accepted=0):
    with options.chain(vocab) as chain:
        for _ in range(n_accepted):
            chain.accept(100)
        candidates = apply(chain, np.zeros(vocab.n_tokens, np.float32))
        return np.flatnonzero(np.isneginf(np.asarray(candidates.logits))).tolist()


def test_ignore_eos_bans_every_end(smollm2_model):
    vocab = smollm2_model.vocab
    ends = [token for token in range(vocab.n_tokens) if vocab.is_eog(token)]
    assert len(ends) > 1
    assert banned(SamplingOptions(**PLAIN, ignore_eos=True), vocab) == ends


def test_min_tokens_bans_every_end_for_so_long_and_does_not_count_the_prompt(smollm2_model):
    vocab = smollm2_model.vocab
    ends = [token for token in range(vocab.n_tokens) if vocab.is_eog(token)]
    options = SamplingOptions(**PLAIN, min_tokens=2, presence_penalty=1.0)
    with options.chain(vocab, [100] * 50) as chain:
        for expected in (ends, ends, []):
            left = np.asarray(apply(chain, np.zeros(vocab.n_tokens, np.float32)).logits)
            assert np.flatnonzero(np.isneginf(left)).tolist() == expected
            chain.accept(100)


def test_tokens_that_the_model_suppresses_are_always_banned(suppressing_vocab):
    assert banned(SamplingOptions(**PLAIN), suppressing_vocab) == [7, 9, 200]
    options = SamplingOptions(**PLAIN, suppress_tokens=[9, 11], logit_bias={7: 100.0, 12: False})
    assert banned(options, suppressing_vocab) == [7, 9, 11, 12, 200]
    with SamplingOptions(temperature=0).chain(suppressing_vocab) as chain:
        logits = np.zeros(suppressing_vocab.n_tokens, np.float32)
        logits[[7, 9, 200, 30]] = 9, 8, 7, 1
        assert apply(chain, logits).token == 30


def test_budget_does_not_look_at_the_prompt(vocab):
    options = SamplingOptions(reasoning_budget=0, presence_penalty=1.0)
    with options.chain(vocab, vocab.tokenize("<think>", add_special=False)) as chain:
        assert reasoning_state(chain) == "idle"


# every option does something


#: option: (what else is set, the value that makes a difference)
DIFFERENCES = {
    "temperature": ({}, 0.3),
    "dynatemp_range": ({}, 0.5),
    "dynatemp_exponent": ({"dynatemp_range": 0.5}, 2.0),
    "top_k": ({}, 3),
    "top_p": ({}, 0.5),
    "min_p": ({}, 0.3),
    "typical_p": ({}, 0.5),
    "top_n_sigma": ({}, 1.0),
    "xtc_probability": ({"xtc_threshold": 0.05}, 1.0),
    "xtc_threshold": ({"xtc_probability": 1.0}, 0.03),
    "mirostat_mode": ({}, 2),
    "mirostat_tau": ({"mirostat_mode": 2}, 1.0),
    "mirostat_eta": ({"mirostat_mode": 2}, 0.9),
    "adaptive_target": ({}, 0.3),
    "adaptive_decay": ({"adaptive_target": 0.3}, 0.1),
    "dry_multiplier": ({}, 1.0),
    "dry_base": ({"dry_multiplier": 1.0, "dry_allowed_length": 0}, 3.0),
    "dry_allowed_length": ({"dry_multiplier": 1.0}, 1),
    "dry_penalty_last_n": ({"dry_multiplier": 1.0}, 8),
    "dry_seq_breakers": ({"dry_multiplier": 1.0, "dry_allowed_length": 0}, []),
    "penalty_last_n": ({"repeat_penalty": 1.5}, 2),
    "repeat_penalty": ({}, 1.5),
    "frequency_penalty": ({}, 0.5),
    "presence_penalty": ({}, 0.5),
    "logit_bias": ({}, {3: 5.0}),
    "seed": ({}, 2),
    "min_keep": ({"top_p": 0.05}, 9),
    "samplers": ({"temperature": 2.0}, "tm"),
    "ignore_eos": ({}, True),
    "min_tokens": ({}, 3),
    "suppress_tokens": ({}, [2]),
    "use_infill": ({}, True),
    "reasoning_budget": ({}, 1),
    "reasoning_budget_message": ({"reasoning_budget": 1}, "ab"),
    "reasoning_start": ({"reasoning_budget": 1}, "[x]"),
    "reasoning_end": ({"reasoning_budget": 1}, "[x]"),
    "reasoning_start_in_prompt": ({"reasoning_budget": 1}, True),
    "reasoning_start_max_tokens": ({"reasoning_budget": 1}, 1),
}


def outcome(vocab, arguments):
    """Return what a chain leaves and picks of some rows, while it accepts a text unless it looks at what it picked."""
    prompt = history(40)
    script = [*history(6, seed=5), *vocab.tokenize("a<think>ab<think>ab", add_special=False)]
    result = []
    with SamplingOptions(**({"seed": 1} | arguments)).chain(vocab, prompt, n_ctx=256) as chain:
        for logits, token in zip(rows(len(script), vocab.n_tokens), script, strict=True):
            logits[2] = 6.0  # the end is likely
            logits[10:18] += 4
            candidates = apply(chain, logits)
            left = zip(np.asarray(candidates.ids).tolist(), np.asarray(candidates.probs).round(5).tolist(), strict=True)
            result.append((candidates.token, sorted(left)))
            follows = "adaptive_target" in arguments or len(candidates) == 1
            chain.accept(candidates.token if follows else token)
    return result


def test_every_option_is_looked_at():
    assert set(DIFFERENCES) == {field.name for field in fields(SamplingOptions)}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_option_changes_what_comes_out(vocab, name):
    others, value = DIFFERENCES[name]
    assert outcome(vocab, others | {name: value}) != outcome(vocab, others)
    assert outcome(vocab, others) == outcome(vocab, others)
