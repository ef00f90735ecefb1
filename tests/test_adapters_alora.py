"""Activated LoRA: applied from its invocation tokens on, against NumPy with weights that change in the prompt."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy import Llama
from llamacy.core.batch import Batch
from llamacy.errors import AdapterError, MemoryOperationError
from tests.helpers import data, models, toy_tokens
from tests.helpers.compute import EXACT
from tests.helpers.reference import Reference, log_softmax, lora_deltas

MODEL = data("llama.gguf")
INVOCATION = toy_tokens("over", add_special=False)
TEXT = toy_tokens("the quick brown fox jumps")
PROMPT = TEXT + INVOCATION + toy_tokens(" a dog", add_special=False)
N = len(TEXT)


class Mixed:
    """A weight matrix that is another one from some token on, as ``rows @ Mixed.T``."""

    __array_ufunc__ = None

    def __init__(self, base, delta, n):
        self._base, self._delta, self._n = base, delta, n

    @property
    def T(self):
        return self

    def __rmatmul__(self, rows):
        made = rows @ self._base.T
        made[self._n :] += rows[self._n :] @ self._delta.T
        return made


def reference(path, n, *, scale=1.0, plain=None):
    """Return the model with an aLoRA from token `n` on, and an ordinary adapter on all tokens."""
    made = Reference(MODEL, plain)
    for name, delta in lora_deltas(path, scale).items():
        made.weights[name] = Mixed(made.weights[name], delta, n)
    return made


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alora")
    return {
        "alora": models.write_lora(folder / "alora.gguf", MODEL, seed=31, invocation_tokens=INVOCATION),
        "other": models.write_lora(folder / "other.gguf", MODEL, seed=32, invocation_tokens=INVOCATION[-1:]),
        "plain": models.write_lora(folder / "plain.gguf", MODEL, seed=33),
    }


@pytest.fixture
def make_llama(closing, paths):
    def make(**params):
        llama = closing(Llama(MODEL, **EXACT | params))
        for path in paths.values():
            llama.load_lora(path, scale=0)
        return llama

    return make


@pytest.fixture
def llama(make_llama):
    return make_llama()


def row_of(llama, prompt=PROMPT, **options):
    rows = []
    result = llama(
        prompt, max_tokens=1, temperature=0, logits_processor=lambda _, scores: rows.append(scores.copy()), **options
    )
    return rows[0], result["usage"]["prompt_tokens_details"]["cached_tokens"]


def text_of(llama, prompt=PROMPT, **options):
    return llama(prompt, max_tokens=8, temperature=0, **options)["choices"][0]["text"]


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("plain", [None, 0.5])
def test_tokens_before_the_invocation_are_computed_without(llama, paths, scale, plain):
    lora = {"alora": scale} | ({} if plain is None else {"plain": plain})
    deltas = None if plain is None else lora_deltas(paths["plain"], plain)
    logits, _ = row_of(llama, lora=lora)
    expected = reference(paths["alora"], N, scale=scale, plain=deltas).logits(PROMPT)[-1]
    everywhere = reference(paths["alora"], 0, scale=scale, plain=deltas).logits(PROMPT)[-1]
    assert np.abs(expected - everywhere).max() > 0.02
    assert np.abs(logits - expected).max() < 1e-3


def test_invocation_tokens_are_told(llama):
    assert llama.loras["alora"].alora_invocation_tokens == tuple(INVOCATION)


@pytest.mark.parametrize("n_batch", [4, 64])
def test_completion_equals_the_reference(make_llama, paths, n_batch):
    llama = make_llama(n_batch=n_batch, n_ubatch=n_batch)
    expected = reference(paths["alora"], N, scale=3.0).greedy(PROMPT, 8)
    assert expected != Reference(MODEL).greedy(PROMPT, 8)
    assert list(llama.generate(PROMPT, max_tokens=8, temperature=0, lora={"alora": 3.0})) == expected
    stream = llama(PROMPT, max_tokens=8, temperature=0, stream=True, lora={"alora": 3.0})
    assert "".join(chunk["choices"][0]["text"] for chunk in stream) == llama.detokenize(expected).decode()


def test_last_invocation_in_the_prompt_counts(llama, paths):
    prompt = PROMPT + INVOCATION + TEXT[1:4]
    logits, _ = row_of(llama, prompt, lora={"alora": 2.0})
    expected = reference(paths["alora"], len(PROMPT), scale=2.0).logits(prompt)[-1]
    assert np.abs(expected - reference(paths["alora"], N, scale=2.0).logits(prompt)[-1]).max() > 0.01
    assert np.abs(logits - expected).max() < 1e-3


@pytest.mark.parametrize("prompt", [INVOCATION, [*INVOCATION, *TEXT[1:]], TEXT[:1] + INVOCATION, TEXT + INVOCATION])
def test_invocation_may_begin_or_end_the_prompt(llama, paths, prompt):
    n = next(n for n in range(len(prompt)) if prompt[n : n + len(INVOCATION)] == INVOCATION)
    expected = reference(paths["alora"], n, scale=2.0).logits(prompt)[-1]
    for _ in range(2):
        logits, _ = row_of(llama, prompt, lora={"alora": 2.0})
        assert np.abs(logits - expected).max() < 1e-3


def test_default_that_is_not_invoked_is_not_applied(llama):
    llama.set_lora_scale("alora", 2.0)
    base = Reference(MODEL).logits(TEXT)[-1]
    assert np.abs(row_of(llama, TEXT)[0] - base).max() < 1e-3
    with pytest.raises(AdapterError, match=r"invocation tokens.*not in the prompt"):
        llama(TEXT, lora={"alora": 2.0})


def test_default_that_is_invoked_is_applied(llama, paths):
    llama.set_lora_scale("alora", 2.0)
    expected = reference(paths["alora"], N, scale=2.0).logits(PROMPT)[-1]
    assert np.abs(row_of(llama)[0] - expected).max() < 1e-3


def test_two_that_are_invoked_are_refused(llama):
    with pytest.raises(AdapterError, match="several"):
        llama(PROMPT, lora={"alora": 1.0, "other": 1.0})


def test_memory_is_shared_with_the_base_up_to_the_invocation_and_no_further(llama, paths):
    base, adapted = Reference(MODEL), reference(paths["alora"], N, scale=3.0)
    for _ in range(3):
        logits, n_cached = row_of(llama)  # the base
        assert np.abs(logits - base.logits(PROMPT)[-1]).max() < 1e-3
        logits, n_cached = row_of(llama, lora={"alora": 3.0})
        assert n_cached == N - 1  # all that the base computed before, but for the one token that is always computed
        assert np.abs(logits - adapted.logits(PROMPT)[-1]).max() < 1e-3
        logits, n_cached = row_of(llama, lora={"alora": 3.0})
        assert n_cached == N - 1
        assert np.abs(logits - adapted.logits(PROMPT)[-1]).max() < 1e-3
        logits, n_cached = row_of(llama)
        assert n_cached == N
        assert np.abs(logits - base.logits(PROMPT)[-1]).max() < 1e-3


def test_next_turn_computes_anew_what_the_adapter_computed(llama, paths):
    # the first answer is before the invocation of the second question, so it is computed without the adapter
    generated = list(llama.generate(PROMPT, max_tokens=6, temperature=0, lora={"alora": 3.0}))
    prompt = PROMPT + generated + TEXT[1:5] + INVOCATION
    n = len(prompt) - len(INVOCATION)
    logits, n_cached = row_of(llama, prompt, lora={"alora": 3.0})
    assert n_cached == N
    assert np.abs(logits - reference(paths["alora"], n, scale=3.0).logits(prompt)[-1]).max() < 1e-3


@pytest.mark.parametrize("n_seq_max", [1, 3])
def test_choices_equal_the_reference(make_llama, paths, n_seq_max):
    llama = make_llama(n_seq_max=n_seq_max)
    other = TEXT[:4] + INVOCATION
    result = llama([PROMPT, other], n=2, max_tokens=5, temperature=0, lora={"alora": 3.0})
    expected = [
        llama.detokenize(reference(paths["alora"], n, scale=3.0).greedy(prompt, 5)).decode()
        for prompt, n in ((PROMPT, N), (other, 4))
        for _ in range(2)
    ]
    assert [choice["text"] for choice in result["choices"]] == expected


def test_prompts_with_and_without_invocation_in_one_request(make_llama, paths):
    llama = make_llama(n_seq_max=4)
    llama.set_lora_scale("alora", 3.0)
    result = llama([TEXT, PROMPT, TEXT[:-1]], max_tokens=5, temperature=0)
    expected = [
        Reference(MODEL).greedy(TEXT, 5),
        reference(paths["alora"], N, scale=3.0).greedy(PROMPT, 5),
        Reference(MODEL).greedy(TEXT[:-1], 5),
    ]
    assert [choice["text"] for choice in result["choices"]] == [llama.detokenize(one).decode() for one in expected]


@pytest.mark.parametrize("n", [1, 2])
def test_prompt_is_scored_on_both_sides_of_the_invocation(make_llama, paths, n):
    llama = make_llama(n_seq_max=n)
    result = llama(PROMPT, echo=True, max_tokens=0, logprobs=1, n=n, lora={"alora": 2.0})
    table = log_softmax(reference(paths["alora"], N, scale=2.0).logits(PROMPT))
    expected = [table[i, token] for i, token in enumerate(PROMPT[1:])]
    for choice in result["choices"]:
        assert choice["logprobs"]["token_logprobs"][0] is None
        np.testing.assert_allclose(choice["logprobs"]["token_logprobs"][1:], expected, atol=1e-3)


def test_abort_before_the_invocation_leaves_the_next_request_right(make_llama, paths):
    llama = make_llama(n_batch=4, n_ubatch=4)
    expected = text_of(make_llama(), lora={"alora": 3.0})
    result = llama(PROMPT, max_tokens=8, temperature=0, lora={"alora": 3.0}, timeout_s=0)
    assert result["choices"][0]["finish_reason"] == "abort"
    assert text_of(llama, lora={"alora": 3.0}) == expected
    assert text_of(llama) == text_of(make_llama())


def test_stream_that_is_dropped_leaves_the_next_request_right(llama, paths):
    expected = reference(paths["alora"], N, scale=3.0).logits(PROMPT)[-1]
    for n_read in range(4):
        stream = llama(PROMPT, max_tokens=8, temperature=0, stream=True, lora={"alora": 3.0})
        for _ in range(n_read):
            next(stream)
        del stream
        assert np.abs(row_of(llama, PROMPT[:-1])[0] - Reference(MODEL).logits(PROMPT[:-1])[-1]).max() < 1e-3
        assert np.abs(row_of(llama, lora={"alora": 3.0})[0] - expected).max() < 1e-3


def test_memory_that_is_lost_in_a_stream_is_an_error_and_no_wrong_text(llama, paths):
    expected = reference(paths["alora"], N, scale=3.0).logits(PROMPT)[-1]
    stream = llama.generate(PROMPT, max_tokens=8, temperature=0, lora={"alora": 3.0})
    next(stream)
    with Batch(1) as batch:
        batch.extend([270], llama.context.memory.seq_pos_max(0) + 1)
        llama.context.decode(batch)
    with pytest.raises(MemoryOperationError, match="again"):
        next(stream)
    assert np.abs(row_of(llama, lora={"alora": 3.0})[0] - expected).max() < 1e-3


@pytest.mark.parametrize("name", ["gemma3.gguf", "qwen35.gguf"])
def test_other_kinds_of_memory_compute_as_two_decodes_do(closing, make_model, make_context, tmp_path, name):
    path = models.write_lora(tmp_path / "a.gguf", data(name), invocation_tokens=INVOCATION)
    llama = closing(Llama(data(name), **EXACT))
    llama.load_lora(path, scale=0)
    model = llama.model
    with make_context(model, **EXACT) as context, Batch(len(PROMPT)) as batch:
        batch.extend(PROMPT[:N], 0)
        context.decode(batch)
        context.set_adapters_lora([(llama.loras["a"].adapter, 2.0)])
        batch.clear()
        batch.extend(PROMPT[N:], N)
        context.decode(batch)
        expected = np.array(context.logits(-1))
    base, _ = row_of(llama)
    assert np.abs(base - expected).max() > 0.01
    for _ in range(3):
        np.testing.assert_allclose(row_of(llama, lora={"a": 2.0})[0], expected, atol=1e-4)
        np.testing.assert_allclose(row_of(llama)[0], base, atol=1e-4)


def test_shift_goes_on_after_an_invocation(make_llama, paths):
    llama = make_llama(n_ctx=64, context_shift=True, n_keep=4)
    text = text_of(make_llama(), lora={"alora": 3.0})
    assert len(list(llama.generate(PROMPT, max_tokens=100, temperature=0, ignore_eos=True, lora={"alora": 3.0}))) == 100
    assert text_of(llama, lora={"alora": 3.0}) == text
