# distutils: language = c++
"""What all samplers have in common: life, work, state."""

cimport cython
from libc.math cimport INFINITY, isnan
from libc.stdint cimport INT32_MAX, uint32_t
from libc.string cimport strcmp
from libcpp cimport bool as cbool
from libcpp.string cimport string

from llamacy.core._callback cimport has_stashed, raise_stashed
from llamacy.core._handle cimport SAMPLER, handle_closed, handle_opened
from llamacy.core._status cimport native_error
from llamacy.core.candidates cimport Candidates, candidate, candidate_array, candidates_acquire, candidates_release
from llamacy.core.grammar_sampler cimport (
    grammar_raise, grammar_sampler_awaiting, grammar_sampler_complete, grammar_sampler_verdict
)
from llamacy.core.log cimport log_begin
from llamacy.core.model cimport model_adopt, model_disown
from llamacy.native cimport llama as c_llama

from llamacy.errors import ClosedError, ConcurrentUseError, SamplerError

__all__ = ["SamplerBase"]

cdef extern from "_native_error.h" namespace "llamacy" nogil:
    string exception_text(cbool& out_of_memory)


cdef int _raise_native() except -1:
    cdef cbool out_of_memory = False
    text = exception_text(out_of_memory).decode("utf-8", "replace")
    if out_of_memory:
        raise MemoryError()
    raise native_error(SamplerError, f"llama.cpp: {text}")


# the functions that run code of samplers, with their C++ exceptions as typed errors
cdef extern from "llama.h" nogil:
    void c_apply "llama_sampler_apply"(llama_sampler*, c_llama.llama_token_data_array*) except +_raise_native
    void c_accept "llama_sampler_accept"(llama_sampler*, c_llama.llama_token) except +_raise_native
    void c_reset "llama_sampler_reset"(llama_sampler*) except +_raise_native
    llama_sampler* c_clone "llama_sampler_clone"(const llama_sampler*) except +_raise_native
    void c_copy "llama_sampler_copy"(const llama_sampler*, llama_sampler*) except +_raise_native

cdef extern from "_atomic.h" nogil:
    int llamacy_flag_take(int* flag) noexcept
    void llamacy_flag_give(int* flag) noexcept


@cython.no_gc_clear
cdef class SamplerBase:
    """What `Sampler`, `SamplerChain` and `CustomSampler` have in common.

    Thread safety: one call at a time; a second one raises `ConcurrentUseError`.
    """

    def __cinit__(self, *args, **kwargs):
        self._clonable = True

    def __init__(self):
        raise TypeError("use a static method such as Sampler.top_k(40), or derive from CustomSampler")

    def __dealloc__(self):
        # not `_release`: what a derived class adds is gone by now
        _free(self)

    cdef int _release(self) except -1:
        """Free what is owned; a derived class that owns more calls it in its `__dealloc__`, too."""
        return _free(self)

    def _check_closable(self):
        if self._busy:
            raise ConcurrentUseError(f"{self!r} is at work in another thread")

    def close(self):
        """Free the sampler. Does nothing when it is closed or belongs to a chain.

        Raises
        ------
        ConcurrentUseError
            It is at work in another thread.
        """
        if self._state == SAMPLER_OPEN:
            self._check_closable()
            self._release()

    @property
    def closed(self):
        """Whether the sampler can't be used: it was closed, or a chain has it."""
        return self._state != SAMPLER_OPEN

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        if self._state == SAMPLER_CLOSED:
            return f"<Sampler {self.kind} closed>"
        return f"Sampler.{self.kind}({', '.join([f'{name}={_short(value)}' for name, value in self._values.items()])})"

    @property
    def values(self):
        """The arguments that the sampler was made with, as a new dict."""
        return dict(self._values)

    @property
    def name(self):
        """Name that llama.cpp gives the sampler.

        One that does nothing with the values it has begins with "?"; one that runs on a backend with "+".
        Source: ``llama_sampler_name``.
        """
        return c_llama.llama_sampler_name(sampler_handle(self)).decode()

    @property
    def seed(self):
        """Seed of the random numbers in use, or None for a sampler without any.

        Also None where llama.cpp doesn't tell: xtc and adaptive_p that were made with a random seed.
        Source: ``llama_sampler_get_seed``.
        """
        cdef uint32_t seed = c_llama.llama_sampler_get_seed(sampler_handle(self))
        if seed != c_llama.LLAMA_DEFAULT_SEED:
            return seed
        given = self._values.get("seed", c_llama.LLAMA_DEFAULT_SEED)
        return None if given == c_llama.LLAMA_DEFAULT_SEED else given

    # work

    def apply(self, Candidates candidates not None):
        """Let the sampler work on candidates.

        Parameters
        ----------
        candidates : Candidates
            Changed in place.

        Raises
        ------
        SamplerError
            A logit is not a number, a token id is out of range, or no candidate is left.
        ConcurrentUseError
            Another thread uses the sampler or the candidates.

        Thread safety: releases the GIL, unless a view of the candidates is alive.
        Source: ``llama_sampler_apply``.
        """
        cdef candidate* chosen
        sampler_acquire(self)
        try:
            candidates_acquire(candidates, self._n_vocab)
            try:
                log_begin()
                if candidates._n_exports:
                    sampler_apply(self._ptr, &candidates._c)
                else:
                    with nogil:
                        sampler_apply(self._ptr, &candidates._c)
            finally:
                candidates_release(candidates)
        finally:
            sampler_release(self)
        if candidates._c.selected >= 0:
            chosen = candidates._c.data + candidates._c.selected
            if chosen.logit == -INFINITY or isnan(chosen.p):
                candidates._c.selected = -1
                raise SamplerError("every candidate is ruled out")

    def accept(self, Py_ssize_t token):
        """Tell the sampler which token was chosen; grammars, penalties and others take it into account.

        Raises
        ------
        GrammarError
            The grammar does not allow the token here; nothing was changed.
        SamplerError
            There is no such token.

        Source: ``llama_sampler_accept``.
        """
        if not 0 <= token < _end(self):
            raise SamplerError(f"there is no token {token}" + (f" among {self._n_vocab}" if self._n_vocab else ""))
        sampler_acquire(self)
        try:
            sampler_accept(self, token)
        finally:
            sampler_release(self)

    def allows(self, Py_ssize_t token):
        """Return whether `accept` would take a token; only grammars ever say no.

        Parameters
        ----------
        token : int
            Token id.

        Returns
        -------
        bool
        """
        cdef int verdict
        if not 0 <= token < _end(self):
            return False
        sampler_acquire(self)
        try:
            verdict = grammar_sampler_verdict(self._ptr, token)
        finally:
            sampler_release(self)
        return verdict == 0

    @property
    def awaiting_trigger(self):
        """Whether this is a lazy grammar that has not seen a trigger yet."""
        return grammar_sampler_awaiting(sampler_handle(self))

    @property
    def complete(self):
        """Whether this is a grammar whose text is whole, so that nothing but an end of the generation can follow."""
        return sampler_complete(self)

    def reset(self):
        """Go back to the state at the start: random numbers, accepted tokens, grammar.

        With a random seed, llama.cpp draws another one.
        Source: ``llama_sampler_reset``.
        """
        sampler_acquire(self)
        try:
            c_reset(self._ptr)
        finally:
            sampler_release(self)
        if has_stashed():
            raise_stashed()

    def clone(self):
        """Return an independent sampler in the same state.

        The random numbers of a clone of adaptive_p start anew, and a token that it selected but that was not accepted
        yet doesn't count for the clone.

        Raises
        ------
        SamplerError
            It is a custom sampler that can't be cloned.

        Source: ``llama_sampler_clone``.
        """
        cdef llama_sampler* ptr
        if not self._clonable:
            raise SamplerError(f"{self!r} can't be cloned")
        sampler_acquire(self)
        try:
            ptr = sampler_clone(self._ptr)
        finally:
            sampler_release(self)
        cls = type(self)
        copy = <SamplerBase>cls.__new__(cls)
        sampler_fill(copy, ptr, self)
        return copy

    def copy_to(self, SamplerBase other not None):
        """Put another sampler, made with the same arguments, into the state of this one.

        Raises
        ------
        SamplerError
            The samplers were made differently, or can't be cloned.

        Source: ``llama_sampler_copy``.
        """
        if other is self:
            return
        if not self._same(other):
            raise SamplerError(
                f"state can only be copied between samplers that were made alike, not {self!r} and {other!r}"
            )
        if not self._clonable:
            raise SamplerError(f"{self!r} can't be cloned, and copying its state needs that")
        sampler_acquire(self)
        try:
            sampler_acquire(other)
            try:
                c_copy(self._ptr, other._ptr)
            finally:
                sampler_release(other)
        finally:
            sampler_release(self)
        _settle(other._ptr)
        other._finish_copy(self)
        if has_stashed():
            raise_stashed()

    def copy_from(self, SamplerBase other not None):
        """Put this sampler into the state of another one that was made with the same arguments."""
        other.copy_to(self)

    cdef bint _same(self, SamplerBase other):
        return type(self) is type(other) and self.kind == other.kind and self._values == other._values

    cdef int _finish_copy(self, SamplerBase source) except -1:
        self._owned = source._owned
        return 0


cdef Py_ssize_t _end(SamplerBase self) noexcept:
    """The end of the valid token ids."""
    return self._n_vocab if self._n_vocab else <Py_ssize_t>INT32_MAX + 1


cdef str _short(object value):
    text = repr(value)
    return text if len(text) <= 60 else text[:56] + " …" + text[len(text) - 1:]


cdef int _free(SamplerBase self) except -1:
    cdef llama_sampler* ptr = self._ptr
    self._ptr = NULL
    if self._state == SAMPLER_OPEN:
        self._state = SAMPLER_CLOSED
    if ptr != NULL:
        sampler_set_model(self, None)
        c_llama.llama_sampler_free(ptr)
        handle_closed(SAMPLER)
    self._owned = None
    return 0


cdef llama_sampler* sampler_handle(SamplerBase self) except NULL nogil:
    if self._ptr == NULL:
        with gil:
            if self._state == SAMPLER_IN_CHAIN:
                raise ClosedError(f"{self!r} belongs to the chain that it was added to")
            raise ClosedError(f"this {self.kind or 'sampler'} sampler is closed")
    return self._ptr


cdef int sampler_acquire(SamplerBase self) except -1 nogil:
    """Take the sampler for one call."""
    sampler_handle(self)
    if not llamacy_flag_take(&self._busy):
        with gil:
            raise ConcurrentUseError(f"{self!r} is at work; use a clone in each thread")
    return 0


cdef void sampler_release(SamplerBase self) noexcept nogil:
    llamacy_flag_give(&self._busy)


cdef int sampler_fill(SamplerBase self, llama_sampler* ptr, SamplerBase like) except -1:
    """Let a new object own a native sampler that was made like that of another object."""
    self._ptr = ptr
    handle_opened(SAMPLER)
    self.kind = like.kind
    self._values = like._values
    self._n_vocab = like._n_vocab
    self._owned = like._owned
    self._clonable = like._clonable
    return sampler_set_model(self, like._model)


cdef int sampler_set_model(SamplerBase self, Model model) except -1:
    """Say which model's vocabulary native code points to."""
    if self._model is not None:
        model_disown(self._model, self)
    self._model = model
    if model is not None:
        model_adopt(model, self)
    return 0


cdef int sampler_accept(SamplerBase self, int32_t token) except -1 nogil:
    """Accept a token when all grammars allow it. The sampler must have been acquired."""
    cdef int verdict = grammar_sampler_verdict(self._ptr, token)
    if verdict:
        with gil:
            grammar_raise(verdict, token)
    c_accept(self._ptr, token)
    if has_stashed():
        with gil:
            raise_stashed()
    return 0


cdef bint sampler_complete(SamplerBase self) except -1 nogil:
    """Whether this is a grammar whose text is whole and can't go on."""
    sampler_acquire(self)
    try:
        return grammar_sampler_complete(self._ptr)
    finally:
        sampler_release(self)


cdef llama_sampler* sampler_clone(const llama_sampler* ptr) except NULL:
    cdef llama_sampler* copy = c_clone(ptr)
    _settle(copy)
    return copy


cdef void _settle(llama_sampler* ptr) noexcept nogil:
    """Put a clone right where llama.cpp does not.

    A clone of adaptive-p remembers which token was selected but not the probabilities that accepting it looks up
    (llama_sampler_adaptive_p_clone).
    """
    cdef int i
    if c_llama.llama_sampler_chain_get(ptr, -1) != NULL:
        for i in range(c_llama.llama_sampler_chain_n(ptr)):
            _settle(c_llama.llama_sampler_chain_get(ptr, i))
    elif strcmp(c_llama.llama_sampler_name(ptr), "adaptive-p") == 0:
        # a token that is not the selected one makes it forget that; this can't throw
        (<c_llama.llama_sampler*>ptr).iface.accept(ptr, INT32_MAX)


cdef int sampler_apply(llama_sampler* ptr, candidate_array* array) except -1 nogil:
    """Let a native sampler work on candidates, which must be what samplers rely on (`candidates_check`)."""
    c_apply(ptr, <c_llama.llama_token_data_array*>array)
    if has_stashed():
        with gil:
            raise_stashed()
    return 0
