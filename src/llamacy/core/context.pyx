# distutils: language = c++
"""Contexts: the memory and the computation of a model at work."""

cimport cython
from libc.stdlib cimport calloc, free
from libcpp cimport bool as cbool

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._callback cimport has_stashed, raise_stashed
from llamacy.core._children cimport children_add, children_check, children_close, children_remove
from llamacy.core._context_life cimport (
    context_attach_threadpools,
    context_check_create,
    context_check_created,
    context_free,
    context_retire_threadpools,
    context_set_threads,
    context_warm_up,
)
from llamacy.core._handle cimport CONTEXT, handle_opened
from llamacy.core._status cimport native_error
from llamacy.core.batch cimport Batch
from llamacy.core.log cimport log_begin
from llamacy.core.decoding cimport (
    context_acquire,
    context_decode,
    context_encode,
    context_forget_outputs,
    context_handle,
    context_output_bytes,
    context_release,
)
from llamacy.core.memory cimport memory_wrap
from llamacy.core.model cimport Model, model_adopt, model_handle, model_unuse, model_use
from llamacy.core.outputs cimport outputs_wrap
from llamacy.core.params cimport ContextParams, params_make
from llamacy.core.state cimport state_wrap
from llamacy.core.threadpool cimport ThreadPool
from llamacy.native cimport llama as c_llama
from llamacy.native cimport llama_ext as c_ext

from llamacy.core._architectures import DRAFT_ENCODERS, LAYER_INPUTS, LAYER_INPUTS_OF_HEAD, NEXTN_ROWS
from llamacy.core.log import refresh_level
from llamacy.core.params import ContextParams as _ContextParams
from llamacy.errors import ContextCreateError, DecodeFatalError, EncodeError, InUseError, LlamacyError
from llamacy.types import PoolingType

__all__ = ["Context"]

cdef extern from "_clock.h" nogil:
    double llamacy_clock() noexcept


@cython.no_gc_clear
cdef class Context:
    """A model at work: its memory (K/V cache or recurrent state) and its computation.

    Parameters
    ----------
    model : Model
        The model.
    ctx_other : Context, optional
        Context that this one reads from (draft models that share weights or memory with their target).
    **params
        As for `ContextParams`.

    Raises
    ------
    ContextCreateError
        llama.cpp can't create it: the log says why; or the model has no weights.
    TypeError, ValueError
        A parameter is wrong.

    Lifetime: keeps its model alive. Views of its output keep the context alive, and `close` raises `BufferError` while
    one is.
    Thread safety: one call at a time; a second one raises `ConcurrentUseError`. `abort` may be called from any thread.
    Source: ``llama_init_from_model``.
    """

    def __cinit__(self, Model model not None, *, Context ctx_other=None, **params):
        cdef ContextParams checked = params_make(_ContextParams, params, "Context")
        cdef c_llama.llama_context_params c = (<c_llama.llama_context_params*>checked._c)[0]
        cdef c_llama.llama_model* c_model = model_handle(model)
        context_check_create(model, ctx_other, &c)
        self.model = model
        self.params = checked
        self._children = {}
        self._adapters = []
        self._samplers = {}
        self._on_device = {}
        self._observers = []
        self._layer_inputs = frozenset()
        self._other = ctx_other
        c.abort_callback = _on_abort
        c.abort_callback_data = <void*>&self._stop
        if ctx_other is not None:
            context_acquire(ctx_other)
            c.ctx_other = ctx_other._ptr
        refresh_level()
        log_begin()
        model_use(model)
        try:
            with nogil:
                abort_guard_begin()
                try:
                    self._ptr = c_llama.llama_init_from_model(c_model, c)
                finally:
                    abort_guard_end()
        except RuntimeError as error:
            raise native_error(ContextCreateError, f"llama.cpp can't create the context: {error}") from None
        finally:
            model_unuse(model)
            if ctx_other is not None:
                context_release(ctx_other)
        if self._ptr == NULL:
            raise native_error(ContextCreateError, f"llama.cpp can't create a context of {model!r} with {checked!r}")
        handle_opened(CONTEXT)
        model_adopt(model, self)
        if ctx_other is not None:
            context_adopt(ctx_other, self)
        self._memory = c_llama.llama_get_memory(self._ptr)
        self.n_ctx = c_llama.llama_n_ctx(self._ptr)
        self.n_ctx_seq = c_llama.llama_n_ctx_seq(self._ptr)
        self.n_batch = c_llama.llama_n_batch(self._ptr)
        self.n_ubatch = c_llama.llama_n_ubatch(self._ptr)
        self.n_seq_max = c_llama.llama_n_seq_max(self._ptr)
        self.n_rs_seq = c_llama.llama_n_rs_seq(self._ptr)
        self.n_vocab = model.n_vocab
        self.n_embd_out = c_llama.llama_model_n_embd_out(c_model)
        self._n_embd_inp = c_llama.llama_model_n_embd_inp(c_model)
        self._mrope = c_llama.llama_model_rope_type(c_model) in (
            c_llama.LLAMA_ROPE_TYPE_MROPE, c_llama.LLAMA_ROPE_TYPE_IMROPE
        )
        self._n_embd = c_llama.llama_model_n_embd(c_model)
        self._draft_encoder = model.architecture in DRAFT_ENCODERS
        self._has_encoder = c_llama.llama_model_has_encoder(c_model) or self._draft_encoder
        self._encode_first = c_llama.llama_model_has_encoder(c_model) and c_llama.llama_model_has_decoder(c_model)
        self._t5 = model.architecture == "t5"
        self._streams = self.n_seq_max > 1 and not c.kv_unified
        self._native_pools = []
        self._n_outputs_max = c.n_outputs_max or self.n_batch
        self._embeddings = c.embeddings
        self._needs_state = c.ctx_type == c_llama.LLAMA_CONTEXT_TYPE_MTP
        self._causal = c_llama.llama_get_causal_attn(self._ptr)
        self._output_rows = self.n_seq_max
        self._output_capacity = context_output_bytes(self, self.n_seq_max)
        context_check_created(self)
        if self.n_rs_seq:
            self._n_rollback = <int*>calloc(self.n_seq_max, sizeof(int))

    def __dealloc__(self):
        context_free(self)
        free(self._n_rollback)
        free(self._overwritten)

    def _check_closable(self):
        if self._busy:
            raise InUseError("the context is running in another thread; abort() it first")
        children_check(self._children)
        if self._n_row_exports or self._n_other_exports:
            raise BufferError(
                f"{self._n_row_exports + self._n_other_exports} views of the context's output are alive; release them "
                "before closing it"
            )

    def close(self):
        """Free the context, and before it what was made from it.

        Raises
        ------
        InUseError
            It is running in another thread.
        BufferError
            A view of its output is alive.
        """
        if self._ptr != NULL:
            self._check_closable()
            context_acquire(self)  # nobody may begin to run it, or to look at its output, while it is taken apart
            try:
                if self._n_row_exports or self._n_other_exports:
                    raise BufferError("a view of the context's output was taken in another thread")
                children_close(self._children)
                context_free(self)
            finally:
                context_release(self)

    @property
    def closed(self):
        """Whether the context is closed."""
        return self._ptr == NULL

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        if self._ptr == NULL:
            return "<Context closed>"
        return f"<Context of {self.model.description!r} n_ctx={self.n_ctx} n_seq_max={self.n_seq_max}>"

    @property
    def memory(self):
        """The `Memory` of the context, or None for a model without one."""
        context_handle(self)
        return None if self._memory == NULL else memory_wrap(self)

    @property
    def state(self):
        """The `State` of the context: saves and restores its memory, or that of one sequence."""
        context_handle(self)
        return state_wrap(self)

    # computing

    def decode(self, Batch batch not None):
        """Compute a batch and store it in the memory.

        Parameters
        ----------
        batch : Batch
            Tokens or embeddings.

        Raises
        ------
        InvalidBatchError
            The batch breaks a rule; nothing was decoded.
        MemorySlotError
            There is no room; nothing was kept.
        DecodeAbortedError
            `abort` was called; micro-batches that had been finished stay in the memory.
        DecodeFatalError
            llama.cpp failed inside.
        BufferError
            The output buffer would have to move while a view of it is alive; nothing was decoded.
        ConcurrentUseError, ClosedError
            Another thread uses the context, or it is closed.

        Thread safety: releases the GIL.
        Source: ``llama_decode``.
        """
        log_begin()
        try:
            with nogil:
                context_decode(self, batch)
        except LlamacyError:
            raise
        except (IndexError, RuntimeError) as error:
            raise native_error(DecodeFatalError, f"decode failed inside: {error}") from None
        if has_stashed():
            raise_stashed()

    def encode(self, Batch batch not None):
        """Compute a batch with the encoder, or with a model that has no memory.

        Raises
        ------
        EncodeError
            llama.cpp failed.
        InvalidBatchError
            The model has no encoder, or the batch breaks a rule; nothing was computed.

        Thread safety: releases the GIL.
        Source: ``llama_encode``.
        """
        log_begin()
        try:
            with nogil:
                context_encode(self, batch)
        except LlamacyError:
            raise
        except (IndexError, RuntimeError) as error:
            raise native_error(EncodeError, f"encode failed inside: {error}") from None
        if has_stashed():
            raise_stashed()

    def abort(self):
        """Stop the decode that runs now, if one does, from any thread; it raises `DecodeAbortedError`.

        Polled between two graph nodes, on CPU backends only.
        """
        self._stop.abort = 1

    def synchronize(self):
        """Wait until all that was computed is there; only of use for measuring."""
        context_acquire(self)
        with nogil:
            c_llama.llama_synchronize(self._ptr)
        context_release(self)

    def warm_up(self):
        """Run the model once, so that weights and buffers are in place; the memory is cleared.

        Raises
        ------
        InUseError
            The memory is not empty.
        """
        context_warm_up(self)

    # output

    @property
    def outputs(self):
        """The `Outputs` of the last decode: all rows that llama.cpp hands out."""
        context_handle(self)
        return outputs_wrap(self)

    def logits(self, int index=-1):
        """Return the logits of one entry of the last batch; see `Outputs.logits`."""
        return self.outputs.logits(index)

    def embeddings(self, int index=-1):
        """Return the embedding of one entry of the last batch; see `Outputs.embeddings`."""
        return self.outputs.embeddings(index)

    def seq_embeddings(self, int seq_id=0):
        """Return the pooled embedding of a sequence of the last batch; see `Outputs.seq_embeddings`."""
        return self.outputs.seq_embeddings(seq_id)

    # switches

    @property
    def pooling_type(self):
        """`PoolingType` that is in effect."""
        return PoolingType(<int>c_llama.llama_pooling_type(context_handle(self)))

    @property
    def embeddings_enabled(self):
        """Whether decodes produce embeddings; then every token is an output. May be set."""
        return self._embeddings

    @embeddings_enabled.setter
    def embeddings_enabled(self, bint value):
        context_acquire(self)
        c_llama.llama_set_embeddings(self._ptr, value)
        self._embeddings = value
        context_forget_outputs(self)
        context_release(self)

    @property
    def causal_attn(self):
        """Whether tokens attend to earlier ones only. May be set."""
        return self._causal

    @causal_attn.setter
    def causal_attn(self, bint value):
        context_acquire(self)
        c_llama.llama_set_causal_attn(self._ptr, value)
        self._causal = value
        context_release(self)

    def set_embeddings_nextn(self, bint value, *, bint masked=True):
        """Produce the rows that multi-token prediction reads, of the outputs (`masked`) or of all tokens.

        Raises
        ------
        ContextCreateError
            The architecture has no such rows.

        Source: ``llama_set_embeddings_nextn``.
        """
        if value and self.model.architecture not in NEXTN_ROWS:
            raise ContextCreateError(f"models of the architecture {self.model.architecture!r} have no nextn rows")
        context_acquire(self)
        c_ext.llama_set_embeddings_nextn(self._ptr, value, masked)
        self._nextn = value
        self._nextn_masked = masked
        context_forget_outputs(self)
        context_release(self)

    def set_embeddings_layer_inp(self, int layer, bint value=True):
        """Produce the inputs of a layer; the layer after the last, where it has inputs, is the output head.

        Raises
        ------
        ContextCreateError
            The architecture does not publish them.
        ValueError
            There is no such layer.

        Source: ``llama_set_embeddings_layer_inp``.
        """
        n_layer = self.model.n_layer
        if not 0 <= layer <= n_layer:
            raise ValueError(f"layer must be from 0 to {n_layer}, not {layer}")
        if value and self.model.architecture not in LAYER_INPUTS:
            raise ContextCreateError(
                f"models of the architecture {self.model.architecture!r} don't publish the inputs of their layers"
            )
        if value and layer == n_layer and self.model.architecture not in LAYER_INPUTS_OF_HEAD:
            raise ContextCreateError(
                f"models of the architecture {self.model.architecture!r} don't publish the input of their output head; "
                f"the last layer is {n_layer - 1}"
            )
        context_acquire(self)
        c_ext.llama_set_embeddings_layer_inp(self._ptr, layer, value)
        self._layer_inputs = self._layer_inputs | {layer} if value else self._layer_inputs - {layer}
        self._n_layer_inputs = len(self._layer_inputs)
        context_forget_outputs(self)
        context_release(self)

    def set_nextn_layer_offset(self, int offset):
        """Select which multi-token-prediction layer the next decodes run, counted from the first.

        Raises
        ------
        ValueError
            There is no such layer.

        Source: ``llama_set_nextn_layer_offset``.
        """
        n = self.model.n_layer_nextn
        if not 0 <= offset < max(n, 1):
            raise ValueError(f"offset must be from 0 to {max(n, 1) - 1}, not {offset}")
        context_acquire(self)
        c_ext.llama_set_nextn_layer_offset(self._ptr, offset)
        context_release(self)

    @property
    def ctx_other(self):
        """Context that this one reads from, or None."""
        return self._other

    # threads

    @property
    def n_threads(self):
        """Threads for one token."""
        return c_llama.llama_n_threads(context_handle(self))

    @property
    def n_threads_batch(self):
        """Threads for many tokens."""
        return c_llama.llama_n_threads_batch(context_handle(self))

    def set_n_threads(self, n_threads, n_threads_batch=None):
        """Set the threads for one token and for many (the same number by default).

        Raises
        ------
        TypeError, ValueError
            A number is no int, not from 1 to 512, or more than an attached pool has.
        """
        context_set_threads(self, n_threads, n_threads if n_threads_batch is None else n_threads_batch)

    def attach_threadpool(self, ThreadPool pool not None, ThreadPool pool_batch=None):
        """Compute with these thread pools; they are kept alive until they are detached.

        Parameters
        ----------
        pool : ThreadPool
            For one token, and for many when `pool_batch` is not given.
        pool_batch : ThreadPool, optional
            For many tokens.

        Raises
        ------
        ValueError
            A pool has fewer threads than the context computes with; nothing was changed.

        Source: ``llama_attach_threadpool``.
        """
        if pool_batch is None:
            pool_batch = pool
        context_attach_threadpools(self, pool, pool_batch)

    def detach_threadpool(self):
        """Go back to the thread pool that llama.cpp makes by itself.

        Source: ``llama_detach_threadpool``.
        """
        context_acquire(self)
        c_llama.llama_detach_threadpool(self._ptr)
        context_retire_threadpools(self)
        context_release(self)

    # adapters

    def set_adapters_lora(self, adapters):
        """Use these pairs of `LoraAdapter` and scale, and no other adapters, from the next decode on; keeps them alive.

        Raises
        ------
        AdapterError
            An adapter is of another model, or a scale is not finite; nothing was changed.

        Source: ``llama_set_adapters_lora``.
        """
        from llamacy.core.adapter import adapters_set

        adapters_set(self, adapters)

    @property
    def adapters_lora(self):
        """LoRA adapters in use and their scales, as a tuple of pairs."""
        return tuple(self._adapters)

    def set_adapter_cvec(self, vector):
        """Use this `ControlVector` from the next decode on, or none.

        Raises
        ------
        AdapterError
            It does not fit the model; nothing was changed.

        Source: ``llama_set_adapter_cvec``.
        """
        from llamacy.core.control_vector import control_vector_set

        control_vector_set(self, vector)

    @property
    def adapter_cvec(self):
        """`ControlVector` in use, or None."""
        return self._control_vector

    # measuring

    def perf(self):
        """Return the `PerfContext` counters; they stay 0 unless the context was made with ``no_perf=False``."""
        from llamacy.core.perf import perf_context

        return perf_context(self)

    def perf_reset(self):
        """Count from 0 again."""
        from llamacy.core.perf import perf_context_reset

        perf_context_reset(self)

    def memory_breakdown(self):
        """Return bytes of memory by buffer type, as a dict of str to `MemoryUse`."""
        from llamacy.core.perf import memory_breakdown

        return memory_breakdown(self)

    # samplers that run on the backend

    def attach_sampler(self, int seq_id, chain):
        """Let the backend run what it can of a `SamplerChain` for a sequence; `SamplerChain.sample` runs the rest.

        The chain is kept alive until it is detached. It can be attached once in its life; clone it for more.

        Raises
        ------
        SamplerError
            The chain was attached before, or llama.cpp refuses it.
        BufferError
            A view of the output is alive, whose memory would move.

        Source: ``llama_set_sampler``.
        """
        from llamacy.core.backend_sampling import attach

        _check_seq(self, seq_id)
        attach(self, seq_id, chain)

    def detach_sampler(self, int seq_id):
        """Sample a sequence on the CPU again.

        Source: ``llama_set_sampler``.
        """
        from llamacy.core.backend_sampling import detach

        _check_seq(self, seq_id)
        detach(self, seq_id)


cdef int context_adopt(Context self, object child) except -1:
    context_handle(self)
    return children_add(self._children, child)


cdef void context_disown(Context self, object child) noexcept:
    children_remove(self._children, child)


cdef cbool _on_abort(void* user_data) noexcept nogil:
    stop = <context_stop*>user_data
    return stop.abort != 0 or (stop.deadline != 0 and llamacy_clock() >= stop.deadline)


cdef int _check_seq(Context self, int seq_id) except -1:
    if not 0 <= seq_id < self.n_seq_max:
        raise ValueError(f"sequence ids must be from 0 to {self.n_seq_max - 1}, not {seq_id}")
    return 0
