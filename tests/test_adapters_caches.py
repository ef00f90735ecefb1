"""Adapters beside everything that saves computation: sequences, checkpoints and stores, for all kinds of memory."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy import Llama
from llamacy.errors import AdapterError, IncompatibleCheckpointError
from tests.helpers import data, models, toy_tokens
from tests.helpers.compute import EXACT

INVOCATION = toy_tokens("over", add_special=False)
# conversations that share beginnings, with and without the tokens that invoke the aLoRA
BASE = toy_tokens("the quick brown fox jumps")
PROMPTS = [
    BASE[:9],
    BASE,
    BASE + INVOCATION,
    BASE + INVOCATION + toy_tokens("the dog", add_special=False),
    BASE + toy_tokens("and sleeps", add_special=False),
    BASE[:9] + toy_tokens("zebra", add_special=False) + INVOCATION,
    toy_tokens("a text of its own"),
]
TARGETS = {"mamba.gguf": ["ssm_in", "ssm_out"]}


@pytest.fixture(scope="module", params=["llama.gguf", "gemma3.gguf", "qwen35.gguf", "mamba.gguf"])
def case(request, tmp_path_factory):
    """A model, its adapters, and the logits of each prompt with each of them, computed from nothing."""
    folder = tmp_path_factory.mktemp("adapters")
    path = data(request.param)
    targets = TARGETS.get(request.param, ["attn_q", "attn_v", "ffn_down"])
    files = [
        models.write_lora(folder / "one.gguf", path, seed=71, targets=targets),
        models.write_lora(folder / "two.gguf", path, seed=72, targets=targets),
        models.write_lora(folder / "alora.gguf", path, seed=73, targets=targets, invocation_tokens=INVOCATION),
    ]
    mixes = [{}, {"one": 1.0}, {"one": 0.5, "two": 1.0}, {"alora": 2.0}, {"alora": 2.0, "two": 1.0}]
    requests = [(prompt, lora) for prompt in PROMPTS for lora in mixes if "alora" not in lora or invoked(prompt)]
    rows = []
    for prompt, lora in requests:
        with made(path, files) as llama:
            rows.append(row_of(llama, prompt, lora))
    return path, files, list(zip(requests, rows, strict=True))


def invoked(prompt):
    return any(prompt[n : n + len(INVOCATION)] == INVOCATION for n in range(len(prompt)))


def made(path, files, **params):
    llama = Llama(path, **EXACT | params)
    for file in files:
        llama.load_lora(file, scale=0)
    return llama


def row_of(llama, prompt, lora, max_tokens=1):
    rows = []
    llama(
        prompt, max_tokens=max_tokens, temperature=0, lora=lora,
        logits_processor=lambda _, scores: rows.append(scores.copy()),
    )  # fmt: skip
    return rows[0]


@pytest.mark.parametrize("cache", [None, True])
@pytest.mark.parametrize("n_seq_max", [1, 3])
def test_whatever_came_before_a_request_computes_with_its_adapters(case, n_seq_max, cache):
    path, files, requests = case
    for seed in range(2):
        rng = np.random.default_rng(seed)
        with made(path, files, n_seq_max=n_seq_max, n_ctx=256 * n_seq_max, cache=cache) as llama:
            for index in rng.integers(0, len(requests), 60):
                (prompt, lora), expected = requests[index]
                row = row_of(llama, prompt, lora, max_tokens=int(rng.integers(1, 6)))
                np.testing.assert_allclose(row, expected, atol=2e-4, err_msg=f"{lora} after {seed}")


@pytest.mark.parametrize("kind", ["state", "session"])
def test_saved_conversation_goes_on_with_its_adapters(case, tmp_path, kind):
    path, files, requests = case
    prompt, lora = PROMPTS[4], {"one": 0.5, "two": 1.0}
    expected = next(row for request, row in requests if request == (prompt, lora))
    with made(path, files) as llama, made(path, files) as other:
        row_of(llama, BASE, lora)
        if kind == "state":
            state = llama.save_state()
        else:
            llama.save_session(state := tmp_path / "session")
        for target in (llama, other):
            row_of(target, PROMPTS[-1], {})  # other adapters since, and another conversation
            load = target.load_state if kind == "state" else target.load_session
            if kind == "state":
                for wrong in (None, {"one": 1.0}):
                    with pytest.raises(IncompatibleCheckpointError, match="adapter"):
                        load(state, lora=wrong)
            with pytest.raises(AdapterError):
                load(state, lora={"three": 1.0})
            load(state, lora=lora)
            result = target(prompt, max_tokens=1, temperature=0, lora=lora)
            assert result["usage"]["prompt_tokens_details"]["cached_tokens"] == len(BASE)
            np.testing.assert_allclose(row_of(target, prompt, lora), expected, atol=2e-4)
            # what another one would compute is not taken for it
            load(state, lora=lora)
            result = target(prompt, max_tokens=1, temperature=0, lora={})
            assert result["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_adapters_make_a_difference_here(case):
    _, _, requests = case
    by_prompt = {}
    for (prompt, _), row in requests:
        by_prompt.setdefault(tuple(prompt), []).append(row)
    for rows in by_prompt.values():
        for i, one in enumerate(rows):
            assert all(np.abs(one - other).max() > 1e-2 for other in rows[:i])
