# distutils: language = c++
"""Chains of samplers: how a token is chosen."""

cimport cython
from libc.math cimport INFINITY, isnan
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t
from libc.stdlib cimport free, realloc

from llamacy.core._callback cimport has_stashed, raise_stashed
from llamacy.core._chain_links cimport (
    link_mark_closed, links_check_add, links_check_clonable, links_clone, links_copy
)
from llamacy.core._handle cimport SAMPLER, handle_closed, handle_opened
from llamacy.core.candidates cimport Candidates, candidates_raise
from llamacy.core.custom_sampler cimport CustomSampler, custom_native
from llamacy.core.decoding cimport context_acquire, context_release
from llamacy.core.grammar_sampler cimport grammar_raise, grammar_sampler_verdict
from llamacy.core.log cimport log_begin
from llamacy.core.model cimport Model
from llamacy.core.sampler_base cimport (
    SAMPLER_CLOSED, SAMPLER_IN_CHAIN, SAMPLER_OPEN, sampler_accept, sampler_apply, sampler_clone,
    sampler_set_model
)
from llamacy.native cimport llama as c_llama

import weakref

from llamacy.errors import GrammarError, InUseError, OutputError, SamplerError

__all__ = ["SamplerChain"]

# cimported names are not attributes of the module
globals().update(Candidates=Candidates, CustomSampler=CustomSampler, Sampler=Sampler)

cdef extern from "_candidates.h" nogil:
    int LLAMACY_BAD_LOGIT
    int llamacy_candidates_fill(void* out, const float* logits, int32_t n) noexcept
    int32_t llamacy_candidates_top_k(void* out, const float* logits, int32_t n, int32_t k) noexcept

cdef enum:
    NO_TOKEN = -2147483648


@cython.no_gc_clear
cdef class SamplerChain(Sampler):
    """Samplers that work one after the other; the last one picks the token.

    Works like a sequence of its links. The chain owns what was added to it: the objects that were added are empty, and
    can still be asked for their `kind` and `values`, until `remove` gives them back.

    Parameters
    ----------
    samplers : iterable of Sampler
        Added in order.
    no_perf : bool
        Measure no time; see `perf`.

    Raises
    ------
    SamplerError
        Two of them don't go together (see `add`); all are given back.

    Lifetime: keeps the model of samplers that use a vocabulary alive, and is closed with it.
    Thread safety: one call at a time; a second one raises `ConcurrentUseError`. Use a clone in each thread.
    Source: ``llama_sampler_chain_init``.
    """

    def __cinit__(self, samplers=(), *, bint no_perf=True):
        cdef c_llama.llama_sampler_chain_params params = c_llama.llama_sampler_chain_default_params()
        self.kind = "chain"
        self._values = {}
        self.no_perf = no_perf
        self._links = []
        if samplers is None:
            return
        params.no_perf = no_perf
        self._ptr = c_llama.llama_sampler_chain_init(params)
        handle_opened(SAMPLER)
        try:
            for sampler in samplers:
                self.add(sampler)
        except BaseException:
            while self._links:
                self.remove(-1)
            raise

    def __init__(self, samplers=(), *, no_perf=True):
        if samplers is None:
            raise TypeError("samplers must be an iterable of samplers, not None")

    def __dealloc__(self):
        self._release()
        free(self._buffer)

    cdef int _release(self) except -1:
        Sampler._release(self)
        for link in self._links or ():
            link_mark_closed(link)
        self._links = []
        return 0

    def _check_closable(self):
        Sampler._check_closable(self)
        context = None if self._context is None else self._context()
        if context is not None and not context.closed:
            context._check_closable()

    def close(self):
        """Detach the chain from its context and free it with all links. Does nothing when it is closed."""
        context = None if self._context is None else self._context()
        if context is not None and not context.closed and self._state == SAMPLER_OPEN:
            self._check_closable()
            context.detach_sampler(self._seq_id)
        Sampler.close(self)

    def __repr__(self):
        if self._state == SAMPLER_CLOSED:
            return "<SamplerChain closed>"
        return f"SamplerChain([{', '.join([repr(link) for link in self._links])}])"

    # the links

    def __len__(self):
        return len(self._links)

    def __getitem__(self, index):
        """Return a link, to look at its `kind` and `values`, or a list of links for a slice."""
        sampler_handle(self)
        return self._links[index]

    def __iter__(self):
        return iter(tuple(self._links))

    @property
    def names(self):
        """Names that llama.cpp gives the links, as a tuple.

        Those that a backend runs begin with "+"; those that do nothing with the values they have with "?".
        """
        sampler_handle(self)
        return tuple([
            c_llama.llama_sampler_name(c_llama.llama_sampler_chain_get(self._ptr, i)).decode("utf-8", "replace")
            for i in range(<int>len(self._links))
        ])

    def add(self, Sampler sampler not None):
        """Append a sampler, which belongs to the chain from then on; the object that was added is empty.

        Parameters
        ----------
        sampler : Sampler, SamplerChain or CustomSampler
            Something not closed and in no chain.

        Raises
        ------
        ClosedError
            The sampler is closed, or belongs to a chain already.
        SamplerError
            The last link picks the token already, or they are for different vocabularies, or one of them is a chain
            that was attached to a context.

        Source: ``llama_sampler_chain_add``.
        """
        cdef c_llama.llama_sampler* native
        cdef Model model = self._model
        if sampler is self:
            raise SamplerError("a chain can't be added to itself")
        sampler_acquire(self)
        try:
            links_check_add(self, sampler)
            if isinstance(sampler, CustomSampler):
                native = custom_native(sampler)
            else:
                sampler_acquire(sampler)
                native = sampler._ptr
            c_llama.llama_sampler_chain_add(self._ptr, native)
            self._links.append(sampler)
            if sampler._ptr != NULL:
                sampler._ptr = NULL
                sampler_release(sampler)
                handle_closed(SAMPLER)
            sampler._state = SAMPLER_IN_CHAIN
            if sampler._model is not None:
                model = sampler._model
                sampler_set_model(sampler, None)
                sampler._model = model
            if self._model is None and model is not None:
                sampler_set_model(self, model)
            self._n_vocab = self._n_vocab or sampler._n_vocab
            self._n_top = _find_top(self)
        finally:
            sampler_release(self)

    def remove(self, Py_ssize_t index):
        """Take a link out of the chain and return it, ready to be used.

        Parameters
        ----------
        index : int
            Negative counts from the end.

        Raises
        ------
        InUseError
            The chain was attached to a context.

        Source: ``llama_sampler_chain_remove``.
        """
        cdef Sampler link
        cdef c_llama.llama_sampler* native
        sampler_acquire(self)
        try:
            if self._was_attached:
                raise InUseError(
                    "the links of a chain that was attached to a context can't be changed; clone it before"
                )
            if index < 0:
                index += len(self._links)
            if not 0 <= index < len(self._links):
                raise IndexError(f"the chain has {len(self._links)} links")
            native = c_llama.llama_sampler_chain_remove(self._ptr, index)
            link = self._links.pop(index)
            link._state = SAMPLER_OPEN
            if isinstance(link, CustomSampler):
                c_llama.llama_sampler_free(native)
            else:
                link._ptr = native
                handle_opened(SAMPLER)
                sampler_set_model(link, link._model)
            self._n_vocab = max([(<Sampler>other)._n_vocab for other in self._links], default=0)
            self._n_top = _find_top(self)
            if all([(<Sampler>other)._model is None for other in self._links]):
                sampler_set_model(self, None)
            return link
        finally:
            sampler_release(self)

    # work

    def sample(self, Context context not None, Py_ssize_t index=-1, *, Sampler grammar=None):
        """Choose a token from an output row of the last decode, and accept it.

        Parameters
        ----------
        context : Context
            The context.
        index : int
            Index in the batch; negative counts output rows from the end.
        grammar : Sampler, optional
            A grammar that is not in the chain. It is asked about the chosen token first; only when it refuses that one,
            the choice is made again among the tokens that it allows. It accepts the token, too.

        Returns
        -------
        int
            The token.

        Raises
        ------
        OutputError
            The row was not an output.
        SamplerError
            No link picks a token, a logit is not a number, or no candidate is left.
        GrammarError
            The grammar allows no token.

        Thread safety: releases the GIL.
        Source: ``llama_sampler_sample``.
        """
        cdef int32_t token
        if grammar is self:
            raise SamplerError("the grammar must not be the chain itself")
        if not INT32_MIN <= index <= INT32_MAX:
            raise OutputError(f"entry {index} is not an output of the last decode")
        log_begin()
        with nogil:
            if grammar is None:
                token = chain_sample(self, context, <int32_t>index)
            else:
                token = chain_sample_grammar(self, grammar, context, <int32_t>index)
        return token

    def apply(self, Candidates candidates not None):
        """Let the links work on candidates, one after the other; see `Sampler.apply`."""
        _check_whole(self)
        Sampler.apply(self, candidates)

    def clone(self):
        """Return an independent chain in the same state, never attached to a context.

        Raises
        ------
        SamplerError
            A custom sampler in it can't be cloned.

        Source: ``llama_sampler_clone``.
        """
        cdef c_llama.llama_sampler* native
        cdef SamplerChain copy
        links_check_clonable(self)
        sampler_acquire(self)
        try:
            native = sampler_clone(self._ptr)
        finally:
            sampler_release(self)
        if has_stashed():
            c_llama.llama_sampler_free(native)
            raise_stashed()
        copy = SamplerChain.__new__(SamplerChain, None)
        copy._ptr = native
        handle_opened(SAMPLER)
        links_clone(copy, native, self)
        copy._n_top = self._n_top
        sampler_set_model(copy, self._model)
        return copy

    def copy_to(self, SamplerBase other not None):
        """Put another chain of links that were made with the same arguments into the state of this one."""
        links_check_clonable(self)
        Sampler.copy_to(self, other)

    cdef bint _same(self, SamplerBase other):
        if type(other) is not SamplerChain or len(self) != len(<SamplerChain>other):
            return False
        return all([(<Sampler>a)._same(<Sampler>b) for a, b in zip(self._links, (<SamplerChain>other)._links)])

    cdef int _finish_copy(self, SamplerBase source) except -1:
        return links_copy(self, self._ptr, source)

    # measuring

    def perf(self):
        """Return how many tokens were accepted and how long the samplers took.

        Returns
        -------
        tuple of (int, float)
            Tokens, and milliseconds; these stay 0 unless the chain was made with ``no_perf=False``.

        Source: ``llama_perf_sampler``.
        """
        cdef c_llama.llama_perf_sampler_data data = c_llama.llama_perf_sampler(sampler_handle(self))
        return data.n_sample, data.t_sample_ms

    def perf_reset(self):
        """Count from 0 again."""
        c_llama.llama_perf_sampler_reset(sampler_handle(self))


cdef int32_t _find_top(SamplerChain self) except -1:
    """Return how many candidates the first link keeps, when these are the highest ones and few.

    Then the others need not be written at all, which is most of what sampling costs.
    """
    cdef Sampler first
    if not self._links or not self.no_perf:
        return 0
    first = self._links[0]
    if first.kind == "greedy":
        return 1
    return first._values["k"] if first.kind == "top_k" and 0 < first._values["k"] <= 128 else 0


# sampling, without the GIL

cdef int32_t chain_sample(SamplerChain self, Context context, int32_t index) except? -2147483648 nogil:
    cdef int32_t token
    sampler_acquire(self)
    try:
        context_acquire(context)
        try:
            token = _pick(self, context, index, NULL)
            sampler_accept(self, token)
        finally:
            context_release(context)
    finally:
        sampler_release(self)
    return token


cdef int32_t chain_sample_grammar(
    SamplerChain self, SamplerBase grammar, Context context, int32_t index
) except? -2147483648 nogil:
    cdef int32_t token
    cdef int verdict
    sampler_acquire(self)
    try:
        sampler_acquire(grammar)
        try:
            context_acquire(context)
            try:
                token = _pick(self, context, index, NULL)
                if grammar_sampler_verdict(grammar._ptr, token):
                    token = _pick(self, context, index, grammar._ptr)
                verdict = grammar_sampler_verdict(grammar._ptr, token)
                if verdict:
                    with gil:
                        grammar_raise(verdict, token)
                sampler_accept(self, token)
                sampler_accept(grammar, token)
            finally:
                context_release(context)
        finally:
            sampler_release(grammar)
    finally:
        sampler_release(self)
    return token


cdef int chain_accept(SamplerChain self, int32_t token) except -1 nogil:
    sampler_acquire(self)
    try:
        sampler_accept(self, token)
    finally:
        sampler_release(self)
    return 0


cdef int chain_apply(SamplerChain self, candidate_array* array) except -1 nogil:
    sampler_acquire(self)
    try:
        _check_whole(self)
        sampler_apply(self._ptr, array)
    finally:
        sampler_release(self)
    return 0


cdef int32_t _pick(
    SamplerChain self, Context context, int32_t index, c_llama.llama_sampler* first
) except? -2147483648 nogil:
    """Let the chain choose a token, after `first` when that is given; it is llama_sampler_sample without the aborts."""
    cdef c_llama.llama_context* ctx = context._ptr
    cdef candidate_array array
    cdef candidate* chosen
    cdef int32_t token
    # llama.cpp logs an error for what is certain to be none
    if not -context._n_outputs <= index < context._n_tokens or context._n_outputs == 0:
        _raise_no_output(index)
    token = c_llama.llama_get_sampled_token_ith(ctx, index)
    if token >= 0:
        if first != NULL:
            with gil:
                raise GrammarError(
                    f"the backend chose token {token}, which the grammar does not allow; detach the chain"
                )
        return token
    _gather(self, context, index, &array, self._n_top if first == NULL else 0)
    if first != NULL:
        sampler_apply(first, &array)
        _check_left(&array)
    sampler_apply(self._ptr, &array)
    if not 0 <= array.selected < <int64_t>array.size:
        with gil:
            raise SamplerError(f"no link of {self!r} picks a token; end the chain with greedy, dist or mirostat")
    chosen = array.data + array.selected
    if chosen.logit == -INFINITY or isnan(chosen.logit) or isnan(chosen.p) or not 0 <= chosen.id < context.n_vocab:
        with gil:
            raise SamplerError("every candidate is ruled out")
    return chosen.id


cdef int _gather(
    SamplerChain self, Context context, int32_t index, candidate_array* array, int32_t n_top
) except -1 nogil:
    """Fill the buffer of the chain with the candidates of an output row, or with the `n_top` highest of them."""
    cdef c_llama.llama_context* ctx = context._ptr
    cdef const float* probs = c_llama.llama_get_sampled_probs_ith(ctx, index)
    cdef const float* logits = c_llama.llama_get_sampled_logits_ith(ctx, index)
    cdef const int32_t* ids = NULL
    cdef int32_t i, n = context.n_vocab
    cdef bint sampled = logits != NULL
    if sampled:
        n = c_llama.llama_get_sampled_logits_count_ith(ctx, index)
        if probs != NULL:
            n = c_llama.llama_get_sampled_probs_count_ith(ctx, index)
        ids = c_llama.llama_get_sampled_candidates_ith(ctx, index)
    else:
        logits = c_llama.llama_get_logits_ith(ctx, index)
        if logits == NULL:
            _raise_no_output(index)
        _check_whole(self)
    if self._n_vocab and self._n_vocab != context.n_vocab:
        with gil:
            raise SamplerError(
                f"the chain is for a vocabulary of {self._n_vocab} tokens, but the context's has {context.n_vocab}")
    if <size_t>n + 64 > self._capacity:
        _reserve(self, n + 64)
    array.data = self._buffer
    array.selected = -1
    if n_top and not sampled and 2 * n_top < n:
        i = llamacy_candidates_top_k(self._buffer, logits, n, n_top)
        if i < 0:
            with gil:
                candidates_raise(LLAMACY_BAD_LOGIT, 0)
        array.size = i
        array.sorted = 1
        if i > 0:
            return 0
    if not llamacy_candidates_fill(self._buffer, logits, n):
        with gil:
            candidates_raise(LLAMACY_BAD_LOGIT, 0)
    if sampled:
        for i in range(n):
            self._buffer[i].id = ids[i]
            if probs != NULL:
                self._buffer[i].p = probs[i]
    array.size = n
    array.sorted = 0
    return 0


cdef int _raise_no_output(int32_t index) except -1 nogil:
    with gil:
        raise OutputError(f"entry {index} is not an output of the last decode")


cdef int _reserve(SamplerChain self, size_t n) except -1 nogil:
    cdef candidate* buffer = <candidate*>realloc(self._buffer, n * sizeof(candidate))
    if buffer == NULL:
        with gil:
            raise MemoryError()
    self._buffer = buffer
    self._capacity = n
    return 0


cdef int _check_left(candidate_array* array) except -1 nogil:
    cdef size_t i
    for i in range(array.size):
        if array.data[i].logit != -INFINITY:
            return 0
    with gil:
        raise GrammarError("the grammar allows no token that the model has")


# backends

cdef int _check_whole(SamplerChain self) except -1 nogil:
    """Refuse to run a chain whose first links a backend has: llama.cpp would leave them out without a word."""
    cdef const char* name
    cdef int i
    if not self._was_attached:
        return 0
    for i in range(c_llama.llama_sampler_chain_n(self._ptr)):
        name = c_llama.llama_sampler_name(c_llama.llama_sampler_chain_get(self._ptr, i))
        if name[0] == c"+":
            with gil:
                raise SamplerError(
                    "the first links of this chain run on a backend, which has not done so here; use a clone of the "
                    "chain")
        if name[0] != c"?":
            return 0
    return 0


cdef int chain_check_attach(SamplerChain self, int n_vocab) except -1:
    """Refuse a chain that can't be attached to a context.

    A backend aborts when a chain is attached twice, when top_k asks for more candidates than are left (ggml_top_k), and
    when a token id is outside of its vocabulary; a chain inside of a chain would run in part, and not at all on the
    CPU.
    """
    cdef Sampler link
    cdef long long left = n_vocab
    sampler_handle(self)
    if self._was_attached:
        raise SamplerError("this chain was attached to a context before; attach chain.clone() instead")
    if self._n_vocab and self._n_vocab != n_vocab:
        raise SamplerError(f"the chain is for a vocabulary of {self._n_vocab} tokens, but the context's has {n_vocab}")
    for link in self._links:
        if isinstance(link, SamplerChain):
            raise SamplerError("a chain with a chain inside can't be attached; add the links of the inner one instead")
        if link.kind == "top_k" and link._values["k"] > 0:
            if link._values["k"] > left:
                raise SamplerError(f"a backend can't keep {link._values['k']} candidates of {left}: {link!r}")
            left = link._values["k"]
        elif link.kind in ("temp", "temp_ext") and link._values["t"] <= 0:
            left = 1
    return 0


cdef int chain_attached(SamplerChain self, object context, int seq_id) except -1:
    self._was_attached = True
    self._context = weakref.ref(context)
    self._seq_id = seq_id
    return 0


cdef void chain_detached(SamplerChain self) noexcept:
    self._context = None
