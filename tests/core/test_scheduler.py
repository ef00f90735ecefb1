"""Steps of several sequences on one context, against decoding each alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.errors import ContextLengthError, DecodeAbortedError
from tests.helpers import toy_tokens
from tests.helpers.arch import KINDS, context_params, golden, model_file


def tokens_of(text):
    return np.array(toy_tokens(text), np.int32)


def greedy():
    return SamplerChain([Sampler.greedy()])


@pytest.fixture
def make_scheduler(make_model, make_context, closing):
    def make(name="llama", **params):
        context = make_context(make_model(model_file(name)), **{**context_params(name), **params})
        return closing(Scheduler(context))

    return make


def begin(scheduler, tokens, seq_id=0, capacity=128):
    sequence = Sequence(seq_id, capacity)
    sequence.extend(np.array(tokens, np.int32))
    sequence.sampler = greedy()
    scheduler.add(sequence)
    return sequence


@pytest.mark.parametrize("name", KINDS)
def test_next_token_greedy_gives_the_golden_text(make_scheduler, name):
    scheduler = make_scheduler(name)
    sequence = begin(scheduler, golden(name)["prompt"])
    assert [scheduler.next_token(sequence) for _ in golden(name)["greedy"]] == golden(name)["greedy"]
    assert sequence.n_past == len(sequence) - 1 == len(golden(name)["prompt"]) + len(golden(name)["greedy"]) - 1


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba", "qwen35"])
def test_step_several_sequences_give_what_each_gives_alone(make_scheduler, name):
    texts = ["hello", "the quick brown fox jumps over the lazy dog.", "a"]
    alone = []
    for text in texts:
        scheduler = make_scheduler(name)
        sequence = begin(scheduler, toy_tokens(text))
        alone.append([scheduler.next_token(sequence) for _ in range(10)])
    scheduler = make_scheduler(name, n_seq_max=3, n_ctx=384, n_batch=16, n_ubatch=16)
    sequences = [begin(scheduler, toy_tokens(text), seq_id) for seq_id, text in enumerate(texts)]
    together = {seq_id: [] for seq_id in range(3)}
    while any(len(tokens) < 10 for tokens in together.values()):
        for sequence, token in scheduler.step():
            together[sequence.seq_id].append(token)
            if len(together[sequence.seq_id]) == 10:
                scheduler.remove(sequence)
    assert [together[seq_id] for seq_id in range(3)] == alone
    assert len(sequences) == 3


def test_prompt_longer_than_a_batch_is_decoded_in_parts(make_scheduler):
    prompt = toy_tokens("the quick brown fox jumps over the lazy dog.")
    whole, parts = make_scheduler(), make_scheduler(n_batch=7, n_ubatch=7)
    expected = [whole.next_token(sequence) for sequence in [begin(whole, prompt)] for _ in range(5)]
    assert [parts.next_token(sequence) for sequence in [begin(parts, prompt)] for _ in range(5)] == expected


def test_sequence_that_decodes_is_not_starved_by_a_long_prompt(make_scheduler):
    scheduler = make_scheduler(n_seq_max=2, n_ctx=512, n_batch=8, n_ubatch=8)
    first = begin(scheduler, toy_tokens("hi"), 0)
    scheduler.next_token(first)
    begin(scheduler, toy_tokens("the quick brown fox jumps over the lazy dog."), 1)
    for _ in range(4):
        assert first in [sequence for sequence, _ in scheduler.step()]


def test_next_token_without_anything_pending_raises(make_scheduler):
    scheduler = make_scheduler()
    with pytest.raises(ValueError, match="nothing to go on from"):
        scheduler.next_token(Sequence(0, 8))


def test_extend_beyond_capacity_raises_with_both_numbers():
    sequence = Sequence(0, 4)
    sequence.extend(np.array([1, 2], np.int32))
    with pytest.raises(ContextLengthError) as caught:
        sequence.extend(np.array([1, 2, 3], np.int32))
    assert (caught.value.n_prompt, caught.value.n_ctx) == (5, 4)
    assert sequence.tokens.tolist() == [1, 2]


@pytest.mark.parametrize("args", [(-1, 4), (0, 0)])
def test_wrong_sequence_raises(args):
    with pytest.raises(ValueError, match="must be from"):
        Sequence(*args)


def test_failed_decode_moves_no_cursor(make_scheduler):
    scheduler = make_scheduler()
    sequence = begin(scheduler, [5, 999, 6])  # 999 is not in the vocabulary
    with pytest.raises(ValueError, match="999"):
        scheduler.next_token(sequence)
    assert (sequence.n_past, len(sequence)) == (0, 3)
    scheduler.reset(sequence)
    sequence.extend(tokens_of("hello"))
    assert scheduler.next_token(sequence) >= 0


@pytest.mark.parametrize("name", ["smollm2", "rwkv7", "qwen35"])
def test_abort_in_a_prompt_goes_on_rightly_afterwards(make_model, make_context, closing, smollm2_model, name):
    if name == "smollm2":
        model, prompt = smollm2_model, [28, 216] * 200
    else:
        model, prompt = make_model(model_file(name)), toy_tokens("the quick brown fox. " * 90)
    params = {"n_ctx": 2048, "n_batch": 2048, "n_ubatch": 32}
    fresh = closing(Scheduler(make_context(model, **params)))
    expected = fresh.next_token(begin(fresh, prompt, capacity=2048))
    scheduler = closing(Scheduler(make_context(model, **params)))
    sequence = begin(scheduler, prompt, capacity=2048)
    timer = threading.Timer(0.05, scheduler.abort)
    timer.start()
    with pytest.raises(DecodeAbortedError):
        while True:
            scheduler.next_token(sequence)
            scheduler.reset(sequence)
            sequence.extend(np.array(prompt, np.int32))
    timer.join()
    assert sequence.n_past < len(prompt)
    scheduler.remove(sequence)
    scheduler.add(sequence)  # the abort is over
    assert scheduler.next_token(sequence) == expected


def test_abort_before_a_step_stops_it(make_scheduler):
    scheduler = make_scheduler()
    sequence = begin(scheduler, toy_tokens("hello"))
    scheduler.abort()
    with pytest.raises(DecodeAbortedError):
        scheduler.next_token(sequence)
    assert (sequence.n_past, scheduler.aborted) == (0, True)
    scheduler.add(sequence)  # it takes part already, so the abort is not over
    with pytest.raises(DecodeAbortedError):
        scheduler.next_token(sequence)
    scheduler.remove(sequence)
    scheduler.add(sequence)
    assert not scheduler.aborted
    assert scheduler.next_token(sequence) >= 0


def test_reset_empties_sequence_and_memory(make_scheduler):
    scheduler = make_scheduler()
    sequence = begin(scheduler, toy_tokens("hello"))
    scheduler.next_token(sequence)
    scheduler.reset(sequence)
    assert (len(sequence), sequence.n_past, sequence.n_pending) == (0, 0, 0)
    assert scheduler.context.memory.seq_pos_max(0) == -1


def test_scheduler_uses_the_context_like_a_plain_loop(make_scheduler, make_model, make_context):
    scheduler = make_scheduler()
    prompt = toy_tokens("hello world")
    sequence = begin(scheduler, prompt)
    generated = [scheduler.next_token(sequence) for _ in range(20)]
    context = make_context(make_model("llama.gguf"), **context_params("llama"))
    expected = []
    with Batch(32) as batch:
        batch.extend(prompt, 0)
        for _ in range(20):
            context.decode(batch)
            expected.append(int(np.argmax(context.logits(-1))))
            batch.clear()
            batch.add(expected[-1], len(prompt) + len(expected) - 1, logits=True)
    assert generated == expected


def test_what_makes_no_sense_is_refused_and_changes_nothing(make_scheduler):
    scheduler = make_scheduler()
    sequence = Sequence(0, 16)
    sequence.extend(tokens_of("hello"))
    n = len(sequence)
    scheduler.add(sequence)
    scheduler.prefill(sequence)
    with pytest.raises(ValueError, match="n must be from 0, not -1"):
        scheduler.cut(sequence, -1)
    for idle in (3, [3], [None]):
        with pytest.raises(TypeError):
            scheduler.set_idle(idle)
    scheduler.copy(sequence, sequence)
    assert (len(sequence), sequence.n_past, scheduler.holds(sequence)) == (n, n, True)
