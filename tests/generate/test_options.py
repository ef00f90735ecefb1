"""Sampling options: checked, and turned into the chain that llama.cpp uses by default."""

from __future__ import annotations

import pytest

from llamacy.generate.options import SamplingOptions


def kinds(options):
    with options.chain() as chain:
        return [link.kind for link in chain]


def test_default_chain_has_llama_cpps_order():
    assert kinds(SamplingOptions()) == ["top_k", "top_p", "min_p", "temp", "dist"]


def test_temperature_0_is_greedy():
    assert kinds(SamplingOptions(temperature=0)) == ["greedy"]


def test_switched_off_options_leave_no_link():
    assert kinds(SamplingOptions(top_k=0, top_p=1.0, min_p=0.0)) == ["temp", "dist"]


def test_chain_holds_the_values():
    options = SamplingOptions(temperature=0.5, top_k=7, top_p=0.25, min_p=0.125, seed=9)
    with options.chain() as chain:
        values = [link.values for link in chain]
    assert [next(iter(value.values())) for value in values] == [7, 0.25, 0.125, 0.5, 9]


def test_seed_is_drawn_once_per_options():
    options = SamplingOptions()
    assert options.drawn_seed == options.drawn_seed
    assert 0 <= options.drawn_seed < 2**32 - 1
    assert len({SamplingOptions(seed=-1).drawn_seed for _ in range(8)}) > 1


def test_from_arguments_takes_temp_for_temperature():
    assert SamplingOptions.from_arguments({"temp": 0.25, "seed": 1}) == SamplingOptions(temperature=0.25, seed=1)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({"temprature": 1}, "did you mean 'temperature'"), ({"zzz": 1}, "options are temperature")],
)
def test_from_arguments_unknown_option_raises(arguments, match):
    with pytest.raises(TypeError, match=match):
        SamplingOptions.from_arguments(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": -0.1},
        {"temperature": float("inf")},
        {"top_p": 1.01},
        {"min_p": -0.01},
        {"seed": -2},
        {"seed": 2**32 - 1},
    ],
    ids=str,
)
def test_option_out_of_range_raises(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        SamplingOptions(**arguments)


@pytest.mark.parametrize("arguments", [{"top_k": True}, {"top_k": 1.0}, {"temperature": "1"}, {"seed": 1.5}], ids=str)
def test_option_of_the_wrong_type_raises(arguments):
    with pytest.raises(TypeError, match=next(iter(arguments))):
        SamplingOptions(**arguments)
