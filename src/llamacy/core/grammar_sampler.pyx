# distutils: language = c++
"""The native side of grammar samplers: see _grammar_sampler.h and _grammar_mask.h, which only this module includes."""

from libc.stdint cimport int32_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from llamacy.core._status cimport native_error
from llamacy.core.grammar_guard cimport grammar_guard, grammar_program
from llamacy.core.candidates cimport candidate
from llamacy.core.log cimport log_begin
from llamacy.core.model cimport Model
from llamacy.core.vocab cimport Vocab, vocab_handle
from llamacy.native cimport llama as c_llama

import weakref

from llamacy.errors import GrammarError

__all__ = []

cdef extern from "_native_error.h" namespace "llamacy" nogil:
    string exception_text(cbool& out_of_memory)


cdef int _raise_native() except -1:
    cdef cbool out_of_memory = False
    text = exception_text(out_of_memory).decode("utf-8", "replace")
    if out_of_memory:
        raise MemoryError()
    raise GrammarError(text)


cdef extern from "_token_slices.h" namespace "llamacy" nogil:
    cppclass sliced_vocab:
        sliced_vocab(const c_llama.llama_vocab* vocab)

cdef extern from "_reasoning_watch.h" namespace "llamacy" nogil:
    cppclass reasoning_tags:
        vector[string] starts
        vector[string] ends
        cbool begun
        cbool anywhere

cdef extern from "_grammar_sampler.h" namespace "llamacy" nogil:
    cppclass grammar_config:
        const c_llama.llama_vocab* vocab
        string text
        string root
        cbool lazy
        grammar_program program
        cbool special
        vector[c_llama.llama_token] spelled
        c_llama.llama_token end
        vector[c_llama.llama_token] rule_tokens
        shared_ptr[sliced_vocab] tokens
        reasoning_tags reasoning
        vector[c_llama.llama_token] trigger_tokens
    cppclass grammar_state:
        cbool awaiting
    int GRAMMAR_REFUSED
    int GRAMMAR_BROKEN
    void grammar_add_trigger(grammar_config& config, const string& pattern) except +
    llama_sampler* grammar_new(shared_ptr[grammar_config] config) except +
    grammar_state& grammar_of(const llama_sampler* sampler)
    int grammar_check_all(llama_sampler* sampler, c_llama.llama_token token) except +_raise_native
    cbool is_grammar(const llama_sampler* sampler)

cdef extern from "_grammar_mask.h" namespace "llamacy" nogil:
    cbool grammar_complete(grammar_state& state) except +_raise_native
    int32_t grammar_top(
        grammar_state& state, c_llama.llama_token_data* data, const float* logits, int32_t n, int32_t k
    ) except +_raise_native
    int32_t grammar_all(
        grammar_state& state, c_llama.llama_token_data* data, const float* logits, int32_t n
    ) except +_raise_native

# Model -> _Tokens; those of a vocabulary take long to arrange
cdef object _vocabs = weakref.WeakKeyDictionary()


cdef class _Tokens:
    cdef shared_ptr[sliced_vocab] ptr


cdef shared_ptr[sliced_vocab] _tokens_of(Model model, const c_llama.llama_vocab* vocab) except *:
    cdef _Tokens tokens = _vocabs.get(model)
    if tokens is None:
        tokens = _Tokens.__new__(_Tokens)
        tokens.ptr = make_shared[sliced_vocab](vocab)
        _vocabs[model] = tokens
    return tokens.ptr


cdef llama_sampler* grammar_sampler_new(
    Vocab vocab, bytes text, bytes root, object patterns, object tokens, object reasoning, object spelled
) except NULL:
    """Make a grammar sampler; a lazy one when there are patterns (bytes) or tokens that trigger it.

    `reasoning` is None, or a `ReasoningTags` in which no trigger counts. `spelled` has the special tokens that stand
    for their spelling, or is None when all do.
    """
    cdef shared_ptr[grammar_config] config = make_shared[grammar_config]()
    cdef grammar_config* c = config.get()
    cdef llama_sampler* sampler
    c.vocab = vocab_handle(vocab)
    c.rule_tokens = grammar_guard(text, root, c.vocab, &c.program)
    c.end = _find_end(c.vocab)
    c.tokens = _tokens_of(vocab._model, c.vocab)
    c.special = spelled is None
    for token in spelled or ():
        c.spelled.push_back(token)
    c.text = text
    c.root = root
    c.lazy = patterns is not None
    if c.lazy:
        for pattern in patterns:
            try:
                grammar_add_trigger(c[0], pattern)
            except RuntimeError as error:
                raise GrammarError(f"trigger pattern {pattern.decode()!r} is wrong: {error}") from None
        for token in tokens:
            c.trigger_tokens.push_back(token)
            c.spelled.push_back(token)
    if reasoning is not None:
        for tag in reasoning.start:
            # white space before a tag is skipped
            c.reasoning.starts.push_back((tag if reasoning.anywhere else tag.lstrip()).encode())
        for tag in reasoning.end:
            c.reasoning.ends.push_back(tag.encode())
        c.reasoning.begun = reasoning.is_open
        c.reasoning.anywhere = reasoning.anywhere
    log_begin()
    try:
        with nogil:
            sampler = grammar_new(config)
    except RuntimeError as error:
        raise native_error(GrammarError, str(error)) from None
    return sampler


cdef c_llama.llama_token _find_end(const c_llama.llama_vocab* vocab) noexcept:
    """Return some token that ends the generation, or -1 when the vocabulary has none."""
    cdef c_llama.llama_token token = c_llama.llama_vocab_eos(vocab)
    if token >= 0 and c_llama.llama_vocab_is_eog(vocab, token):
        return token
    for token in range(c_llama.llama_vocab_n_tokens(vocab)):
        if c_llama.llama_vocab_is_eog(vocab, token):
            return token
    return -1


cdef int grammar_sampler_verdict(llama_sampler* sampler, int32_t token) except -1 nogil:
    """Return 0 when all grammars in a sampler allow a token, or else what `grammar_raise` wants to know."""
    return grammar_check_all(sampler, token)


cdef bint grammar_verdict_is_refusal(int verdict) noexcept nogil:
    """Whether a verdict is about the token, and not about the grammar."""
    return verdict == GRAMMAR_REFUSED


cdef bint grammar_sampler_awaiting(llama_sampler* sampler) noexcept nogil:
    return is_grammar(sampler) and grammar_of(sampler).awaiting


cdef bint grammar_sampler_complete(llama_sampler* sampler) except -1 nogil:
    return is_grammar(sampler) and grammar_complete(grammar_of(sampler))


cdef bint grammar_sampler_is_one(llama_sampler* sampler) noexcept nogil:
    return is_grammar(sampler)


cdef int32_t grammar_sampler_top(
    llama_sampler* sampler, candidate* data, const float* logits, int32_t n, int32_t k
) except? -2 nogil:
    return grammar_top(grammar_of(sampler), <c_llama.llama_token_data*>data, logits, n, k)


cdef int32_t grammar_sampler_all(
    llama_sampler* sampler, candidate* data, const float* logits, int32_t n
) except? -2 nogil:
    return grammar_all(grammar_of(sampler), <c_llama.llama_token_data*>data, logits, n)


cdef int grammar_raise(int verdict, int32_t token) except -1:
    if verdict == GRAMMAR_BROKEN:
        raise GrammarError("the grammar failed at an earlier token; reset the sampler")
    raise GrammarError(f"the grammar does not allow token {token} here; the sampler is unchanged")
