# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False
"""Code of a user that drives llamacy's classes from Cython: no include path, nothing linked."""

from libc.stdint cimport int32_t

from llamacy cimport (
    Batch,
    Context,
    Model,
    SamplerChain,
    Vocab,
    batch_add,
    batch_clear,
    batch_extend,
    chain_accept,
    chain_sample,
    context_decode,
    context_logits_ith,
    vocab_is_eog,
)


def generate(Context context, SamplerChain chain, Batch batch, const int32_t[::1] prompt, int32_t[::1] out):
    """Decode a prompt, then sample one token after the other, all without the GIL.

    Returns the number of tokens written to `out` and the sum of all logits that were looked at.
    """
    cdef Model model = context.model
    cdef Vocab vocab = model.vocab
    cdef int n_vocab = context.n_vocab
    cdef int n_prompt = <int>prompt.shape[0]
    cdef int n_max = <int>out.shape[0]
    cdef int n = 0
    cdef int i
    cdef int32_t token
    cdef double total = 0
    cdef const float* row
    with nogil:
        batch_clear(batch)
        batch_extend(batch, &prompt[0], n_prompt, 0, 0, True)
        while True:
            context_decode(context, batch)
            row = context_logits_ith(context, -1)
            for i in range(n_vocab):
                total += row[i]
            if n == n_max:
                break
            # picks a token and tells the samplers that it was chosen
            token = chain_sample(chain, context, -1)
            out[n] = token
            n += 1
            if vocab_is_eog(vocab, token):
                break
            batch_clear(batch)
            batch_add(batch, token, n_prompt + n - 1, 0, True)
    return n, total


def accept(SamplerChain chain, int32_t token):
    """Tell the samplers about a token."""
    chain_accept(chain, token)


def decode_badly(Context context, Batch batch):
    """Let a function that needs no GIL fail."""
    with nogil:
        batch_clear(batch)
        batch_add(batch, 2147483647, 0, 0, True)
        context_decode(context, batch)


cdef class Holder:
    """A class of the user with typed attributes of llamacy's classes."""

    cdef readonly Model model
    cdef readonly Context context

    def __init__(self, Model model not None, Context context not None):
        self.model = model
        self.context = context

    def facts(self):
        return self.model.architecture, self.context.n_ctx, self.context.n_vocab
