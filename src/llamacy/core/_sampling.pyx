# distutils: language = c++
"""How a chain chooses a token from a row of logits, under a grammar or not."""

from libc.math cimport INFINITY, isnan
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport realloc

from llamacy.core.candidates cimport candidate, candidate_array, candidates_raise
from llamacy.core.context cimport Context
from llamacy.core.grammar_sampler cimport (
    grammar_raise, grammar_sampler_all, grammar_sampler_awaiting, grammar_sampler_is_one, grammar_sampler_top,
    grammar_sampler_verdict, grammar_verdict_is_refusal
)
from llamacy.core.reasoning_budget cimport budget_forced_token
from llamacy.core.sampler cimport SamplerChain
from llamacy.core.sampler_base cimport SamplerBase, sampler_apply
from llamacy.core.samplers cimport Sampler
from llamacy.native cimport llama as c_llama

from llamacy.errors import GrammarError, OutputError, SamplerError

__all__ = []

cdef extern from "_candidates.h" nogil:
    int LLAMACY_BAD_LOGIT
    int llamacy_candidates_fill(void* out, const float* logits, int32_t n) noexcept

cdef extern from "_shortlist.h" namespace "llamacy" nogil:
    enum shortlist_result "llamacy::shortlist::result":
        MADE "llamacy::shortlist::MADE"
        BAD_LOGIT "llamacy::shortlist::BAD_LOGIT"
    cppclass shortlist:
        shortlist(int32_t k) except +
        void add_watched(int32_t index) except +
        void add_min_tokens(int32_t index) except +
        void add_biases() except +
        void add_bias(int32_t token, float bias) except +
        void finish()
        shortlist_result make(
            c_llama.llama_sampler* chain, const float* row, int32_t n, c_llama.llama_token_data_array* candidates
        ) except +

cdef enum:
    MAX_TOP = 1024                      # few enough that looking for them is cheaper than writing all candidates
    MAX_BIASES = 4096

# links that change each logit by itself, so that it makes no difference which other candidates there are; a reasoning
# budget that forces no token changes none
cdef frozenset _POINTWISE = frozenset(("logit_bias", "penalties", "dry", "min_tokens", "reasoning_budget"))


cdef int sampling_prepare(SamplerChain self) except -1:
    """Find out how many candidates a link keeps, when these are the highest ones and few.

    Then the others need not be written at all, which is most of what sampling costs; nor must a grammar be asked about
    all of them.
    """
    cdef Sampler link
    cdef int i, n = <int>len(self._links)
    sampling_forget(self)
    self._n_top = self._n_lead = 0
    if not self.no_perf:
        return 0
    for i in range(n):
        link = self._links[i]
        if link.kind in _POINTWISE or _is_idle(self, i):
            continue
        self._n_lead = self._first_after = i
        if link.kind == "greedy" and i == n - 1:
            self._n_top = 1
        elif link.kind == "top_k" and link._values["k"] <= MAX_TOP:
            self._n_top = link._values["k"]
            self._first_after = i + 1
        break
    if self._n_top:
        _make_shortlist(self)
    return 0


cdef void sampling_forget(SamplerChain self) noexcept:
    cdef shortlist* made = <shortlist*>self._shortlist
    self._shortlist = NULL
    del made


cdef bint _is_idle(SamplerChain self, int index) noexcept:
    """Whether a link does nothing with the values it has."""
    return c_llama.llama_sampler_name(c_llama.llama_sampler_chain_get(self._ptr, index))[0] == c"?"


cdef int _make_shortlist(SamplerChain self) except -1:
    cdef Sampler link
    cdef shortlist* made
    cdef int i
    if sum([len(link._values["logit_bias"]) for link in self._links if link.kind == "logit_bias"]) > MAX_BIASES:
        return 0
    made = new shortlist(self._n_top)
    self._shortlist = made
    for i in range(self._n_lead):
        link = self._links[i]
        if _is_idle(self, i):
            continue
        if link.kind == "reasoning_budget":
            continue
        if link.kind == "min_tokens":
            made.add_min_tokens(i)
            continue
        if link.kind != "logit_bias":
            made.add_watched(i)
            continue
        made.add_biases()
        for token, bias in link._values["logit_bias"].items():
            made.add_bias(token, bias)
    made.finish()
    return 0


cdef int32_t sampling_pick(SamplerChain self, Context context, int32_t index) except? -2147483648 nogil:
    """It is llama_sampler_sample without the aborts."""
    cdef candidate_array array
    cdef int32_t token
    _check_output(context, index)
    token = c_llama.llama_get_sampled_token_ith(context._ptr, index)
    if token >= 0:
        return token
    token = budget_forced_token(self._ptr)
    if token >= 0:
        _gather_one(self, context, index, token, &array)
        sampler_apply(self._ptr, &array)
    elif self._shortlist != NULL and _gather_shortlist(self, context, index, &array):
        _apply_links(self, self._first_after, c_llama.llama_sampler_chain_n(self._ptr), &array)
    else:
        _gather(self, context, index, &array)
        sampler_apply(self._ptr, &array)
    token = _selected(self, context, &array)
    if token < 0:
        with gil:
            raise SamplerError("every candidate is ruled out")
    return token


cdef int32_t sampling_pick_allowed(
    SamplerChain self, SamplerBase grammar, Context context, int32_t index, bint grammar_first
) except? -2147483648 nogil:
    cdef candidate_array array
    cdef int32_t token
    cdef int verdict
    cdef bint forced = budget_forced_token(self._ptr) >= 0
    if grammar._n_vocab and grammar._n_vocab != context.n_vocab:
        with gil:
            raise SamplerError(
                f"the grammar is for a vocabulary of {grammar._n_vocab} tokens, but the context's has "
                f"{context.n_vocab}")
    if forced or not grammar_first or grammar_sampler_awaiting(grammar._ptr):
        token = sampling_pick(self, context, index)
        verdict = grammar_sampler_verdict(grammar._ptr, token)
        if verdict == 0:
            return token
        if forced or not grammar_verdict_is_refusal(verdict):
            with gil:
                grammar_raise(verdict, token)
        if c_llama.llama_get_sampled_token_ith(context._ptr, index) >= 0:
            with gil:
                raise GrammarError(
                    f"the backend chose token {token}, which the grammar does not allow; detach the chain")
    else:
        _check_output(context, index)
        if c_llama.llama_get_sampled_token_ith(context._ptr, index) >= 0:
            with gil:
                raise GrammarError("the backend has chosen a token, so the grammar can't be first; detach the chain")
    if grammar_sampler_is_one(grammar._ptr) and not self._was_attached and (
        c_llama.llama_get_sampled_logits_ith(context._ptr, index) == NULL
    ):
        if self._n_top:
            _apply_to_highest(self, grammar, context, index, &array)
        else:
            _gather_allowed(self, grammar, context, index, &array)
            sampler_apply(self._ptr, &array)
    else:
        _gather(self, context, index, &array)
        sampler_apply(grammar._ptr, &array)
        _check_left(&array)
        sampler_apply(self._ptr, &array)
    token = _selected(self, context, &array)
    if token < 0:
        _raise_none_left()
    verdict = grammar_sampler_verdict(grammar._ptr, token)
    if verdict:
        with gil:
            grammar_raise(verdict, token)
    return token


cdef int _apply_to_highest(
    SamplerChain self, SamplerBase grammar, Context context, int32_t index, candidate_array* array
) except -1 nogil:
    """Let the chain work on the highest candidates that the grammar allows, as many as it would keep of all these."""
    cdef const float* logits = c_llama.llama_get_logits_ith(context._ptr, index)
    cdef float* row
    cdef int32_t i, n = context.n_vocab
    if logits == NULL:
        _raise_no_output(index)
    _check_vocab(self, context)
    _reserve(self, n + 128)
    if self._n_lead:
        _gather(self, context, index, array)
        _apply_links(self, 0, self._n_lead, array)
        row = <float*>realloc(self._row, n * sizeof(float))
        if row == NULL:
            with gil:
                raise MemoryError()
        self._row = row
        for i in range(n):
            row[array.data[i].id] = array.data[i].logit
        logits = row
    _take_allowed(self, grammar_sampler_top(grammar._ptr, self._buffer, logits, n, self._n_top), True, array)
    _apply_links(self, self._n_lead, c_llama.llama_sampler_chain_n(self._ptr), array)
    return 0


cdef int _gather_allowed(
    SamplerChain self, SamplerBase grammar, Context context, int32_t index, candidate_array* array
) except -1 nogil:
    """Fill the buffer of the chain with the candidates of an output row that the grammar allows."""
    cdef const float* logits = c_llama.llama_get_logits_ith(context._ptr, index)
    if logits == NULL:
        _raise_no_output(index)
    _check_vocab(self, context)
    _reserve(self, context.n_vocab)
    _take_allowed(self, grammar_sampler_all(grammar._ptr, self._buffer, logits, context.n_vocab), False, array)
    return 0


cdef int _take_allowed(SamplerChain self, int32_t n, bint in_order, candidate_array* array) except -1 nogil:
    """Let an array be the first n candidates of the buffer, which a grammar left there; -1: a logit is wrong."""
    if n < 0:
        with gil:
            candidates_raise(LLAMACY_BAD_LOGIT, 0)
    if n == 0:
        _raise_none_left()
    array.data = self._buffer
    array.size = n
    array.selected = -1
    array.sorted = in_order
    return 0


cdef int _apply_links(SamplerChain self, int begin, int end, candidate_array* array) except -1 nogil:
    cdef c_llama.llama_sampler* link
    cdef int i
    for i in range(begin, end):
        link = c_llama.llama_sampler_chain_get(self._ptr, i)
        if link.iface.apply != NULL:
            sampler_apply(link, array)
    return 0


cdef int32_t _selected(SamplerChain self, Context context, candidate_array* array) except -2 nogil:
    """Return the token that the chain has selected, or -1 when that one is ruled out."""
    cdef candidate* chosen
    if not 0 <= array.selected < <int64_t>array.size:
        with gil:
            raise SamplerError(f"no link of {self!r} picks a token; end the chain with greedy, dist or mirostat")
    chosen = array.data + array.selected
    if chosen.logit == -INFINITY or isnan(chosen.logit) or isnan(chosen.p) or not 0 <= chosen.id < context.n_vocab:
        return -1
    return chosen.id


cdef bint _gather_shortlist(
    SamplerChain self, Context context, int32_t index, candidate_array* array
) except -1 nogil:
    """Find the candidates that the link leaves that keeps the highest ones; return whether they could be found."""
    cdef c_llama.llama_context* ctx = context._ptr
    cdef const float* logits
    cdef shortlist_result result
    if c_llama.llama_get_sampled_logits_ith(ctx, index) != NULL:
        return False
    logits = c_llama.llama_get_logits_ith(ctx, index)
    if logits == NULL:
        _raise_no_output(index)
    sampling_check_whole(self)
    _check_vocab(self, context)
    result = (<shortlist*>self._shortlist).make(
        self._ptr, logits, context.n_vocab, <c_llama.llama_token_data_array*>array)
    if result == BAD_LOGIT:
        with gil:
            candidates_raise(LLAMACY_BAD_LOGIT, 0)
    return result == MADE


cdef int _gather(SamplerChain self, Context context, int32_t index, candidate_array* array) except -1 nogil:
    """Fill the buffer of the chain with the candidates of an output row."""
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
        sampling_check_whole(self)
    _check_vocab(self, context)
    _reserve(self, n)
    array.data = self._buffer
    array.selected = -1
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


cdef int _gather_one(
    SamplerChain self, Context context, int32_t index, int32_t token, candidate_array* array
) except -1 nogil:
    """Make a token the only candidate."""
    cdef const float* logits = c_llama.llama_get_logits_ith(context._ptr, index)
    if logits == NULL:
        _raise_no_output(index)
    _check_vocab(self, context)
    _reserve(self, 1)
    self._buffer[0].id = token
    self._buffer[0].logit = 0.0
    self._buffer[0].p = 0.0
    array.data = self._buffer
    array.size = 1
    array.selected = -1
    array.sorted = 1
    return 0


cdef int _check_output(Context context, int32_t index) except -1 nogil:
    # llama.cpp logs an error for what is certain to be none
    if not -context._n_outputs <= index < context._n_tokens or context._n_outputs == 0:
        _raise_no_output(index)
    return 0


cdef int _raise_no_output(int32_t index) except -1 nogil:
    with gil:
        raise OutputError(f"entry {index} is not an output of the last decode")


cdef int _check_vocab(SamplerChain self, Context context) except -1 nogil:
    if self._n_vocab and self._n_vocab != context.n_vocab:
        with gil:
            raise SamplerError(
                f"the chain is for a vocabulary of {self._n_vocab} tokens, but the context's has {context.n_vocab}")
    return 0


cdef int _reserve(SamplerChain self, size_t n) except -1 nogil:
    cdef candidate* buffer
    if n <= self._capacity:
        return 0
    buffer = <candidate*>realloc(self._buffer, n * sizeof(candidate))
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
    _raise_none_left()


cdef int _raise_none_left() except -1 nogil:
    with gil:
        raise GrammarError(
            "no token is left: those that the grammar allows here are not in the vocabulary, or ruled out by the "
            "samplers")


cdef int sampling_check_whole(SamplerChain self) except -1 nogil:
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
