# distutils: language = c++
"""A context's life: what must hold when it is created, what it computes with, and what goes when it is freed."""

from llamacy.core._handle cimport CONTEXT, handle_closed
from llamacy.core._observers cimport observers_close
from llamacy.core.context cimport Context, context_disown
from llamacy.core.batch cimport Batch
from llamacy.core.decoding cimport context_acquire, context_handle, context_release
from llamacy.core.model cimport Model, model_disown, model_handle
from llamacy.core.threadpool cimport (
    ThreadPool,
    threadpool_attach,
    threadpool_detach,
    threadpool_handle,
    threadpool_let_go,
)
from llamacy.native cimport llama as c_llama

from llamacy.errors import ContextCreateError, InUseError
from llamacy.types import GgmlType

# numbers in a block of all quantized types that a cache can have (ggml.c, type_traits)
cdef int _QUANT_BLOCK = 32


cdef int context_check_create(Model model, Context ctx_other, const void* params) except -1:
    """Refuse what llama_init_from_model accepts and crashes with later."""
    cdef const c_llama.llama_context_params* c = <const c_llama.llama_context_params*>params
    if model.vocab_only:
        raise ContextCreateError("the model was loaded with vocab_only=True, so it can't compute anything")
    if model.params.values["no_alloc"]:
        raise ContextCreateError("the model was loaded with no_alloc=True, so it can't compute anything")
    if c.n_outputs_max and c.n_outputs_max < c.n_seq_max:
        raise ValueError(f"n_outputs_max ({c.n_outputs_max}) must be 0 or at least n_seq_max ({c.n_seq_max})")
    if c.ctx_type == c_llama.LLAMA_CONTEXT_TYPE_MTP and not model.params.values["load_mtp"]:
        raise ContextCreateError("a context for multi-token prediction needs a model loaded with load_mtp=True")
    if ctx_other is not None:
        context_handle(ctx_other)
    for letter, type_name in (("key", GgmlType(<int>c.type_k).name), ("value", GgmlType(<int>c.type_v).name)):
        if type_name not in ("F32", "F16", "BF16") and context_head_size(model, letter) % _QUANT_BLOCK:
            # llama.cpp looks at this with flash attention only, and gives wrong logits without it
            raise ContextCreateError(
                f"a cache of type {type_name} needs heads of a multiple of {_QUANT_BLOCK} numbers, but the {letter}s "
                f"of this model have {context_head_size(model, letter)}"
            )
    return 0


cdef int context_head_size(Model model, str letter):
    """Return the number of keys or values in a head of the first layer."""
    cdef int n_head = model.n_head
    given = model.metadata.get(f"{model.architecture}.attention.{letter}_length", "")
    return int(given) if given.isdecimal() else model.n_embd // n_head if n_head > 0 else 0


cdef int context_check_created(Context self) except -1:
    """Refuse a context whose effective numbers would abort a later decode."""
    cdef int pooling = <int>c_llama.llama_pooling_type(self._ptr)
    if self.n_rs_seq and self.n_ubatch < self.n_rs_seq + 2:
        raise ContextCreateError(
            f"n_rs_seq={self.n_rs_seq} needs an n_ubatch of at least {self.n_rs_seq + 2}, but it is {self.n_ubatch} "
            "(no more than n_batch and n_ctx)"
        )
    if pooling > c_llama.LLAMA_POOLING_TYPE_NONE and self.n_ubatch < self.n_seq_max:
        raise ContextCreateError(
            f"pooling {self.n_seq_max} sequences needs an n_ubatch of at least as much, but it is {self.n_ubatch}"
        )
    return 0


cdef int context_warm_up(Context self) except -1:
    """Run one token through the model and forget it again."""
    cdef Batch batch
    cdef bint encoder = c_llama.llama_model_has_encoder(model_handle(self.model))
    if self._memory != NULL and any(self.memory.seq_pos_max(seq_id) >= 0 for seq_id in range(self.n_seq_max)):
        raise InUseError("warm_up clears the memory, which is not empty")
    if self.n_vocab == 0 or self._n_embd_inp <= 0 or self._needs_state or self._draft_encoder:
        return 0  # it computes from another model's hidden state only
    vocab = self.model.vocab
    token = next((token for token in (vocab.bos, vocab.eos) if token is not None), 0)
    with Batch(1) as batch:
        batch.add(token, 0, logits=True)
        if encoder or self._memory == NULL:
            self.encode(batch)
        else:
            self.decode(batch)
    self.synchronize()
    self._encoded = False
    if self._memory != NULL:
        self.memory.clear()
    return 0


cdef int _check_threads(int n_threads, int n_threads_batch, ThreadPool pool, ThreadPool pool_batch) except -1:
    """Refuse to compute with more threads than a pool has, which llama.cpp does without a look."""
    if pool is not None and (n_threads > pool.n_threads or n_threads_batch > pool_batch.n_threads):
        raise ValueError(
            f"the context computes with {n_threads} threads, and {n_threads_batch} for batches, but the pools have "
            f"{pool.n_threads} and {pool_batch.n_threads}"
        )
    return 0


cdef int context_set_threads(Context self, object n_threads, object n_threads_batch) except -1:
    for name, n in (("n_threads", n_threads), ("n_threads_batch", n_threads_batch)):
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"{name} must be an int, not {type(n).__name__}")
        if not 1 <= n <= 512:
            raise ValueError(f"{name} must be from 1 to 512, not {n}")
    context_acquire(self)
    try:
        _check_threads(n_threads, n_threads_batch, self._threadpool, self._threadpool_batch)
        c_llama.llama_set_n_threads(self._ptr, n_threads, n_threads_batch)
    finally:
        context_release(self)
    return 0


cdef int context_attach_threadpools(Context self, ThreadPool pool, ThreadPool pool_batch) except -1:
    """Compute with these pools from the next decode on."""
    context_acquire(self)
    try:
        _check_threads(self.n_threads, self.n_threads_batch, pool, pool_batch)
        first = threadpool_handle(pool)
        second = threadpool_handle(pool_batch)
        threadpool_attach(pool)
        if pool_batch is not pool:
            threadpool_attach(pool_batch)
        c_llama.llama_attach_threadpool(self._ptr, first, second)
        context_retire_threadpools(self)
        self._threadpool = pool
        self._threadpool_batch = pool_batch
    finally:
        context_release(self)
    return 0


cdef void context_retire_threadpools(Context self) noexcept:
    """Detach the attached pools; those that the backend points to stay alive until the next decode."""
    if self._threadpool is not None:
        threadpool_detach(self._threadpool)
        if self._threadpool_batch is not self._threadpool:
            threadpool_detach(self._threadpool_batch)
        self._threadpool = None
        self._threadpool_batch = None


cdef void context_free(Context self) noexcept:
    """Free the native context, then let go of what it pointed to."""
    cdef c_llama.llama_context* ptr = self._ptr
    cdef ThreadPool pool
    if ptr == NULL:
        return
    self._ptr = NULL
    self._memory = NULL
    observers_close(self)
    with nogil:
        c_llama.llama_free(ptr)
    handle_closed(CONTEXT)
    context_retire_threadpools(self)
    for pool in self._native_pools:
        threadpool_let_go(pool)
    self._native_pools = []
    self._samplers = {}
    self._n_samplers = 0
    self._adapters = []
    self._control_vector = None
    model_disown(self.model, self)
    if self._other is not None:
        context_disown(self._other, self)
        self._other = None
