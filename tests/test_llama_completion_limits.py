"""The size of the context: what fits, what is shifted or cut off, and why a text ended."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.errors import ContextLengthError, MemoryOperationError
from llamacy.llama import Llama
from tests.helpers import BOS, data, toy_tokens

ONE = {"n_threads": 1, "n_threads_batch": 1}
F32 = {"type_k": "f32", "type_v": "f32", "flash_attn_type": "disabled"}


@pytest.fixture
def make_llama(closing):
    def make(name="llama", **params):
        return closing(Llama(data(f"{name}.gguf"), **{"n_ctx": 64, **ONE} | params))

    return make


def prompt_of(n):
    return [BOS] + [261 + (index * 5) % 26 for index in range(n - 1)]


@pytest.mark.parametrize("n_prompt", [62, 63, 64])
@pytest.mark.parametrize("max_tokens", [None, -1, 0, 1, 2, 1000])
def test_what_fits_is_generated_and_the_rest_is_length(make_llama, n_prompt, max_tokens):
    llama = make_llama()
    eos = llama.model.vocab.eos
    result = llama(prompt_of(n_prompt), max_tokens=max_tokens, temperature=0, suppress_tokens=[eos])
    room = 64 - n_prompt
    wanted = room if max_tokens in (None, -1) else min(max_tokens, room)
    assert result["usage"]["completion_tokens"] == result["max_tokens"] == wanted
    assert result["choices"][0]["finish_reason"] == "length"
    assert result["choices"][0]["stop_reason"] is None
    # the prompt is computed also where nothing is generated
    assert llama.context.memory.seq_pos_max(0) == n_prompt - 1 + max(wanted - 1, 0)


def test_finish_and_stop_reasons(make_llama):
    llama = make_llama(n_ctx=256)
    eos = llama.model.vocab.eos
    text = llama("the cat", max_tokens=20, temperature=0)["choices"][0]["text"]
    cases = [
        ({"max_tokens": 20}, "length", None),
        ({"max_tokens": 20, "stop": text[3:5]}, "stop", text[3:5]),
        ({"max_tokens": 20, "stop": ["never seen", text[3:5], text[3:5]]}, "stop", text[3:5]),
        ({"logit_bias": {eos: 1000.0}}, "stop", None),
        ({"stopping_criteria": lambda *_: True}, "stop", None),
        ({"timeout_s": 0}, "abort", None),
        # the last of all tokens completes the stop string
        ({"max_tokens": 5, "stop": text[4]}, "stop", text[4]),
    ]
    for options, finish_reason, stop_reason in cases:
        choice = llama("the cat", temperature=0, **options)["choices"][0]
        assert (choice["finish_reason"], choice["stop_reason"]) == (finish_reason, stop_reason), options
        *_, last = llama("the cat", temperature=0, stream=True, **options)
        choice = last["choices"][0]
        assert (choice["finish_reason"], choice["stop_reason"]) == (finish_reason, stop_reason), options


def test_greedy_text_is_that_of_a_plain_loop(closing, smollm2_model):
    prompts = [
        "Once upon a time",
        "def fibonacci(n):",
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
        "Die Katze sitzt auf der Matte. 1, 2, 3,",
    ]
    llama = closing(Llama(smollm2_model, n_ctx=512, **ONE))
    for prompt in prompts:
        tokens = llama.tokenize(prompt, special=True)
        assert tokens == list(smollm2_model.vocab.tokenize(prompt, add_special=True, parse_special=True))
        expected = []
        with Context(smollm2_model, n_ctx=512, **ONE) as context, Batch(512) as batch:
            batch.extend(tokens, 0)
            while len(expected) < 256:
                context.decode(batch)
                expected.append(int(np.argmax(context.logits(-1))))
                if smollm2_model.vocab.is_eog(expected[-1]):
                    break
                batch.clear()
                batch.add(expected[-1], len(tokens) + len(expected) - 1, logits=True)
        llama.reset()
        result = llama(prompt, max_tokens=256, temperature=0)
        generated = llama._engine.slots._sequences[0].generated.tolist()
        assert generated == expected
        assert result["choices"][0]["text"] == llama.detokenize(expected).decode()


@pytest.mark.parametrize("n_keep", [0, 1, 7, 30, 1000, -1])
def test_shift_goes_on_beyond_the_context(make_llama, n_keep):
    llama = make_llama(context_shift=True, n_keep=n_keep)
    prompt = prompt_of(40)
    eos = llama.model.vocab.eos
    result = llama(prompt, max_tokens=200, temperature=0, suppress_tokens=[eos])
    assert result["usage"]["completion_tokens"] == 200
    sequence = llama._engine.slots._sequences[0]
    ledger = sequence.tokens.tolist()
    kept = len(prompt) if n_keep < 0 else min(n_keep + 1, len(prompt))  # the token that begins the text stays too
    assert ledger[:kept] == prompt[:kept]
    # the last token was chosen, but not computed
    assert sequence.n_shifted + len(ledger) + 1 == 240
    assert ledger[kept:] == (prompt + sequence.generated.tolist())[-len(ledger) + kept - 1 : -1]
    assert llama.context.memory.seq_pos_max(0) == len(ledger) - 1
    expected = make_llama()("the cat", max_tokens=8, temperature=0)["choices"]
    assert llama("the cat", max_tokens=8, temperature=0)["choices"] == expected


@pytest.mark.parametrize("n_ctx", [2, 3, 4, 5, 8])
def test_shift_in_a_tiny_context(make_llama, n_ctx):
    llama = make_llama(n_ctx=n_ctx, context_shift=True, n_keep=-1)
    result = llama([BOS, 265], max_tokens=20, temperature=0, suppress_tokens=[llama.model.vocab.eos])
    assert result["usage"]["completion_tokens"] == 20


def test_shift_in_a_context_of_one_token_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        Llama(data("llama.gguf"), n_ctx=1, context_shift=True, **ONE)


@pytest.mark.parametrize("name", ["qwen35"])
def test_memory_that_cannot_be_shifted_is_refused(name):
    with pytest.raises(MemoryOperationError, match="context_shift"):
        Llama(data(f"{name}.gguf"), n_ctx=64, context_shift=True, **ONE)


def test_without_shift_the_text_ends_where_the_context_does(make_llama):
    result = make_llama()(prompt_of(40), max_tokens=None, temperature=0, ignore_eos=True)
    assert result["usage"]["total_tokens"] == 64
    assert result["choices"][0]["finish_reason"] == "length"


def test_shift_with_several_choices(make_llama):
    llama = make_llama(n_seq_max=2, context_shift=True)
    result = llama([prompt_of(40), prompt_of(20)], n=2, max_tokens=100, temperature=0, ignore_eos=True)
    alone = make_llama(context_shift=True)
    for choice, n in zip(result["choices"], (40, 40, 20, 20), strict=True):
        expected = alone(prompt_of(n), max_tokens=100, temperature=0, ignore_eos=True)["choices"][0]
        assert choice["text"] == expected["text"]


@pytest.mark.parametrize(("max_tokens", "room"), [(None, 16), (-1, 16), (0, 0), (1, 1), (10, 10), (32, 32), (60, 32)])
@pytest.mark.parametrize("n_keep", [0, 5, 1000])
def test_truncated_prompt_keeps_its_beginning_and_its_end(make_llama, max_tokens, room, n_keep):
    llama = make_llama(n_keep=n_keep)
    prompt = prompt_of(200)
    result = llama(prompt, max_tokens=max_tokens, truncate_prompt=True, temperature=0, ignore_eos=True)
    assert result["usage"]["prompt_tokens"] == 64 - room
    assert result["usage"]["prompt_tokens_details"]["truncated_tokens"] == 200 - (64 - room)
    assert result["usage"]["completion_tokens"] == (room if max_tokens != 60 else 32)
    ledger = llama._engine.slots._sequences[0].tokens.tolist()[: 64 - room]
    kept = min(n_keep + 1, 63 - room)
    assert ledger == prompt[:kept] + prompt[200 - (64 - room - kept) :]


def test_prompt_that_fits_is_not_truncated(make_llama):
    result = make_llama()(prompt_of(64), max_tokens=0, truncate_prompt=True)
    assert result["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert result["usage"]["prompt_tokens"] == 64


def test_echo_of_a_truncated_prompt_is_what_the_model_got(make_llama):
    llama = make_llama()
    result = llama("abcde" * 50, max_tokens=4, truncate_prompt=True, echo=True, logprobs=0, temperature=0)
    choice = result["choices"][0]
    assert choice["text"].startswith("<s>")
    assert len(choice["logprobs"]["tokens"]) == 64
    with pytest.raises(ContextLengthError):
        llama("abcde" * 50, max_tokens=4)


def test_prompt_too_long_in_a_list_names_both_numbers_and_computes_nothing(make_llama):
    llama = make_llama(n_seq_max=2)
    epoch = llama.context.epoch
    with pytest.raises(ContextLengthError) as caught:
        llama([toy_tokens("a"), prompt_of(65)], max_tokens=4)
    assert (caught.value.n_prompt, caught.value.n_ctx) == (65, 64)
    assert llama.context.epoch == epoch
