"""Samplers and threads: one thread at a time, or a typed error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.custom_sampler import CustomSampler
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import ConcurrentUseError


class Waiting(CustomSampler):
    """Holds its chain until it is told to go on."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def apply(self, candidates: Candidates) -> None:  # noqa: ARG002
        self.entered.set()
        assert self.go_on.wait(30)


def test_second_thread_on_a_busy_chain_is_refused() -> None:
    waiting = Waiting()
    with SamplerChain([waiting, Sampler.greedy()]) as chain, ThreadPoolExecutor(1) as pool:
        candidates = Candidates([1.0, 2.0])
        future = pool.submit(chain.apply, candidates)
        assert waiting.entered.wait(30)
        uses: list[Callable[[], Any]] = [
            lambda: chain.apply(Candidates([1.0])),
            lambda: chain.accept(1),
            lambda: chain.allows(1),
            chain.reset,
            chain.clone,
            chain.close,
            lambda: chain.remove(0),
            lambda: chain.add(Sampler.top_k(1)),
            lambda: SamplerChain().add(chain),
        ]
        for use in uses:
            with pytest.raises(ConcurrentUseError, match="at work"):
                use()
        # the candidates are taken, too
        with Sampler.top_k(1) as other, pytest.raises(ConcurrentUseError, match="candidates"):
            other.apply(candidates)
        with pytest.raises(ConcurrentUseError, match="candidates"):
            candidates.fill([1.0])
        waiting.go_on.set()
        future.result(30)
        assert candidates.token == 1
        chain.reset()


def test_many_threads_on_one_chain_never_mix() -> None:
    logits = np.random.default_rng(0).normal(size=20000).astype(np.float32)
    refused = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal refused
        for _ in range(50):
            candidates = Candidates(logits)
            try:
                chain.apply(candidates)
            except ConcurrentUseError:
                with lock:
                    refused += 1
            else:
                assert candidates.token == int(logits.argmax())
                assert len(candidates) == 300

    with SamplerChain([Sampler.top_k(300), Sampler.greedy()]) as chain, ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work) for _ in range(4)]:
            future.result(60)


def test_clone_in_each_thread_draws_the_same() -> None:
    logits = np.random.default_rng(0).normal(size=5000).astype(np.float32)

    def work(chain: SamplerChain) -> list[int | None]:
        found = []
        for _ in range(100):
            candidates = Candidates(logits)
            chain.apply(candidates)
            found.append(candidates.token)
        chain.close()
        return found

    with SamplerChain([Sampler.top_p(0.9), Sampler.dist(3)]) as chain, ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, [chain.clone() for _ in range(4)]))
    assert all(result == results[0] for result in results)


def test_threads_create_and_drop_samplers(target_model: Any) -> None:
    def work(seed: int) -> None:
        for i in range(60):
            chain = SamplerChain([Sampler.grammar(target_model.vocab, 'root ::= "a"+'), Sampler.dist(seed + i)])
            candidates = Candidates(np.zeros(288))
            chain.apply(candidates)
            chain.accept(candidates.token or 0)
            chain.clone()

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, 100 * n) for n in range(4)]:
            future.result(60)
