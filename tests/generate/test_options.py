"""Sampling options: what is accepted, under which names, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llamacy.generate.options import SamplingOptions

DEFAULT_ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature")


def test_defaults_are_those_of_llama_cpp():
    options = SamplingOptions()
    # common_params_sampling in common/common.h
    assert (options.temperature, options.dynatemp_range, options.dynatemp_exponent) == (0.8, 0.0, 1.0)
    assert (options.top_k, options.top_p, options.min_p, options.typical_p) == (40, 0.95, 0.05, 1.0)
    assert (options.top_n_sigma, options.xtc_probability, options.xtc_threshold) == (-1.0, 0.0, 0.1)
    assert (options.mirostat_mode, options.mirostat_tau, options.mirostat_eta) == (0, 5.0, 0.1)
    assert (options.adaptive_target, options.adaptive_decay) == (-1.0, 0.9)
    assert (options.dry_multiplier, options.dry_base, options.dry_allowed_length) == (0.0, 1.75, 2)
    assert (options.dry_penalty_last_n, options.dry_seq_breakers) == (64, ("\n", ":", '"', "*"))
    assert (options.penalty_last_n, options.repeat_penalty) == (64, 1.0)
    assert (options.frequency_penalty, options.presence_penalty, options.min_keep) == (0.0, 0.0, 0)
    assert options.samplers == DEFAULT_ORDER


def test_seed_is_drawn_once_per_options():
    options = SamplingOptions()
    assert options.drawn_seed == options.drawn_seed
    assert 0 <= options.drawn_seed < 2**32 - 1
    for drawn in (None, -1, 2**32 - 1):  # the last one is llama.cpp's LLAMA_DEFAULT_SEED
        assert len({SamplingOptions(seed=drawn).drawn_seed for _ in range(8)} - {2**32 - 1}) > 1
    assert SamplingOptions(seed=7).drawn_seed == 7


@pytest.mark.parametrize(
    ("alias", "name", "value"),
    [
        ("temp", "temperature", 0.25),
        ("typical", "typical_p", 0.5),
        ("typ_p", "typical_p", 0.5),
        ("mirostat", "mirostat_mode", 2),
        ("repeat_last_n", "penalty_last_n", 5),
        ("present_penalty", "presence_penalty", 0.5),
        ("dry_sequence_breakers", "dry_seq_breakers", ["a"]),
    ],
)
def test_other_spelling_means_the_same(alias, name, value):
    options = SamplingOptions.from_arguments({alias: value, "seed": 1})
    assert options == SamplingOptions(**{name: value, "seed": 1})
    with pytest.raises(TypeError, match=f"{name} is given twice"):
        SamplingOptions.from_arguments({name: value, alias: value})


def test_none_stands_for_the_default():
    arguments = dict.fromkeys(SamplingOptions.__dataclass_fields__) | {"seed": 1}
    assert SamplingOptions.from_arguments(arguments) == SamplingOptions(seed=1)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"repeat_last": 1}, "did you mean 'repeat_last_n'"),
        ({"zzz": 1}, "options are adaptive_decay"),
    ],
)
def test_unknown_option_raises(arguments, match):
    with pytest.raises(TypeError, match=match):
        SamplingOptions.from_arguments(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": math.inf},
        {"temperature": math.nan},
        {"temperature": 1e-31},
        {"dynatemp_range": -0.1},
        {"dynatemp_exponent": -1},
        {"top_k": 2**31},
        {"top_p": 1.01},
        {"min_p": -0.01},
        {"typical_p": 2},
        {"top_n_sigma": math.nan},
        {"xtc_probability": 1.5},
        {"xtc_threshold": -0.5},
        {"mirostat_mode": 3},
        {"mirostat_tau": -1},
        {"mirostat_eta": math.inf},
        {"adaptive_target": 1.1},
        {"adaptive_decay": 0.995},
        {"dry_multiplier": -1},
        {"dry_base": 0.5},
        {"dry_allowed_length": -1},
        {"dry_penalty_last_n": -2},
        {"penalty_last_n": -2},
        {"repeat_penalty": 0},
        {"frequency_penalty": math.inf},
        {"presence_penalty": -math.inf},
        {"logit_bias": {5: math.nan}},
        {"logit_bias": {5: math.inf}},
        {"logit_bias": {5: 1e9}},
        {"logit_bias": {-1: 1.0}},
        {"logit_bias": {"-1": 1.0}},
        {"logit_bias": {"hello": 1.0}},
        {"logit_bias": [(5, 1.0, 2.0)]},
        {"seed": -2},
        {"seed": 2**32},
        {"min_keep": -1},
        {"min_tokens": -1},
        {"suppress_tokens": [-1]},
        {"reasoning_budget": -2},
        {"reasoning_start_max_tokens": -1},
        {"reasoning_start": ""},
        {"reasoning_end": []},
        {"reasoning_end": ["</think>", ""]},
    ],
    ids=str,
)
def test_option_out_of_range_raises(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        SamplingOptions(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"top_k": True},
        {"top_k": 1.0},
        {"temperature": "1"},
        {"temperature": None},
        {"seed": 1.5},
        {"ignore_eos": 1},
        {"use_infill": "yes"},
        {"dry_seq_breakers": "\n"},
        {"dry_seq_breakers": [b"a"]},
        {"logit_bias": "5"},
        {"logit_bias": [5]},
        {"logit_bias": {5.0: 1.0}},
        {"logit_bias": {5: True}},
        {"logit_bias": {5: "1"}},
        {"suppress_tokens": "5"},
        {"suppress_tokens": [True]},
        {"samplers": 5},
        {"samplers": [5]},
        {"reasoning_start": 5},
        {"reasoning_end": [b"x"]},
        {"reasoning_budget_message": b"x"},
    ],
    ids=str,
)
def test_option_of_the_wrong_type_raises(arguments):
    with pytest.raises(TypeError, match=next(iter(arguments))):
        SamplingOptions(**arguments)


def test_numpy_numbers_are_numbers():
    options = SamplingOptions(temperature=np.float32(0.5), top_k=np.int64(5), seed=np.int32(3))
    assert options == SamplingOptions(temperature=0.5, top_k=5, seed=3)


def test_biases_are_read_as_openai_and_llama_cpp_write_them():
    biases = {"5": 1, 6: False, 7: None, 8: -math.inf, 9: -2.5}
    expected = {5: 1.0, 6: -math.inf, 7: -math.inf, 8: -math.inf, 9: -2.5}
    assert SamplingOptions(logit_bias=biases).logit_bias == expected
    assert SamplingOptions(logit_bias=list(biases.items())).logit_bias == expected


def test_biases_of_the_same_token_add_up():
    assert SamplingOptions(logit_bias=[(5, 1.5), ("5", 2)]).logit_bias == {5: 3.5}
    assert SamplingOptions(logit_bias=[(5, 1.5), (5, False)]).logit_bias == {5: -math.inf}


@pytest.mark.parametrize(
    ("samplers", "expected"),
    [
        ("edskypmxt", DEFAULT_ORDER),
        ("kt", ("top_k", "temperature")),
        ("top_k;typ_p;temp", ("top_k", "typical_p", "temperature")),
        ("temperature", ("temperature",)),
        (
            ["top-k", "top-n-sigma", "nucleus", "typical", "min-p"],
            ("top_k", "top_n_sigma", "top_p", "typical_p", "min_p"),
        ),
        (["k", "infill", "adaptive_p"], ("top_k", "infill", "adaptive_p")),
        ([], ()),
    ],
    ids=str,
)
def test_order_is_read_from_names_and_letters(samplers, expected):
    assert SamplingOptions(samplers=samplers).samplers == expected


@pytest.mark.parametrize(
    ("samplers", "match"),
    [
        (["top_q"], "did you mean 'top_"),
        ("kz", "no sampler 'z'; known: penalties"),
        (["top_k", "k"], "'top_k' is there twice"),
        ("tt", "'temperature' is there twice"),
    ],
    ids=str,
)
def test_wrong_order_raises(samplers, match):
    with pytest.raises(ValueError, match=match):
        SamplingOptions(samplers=samplers)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"mirostat_mode": 2, "top_k": 20}, "top_k=20 would have no effect: mirostat_mode=2"),
        ({"mirostat_mode": 1, "repeat_penalty": 1.1}, "repeat_penalty=1.1 would have no effect"),
        ({"mirostat_mode": 1, "samplers": "kt"}, "samplers=.* would have no effect"),
        ({"mirostat_mode": 1, "use_infill": True}, "use_infill=True would have no effect"),
        ({"mirostat_mode": 1, "adaptive_target": 0.5}, "adaptive_target=0.5 would have no effect"),
        ({"samplers": "kt", "min_p": 0.2}, "min_p=0.2 would have no effect: samplers leaves 'min_p' out"),
        ({"samplers": "k", "dynatemp_range": 0.2}, "dynatemp_range=0.2 would have no effect"),
        ({"use_infill": True, "top_k": 0}, "top_k must be from 1 to 1000, not 0"),
        ({"samplers": "ik"}, "infill needs 'top_k' before it"),
        ({"samplers": "pt", "use_infill": True}, "infill needs 'top_k' before it"),
        ({"use_infill": True, "ignore_eos": True}, "ignore_eos=True would have no effect"),
        ({"use_infill": True, "min_tokens": 3}, "min_tokens=3 would have no effect"),
    ],
    ids=str,
)
def test_option_that_another_one_turns_off_raises(arguments, match):
    with pytest.raises(ValueError, match=match):
        SamplingOptions(**arguments)


@pytest.mark.parametrize("arguments", [{"mirostat_mode": 2}, {"samplers": ""}], ids=str)
def test_option_that_is_off_may_be_turned_off_by_another_one(arguments):
    off = {
        "repeat_penalty": 1,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "dry_multiplier": 0,
        "top_n_sigma": 0,
        "top_k": 0,
        "typical_p": 1,
        "top_p": 1,
        "min_p": 0,
        "xtc_probability": 0,
        "dynatemp_range": 0,
        "adaptive_target": -0.5,
    }
    options = SamplingOptions(**arguments, **off)
    assert (options.top_k, options.top_p) == (0, 1)
