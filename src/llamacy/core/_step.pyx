# distutils: language = c++
"""One step: what goes into its batch, and what is done with a row of logits (choice, log-probabilities, criteria)."""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from llamacy.core.batch cimport Batch, batch_clear, batch_extend
from llamacy.core.context cimport Context
from llamacy.core.decoding cimport context_logits_ith
from llamacy.core.logits_function cimport LogitsFunction
from llamacy.core.logprobs cimport LogprobRecord, logprob_record_append
from llamacy.core.outputs cimport row_view, writable_row_view
from llamacy.core.sampler cimport SamplerChain, chain_sample, chain_sample_grammar
from llamacy.core.sampler_base cimport SamplerBase, sampler_complete
from llamacy.core.sequence cimport SEQUENCE_GOES_ON, SEQUENCE_STOPPED, Sequence, sequence_append

from llamacy.errors import ConcurrentUseError

__all__ = []

cdef enum:
    MAX_SCORED = 64                     # rows of a prompt that one step puts out: more would take much memory


cdef int step_fill(Batch batch, list sequences, int turn) except? -1:
    cdef Sequence sequence
    cdef int i, n, n_sequences = <int>len(sequences)
    cdef int waiting = 0
    batch_clear(batch)
    for sequence in sequences:
        sequence._row = -1
        sequence._n_taken = 0
        sequence._sampled = -1
        n = sequence._n_tokens - sequence._n_past
        if n > 1:
            waiting += 1
        elif n == 1 and sequence._end == SEQUENCE_GOES_ON and batch._n_tokens < batch.capacity:
            _take(batch, sequence, 1)
    if waiting > 1:
        turn = (turn + 1) % n_sequences
    for i in range(n_sequences):
        sequence = sequences[(i + turn) % n_sequences]
        n = sequence._n_tokens - sequence._n_past
        if n > 1 and batch._n_tokens < batch.capacity:
            _take(batch, sequence, min(n, batch.capacity - batch._n_tokens))
    return turn


cdef int _take(Batch batch, Sequence sequence, int n) except -1:
    """Put the next `n` tokens of a sequence into the batch; the last pending one has its row output."""
    cdef bint scored = sequence._prompt_logprobs is not None
    cdef bint last
    cdef int i
    if scored:
        n = min(n, MAX_SCORED)
    last = sequence._n_past + n == sequence._n_tokens and sequence._sampler is not None
    sequence._first_row = batch._n_tokens
    if scored:
        for i in range(n):
            batch_extend(batch, sequence._tokens + sequence._n_past + i, 1, sequence._n_past + i, sequence.seq_id, True)
    else:
        batch_extend(batch, sequence._tokens + sequence._n_past, n, sequence._n_past, sequence.seq_id, last)
    sequence._n_taken = n
    if last:
        sequence._row = batch._n_tokens - 1
    return 0


cdef int step_choose(Context context, Sequence sequence) except -1:
    # rows of the context are worked on below: while somebody looks at them, it can't be closed
    context._n_row_exports += 1
    try:
        _choose(context, sequence)
    finally:
        context._n_row_exports -= 1
    return 0


cdef int _choose(Context context, Sequence sequence) except -1:
    cdef SamplerChain sampler = sequence._sampler  # held: another thread may take it away
    cdef SamplerBase grammar = sequence._grammar
    cdef LogprobRecord record = sequence._logprobs
    cdef bint constrained = grammar is not None
    cdef const float* row = NULL
    cdef float* raw = NULL
    cdef int32_t token
    try:
        if record is not None:
            row = context_logits_ith(context, sequence._row)
        if sequence._processors:
            if record is not None:
                raw = _copied(row, context.n_vocab)  # log-probabilities are those of the model
                row = raw
            _process(context, sequence)
        with nogil:
            if constrained:
                token = chain_sample_grammar(sampler, grammar, context, sequence._row, sequence.grammar_first)
                sequence.complete = sampler_complete(grammar)
            else:
                token = chain_sample(sampler, context, sequence._row)
            if record is not None:
                logprob_record_append(record, row, context.n_vocab, token)
            sequence_append(sequence, token)
    finally:
        free(raw)
    sequence._sampled = token
    if sequence._criteria and sequence._end == SEQUENCE_GOES_ON and _is_met(context, sequence):
        sequence._end = SEQUENCE_STOPPED
    return 0


cdef int step_record_prompt(Context context, Sequence sequence) except -1:
    cdef LogprobRecord record = sequence._prompt_logprobs
    cdef const float* row
    cdef int i, next_token
    for i in range(sequence._n_taken):
        next_token = sequence._n_past + i + 1
        if sequence._next_scored <= next_token < sequence._n_tokens:
            row = context_logits_ith(context, sequence._first_row + i)
            logprob_record_append(record, row, context.n_vocab, sequence._tokens[next_token])
            sequence._next_scored = next_token + 1
    if sequence._n_past + sequence._n_taken == sequence._n_tokens:
        sequence._prompt_logprobs = None  # not before: who shares a prompt wants the row of its last token, too
    return 0


cdef float* _copied(const float* row, int n) except NULL:
    cdef float* copy = <float*>malloc(n * sizeof(float))
    if copy == NULL:
        raise MemoryError
    memcpy(copy, row, n * sizeof(float))
    return copy


cdef int _process(Context context, Sequence sequence) except -1:
    """Let the processors change the row."""
    cdef float* row = <float*>context_logits_ith(context, sequence._row)
    cdef unsigned long long epoch = context.epoch
    for processor in sequence._processors:
        if isinstance(processor, LogitsFunction):
            _call(processor, context, sequence, row)
        else:
            processor(sequence, writable_row_view(context, row))
            _check_epoch(context, epoch)
    return 0


cdef bint _is_met(Context context, Sequence sequence) except -1:
    """Whether a criterion wants to stop."""
    cdef float* row = <float*>context_logits_ith(context, sequence._row)
    cdef unsigned long long epoch = context.epoch
    for criterion in sequence._criteria:
        if isinstance(criterion, LogitsFunction):
            if _call(criterion, context, sequence, row):
                return True
        else:
            met = criterion(sequence, row_view(context, row, context.n_vocab, True))
            _check_epoch(context, epoch)
            if met:
                return True
    return False


cdef int _check_epoch(Context context, unsigned long long epoch) except -1:
    if context.epoch != epoch:
        raise ConcurrentUseError(
            "a logits processor or stopping criterion computed with the context that it is called from; use another one"
        )
    return 0


cdef int _call(LogitsFunction function, Context context, Sequence sequence, float* row) noexcept:
    with nogil:
        return function._function(function._data, sequence._tokens, sequence._n_tokens, row, context.n_vocab)
