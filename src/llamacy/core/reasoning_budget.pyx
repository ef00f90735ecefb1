# distutils: language = c++
"""The reasoning budget: the native sampler that ends a block of reasoning, see _budget_sampler.h."""

from cpython.number cimport PyNumber_Index
from libc.stdint cimport INT32_MAX, int32_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from llamacy.core.sampler_base cimport SamplerBase, sampler_handle
from llamacy.core.vocab cimport Vocab, vocab_handle
from llamacy.native cimport llama as c_llama

__all__ = ["closing_tokens", "end_reasoning", "reasoning_state"]

cdef extern from "_budget_sampler.h" namespace "llamacy" nogil:
    cppclass tag_matcher:
        tag_matcher(string text) except +
    cppclass budget_config:
        const c_llama.llama_vocab* vocab
        vector[tag_matcher] starts
        vector[tag_matcher] ends
        vector[c_llama.llama_token] forced
        vector[size_t] forced_sizes
        int32_t budget
        int32_t start_within
        cbool in_block
    cppclass budget_state:
        c_llama.llama_token forced()
    llama_sampler* budget_new(shared_ptr[budget_config] config) except +
    budget_state* find_budget(llama_sampler* sampler)
    cbool budget_end(budget_state& state)

cdef extern from *:
    """
    static int budget_phase_of(const llamacy::budget_state & state) { return state.phase; }
    """
    int budget_phase_of(const budget_state& state) noexcept nogil

# in the order of budget_phase
cdef tuple _STATES = ("idle", "counting", "waiting", "forcing", "done")

cdef enum:
    MAX_TAG = 1024                      # bytes of a tag; each token is compared with all of them
    MAX_TAGS = 16


cdef llama_sampler* budget_sampler_new(Vocab vocab, dict values) except NULL:
    """Make the native sampler from the checked values that `Sampler.reasoning_budget` was called with."""
    cdef shared_ptr[budget_config] config = make_shared[budget_config]()
    cdef budget_config* c = config.get()
    cdef size_t size = 0
    end = values["end"][0].encode()
    c.vocab = vocab_handle(vocab)
    for text in values["start"]:
        c.starts.push_back(tag_matcher(text.encode()))
    for text in values["end"]:
        c.ends.push_back(tag_matcher(text.encode()))
    for token in closing_tokens(vocab, values["message"] + values["end"][0]):
        c.forced.push_back(token)
    if not values["message"] and _spelled(vocab, c.forced) == end:
        for token in c.forced:
            size += len(vocab.piece(token, special=True))
            c.forced_sizes.push_back(size)
    c.budget = values["budget"]
    c.start_within = values["start_within"]
    c.in_block = values["in_block"]
    return budget_new(config)


cdef dict budget_values(object budget, object start, object end, object message, bint in_block, object start_within):
    """Return the arguments of `Sampler.reasoning_budget`, checked."""
    if not isinstance(message, str):
        raise TypeError(f"message must be a str, not {type(message).__name__}")
    return {
        "budget": _count(budget, "budget"), "start": _tags(start, "start"), "end": _tags(end, "end"),
        "message": message, "in_block": in_block, "start_within": _count(start_within, "start_within"),
    }


cdef tuple _tags(object tags, str name):
    tags = (tags,) if isinstance(tags, str) else tuple(tags)
    if not 1 <= len(tags) <= MAX_TAGS:
        raise ValueError(f"{name} must be a tag or 1 to {MAX_TAGS} of them, not {len(tags)}")
    for tag in tags:
        if not isinstance(tag, str):
            raise TypeError(f"{name} must hold texts, not {type(tag).__name__}")
        if not 1 <= len(tag.encode()) <= MAX_TAG:
            raise ValueError(f"{name}: a tag has 1 to {MAX_TAG} bytes, not {len(tag.encode())}")
    return tags


cdef object _count(object value, str name):
    number = PyNumber_Index(value)
    if not 0 <= number <= INT32_MAX:
        raise ValueError(f"{name} must be from 0 to {INT32_MAX}, not {value}")
    return number


cdef int32_t budget_forced_token(llama_sampler* sampler) noexcept nogil:
    cdef budget_state* state = find_budget(sampler)
    return -1 if state == NULL else state.forced()


cdef bint budget_in_block(llama_sampler* sampler) noexcept nogil:
    cdef budget_state* state = find_budget(sampler)
    return state != NULL and 1 <= budget_phase_of(state[0]) <= 3


def closing_tokens(Vocab vocab not None, str text not None):
    """Return the tokens that are forced to end a block with a text: a message and the end tag.

    Returns
    -------
    list of int
        They spell just the text where the vocabulary can, without the space that some tokenizers put before a text.

    Raises
    ------
    ValueError
        The text makes no tokens.
    """
    tokens = list(vocab.tokenize(text, add_special=False, parse_special=True))
    if _spelled(vocab, tokens) != text.encode():
        longer = list(vocab.tokenize("\n" + text, add_special=False, parse_special=True))
        for i in range(1, len(longer)):
            if _spelled(vocab, longer[:i]).endswith(b"\n") and _spelled(vocab, longer[i:]) == text.encode():
                return longer[i:]
    if not tokens:
        raise ValueError(f"the vocabulary has no tokens for {text!r}, which is to end the reasoning")
    return tokens


cdef bytes _spelled(Vocab vocab, list tokens):
    return b"".join([vocab.piece(token, special=True) for token in tokens])


def reasoning_state(SamplerBase sampler not None):
    """Return how far the reasoning is.

    Parameters
    ----------
    sampler : Sampler or SamplerChain
        One with a `Sampler.reasoning_budget` in it.

    Returns
    -------
    str or None
        ``"idle"`` before the block; ``"counting"`` in it; ``"waiting"`` for the end of a character once the budget is
        used up; ``"forcing"`` while the end is written; ``"done"`` after it. None when there is no budget.

    Thread safety: may be called while another thread samples.
    """
    cdef budget_state* state = find_budget(sampler_handle(sampler))
    return None if state == NULL else _STATES[budget_phase_of(state[0])]


def end_reasoning(SamplerBase sampler not None):
    """End the block of reasoning: the message and the end tag are what comes next.

    Parameters
    ----------
    sampler : Sampler or SamplerChain
        One with a `Sampler.reasoning_budget` in it.

    Returns
    -------
    bool
        Whether there was a block to end; otherwise nothing has changed.

    Thread safety: may be called while another thread samples; the end begins with the next token.
    """
    cdef budget_state* state = find_budget(sampler_handle(sampler))
    return state != NULL and budget_end(state[0])
