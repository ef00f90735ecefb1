# distutils: language = c++
"""The native side of grammar samplers: see _grammar_sampler.h, which only this module includes."""

from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from llamacy.core._status cimport native_error
from llamacy.core.grammar_guard cimport grammar_guard
from llamacy.core.log cimport log_begin
from llamacy.native cimport llama as c_llama

from llamacy.errors import GrammarError

__all__ = []

cdef extern from "_grammar_sampler.h" namespace "llamacy" nogil:
    cppclass grammar_config:
        const c_llama.llama_vocab* vocab
        string text
        string root
        cbool lazy
        cbool token_rules
        vector[c_llama.llama_token] trigger_tokens
    cppclass grammar_state:
        cbool awaiting
    int GRAMMAR_BROKEN
    int GRAMMAR_TRIGGER_TOO_LATE
    void grammar_add_trigger(grammar_config& config, const string& pattern) except +
    llama_sampler* grammar_new(shared_ptr[grammar_config] config) except +
    grammar_state& grammar_of(const llama_sampler* sampler)
    int grammar_check_all(llama_sampler* sampler, c_llama.llama_token token) except +


cdef llama_sampler* grammar_sampler_new(
    const llama_vocab* vocab, bytes text, bytes root, object patterns, object tokens
) except NULL:
    """Make a grammar sampler; a lazy one when there are patterns (bytes) or tokens that trigger it."""
    cdef shared_ptr[grammar_config] config = make_shared[grammar_config]()
    cdef grammar_config* c = config.get()
    cdef llama_sampler* sampler
    c.token_rules = grammar_guard(text, root, vocab)
    c.vocab = vocab
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
    log_begin()
    try:
        with nogil:
            sampler = grammar_new(config)
    except RuntimeError as error:
        raise native_error(GrammarError, str(error)) from None
    return sampler


cdef int grammar_sampler_verdict(llama_sampler* sampler, int32_t token) except -1 nogil:
    """Return 0 when all grammars in a sampler allow a token, or else what `grammar_raise` wants to know."""
    return grammar_check_all(sampler, token)


cdef bint grammar_sampler_awaiting(llama_sampler* sampler) noexcept nogil:
    return grammar_of(sampler).awaiting


cdef int grammar_raise(int verdict, int32_t token) except -1:
    if verdict == GRAMMAR_BROKEN:
        raise GrammarError("the grammar failed at an earlier token; reset the sampler")
    if verdict == GRAMMAR_TRIGGER_TOO_LATE:
        raise GrammarError(
            "no trigger in 65536 bytes; patterns with ^ or \\b look at all text, leave these out to search in its end "
            "only"
        )
    raise GrammarError(f"the grammar does not allow token {token} here; the sampler is unchanged")
