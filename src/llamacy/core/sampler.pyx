# distutils: language = c++
"""Chains of samplers: how a token is chosen."""

cimport cython
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t
from libc.stdlib cimport free

from llamacy.core._callback cimport has_stashed, raise_stashed
from llamacy.core._chain_links cimport (
    link_mark_closed, links_check_add, links_check_clonable, links_clone, links_copy
)
from llamacy.core._handle cimport SAMPLER, handle_closed, handle_opened
from llamacy.core._sampling cimport (
    sampling_check_whole, sampling_forget, sampling_pick, sampling_pick_allowed, sampling_prepare
)
from llamacy.core.candidates cimport Candidates
from llamacy.core.custom_sampler cimport CustomSampler, custom_native
from llamacy.core.decoding cimport context_acquire, context_release
from llamacy.core.log cimport log_begin
from llamacy.core.model cimport Model
from llamacy.core.sampler_base cimport (
    SAMPLER_CLOSED, SAMPLER_IN_CHAIN, SAMPLER_OPEN, sampler_accept, sampler_apply, sampler_clone,
    sampler_set_model
)
from llamacy.native cimport llama as c_llama

import weakref

from llamacy.errors import InUseError, OutputError, SamplerError

__all__ = ["SamplerChain"]

# cimported names are not attributes of the module
globals().update(Candidates=Candidates, CustomSampler=CustomSampler, Sampler=Sampler)


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
        free(self._row)
        sampling_forget(self)

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
            sampling_prepare(self)
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
            sampling_prepare(self)
            if all([(<Sampler>other)._model is None for other in self._links]):
                sampler_set_model(self, None)
            return link
        finally:
            sampler_release(self)

    # work

    def sample(
        self, Context context not None, Py_ssize_t index=-1, *, Sampler grammar=None, bint grammar_first=False
    ):
        """Choose a token from an output row of the last decode, and accept it.

        Where a link keeps the highest candidates only, equal logits go to the lower token id.

        Parameters
        ----------
        context : Context
            The context.
        index : int
            Index in the batch; negative counts output rows from the end.
        grammar : Sampler, optional
            A grammar that is not in the chain. It is asked about the chosen token first; only when it refuses that one,
            the choice is made again among the tokens that it allows. It accepts the token, too.
        grammar_first : bool
            Choose among the tokens that the grammar allows at once. Without a link that drops candidates, both ways
            choose with the same probabilities; with one, this way no token is dropped in favour of one that the grammar
            refuses.

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
            No token that the grammar allows is left.

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
                token = chain_sample_grammar(self, grammar, context, <int32_t>index, grammar_first)
        return token

    def apply(self, Candidates candidates not None):
        """Let the links work on candidates, one after the other; see `Sampler.apply`."""
        sampling_check_whole(self)
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
        sampling_prepare(copy)
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


# sampling, without the GIL

cdef int32_t chain_sample(SamplerChain self, Context context, int32_t index) except? -2147483648 nogil:
    cdef int32_t token
    sampler_acquire(self)
    try:
        context_acquire(context)
        try:
            token = sampling_pick(self, context, index)
            sampler_accept(self, token)
        finally:
            context_release(context)
    finally:
        sampler_release(self)
    return token


cdef int32_t chain_sample_grammar(
    SamplerChain self, SamplerBase grammar, Context context, int32_t index, bint grammar_first
) except? -2147483648 nogil:
    cdef int32_t token
    sampler_acquire(self)
    try:
        sampler_acquire(grammar)
        try:
            context_acquire(context)
            try:
                token = sampling_pick_allowed(self, grammar, context, index, grammar_first)
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
        sampling_check_whole(self)
        sampler_apply(self._ptr, array)
    finally:
        sampler_release(self)
    return 0


# backends

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
