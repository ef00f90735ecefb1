# distutils: language = c++
"""Performance counters and memory use, as llama.cpp keeps them."""

from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_acquire, context_release
from llamacy.core.sampler cimport SamplerChain
from llamacy.core.sampler_base cimport sampler_acquire, sampler_release
from llamacy.native cimport ggml_backend as c_backend
from llamacy.native cimport llama as c_llama
from llamacy.native cimport llama_ext as c_ext

from typing import NamedTuple

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
    """Counters of a context; all times stay 0 unless it was created with ``no_perf=False``.

    Attributes
    ----------
    t_start_ms : float
        When the counters began, on a clock with an arbitrary zero.
    t_load_ms : float
        Time that loading the model took.
    t_p_eval_ms, n_p_eval : float, int
        Time and tokens of decodes with several tokens: prompts. llama.cpp reports at least 1 token.
    t_eval_ms, n_eval : float, int
        Time and tokens of decodes with one token. llama.cpp reports at least 1 token.
    n_reused : int
        Graphs that were used again.
    """

    t_start_ms: float
    t_load_ms: float
    t_p_eval_ms: float
    t_eval_ms: float
    n_p_eval: int
    n_eval: int
    n_reused: int


class PerfSampler(NamedTuple):
    """Counters of a sampler chain; they stay 0 unless it was created with ``no_perf=False``.

    Attributes
    ----------
    t_sample_ms : float
        Time that sampling took.
    n_sample : int
        Tokens that were sampled.
    """

    t_sample_ms: float
    n_sample: int


class MemoryUse(NamedTuple):
    """Bytes in buffers of one type.

    Attributes
    ----------
    device : str or None
        Name of the device that the memory belongs to.
    model_bytes : int
        Weights.
    context_bytes : int
        Memory of the context: K/V cache and recurrent state.
    compute_bytes : int
        Scratch memory of the computation.
    """

    device: str | None
    model_bytes: int
    context_bytes: int
    compute_bytes: int

    @property
    def total_bytes(self):
        """All three together."""
        return self.model_bytes + self.context_bytes + self.compute_bytes


def perf_context(Context context not None):
    """Return the counters of a context as `PerfContext`.

    Source: ``llama_perf_context``.
    """
    cdef c_llama.llama_perf_context_data data
    context_acquire(context)
    data = c_llama.llama_perf_context(context._ptr)
    context_release(context)
    return PerfContext(
        t_start_ms=data.t_start_ms,
        t_load_ms=data.t_load_ms,
        t_p_eval_ms=data.t_p_eval_ms,
        t_eval_ms=data.t_eval_ms,
        n_p_eval=data.n_p_eval,
        n_eval=data.n_eval,
        n_reused=data.n_reused,
    )


def perf_context_reset(Context context not None):
    """Set the counters of a context to 0.

    Source: ``llama_perf_context_reset``.
    """
    context_acquire(context)
    c_llama.llama_perf_context_reset(context._ptr)
    context_release(context)


def perf_sampler(SamplerChain chain not None):
    """Return the counters of a chain as `PerfSampler`.

    Source: ``llama_perf_sampler``.
    """
    cdef c_llama.llama_perf_sampler_data data
    sampler_acquire(chain)
    data = c_llama.llama_perf_sampler(chain._ptr)
    sampler_release(chain)
    return PerfSampler(t_sample_ms=data.t_sample_ms, n_sample=data.n_sample)


def perf_sampler_reset(SamplerChain chain not None):
    """Set the counters of a chain to 0.

    Source: ``llama_perf_sampler_reset``.
    """
    sampler_acquire(chain)
    c_llama.llama_perf_sampler_reset(chain._ptr)
    sampler_release(chain)


def memory_breakdown(Context context not None):
    """Return what a context and its model use, by buffer type.

    Returns
    -------
    dict of str to MemoryUse
        Keys are names of buffer types: ``"CPU"``, ``"CPU_Mapped"``, ``"CUDA0"``, …

    Source: ``llama_get_memory_breakdown``.
    """
    cdef c_ext.llama_memory_breakdown breakdown
    cdef c_backend.ggml_backend_dev_t device
    context_acquire(context)
    try:
        breakdown = c_ext.llama_get_memory_breakdown(context._ptr)
    finally:
        context_release(context)
    uses = {}
    for entry in breakdown:
        device = c_backend.ggml_backend_buft_get_device(entry.first)
        name = c_backend.ggml_backend_buft_name(entry.first).decode("utf-8", "replace")
        before = uses.get(name, MemoryUse(None, 0, 0, 0))
        uses[name] = MemoryUse(
            device=before.device if device == NULL else c_backend.ggml_backend_dev_name(device).decode(),
            model_bytes=before.model_bytes + entry.second.model,
            context_bytes=before.context_bytes + entry.second.context,
            compute_bytes=before.compute_bytes + entry.second.compute,
        )
    return uses
