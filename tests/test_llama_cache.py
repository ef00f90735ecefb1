"""Prompts taken from stores and checkpoints: what is reused, and that it is what a fresh evaluation gives."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import textwrap
import threading

import numpy as np
import pytest

from llamacy.checkpoint import DiskStore, RamStore
from llamacy.core.adapter import LoraAdapter
from llamacy.core.batch import Batch
from llamacy.errors import (
    CheckpointError,
    ClosedError,
    ConcurrentUseError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    MemoryOperationError,
    StateError,
)
from llamacy.llama import Llama
from tests.helpers import data, toy_tokens
from tests.helpers.process import run_python
from tests.helpers.rows import row_of

KINDS = ("llama", "gemma3", "mamba", "mamba2", "rwkv7", "qwen35")
CUTTABLE = ("llama",)
F32 = {"type_k": "f32", "type_v": "f32", "flash_attn_type": "disabled"}
CAT = toy_tokens("the quick brown fox jumps over the lazy dog and then it")
DOG = toy_tokens("once upon a time there was a small dog in a big house")[2:]  # nothing in common with the other one
TOLERANCE = 1e-4


@pytest.fixture
def make_llama(closing):
    def make(name="llama", **params):
        defaults = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, **F32}
        return closing(Llama(data(f"{name}.gguf"), **defaults | params))

    return make


def turn(llama, tokens, more):
    """Generate a few tokens, and return the conversation with them and what is said next."""
    return [*tokens, *llama.generate(tokens, max_tokens=4, temperature=0), *toy_tokens(more, add_special=False)]


def cached(llama, prompt, fresh):
    """Return how many tokens of a prompt were not computed, once the row is what a fresh evaluation gives."""
    logits, n_cached = row_of(llama, prompt)
    np.testing.assert_allclose(logits, row_of(fresh, prompt, cache_prompt=False)[0], atol=TOLERANCE)
    return n_cached


@pytest.fixture(params=["ram", "disk"])
def cache(request, tmp_path):
    return 1 << 26 if request.param == "ram" else str(tmp_path / "cache")


@pytest.mark.parametrize("name", KINDS)
def test_two_conversations_that_take_turns_are_never_computed_again(make_llama, cache, name):
    llama, fresh = make_llama(name, cache=cache), make_llama(name)
    talks = {"cat": CAT, "dog": DOG}
    for number in range(3):
        for who, tokens in talks.items():
            n_known = len(tokens) + 3  # the last of four tokens was chosen but not computed
            talks[who] = turn(llama, tokens, f" and {number}")
            logits, n_cached = row_of(llama, talks[who], max_tokens=0)
            del logits
            assert n_cached == n_known
    for tokens in talks.values():
        # the last request of each computed all of it; a memory that can't be cut brings back what leaves a token
        n_cached = cached(llama, tokens, fresh)
        assert n_cached == len(tokens) - 1 if name in CUTTABLE else n_cached >= len(tokens) * 0.7
    stats = llama.stats
    assert stats.n_failed == 0
    assert stats.n_from_store > 0
    assert stats.store.n_hits > 0
    assert stats.n_saved == stats.n_from_context + stats.n_from_checkpoints + stats.n_from_store


@pytest.mark.parametrize("name", KINDS)
def test_another_process_goes_on_from_disk(make_llama, tmp_path, name):
    first = make_llama(name, cache=tmp_path)
    tokens = turn(first, CAT, " and so on")
    first.close()
    second = make_llama(name, cache=tmp_path)
    assert cached(second, tokens, make_llama(name)) == len(CAT) + 3


def test_store_is_shared_by_models_and_contexts_and_left_open(make_llama):
    with RamStore(1 << 26) as store:
        first, second, other = (make_llama(name, cache=store) for name in ("llama", "llama", "mamba"))
        tokens = turn(first, CAT, " and so on")
        assert row_of(other, tokens)[1] == 0
        assert cached(second, tokens, make_llama()) == len(CAT) + 3
        for llama in (first, second, other):
            llama.close()
        assert not store.closed
        assert len(store) > 0


def test_store_that_a_llama_made_is_closed_with_it_or_replaced(make_llama, tmp_path):
    llama = make_llama(cache=1 << 20)
    first = llama.cache
    assert isinstance(first, RamStore)
    assert first.capacity_bytes == 1 << 20
    llama.set_cache(tmp_path)
    assert first.closed
    second = llama.cache
    assert isinstance(second, DiskStore)
    llama.close()
    assert second.closed
    assert make_llama().cache is None
    assert make_llama(cache=False).cache is None
    assert make_llama(cache=0).cache is None
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert make_llama(cache=True).cache.capacity_bytes == min(2 << 30, memory_bytes // 8)


@pytest.mark.parametrize(("wrong", "error"), [(-1, ValueError), (1.5, TypeError), ([], TypeError), (b"x", TypeError)])
def test_wrong_cache_raises_and_nothing_stays_open(make_llama, wrong, error):
    with pytest.raises(error):
        make_llama(cache=wrong)
    llama = make_llama(cache=1 << 20)
    before = llama.cache
    with pytest.raises(error):
        llama.set_cache(wrong)
    assert llama.cache is before
    assert not before.closed


def test_cache_that_is_a_file_raises(make_llama, tmp_path):
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(CheckpointError, match="no directory"):
        make_llama(cache=tmp_path / "file")


@pytest.mark.parametrize("option", ["ctx_checkpoints", "checkpoint_interval"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "2"])
def test_wrong_number_of_checkpoints_raises(make_llama, option, value):
    with pytest.raises((TypeError, ValueError), match=option):
        make_llama(**{option: value})


class TestWhatIsNotStored:
    def test_aborted_request(self, make_llama):
        llama = make_llama(cache=1 << 26)

        def stop(_, scores):
            llama.abort()

        result = llama(CAT, max_tokens=8, logits_processor=stop)
        assert result["choices"][0]["finish_reason"] == "abort"
        llama.reset()
        assert len(llama.cache) == 0

    def test_request_out_of_time(self, make_llama):
        llama = make_llama(cache=1 << 26)
        assert llama(CAT, timeout_s=0)["choices"][0]["finish_reason"] == "abort"
        llama.reset()
        assert len(llama.cache) == 0

    def test_stream_that_is_closed_in_the_middle(self, make_llama):
        llama = make_llama(cache=1 << 26)
        stream = llama(CAT, max_tokens=8, temperature=0, stream=True)
        list(itertools.islice(stream, 2))
        stream.close()
        llama.reset()
        assert len(llama.cache) == 0

    def test_request_that_fails(self, make_llama):
        llama = make_llama(cache=1 << 26)

        def fail(_, scores):
            raise RuntimeError("of a test")

        with pytest.raises(RuntimeError, match="of a test"):
            llama(CAT, max_tokens=8, logits_processor=fail)
        llama.reset()
        assert len(llama.cache) == 0

    def test_request_without_cache_prompt(self, make_llama):
        llama = make_llama(cache=1 << 26)
        llama(CAT, max_tokens=2, cache_prompt=False)
        llama.reset()
        assert len(llama.cache) == 0

    def test_shifted_context(self, make_llama):
        llama = make_llama(cache=1 << 26, n_ctx=64, context_shift=True)
        result = llama(CAT, max_tokens=80, ignore_eos=True)
        assert result["usage"]["completion_tokens"] == 80
        llama.reset()
        assert len(llama.cache) == 0
        with pytest.raises(CheckpointError, match="nothing to save"):
            llama.save_state()

    def test_what_is_too_large(self, make_llama):
        llama = make_llama(cache=100)
        llama(CAT, max_tokens=2)
        assert len(llama.cache) == 0
        assert llama.stats.store.n_too_large == 1

    def test_context_that_somebody_else_used(self, make_llama):
        llama = make_llama(cache=1 << 26, n_seq_max=2)
        stream = llama(CAT, max_tokens=2, temperature=0, stream=True)
        list(stream)
        n = len(llama.cache)
        stream = llama.generate(DOG, max_tokens=2)
        list(itertools.islice(stream, 2))
        with Batch(4) as batch:
            batch.extend([270], 0, [0])
            llama.context.memory.clear()
            llama.context.decode(batch)
        del stream
        llama.reset()
        assert len(llama.cache) == n


def test_one_of_several_choices_is_stored(make_llama):
    llama = make_llama(cache=1 << 26, n_seq_max=4)
    llama(CAT, max_tokens=4, n=3, seed=1, temperature=1.5)
    assert llama.stats.store.n_stored == 1


def test_request_with_another_adapter_does_not_find_it(make_llama, lora_path):
    llama = make_llama(cache=1 << 26)
    tokens = turn(llama, CAT, " and so on")
    llama.load_lora(lora_path, name="other", scale=0)
    assert cached(llama, tokens, make_llama()) == len(CAT) + 3
    assert row_of(llama, tokens, lora={"other": 1.0})[1] == 0
    # what was computed with it is found with it, and not without
    llama(DOG, lora={"other": 1.0}, max_tokens=1)
    llama(CAT, max_tokens=1)
    assert row_of(llama, [*DOG, 270], lora={"other": 1.0})[1] == len(DOG)
    llama(CAT, max_tokens=1)
    assert row_of(llama, [*DOG, 271])[1] == 0


def test_adapter_set_by_hand_is_part_of_the_key(make_llama, lora_path):
    llama = make_llama(cache=1 << 26)
    tokens = turn(llama, CAT, " and so on")
    llama.reset()
    llama.context.set_adapters_lora([(LoraAdapter(llama.model, lora_path), 1.0)])
    assert row_of(llama, tokens)[1] == 0
    llama.reset()
    llama.context.set_adapters_lora([])
    assert cached(llama, tokens, make_llama()) == len(tokens) - 1 or llama.stats.n_from_store


def test_damaged_file_is_computed_anew_and_said(make_llama, tmp_path, caplog):
    tokens = turn(make_llama(cache=tmp_path), CAT, " and so on")
    (file,) = tmp_path.glob("*.snapshot")
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)
    llama = make_llama(cache=tmp_path)
    with caplog.at_level(logging.WARNING, "llamacy.checkpoint"):
        assert cached(llama, tokens, make_llama()) == 0
    assert "left out" in caplog.text
    assert llama.stats.store.n_corrupt == 1


def test_state_of_a_wrong_layout_is_computed_anew_and_dropped(make_llama, caplog):
    # a store may be handed what does not fit: the state of other K/V types under the name of this context
    llama, other = make_llama(cache=1 << 26), make_llama(type_k="f16", cache=1 << 26)
    tokens = turn(llama, CAT, " and so on")
    turn(other, CAT, " and so on")
    (mine,), (theirs,) = (list(each.cache._index) for each in (llama, other))
    mine.payload.state = theirs.payload.state
    llama.reset()
    with caplog.at_level(logging.WARNING, "llamacy"):
        assert cached(llama, tokens, make_llama()) == 0
    assert "was not used" in caplog.text
    assert llama.stats.n_failed == 1
    assert cached(llama, [*tokens, 270], make_llama()) == len(tokens)


def test_store_that_was_closed_is_no_reason_to_fail(make_llama, caplog):
    store = RamStore(1 << 26)
    llama = make_llama(cache=store)
    store.close()
    with caplog.at_level(logging.WARNING, "llamacy"):
        assert cached(llama, CAT, make_llama()) == 0
    assert "closed" in caplog.text
    assert llama.stats.n_failed > 0


class TestCheckpoints:
    @pytest.mark.parametrize("name", KINDS)
    def test_same_prompt_again_is_not_computed_again(self, make_llama, name):
        llama, fresh = make_llama(name, swa_full=False), make_llama(name, swa_full=False)
        llama(CAT, max_tokens=8, temperature=0, ignore_eos=True)
        assert cached(llama, CAT, fresh) == len(CAT) - 1
        assert cached(llama, CAT, fresh) == len(CAT) - 1
        if name != "gemma3":  # whose window may still be there
            assert (llama.stats.n_from_checkpoints > 0) == (name not in CUTTABLE)

    @pytest.mark.parametrize("name", KINDS)
    def test_edited_message_goes_on_from_the_one_before(self, make_llama, name):
        llama, fresh = make_llama(name, swa_full=False), make_llama(name, swa_full=False)
        end = llama.model.vocab.eos
        first, second = [*CAT, end], [*DOG, end]
        llama([*first, *second, *CAT], max_tokens=2)
        assert cached(llama, [*first, *second, *DOG], fresh) >= len(first) + len(second)
        assert cached(llama, [*first, *CAT], fresh) >= len(first)

    @pytest.mark.parametrize("name", ["mamba2", "qwen35"])
    def test_long_prompt_has_them_every_so_many_tokens(self, make_llama, name):
        llama, fresh = make_llama(name, checkpoint_interval=32), make_llama(name)
        prompt = (CAT + DOG) * 2
        llama(prompt, max_tokens=1)
        assert cached(llama, [*prompt[:100], *CAT], fresh) == 96

    @pytest.mark.parametrize("name", ["mamba2", "qwen35"])
    def test_on_device_there_is_one(self, make_llama, name):
        llama, fresh = make_llama(name, checkpoint_on_device=True), make_llama(name)
        llama(CAT, max_tokens=8, temperature=0, ignore_eos=True)
        assert llama.stats.n_checkpoints == 1
        assert cached(llama, CAT, fresh) == len(CAT) - 1

    def test_on_device_of_a_window_is_refused(self, make_llama):
        with pytest.raises(CheckpointError, match="device"):
            make_llama("gemma3", swa_full=False, checkpoint_on_device=True)

    @pytest.mark.parametrize("name", ["mamba2", "qwen35"])
    def test_without_them_the_live_context_still_goes_on(self, make_llama, name):
        llama, fresh = make_llama(name, ctx_checkpoints=0), make_llama(name)
        tokens = turn(llama, CAT, " and so on")
        assert cached(llama, tokens, fresh) == len(CAT) + 3
        assert cached(llama, CAT, fresh) == 0
        assert llama.stats.n_checkpoints == 0

    def test_they_are_few(self, make_llama):
        llama = make_llama("mamba2", ctx_checkpoints=2, checkpoint_interval=16)
        llama((CAT + DOG) * 2, max_tokens=1)
        assert llama.stats.n_checkpoints == 2
        assert llama.stats.checkpoint_bytes > 0

    def test_attention_needs_none(self, make_llama):
        llama = make_llama()
        llama(CAT, max_tokens=1)
        assert llama.stats.n_checkpoints == 0

    def test_store_beats_a_checkpoint_that_saves_less(self, make_llama):
        llama, fresh = make_llama("mamba2", cache=1 << 26), make_llama("mamba2")
        tokens = turn(llama, CAT, " and so on")
        llama([*CAT, *DOG], max_tokens=1)  # goes back to the checkpoint, so that the memory has lost what was generated
        assert cached(llama, tokens, fresh) == len(CAT) + 3
        assert llama.stats.n_from_store == len(CAT) + 3

    def test_reset_makes_them_stale(self, make_llama):
        llama = make_llama("mamba2")
        llama(CAT, max_tokens=2)
        assert llama.stats.n_checkpoints == 1
        llama.reset()
        assert llama.stats.n_checkpoints == 0
        assert row_of(llama, CAT)[1] == 0


class TestSequences:
    def test_conversations_in_the_context_take_turns_without_loss(self, make_llama):
        llama, fresh = make_llama(n_seq_max=3), make_llama()
        talks = {"cat": CAT, "dog": DOG, "both": [*DOG, *CAT]}
        for number in range(3):
            for who, tokens in talks.items():
                n_known = len(tokens) + 3
                talks[who] = turn(llama, tokens, f" and {number}")
                assert cached(llama, talks[who], fresh) == n_known

    def test_common_beginning_is_copied_and_the_older_one_kept(self, make_llama):
        llama, fresh = make_llama(n_seq_max=2), make_llama()
        long = [*CAT, *DOG, *DOG, *DOG]
        llama(long, max_tokens=1)
        assert cached(llama, [*CAT, 280], fresh) == len(CAT)
        assert cached(llama, [*long, 270], fresh) == len(long)

    def test_idle_ones_give_way_when_room_is_needed(self, make_llama):
        llama, fresh = make_llama(n_seq_max=2, n_ctx=256), make_llama()
        cat = (CAT * 20)[:150]
        dog = (DOG * 20)[:150]
        assert cached(llama, cat, fresh) == 0
        assert cached(llama, dog, fresh) == 0  # does not fit beside the other one
        assert cached(llama, dog, fresh) == len(dog) - 1
        assert cached(llama, cat, fresh) == 0

    def test_generation_to_the_end_of_the_context_takes_the_room_of_idle_ones(self, make_llama):
        llama = make_llama(n_seq_max=2, n_ctx=256)
        llama((CAT * 20)[:150], max_tokens=1)
        expected = make_llama()(DOG, max_tokens=None, temperature=0, ignore_eos=True)["choices"][0]["text"]
        assert llama(DOG, max_tokens=None, temperature=0, ignore_eos=True)["choices"][0]["text"] == expected

    @pytest.mark.parametrize("name", KINDS)
    @pytest.mark.parametrize("unified", [True, False])
    def test_fork_keeps_both_continuations(self, make_llama, name, unified):
        llama = make_llama(name, n_seq_max=2, n_ctx=512, kv_unified=unified)
        fresh = make_llama(name)
        llama(CAT, max_tokens=0)
        n = llama.fork()
        assert n == len(CAT)
        first, second = [*CAT, *DOG], [*CAT, 270, 271, *DOG]
        assert cached(llama, first, fresh) == n
        assert cached(llama, second, fresh) == n
        assert cached(llama, [*first, 272], fresh) == len(first)
        assert cached(llama, [*second, 272], fresh) == len(second)

    @pytest.mark.parametrize("name", KINDS)
    @pytest.mark.parametrize("unified", [True, False])
    def test_state_is_saved_and_loaded_right_after_a_fork(self, make_llama, name, unified):
        llama = make_llama(name, n_seq_max=2, n_ctx=512, kv_unified=unified)
        fresh = make_llama(name)
        llama(DOG, max_tokens=0)
        state = llama.save_state()
        llama(CAT, max_tokens=0)
        llama.fork()
        assert llama.save_state().prefix.tokens.tolist() == CAT
        llama.load_state(state)
        assert cached(llama, [*CAT, 270], fresh) == len(CAT)
        assert cached(llama, [*DOG, 270], fresh) == len(DOG)

    @pytest.mark.parametrize("unified", [True, False])
    def test_fork_of_nothing_leaves_what_others_hold(self, make_llama, monkeypatch, unified):
        llama = make_llama(n_seq_max=2, n_ctx=512, kv_unified=unified)
        fresh = make_llama()
        llama(CAT, max_tokens=0)
        llama(DOG, max_tokens=0)

        def interrupt():
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(llama._engine.slots, "_heed_cancellation", interrupt)  # before its prompt is computed
            result = llama([286, 285, 284], max_tokens=1)
        assert result["choices"][0]["finish_reason"] == "abort"
        assert llama.fork() == 0
        assert cached(llama, [*DOG, 270], fresh) == len(DOG)

    def test_fork_without_a_second_sequence_raises(self, make_llama):
        llama = make_llama()
        llama(CAT, max_tokens=1)
        with pytest.raises(MemoryOperationError, match="n_seq_max=2"):
            llama.fork()


class TestStates:
    @pytest.mark.parametrize("name", KINDS)
    @pytest.mark.parametrize("form", ["object", "bytes", "file"])
    def test_saved_state_goes_on_in_another_llama(self, make_llama, tmp_path, name, form):
        first, second, fresh = (make_llama(name) for _ in range(3))
        tokens = turn(first, CAT, " and so on")
        state = first.save_state()
        if form == "bytes":
            state = bytes(state)
        elif form == "file":
            state.save(tmp_path / "state")
            state = tmp_path / "state"
        second(DOG, max_tokens=2)
        second.load_state(state)
        assert cached(second, tokens, fresh) == len(CAT) + 3
        assert cached(first, tokens, fresh) == len(CAT) + 3

    def test_empty_context_has_nothing_to_save(self, make_llama, tmp_path):
        llama = make_llama()
        for call in (llama.save_state, lambda: llama.save_session(tmp_path / "session")):
            with pytest.raises(StateError, match="nothing to save"):
                call()
        assert list(tmp_path.iterdir()) == []

    def test_state_of_another_model_is_refused_and_nothing_is_changed(self, make_llama):
        llama, other = make_llama(), make_llama("mamba")
        other(CAT, max_tokens=1)
        tokens = turn(llama, CAT, " and so on")
        before = llama.context.state.get()
        with pytest.raises(IncompatibleCheckpointError, match="architecture"):
            llama.load_state(other.save_state())
        assert llama.context.state.get() == before
        assert cached(llama, tokens, make_llama()) == len(CAT) + 3

    @pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:10], lambda _: b"", lambda b: b + b"x",
                                        lambda b: b[:-9] + bytes([b[-9] ^ 1]) + b[-8:]])  # fmt: skip
    def test_damaged_bytes_are_refused(self, make_llama, damage):
        llama = make_llama()
        llama(CAT, max_tokens=1)
        before = llama.context.state.get()
        with pytest.raises(CorruptCheckpointError):
            llama.load_state(damage(bytes(llama.save_state())))
        assert llama.context.state.get() == before

    @pytest.mark.parametrize(("wrong", "error"), [(None, TypeError), (5, TypeError), ("no-such-file", OSError)])
    def test_what_is_no_state_raises(self, make_llama, wrong, error):
        with pytest.raises(error):
            make_llama().load_state(wrong)

    @pytest.mark.parametrize("name", KINDS)
    def test_session_file_goes_on(self, make_llama, tmp_path, name):
        first, second = make_llama(name), make_llama(name)
        tokens = turn(first, CAT, " and so on")
        first.save_session(tmp_path / "session")
        assert second.load_session(tmp_path / "session") == len(CAT) + 3
        assert cached(second, tokens, make_llama(name)) == len(CAT) + 3

    def test_session_with_other_tokens_than_cells_is_refused_and_the_sequence_empty(self, make_llama, tmp_path):
        llama = make_llama()
        llama(CAT, max_tokens=1)
        llama.context.state.seq_save_file(tmp_path / "session", 0, CAT[:3])
        with pytest.raises(StateError, match="3 tokens"):
            llama.load_session(tmp_path / "session")
        assert llama.context.memory.seq_pos_max(0) == -1
        assert cached(llama, CAT, make_llama()) == 0

    def test_file_that_is_not_there_is_told_alike_and_nothing_is_changed(self, make_llama, tmp_path):
        llama = make_llama()
        llama(CAT, max_tokens=1)
        for load in (llama.load_state, llama.load_session):
            with pytest.raises(FileNotFoundError) as raised:
                load(tmp_path / "nowhere")
            assert raised.value.filename == str(tmp_path / "nowhere")
        assert cached(llama, CAT, make_llama()) == len(CAT) - 1

    def test_session_that_is_none_is_refused_and_nothing_is_changed(self, make_llama, tmp_path):
        llama = make_llama()
        llama(CAT, max_tokens=1)
        (tmp_path / "session").write_bytes(b"no session")
        with pytest.raises(StateError):
            llama.load_session(tmp_path / "session")
        assert cached(llama, CAT, make_llama()) == len(CAT) - 1

    def test_loading_takes_the_place_of_what_was_used_least(self, make_llama):
        llama, fresh = make_llama(n_seq_max=2), make_llama()
        llama(CAT, max_tokens=0)
        state = llama.save_state()
        llama([*DOG, *CAT], max_tokens=0)
        llama(DOG, max_tokens=0)  # goes on in the one that has more of it
        llama.load_state(state)
        assert cached(llama, [*DOG, 270], fresh) == len(DOG)
        assert cached(llama, [*CAT, 270], fresh) == len(CAT)

    def test_while_another_thread_reads_a_stream_all_raise(self, make_llama, tmp_path):
        llama = make_llama(n_seq_max=2)
        llama(CAT, max_tokens=1)
        state = llama.save_state()
        ready, done = threading.Event(), threading.Event()

        def read():
            stream = llama(CAT, max_tokens=8, temperature=0, stream=True, ignore_eos=True)
            next(stream)
            ready.set()
            done.wait(60)
            stream.close()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert ready.wait(60)
            for call in (
                llama.save_state,
                lambda: llama.load_state(state),
                llama.fork,
                lambda: llama.set_cache(None),
                lambda: llama.save_session(tmp_path / "session"),
                lambda: llama.load_session(tmp_path / "session"),
            ):
                with pytest.raises(ConcurrentUseError):
                    call()
        finally:
            done.set()
            reader.join()
        llama.load_state(state)

    def test_closed_llama_raises(self, make_llama):
        llama = make_llama(cache=1 << 20)
        llama(CAT, max_tokens=1)
        state = llama.save_state()
        llama.close()
        for call in (llama.save_state, lambda: llama.load_state(state), llama.fork, lambda: llama.set_cache(None)):
            with pytest.raises(ClosedError):
                call()


@pytest.mark.parametrize("made", [False, True])
def test_cache_is_pickled_by_what_it_was_made_with(make_llama, tmp_path, closing, made):
    llama = make_llama(cache=DiskStore(tmp_path, 1 << 24) if made else tmp_path)
    turn(llama, CAT, " and so on")
    again = closing(pickle.loads(pickle.dumps(llama)))
    assert again.cache.directory == tmp_path
    assert again.cache.capacity_bytes == llama.cache.capacity_bytes
    assert len(again.cache) == 1
    empty = pickle.loads(pickle.dumps(RamStore(1 << 20)))
    assert (len(empty), empty.capacity_bytes) == (0, 1 << 20)


def test_reading_the_model_file_is_counted_apart(make_llama, monkeypatch, cache):
    from llamacy.checkpoint import fingerprint
    from llamacy.generate import cache as counted

    now = [0.0]
    identity = fingerprint._file_identity

    def slow_identity(path):
        now[0] += 100
        return identity(path)

    monkeypatch.setattr(fingerprint, "_file_identity", slow_identity)
    monkeypatch.setattr(counted.time, "perf_counter", lambda: now[0])
    llama = make_llama(cache=cache)
    for tokens in (CAT, DOG, CAT):
        list(llama.generate(tokens, max_tokens=2, temperature=0))
        stats = llama.stats
        assert (stats.identify_s, stats.restore_s, stats.store_s, stats.n_failed) == (100, 0, 0, 0)
    assert stats.store.n_stored > 0


def test_first_request_loads_no_numpy():
    code = f"""
        import sys
        from llamacy import Llama
        llama = Llama({str(data("llama.gguf"))!r}, n_ctx=64, n_threads=1, n_threads_batch=1, cache=1 << 20)
        before = set(sys.modules)
        list(llama.generate([1, 2, 3], max_tokens=2))
        print([name for name in set(sys.modules) - before if name.partition(".")[0] == "numpy"])
    """
    assert run_python(textwrap.dedent(code)).stdout == "[]\n"
