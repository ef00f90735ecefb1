from libc.stddef cimport size_t
from libc.stdint cimport int32_t

from llamacy.core.candidates cimport candidate, candidate_array
from llamacy.core.context cimport Context
from llamacy.core.sampler_base cimport SamplerBase, sampler_acquire, sampler_handle, sampler_release
from llamacy.core.samplers cimport Sampler


cdef class SamplerChain(Sampler):
    cdef list _links                    # what was added, as emptied Sampler objects, in order
    cdef candidate* _buffer             # candidates of the row being sampled
    cdef size_t _capacity
    cdef int32_t _n_top                 # candidates that a link keeps, the highest ones, or 0 when it keeps others
    cdef int _n_lead                    # links before that one, each of which changes logits one by one
    cdef float* _row                    # logits that these have changed
    cdef bint _was_attached             # a chain may be attached to a context once in its life
    cdef object _context                # weak reference to the context it is attached to, or None
    cdef int _seq_id                    # … for this sequence
    cdef readonly bint no_perf
    cdef void* _shortlist               # finds these candidates, or NULL when all are to be written
    cdef int _first_after               # the link that is the first to run on them


# Choose a token for an output row of the last decode and accept it. Takes and gives back the chain and the context.
cdef int32_t chain_sample(SamplerChain self, Context context, int32_t index) except? -2147483648 nogil

# The same under a grammar that is not in the chain: it is asked about the chosen token first, and only when it refuses
# that one, the choice is made again among what it allows. With `grammar_first` that is done at once.
cdef int32_t chain_sample_grammar(
    SamplerChain self, SamplerBase grammar, Context context, int32_t index, bint grammar_first
) except? -2147483648 nogil

# Accept a token, or let the chain work on candidates, which must be what samplers rely on (`candidates_check`).
cdef int chain_accept(SamplerChain self, int32_t token) except -1 nogil
cdef int chain_apply(SamplerChain self, candidate_array* array) except -1 nogil

# For Context.attach_sampler: refuse a chain that a backend would abort on; note that it is, and no longer is, attached.
cdef int chain_check_attach(SamplerChain self, int n_vocab) except -1
cdef int chain_attached(SamplerChain self, object context, int seq_id) except -1
cdef void chain_detached(SamplerChain self) noexcept
