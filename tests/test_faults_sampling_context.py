"""Public fault cases of the area sampling-context (see tests/data/README.md for the model)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from llamacy import ContextLengthError, Llama
from tests.helpers import data, toy_tokens
from tests.helpers.process import run_python

N_CTX = 256


@pytest.fixture
def llm() -> Iterator[Llama]:
    with Llama(data("target.gguf"), n_ctx=N_CTX, n_threads=1, n_threads_batch=1) as llm:
        yield llm


COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def prompt_of(n_tokens: int) -> list[int]:
    return (toy_tokens("abc def ") * (n_tokens // 5))[:n_tokens]


def test_sc_001_prompt_one_short_of_the_context_completes(llm: Llama) -> None:
    result = llm.create_completion(prompt_of(N_CTX - 1), max_tokens=1, temperature=0)
    assert [result["usage"][name] for name in COUNTS] == [N_CTX - 1, 1, N_CTX]
    assert result["choices"][0]["finish_reason"] in ("length", "stop")


def test_sc_001_prompt_that_fits_exactly_with_nothing_to_generate_completes(llm: Llama) -> None:
    result = llm.create_completion(prompt_of(N_CTX), max_tokens=0)
    assert [result["usage"][name] for name in COUNTS] == [N_CTX, 0, N_CTX]
    assert result["choices"][0]["text"] == ""
    assert llm.context.memory.seq_pos_max(0) == N_CTX - 1


@pytest.mark.parametrize("max_tokens", [0, 1, None])
def test_sc_001_prompt_one_too_long_raises_with_both_numbers_and_object_stays_usable(
    llm: Llama, max_tokens: int | None
) -> None:
    before = llm.create_completion("the cat", max_tokens=8, temperature=0)["choices"][0]["text"]
    with pytest.raises(ContextLengthError) as caught:
        llm.create_completion(prompt_of(N_CTX + 1), max_tokens=max_tokens)
    assert (caught.value.n_prompt, caught.value.n_ctx) == (N_CTX + 1, N_CTX)
    assert str(N_CTX + 1) in str(caught.value)
    assert str(N_CTX) in str(caught.value)
    assert llm.create_completion("the cat", max_tokens=8, temperature=0)["choices"][0]["text"] == before


def test_sc_001_n_ctx_that_native_code_rounds_up_is_kept_as_asked() -> None:
    # llama.cpp pads n_ctx to a multiple of 256
    with Llama(data("target.gguf"), n_ctx=64, n_threads=1, n_threads_batch=1) as llm:
        assert llm.n_ctx() == 64
        assert llm.create_completion(prompt_of(63), max_tokens=1)["usage"]["total_tokens"] == 64
        assert llm.create_completion(prompt_of(64), max_tokens=0)["usage"]["total_tokens"] == 64
        with pytest.raises(ContextLengthError) as caught:
            llm.create_completion(prompt_of(65))
        assert (caught.value.n_prompt, caught.value.n_ctx) == (65, 64)
        assert "64) exceed context window of 64" not in str(caught.value)


def test_sc_001_generation_stops_when_the_context_is_full(llm: Llama) -> None:
    result = llm.create_completion(prompt_of(N_CTX - 5), max_tokens=100, temperature=0)
    assert result["usage"]["total_tokens"] <= N_CTX
    assert result["choices"][0]["finish_reason"] == "length"
    assert len(list(llm.generate(prompt_of(N_CTX - 5), temperature=0))) == 5


def test_sc_003_default_seed_differs_between_processes_and_is_told() -> None:
    code = f"""
import json
from llamacy import Llama
with Llama({str(data("target.gguf"))!r}, n_ctx=128, n_threads=1, n_threads_batch=1) as llm:
    result = llm.create_completion("the cat", max_tokens=24, temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
    print(json.dumps([result["choices"][0]["text"], result["seed"]]))
"""
    results = [json.loads(run_python(code).stdout) for _ in range(3)]
    assert len({seed for _, seed in results}) == 3
    assert len({text for text, _ in results}) > 1
    assert all(isinstance(seed, int) and 0 <= seed < 2**32 for _, seed in results)


@pytest.mark.parametrize("seed", [None, -1])
def test_sc_003_default_and_minus_one_differ_between_calls_and_their_seed_repeats_them(
    llm: Llama, seed: int | None
) -> None:
    sampling = {"max_tokens": 24, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    results = [llm.create_completion("the cat", seed=seed, **sampling) for _ in range(3)]
    assert len({result["seed"] for result in results}) == 3
    assert len({result["choices"][0]["text"] for result in results}) > 1
    for result in results:
        again = llm.create_completion("the cat", seed=result["seed"], **sampling)
        assert again["choices"][0]["text"] == result["choices"][0]["text"]
        assert again["seed"] == result["seed"]


def test_sc_003_fixed_seed_repeats_after_other_calls_and_in_other_objects(llm: Llama) -> None:
    sampling = {"max_tokens": 24, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1234}
    first = llm.create_completion("the cat", **sampling)
    llm.create_completion("something else", max_tokens=7, temperature=0.9)
    stream = llm.create_completion("the cat", stream=True, **sampling)
    text = "".join(chunk["choices"][0]["text"] for chunk in stream)
    with Llama(data("target.gguf"), n_ctx=N_CTX, n_threads=1, n_threads_batch=1, seed=1234) as other:
        again = other.create_completion("the cat", **{**sampling, "seed": None})
    assert first["seed"] == again["seed"] == 1234
    assert first["choices"][0]["text"] == text == again["choices"][0]["text"]
