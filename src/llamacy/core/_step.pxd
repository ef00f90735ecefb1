from llamacy.core.batch cimport Batch
from llamacy.core.context cimport Context
from llamacy.core.sequence cimport Sequence

# Put what is pending into a batch: first one token of each sequence that generates, then prompts. Those take turns in
# being first; returns whose turn is next.
cdef int step_fill(Batch batch, list sequences, int turn) except? -1

# Choose the next token of a sequence from its row of the last decode, and append it.
cdef int step_choose(Context context, Sequence sequence) except -1

# Take the log-probabilities of the tokens that a sequence had in the last decode, all of which were outputs.
cdef int step_record_prompt(Context context, Sequence sequence) except -1
