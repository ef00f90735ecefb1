"""What a request keeps of the memory, and what it must not: against logits that are computed afresh."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.adapter import LoraAdapter
from llamacy.core.batch import Batch
from llamacy.errors import MemorySlotError
from llamacy.llama import Llama
from tests.helpers import data, toy_tokens
from tests.helpers.rows import row_of

KINDS = ("llama", "gemma3", "mamba", "rwkv7", "qwen35")
F32 = {"type_k": "f32", "type_v": "f32", "flash_attn_type": "disabled"}
PROMPT = toy_tokens("the quick brown fox jumps over")


@pytest.fixture
def make_llama(closing):
    def make(name="llama", **params):
        return closing(Llama(data(f"{name}.gguf"), **{"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1} | params))

    return make


def text_of(result):
    return result["choices"][0]["text"]


def ledger_is_memory(llama):
    slots = llama._engine.slots
    return all(
        llama.context.memory.seq_pos_max(sequence.seq_id) == sequence.n_past - 1 == len(sequence) - 1
        for sequence in slots._sequences
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n_before", [5, 20, len(PROMPT)])
def test_logits_after_reuse_are_those_of_a_fresh_evaluation(make_llama, name, n_before):
    fresh, n_cached = row_of(make_llama(name, **F32), PROMPT)
    assert n_cached == 0
    llama = make_llama(name, **F32)
    llama(PROMPT[:n_before], max_tokens=4, temperature=0)
    reused, n_cached = row_of(llama, PROMPT)
    np.testing.assert_allclose(reused, fresh, atol=1e-4)
    # a memory that can't be cut goes back to the checkpoint before the last token of the prompt
    assert n_cached == min(n_before - (name not in ("llama", "gemma3")), len(PROMPT) - 1)
    assert ledger_is_memory(llama)


@pytest.mark.parametrize("name", KINDS)
def test_conversation_that_goes_on_computes_what_is_new_only(make_llama, name):
    # the reply is part of the next prompt, as in a chat; no kind of memory has to be cut for that
    llama = make_llama(name, **F32)
    tokens = list(PROMPT)
    for _ in range(4):
        reply = list(llama.generate(tokens, max_tokens=5, temperature=0))
        n_known = len(tokens) + len(reply) - 1  # the last token was chosen but not computed
        tokens += [*reply, *toy_tokens("and then", add_special=False)]
        epoch = llama.context.epoch
        logits, n_cached = row_of(llama, tokens)
        assert n_cached == n_known
        # one decode, and one more where a checkpoint is taken on the way
        assert llama.context.epoch == epoch + (1 if name == "llama" else 2)
        np.testing.assert_allclose(logits, row_of(make_llama(name, **F32), tokens)[0], atol=1e-4)


def test_cache_prompt_false_computes_everything(make_llama):
    llama = make_llama()
    llama(PROMPT, max_tokens=1)
    assert row_of(llama, PROMPT, cache_prompt=False)[1] == 0
    assert row_of(llama, PROMPT)[1] == len(PROMPT) - 1


def test_reset_forgets(make_llama):
    llama = make_llama()
    expected = row_of(llama, PROMPT)[0]
    llama.reset()
    assert llama.context.memory.seq_pos_max(0) == -1
    again, n_cached = row_of(llama, PROMPT)
    assert n_cached == 0
    np.testing.assert_array_equal(again, expected)


def use_other_adapter(llama, tmp):
    llama.context.set_adapters_lora([(LoraAdapter(llama.model, tmp), 1.0)])
    llama(PROMPT, max_tokens=1)
    llama.context.set_adapters_lora([])


def decode_something(llama, _):
    with Batch(4) as batch:
        batch.extend([270, 271], llama.context.memory.seq_pos_max(0) + 1)
        llama.context.decode(batch)


def clear(llama, _):
    llama.context.memory.clear()


def remove_a_part(llama, _):
    # the last position stays where it was, so that this can't be seen there
    llama.context.memory.seq_rm(0, 2, 6)


def save_and_restore(llama, _):
    llama.context.state.seq_set(0, llama.context.state.seq_get(0))


INTERVENTIONS = [use_other_adapter, decode_something, clear, remove_a_part, save_and_restore]


@pytest.mark.parametrize("intervene", INTERVENTIONS)
def test_request_after_somebody_else_used_the_context_is_right(make_llama, lora_path, intervene):
    llama = make_llama(**F32)
    expected = row_of(llama, PROMPT)[0]
    text = text_of(llama(PROMPT, max_tokens=20, temperature=0))
    intervene(llama, lora_path)
    logits, n_cached = row_of(llama, PROMPT)
    assert n_cached == 0
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert text_of(llama(PROMPT, max_tokens=20, temperature=0)) == text
    assert ledger_is_memory(llama)


def test_state_of_another_text_that_was_restored_is_noticed(make_llama):
    llama = make_llama(**F32)
    llama([*PROMPT[:-1], 270], max_tokens=1)
    state = llama.context.state.seq_get(0)
    expected = row_of(llama, PROMPT)[0]
    llama.context.state.seq_set(0, state)
    assert llama.context.memory.seq_pos_max(0) == len(PROMPT) - 1
    logits, n_cached = row_of(llama, PROMPT)
    assert n_cached == 0
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("intervene", [decode_something, clear, remove_a_part, save_and_restore])
def test_stream_goes_on_rightly_after_somebody_else_used_the_context(make_llama, intervene):
    llama = make_llama(**F32)
    expected = text_of(llama(PROMPT, max_tokens=20, temperature=0))
    stream = llama(PROMPT, max_tokens=20, temperature=0, stream=True)
    text = text_of(next(stream))
    intervene(llama, None)
    text += "".join(text_of(chunk) for chunk in stream)
    assert text == expected
    assert text_of(llama(PROMPT, max_tokens=20, temperature=0)) == expected


def test_adapter_that_changes_within_a_stream_holds_for_all_tokens_from_there(make_llama, lora_path):
    llama = make_llama(**F32)
    adapter = LoraAdapter(llama.model, lora_path)
    llama.context.set_adapters_lora([(adapter, 4.0)])
    stream = llama.generate(PROMPT, max_tokens=8, temperature=0)
    tokens = [next(stream), next(stream)]
    llama.context.set_adapters_lora([])
    rest = list(stream)
    assert rest == list(make_llama(**F32).generate(PROMPT + tokens, max_tokens=6, temperature=0))


def test_lora_of_the_constructor_holds_and_its_memory_is_not_mixed_up(make_llama, lora_path):
    plain = row_of(make_llama(**F32), PROMPT)[0]
    llama = make_llama(lora_path=lora_path, **F32)
    adapted = row_of(llama, PROMPT)[0]
    assert np.abs(adapted - plain).max() > 1e-3
    logits, n_cached = row_of(llama, PROMPT, lora={})
    assert n_cached == 0
    np.testing.assert_allclose(logits, plain, atol=1e-5)


def test_memory_that_was_shifted_is_not_kept_for_another_request(make_llama):
    # the tokens behind the gap were computed with those that are gone
    llama = make_llama(n_ctx=64, context_shift=True, n_keep=4, **F32)
    prompt = [1] + [265 + index % 20 for index in range(50)]
    generated = list(llama.generate(prompt, max_tokens=40, temperature=0))
    sequence = llama._engine.slots._sequences[0]
    assert sequence.n_shifted > 0
    assert len(generated) > 20
    tokens = sequence.tokens.tolist()[:40]
    assert tokens[:5] == prompt[:5]  # n_keep tokens, and the one that begins the text
    logits, n_cached = row_of(llama, tokens)
    assert n_cached == 5
    np.testing.assert_allclose(logits, row_of(make_llama(n_ctx=64, **F32), tokens)[0], atol=1e-4)


class Failure(Exception):
    pass


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("at", ["processor", "criterion"])
@pytest.mark.parametrize("n_tokens", [0, 3])
def test_exception_of_a_callback_comes_out_and_the_next_request_is_right(make_llama, name, at, n_tokens):
    llama = make_llama(name, **F32)
    expected = text_of(llama(PROMPT, max_tokens=12, temperature=0))
    llama.reset()
    calls = []

    def fail(input_ids, scores):
        calls.append(len(input_ids))
        if len(calls) > n_tokens:
            raise Failure

    callbacks = {"logits_processor": fail} if at == "processor" else {"stopping_criteria": fail}
    with pytest.raises(Failure):
        llama(PROMPT, max_tokens=12, temperature=0, **callbacks)
    assert len(calls) == n_tokens + 1
    assert ledger_is_memory(llama)
    assert text_of(llama(PROMPT, max_tokens=12, temperature=0)) == expected


class FailingLock:
    def __init__(self, lock):
        self.lock, self.fails = lock, False

    def acquire(self, *args, **kwargs):
        return self.lock.acquire(*args, **kwargs)

    def release(self):
        self.lock.release()

    def __enter__(self):
        if self.fails:
            raise Failure
        return self.lock.__enter__()

    def __exit__(self, *exc_info):
        return self.lock.__exit__(*exc_info)


def test_exception_of_the_lock_leaves_the_object_usable(make_llama):
    llama = make_llama()
    expected = text_of(llama(PROMPT, max_tokens=12, temperature=0))
    slots = llama._engine.slots
    lock = slots.lock = FailingLock(slots.lock)
    stream = llama(PROMPT, max_tokens=12, temperature=0, stream=True)
    next(stream)
    lock.fails = True
    with pytest.raises(Failure):
        list(stream)
    lock.fails = False
    assert ledger_is_memory(llama)
    assert text_of(llama(PROMPT, max_tokens=12, temperature=0)) == expected


def test_memory_without_room_is_an_error_and_the_next_request_is_right(make_llama):
    llama = make_llama(n_seq_max=2, **F32)
    expected = text_of(llama(PROMPT, max_tokens=12, temperature=0))
    llama.reset()
    context = llama.context
    # somebody else takes nearly all of the room that the sequences share
    with Batch(256) as batch:
        batch.extend([265] * (context.n_ctx - 10), 0, [0])
        context.decode(batch)
    with pytest.raises(MemorySlotError):
        llama(PROMPT, max_tokens=12, temperature=0)
    context.memory.seq_rm(1)
    assert text_of(llama(PROMPT, max_tokens=12, temperature=0)) == expected
    assert ledger_is_memory(llama)


@pytest.mark.parametrize("name", KINDS)
def test_abort_leaves_what_the_next_request_can_go_on_from(make_llama, name):
    llama = make_llama(name, **F32)
    expected = row_of(llama, PROMPT)[0]
    llama.reset()
    stream = llama(PROMPT, max_tokens=50, temperature=0, stream=True)
    next(stream)
    llama.abort()
    assert list(stream)[-1]["choices"][0]["finish_reason"] == "abort"
    assert ledger_is_memory(llama)
    np.testing.assert_allclose(row_of(llama, PROMPT)[0], expected, atol=1e-4)


def test_abort_of_no_request_stops_no_direct_use_of_the_context(make_llama):
    llama = make_llama()
    llama.abort()
    with Batch(4) as batch:
        batch.extend([270], 0)
        llama.context.decode(batch)
    assert llama.context.memory.seq_pos_max(0) == 0
