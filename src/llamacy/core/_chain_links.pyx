# distutils: language = c++
"""The links of a sampler chain: which go together, and what becomes of them when the chain is cloned, copied, closed.
"""

from llamacy.core.custom_sampler cimport CustomSampler, custom_take
from llamacy.core.sampler cimport SamplerChain
from llamacy.core.sampler_base cimport SAMPLER_CLOSED, SAMPLER_IN_CHAIN, SAMPLER_OPEN, sampler_handle
from llamacy.core.samplers cimport Sampler
from llamacy.native cimport llama as c_llama

from llamacy.errors import InUseError, SamplerError

__all__ = []

# samplers that pick the token: what comes after them would change nothing
cdef frozenset _SELECTING = frozenset(("greedy", "dist", "mirostat", "mirostat_v2", "adaptive_p"))


cdef int links_check_add(SamplerChain self, Sampler sampler) except -1:
    if sampler._state != SAMPLER_OPEN or not isinstance(sampler, CustomSampler):
        sampler_handle(sampler)
    if self._was_attached:
        raise InUseError("the links of a chain that was attached to a context can't be changed; clone it before")
    if isinstance(sampler, SamplerChain) and (<SamplerChain>sampler)._was_attached:
        raise SamplerError("this chain was attached to a context; add chain.clone() instead")
    if links_select(self) and not isinstance(sampler, CustomSampler) and sampler.kind != "from_functions":
        raise SamplerError(f"the last link of {self!r} picks the token, so {sampler!r} after it would change nothing")
    if self._model is not None and sampler._model is not None and self._model is not sampler._model:
        raise SamplerError(f"{sampler!r} is for the vocabulary of another model than the chain")
    if self._n_vocab and sampler._n_vocab and self._n_vocab != sampler._n_vocab:
        raise SamplerError(
            f"{sampler!r} is for a vocabulary of {sampler._n_vocab} tokens, but the chain's has {self._n_vocab}")
    return 0


cdef void link_mark_closed(Sampler link) noexcept:
    """The native side of a link is gone."""
    link._state = SAMPLER_CLOSED
    link._owned = None
    link._model = None
    if isinstance(link, SamplerChain):
        for inner in (<SamplerChain>link)._links:
            link_mark_closed(inner)
        (<SamplerChain>link)._links = []


cdef bint links_select(SamplerChain self) except -1:
    """Whether the last link picks the token."""
    if not self._links:
        return False
    last = self._links[len(self._links) - 1]
    return links_select(last) if isinstance(last, SamplerChain) else (<Sampler>last).kind in _SELECTING


cdef int links_check_clonable(SamplerChain self) except -1:
    cdef Sampler link
    for link in self._links:
        if isinstance(link, SamplerChain):
            links_check_clonable(link)
        elif not link._clonable:
            raise SamplerError(f"{link!r} can't be cloned, so neither can the chain")
    return 0


cdef int links_clone(SamplerChain self, c_llama.llama_sampler* native, SamplerChain like) except -1:
    """Make the links of a chain whose native side is a clone."""
    cdef Sampler link, copy
    cdef c_llama.llama_sampler* inner
    cdef int i
    self.no_perf = like.no_perf
    self._n_vocab = like._n_vocab
    for i in range(<int>len(like._links)):
        link = like._links[i]
        inner = c_llama.llama_sampler_chain_get(native, i)
        if isinstance(link, CustomSampler):
            self._links.append(custom_take(inner))
            continue
        if isinstance(link, SamplerChain):
            copy = SamplerChain.__new__(SamplerChain, None)
            links_clone(copy, inner, link)
        else:
            copy = Sampler.__new__(Sampler)
        copy.kind = link.kind
        copy._values = link._values
        copy._state = SAMPLER_IN_CHAIN
        copy._n_vocab = link._n_vocab
        copy._model = link._model
        copy._owned = link._owned
        copy._clonable = link._clonable
        self._links.append(copy)
    return 0


cdef int links_copy(SamplerChain self, c_llama.llama_sampler* native, SamplerChain source) except -1:
    """Put the objects in place that llama.cpp had cloned for the native links of custom samplers."""
    cdef Sampler link
    cdef c_llama.llama_sampler* inner
    cdef int i
    for i in range(<int>len(self._links)):
        link = self._links[i]
        inner = c_llama.llama_sampler_chain_get(native, i)
        if isinstance(link, CustomSampler):
            taken = custom_take(inner)
            if taken is not None:
                self._links[i] = taken
                link_mark_closed(link)
        elif isinstance(link, SamplerChain):
            links_copy(link, inner, source._links[i])
        else:
            link._owned = (<Sampler>source._links[i])._owned
    return 0
