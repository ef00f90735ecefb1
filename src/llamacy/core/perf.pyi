from typing import NamedTuple

from llamacy.core.context import Context
from llamacy.core.sampler import SamplerChain

__all__ = [
    "MemoryUse",
    "PerfContext",
    "PerfSampler",
    "memory_breakdown",
    "perf_context",
    "perf_context_reset",
    "perf_sampler",
    "perf_sampler_reset",
]

class PerfContext(NamedTuple):
    t_start_ms: float
    t_load_ms: float
    t_p_eval_ms: float
    t_eval_ms: float
    n_p_eval: int
    n_eval: int
    n_reused: int

class PerfSampler(NamedTuple):
    t_sample_ms: float
    n_sample: int

class MemoryUse(NamedTuple):
    device: str | None
    model_bytes: int
    context_bytes: int
    compute_bytes: int
    @property
    def total_bytes(self) -> int: ...

def perf_context(context: Context) -> PerfContext: ...
def perf_context_reset(context: Context) -> None: ...
def perf_sampler(chain: SamplerChain) -> PerfSampler: ...
def perf_sampler_reset(chain: SamplerChain) -> None: ...
def memory_breakdown(context: Context) -> dict[str, MemoryUse]: ...
