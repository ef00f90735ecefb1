from libc.stdint cimport int32_t

from llamacy.core.logprobs cimport LogprobRecord
from llamacy.core.sampler cimport SamplerChain
from llamacy.core.sampler_base cimport SamplerBase
from llamacy.core.vocab cimport Vocab

# Why a sequence generates no more.
cdef enum SequenceEnd:
    SEQUENCE_GOES_ON
    SEQUENCE_STOPPED                    # the model, its grammar, or a criterion ended it
    SEQUENCE_AT_LIMIT                   # as many tokens as were asked for


cdef class Sequence:
    # the ledger: the tokens that are in the memory, and after them those that go there next
    cdef int32_t* _tokens
    cdef int _n_tokens
    cdef int _n_past                    # tokens that are in the memory
    cdef int _n_sound                   # of these, how many were computed after those that the ledger has before
    cdef SamplerChain _sampler
    cdef SamplerBase _grammar
    cdef public bint grammar_first      # mask with the grammar before the sampler chooses
    cdef readonly bint complete         # the grammar is at an end and lets nothing follow
    cdef readonly int seq_id
    cdef readonly int capacity          # tokens that the ledger can hold
    cdef int _n_keep                    # tokens that stay when a full ledger is shifted, or -1: it isn't
    cdef readonly int n_shifted         # tokens that were dropped by shifts
    cdef tuple _processors              # what changes a row of logits before a token is chosen
    cdef tuple _criteria                # what is asked after every token whether to stop
    cdef LogprobRecord _logprobs        # of the generated tokens, or None
    cdef LogprobRecord _prompt_logprobs  # of the tokens that are given, or None
    cdef int _next_scored               # the next one that it takes
    cdef object _basis                  # what its memory was computed with (Scheduler)
    # what it generates
    cdef Vocab _vocab                   # says which tokens end it, or None
    cdef int _n_max                     # tokens to generate at most, or -1
    cdef int32_t* _generated
    cdef int _n_generated
    cdef int _generated_capacity
    cdef SequenceEnd _end
    # one step of the scheduler
    cdef int _n_taken                   # tokens in the batch now
    cdef int _first_row                 # batch index of its first token in the batch
    cdef int _row                       # batch index of the row to sample, or -1
    cdef int32_t _sampled               # token that the step gave, or -1
    # where the adapters were changed for what is new (Scheduler.set_adapters)
    cdef int _n_before                  # tokens that only the adapters from before can compute, or 0
    cdef object _basis_before           # what the first of these were computed with, or None


# Begin to generate: forget what was generated before. Tokens of the vocabulary end it, and so does the limit.
cdef int sequence_begin(Sequence self, Vocab vocab, int n_max) except -1

# Add a generated token to the ledger, pending, and see whether the sequence ends with it.
cdef int sequence_append(Sequence self, int32_t token) except -1 nogil

# Take the tokens from `n` on off the ledger; those must not be in the memory any more.
cdef void sequence_truncate(Sequence self, int n) noexcept nogil

# Take `n` tokens from `first` on out of the ledger; the memory must be shifted alike.
cdef void sequence_drop(Sequence self, int first, int n) noexcept nogil

# Note that nothing of it is in the memory any more: all tokens are pending.
cdef void sequence_forget(Sequence self) noexcept nogil

# Hold what another sequence holds.
cdef int sequence_copy(Sequence self, Sequence source) except -1
