"""Contexts that share what they compute with: one thread at a time, or a typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.batch_ext import ExtendedBatch
from llamacy.core.process import process
from llamacy.core.threadpool import ThreadPool
from llamacy.errors import ConcurrentUseError, InUseError, MemorySlotError
from tests.core.test_adapter import EXACT
from tests.helpers import data
from tests.helpers.process import run_python
from tests.helpers.threads import held_in_process

TOKENS = [1, 270, 265, 272, 272, 275]


def decode(context: Any) -> np.ndarray:
    context.memory.clear()
    with Batch(len(TOKENS)) as batch:
        batch.extend(TOKENS, 0)
        context.decode(batch)
    return np.array(context.logits(-1))


def one_token(batch: ExtendedBatch) -> None:
    """Add a token, and the hidden state that a draft head wants; it is no output."""
    index = batch.add_token(0, 261)
    if batch.context.ctx_other is not None:
        batch.set_embd_state(index, np.ones(batch.context.n_embd_out, np.float32))


@pytest.mark.parametrize("n_other", [1, 2])
def test_pool_that_computes_for_another_context_is_refused(
    make_model: Callable[..., Any], make_context: Callable[..., Any], closing: Callable[..., Any], n_other: int
) -> None:
    # ggml keeps one graph a pool: a second one at the same time overwrites what its threads are working on
    model = make_model("llama.gguf")
    busy = make_context(model, embeddings=True, **EXACT)
    idle = make_context(model, **EXACT)
    expected = decode(idle)
    pool = closing(ThreadPool(1))
    busy.attach_threadpool(pool)
    idle.attach_threadpool(pool, *[closing(ThreadPool(1)) for _ in range(n_other - 1)])
    with ExtendedBatch(busy) as batch:
        one_token(batch)
        with held_in_process(batch):
            for _ in range(2):  # the refusal doesn't leave the context taken
                with pytest.raises(ConcurrentUseError, match="thread pool computes"):
                    decode(idle)
            with ExtendedBatch(idle) as other:
                one_token(other)
                with pytest.raises(ConcurrentUseError, match="thread pool computes"):
                    process(other)
            assert idle.memory.seq_pos_max(0) == -1
    np.testing.assert_array_equal(decode(idle), expected)
    busy.close()
    idle.close()


def test_pool_for_batches_that_computes_for_another_context_is_refused_and_the_first_one_stays_free(
    make_model: Callable[..., Any], make_context: Callable[..., Any], closing: Callable[..., Any]
) -> None:
    model = make_model("llama.gguf")
    busy, idle, third = make_context(model, embeddings=True, **EXACT), make_context(model), make_context(model)
    expected = decode(third)
    pool, shared = closing(ThreadPool(1)), closing(ThreadPool(1))
    busy.attach_threadpool(closing(ThreadPool(1)), shared)
    idle.attach_threadpool(pool, shared)
    third.attach_threadpool(pool)
    with ExtendedBatch(busy) as batch:
        one_token(batch)
        with held_in_process(batch):
            with pytest.raises(ConcurrentUseError, match="thread pool for batches computes"):
                decode(idle)
            np.testing.assert_array_equal(decode(third), expected)
            # detached from what is busy, the context goes on
            idle.detach_threadpool()
            np.testing.assert_array_equal(decode(idle), expected)
    for context in (busy, idle, third):
        context.close()


def test_context_is_refused_while_the_one_that_it_reads_from_runs(
    make_model: Callable[..., Any], make_context: Callable[..., Any]
) -> None:
    model = make_model("qwen35_mtp.gguf", load_mtp=True)
    target = make_context(model, embeddings=True, **EXACT)
    head = make_context(model, ctx_type="MTP", ctx_other=target, **EXACT)
    with ExtendedBatch(target) as batch, ExtendedBatch(head) as other:
        one_token(batch)
        one_token(other)
        with held_in_process(batch):
            for _ in range(2):  # the refusal doesn't leave the context taken
                with pytest.raises(ConcurrentUseError, match="ctx_other"):
                    process(other)
            assert head.memory.seq_pos_max(0) == -1
        process(other)
        assert (target.memory.seq_pos_max(0), head.memory.seq_pos_max(0)) == (0, 0)


def test_context_is_refused_while_one_that_reads_from_it_runs(
    make_model: Callable[..., Any], make_context: Callable[..., Any]
) -> None:
    model = make_model("qwen35_mtp.gguf", load_mtp=True)
    target = make_context(model, **EXACT)
    head = make_context(model, ctx_type="MTP", ctx_other=target, **EXACT)
    with ExtendedBatch(head) as batch, ExtendedBatch(target) as other:
        for _ in range(head.n_ctx):
            one_token(batch)
        one_token(other)
        process(batch)  # after which the memory is full, and llama.cpp says so
        with held_in_process(batch, "find a memory slot", MemorySlotError):
            for use in (lambda: process(other), lambda: target.memory.clear(), lambda: target.logits(-1)):
                with pytest.raises(ConcurrentUseError):
                    use()
            with pytest.raises(InUseError):
                target.close()
        assert not target.closed
        process(other)
        assert target.memory.seq_pos_max(0) == 0


@pytest.mark.parametrize("n_other", [0, 1])
def test_pool_that_was_detached_is_not_paused_while_it_computes(
    make_model: Callable[..., Any], make_context: Callable[..., Any], closing: Callable[..., Any], n_other: int
) -> None:
    # llama.cpp pauses a pool in the decode after it was detached; a graph whose threads are paused then never ends
    model = make_model("llama.gguf")
    busy, idle = make_context(model, embeddings=True, **EXACT), make_context(model, **EXACT)
    expected = decode(idle)
    pool = closing(ThreadPool(1))
    idle.attach_threadpool(*[closing(ThreadPool(1)) for _ in range(n_other)], pool)
    decode(idle)
    idle.detach_threadpool()
    busy.attach_threadpool(pool)
    with ExtendedBatch(busy) as batch:
        one_token(batch)
        with held_in_process(batch):
            for _ in range(2):  # the refusal doesn't leave the context taken
                with pytest.raises(ConcurrentUseError, match="was detached computes"):
                    decode(idle)
        np.testing.assert_array_equal(decode(idle), expected)
        batch.clear()
        one_token(batch)
        with held_in_process(batch):
            np.testing.assert_array_equal(decode(idle), expected)
    busy.close()
    idle.close()


_POOLS_AT_RANDOM = """
import random, sys, threading
from llamacy.core._handle import live_handles
from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.core.threadpool import ThreadPool
from llamacy.errors import ClosedError, ConcurrentUseError, InUseError, InvalidBatchError

model = Model(sys.argv[1])
contexts = [Context(model, n_ctx=64, n_threads=1, n_threads_batch=1) for _ in range(2)]
pools = [ThreadPool(2) for _ in range(3)]
errors = []

def decode(context):
    with Batch(2) as batch:
        batch.extend([1, 2], 0)
        context.memory.clear()
        context.decode(batch)

def work(seed):
    chance = random.Random(seed)
    for _ in range(4000):
        context, pool, other = chance.choice(contexts), chance.choice(pools), chance.choice(pools)
        try:
            chance.choice([
                lambda: decode(context),
                lambda: decode(context),
                lambda: context.attach_threadpool(pool),
                lambda: context.attach_threadpool(pool, other),
                context.detach_threadpool,
                lambda: context.set_n_threads(chance.randint(1, 2)),
                pool.close,
                lambda: pools.__setitem__(chance.randrange(3), ThreadPool(chance.randint(1, 2))),
            ])()
        except (ClosedError, ConcurrentUseError, InUseError):
            pass
        except (InvalidBatchError, ValueError):  # another thread cleared the memory, or the pool has too few threads
            pass
        except BaseException as error:
            errors.append(error)

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
for one in [*contexts, *pools]:
    one.close()
assert live_handles()["threadpool"] == 0, live_handles()
"""


def test_pools_that_threads_attach_detach_and_close_at_random_neither_crash_nor_hang() -> None:
    run_python(_POOLS_AT_RANDOM, str(data("llama.gguf")), timeout=120)
