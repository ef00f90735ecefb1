# `from llamacy cimport Model`: the classes under the names of the package.
#
# Neither an include path nor a library is needed for these. The C API itself is in llamacy.native, which needs
# `llamacy.get_include()`.

from llamacy.core.adapter cimport LoraAdapter
from llamacy.core.backend cimport Device
from llamacy.core.batch cimport Batch, batch_add, batch_clear, batch_extend
from llamacy.core.candidates cimport Candidates, candidate, candidate_array
from llamacy.core.context cimport Context
from llamacy.core.control_vector cimport ControlVector
from llamacy.core.custom_sampler cimport CustomSampler, sampler_from_functions, sampler_functions
from llamacy.core.decoding cimport (
    context_acquire,
    context_decode,
    context_embeddings_ith,
    context_encode,
    context_handle,
    context_logits_ith,
    context_release,
)
from llamacy.core.gguf cimport Gguf
from llamacy.core.memory cimport Memory
from llamacy.core.model cimport Model, model_handle
from llamacy.core.outputs cimport Outputs, Rows
from llamacy.core.sampler cimport SamplerChain, chain_accept, chain_sample
from llamacy.core.sampler_base cimport sampler_handle
from llamacy.core.samplers cimport Sampler
from llamacy.core.threadpool cimport ThreadPool
from llamacy.core.vocab cimport Vocab, vocab_handle, vocab_is_eog, vocab_piece
