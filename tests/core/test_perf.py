"""Performance counters and memory use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llamacy.core.batch import Batch
from llamacy.core.perf import (
    MemoryUse,
    PerfContext,
    PerfSampler,
    memory_breakdown,
    perf_context,
    perf_context_reset,
    perf_sampler,
    perf_sampler_reset,
)
from llamacy.core.sampler import SamplerChain
from llamacy.core.samplers import Sampler
from llamacy.errors import ClosedError
from tests.core.test_adapter import EXACT, TOKENS


@pytest.fixture
def make(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> Callable[..., Any]:
    def make(**params: Any) -> Any:
        return make_context(make_model("llama.gguf"), **(EXACT | params))

    return make


def decode(context: Any, tokens: list[int], pos: int) -> None:
    with Batch(len(tokens)) as batch:
        batch.extend(tokens, pos)
        context.decode(batch)
    # llama.cpp adds up when the results are asked for
    context.synchronize()


def test_counters_of_context_count_prompt_and_single_tokens(make: Callable[..., Any]) -> None:
    context = make(no_perf=False)
    decode(context, TOKENS, 0)
    for i in range(3):
        decode(context, [5], len(TOKENS) + i)
    perf = perf_context(context)
    assert isinstance(perf, PerfContext)
    assert (perf.n_p_eval, perf.n_eval) == (len(TOKENS), 3)
    assert perf.t_p_eval_ms > 0
    assert perf.t_eval_ms > 0
    assert perf.t_load_ms >= 0
    assert 0 <= perf.n_reused <= 3


def test_counters_of_context_are_zero_after_reset(make: Callable[..., Any]) -> None:
    context = make(no_perf=False)
    decode(context, TOKENS, 0)
    started = perf_context(context).t_start_ms
    perf_context_reset(context)
    perf = perf_context(context)
    # the counts are never below 1
    assert (perf.t_p_eval_ms, perf.t_eval_ms, perf.n_p_eval, perf.n_eval, perf.n_reused) == (0, 0, 1, 1, 0)
    assert perf.t_start_ms >= started


def test_counters_of_context_stay_zero_unless_asked_for(make: Callable[..., Any]) -> None:
    context = make()
    decode(context, TOKENS, 0)
    perf = perf_context(context)
    assert (perf.t_p_eval_ms, perf.t_eval_ms) == (0, 0)


def test_counters_of_chain_count_samples_until_reset(make: Callable[..., Any]) -> None:
    context = make()
    decode(context, TOKENS, 0)
    with SamplerChain([Sampler.greedy()], no_perf=False) as chain:
        assert perf_sampler(chain) == PerfSampler(t_sample_ms=0.0, n_sample=0)
        for _ in range(4):
            chain.sample(context, -1)
        perf = perf_sampler(chain)
        assert perf.n_sample == 4
        assert perf.t_sample_ms >= 0
        perf_sampler_reset(chain)
        assert perf_sampler(chain) == (0.0, 0)


def test_counters_of_closed_or_other_objects_are_refused(make: Callable[..., Any]) -> None:
    context = make()
    context.close()
    chain = SamplerChain([Sampler.greedy()])
    chain.close()
    for refused in (perf_context, perf_context_reset, memory_breakdown):
        with pytest.raises(ClosedError):
            refused(context)
    for refused in (perf_sampler, perf_sampler_reset):
        with pytest.raises(ClosedError):
            refused(chain)
        # llama.cpp aborts for a sampler that is not a chain
        with Sampler.greedy() as single, pytest.raises(TypeError):
            refused(single)
    for refused in (perf_context, perf_sampler):
        with pytest.raises(TypeError):
            refused(None)


def test_memory_breakdown_adds_up_to_weights_and_cache(make: Callable[..., Any]) -> None:
    context = make()
    uses = memory_breakdown(context)
    assert all(isinstance(name, str) and isinstance(use, MemoryUse) for name, use in uses.items())
    assert sum(use.model_bytes for use in uses.values()) >= context.model.size_bytes
    # 2 layers, K and V, 2 heads of 16 numbers of 4 bytes
    assert sum(use.context_bytes for use in uses.values()) >= 2 * 2 * 2 * 16 * 4 * context.n_ctx
    assert sum(use.compute_bytes for use in uses.values()) > 0
    for use in uses.values():
        assert use.total_bytes == use.model_bytes + use.context_bytes + use.compute_bytes


def test_memory_breakdown_grows_with_context(make: Callable[..., Any]) -> None:
    small, large = (sum(use.context_bytes for use in memory_breakdown(make(n_ctx=n)).values()) for n in (256, 512))
    assert large == 2 * small
