# distutils: language = c++
"""Samplers that run on the backend, attached to a context."""

from libcpp cimport bool as cbool

from llamacy.core._status cimport native_error
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_acquire, context_forget_outputs, context_release
from llamacy.core.log cimport log_begin
from llamacy.core.sampler cimport SamplerChain, chain_attached, chain_check_attach, chain_detached
from llamacy.core.sampler_base cimport sampler_handle
from llamacy.native cimport llama as c_llama

from llamacy.errors import SamplerError

__all__ = ["attach", "detach"]


def attach(Context context not None, int seq_id, SamplerChain chain not None):
    """Attach a chain to a sequence of a context; see `Context.attach_sampler`."""
    cdef cbool taken
    context_acquire(context)
    try:
        chain_check_attach(chain, context.n_vocab)
        sampler = sampler_handle(chain)
        if context._n_row_exports or context._n_other_exports:
            raise BufferError("attaching a sampler moves the output buffer; release the views of it first")
        chain_attached(chain, context, seq_id)  # also when it fails: llama.cpp may have set it up in part
        log_begin()
        try:
            with nogil:
                taken = c_llama.llama_set_sampler(context._ptr, seq_id, sampler)
        except RuntimeError as error:
            chain_detached(chain)
            raise native_error(SamplerError, f"the chain can't be attached: {error}") from None
        if not taken:
            chain_detached(chain)
            raise native_error(SamplerError, f"llama.cpp refuses to attach {chain!r}")
        if seq_id in context._samplers:
            chain_detached(context._samplers[seq_id])
        context._samplers[seq_id] = chain
        context._n_samplers = len(context._samplers)
        context_forget_outputs(context)
    finally:
        context_release(context)


def detach(Context context not None, int seq_id):
    """Detach the chain of a sequence; see `Context.detach_sampler`."""
    context_acquire(context)
    try:
        if seq_id in context._samplers:
            with nogil:
                c_llama.llama_set_sampler(context._ptr, seq_id, NULL)
            chain_detached(context._samplers.pop(seq_id))
            context._n_samplers = len(context._samplers)
            context_forget_outputs(context)
    finally:
        context_release(context)
