from libc.stddef cimport size_t
from libc.stdint cimport int32_t

from llamacy.core.model cimport Model
from llamacy.core.threadpool cimport ThreadPool
from llamacy.native.handles cimport llama_context, llama_memory_t


# What native code polls to know whether to go on.
cdef struct context_stop:
    volatile int abort                  # 1 from abort() or at the deadline, 2 from a signal
    double deadline                     # on llamacy_clock(), or 0 for none


cdef class Context:
    cdef llama_context* _ptr            # NULL once closed
    cdef llama_memory_t _memory         # belongs to _ptr; NULL for models without one (BERT)
    cdef object __weakref__
    cdef readonly Model model
    cdef readonly object params         # ContextParams
    cdef readonly int n_ctx
    cdef readonly int n_ctx_seq
    cdef readonly int n_batch
    cdef readonly int n_ubatch
    cdef readonly int n_seq_max
    cdef readonly int n_rs_seq
    cdef readonly int n_vocab
    cdef readonly int n_embd_out
    cdef readonly unsigned long long epoch  # decodes and encodes so far: rows of an earlier one are gone
    cdef int _n_outputs_max             # output rows that one decode may have
    cdef int _busy                      # 1 while a call runs; taken and given back atomically
    cdef context_stop _stop
    cdef bint _embeddings
    cdef bint _causal
    cdef bint _nextn
    cdef bint _nextn_masked
    cdef bint _mrope                    # embeddings have four positions
    cdef bint _streams                  # each sequence has a buffer of its own
    cdef bint _has_encoder              # encode() is possible
    cdef bint _encode_first             # the decoder reads what encode() left
    cdef bint _encoded
    cdef bint _draft_encoder            # encode() takes features, which only an ExtendedBatch carries
    cdef bint _t5                       # embeddings are always allocated
    cdef int _n_embd
    cdef int _n_embd_inp
    cdef int _n_layer_inputs            # len(_layer_inputs), for code without the GIL
    cdef int _n_samplers                # len(_samplers), for code without the GIL
    cdef bint _scattered                # cells may lie in several runs: something was taken out of the middle
    cdef int _n_edits                   # how often the memory was changed by anything but a decode
    cdef object _layer_inputs           # frozenset of the layers whose inputs are outputs
    # what native code points to, kept alive
    cdef dict _children                 # id -> weak reference: what must be closed before the context
    cdef list _adapters                 # [(LoraAdapter, scale), …] in use
    cdef object _control_vector         # ControlVector in use, or None
    cdef dict _samplers                 # sequence id -> SamplerChain attached to it
    cdef ThreadPool _threadpool         # for one token, or None
    cdef ThreadPool _threadpool_batch   # for many, or None
    cdef list _native_pools             # native code points to them since the last decode, attached still or not
    cdef Context _other                 # that this one reads from, or None
    cdef list _observers                # weak references: who is told what happens to the memory
    cdef dict _on_device                # sequence id -> token of the state kept on the device for it
    # the output buffer of llama.cpp: how large it is, how it is laid out, and what looks into it
    cdef size_t _output_capacity        # bytes
    cdef int _output_rows               # rows of the present layout
    cdef int _n_outputs                 # rows of the last decode, 0 when it failed
    cdef int _n_tokens                  # tokens of the last decode, 0 when it failed
    cdef Py_ssize_t _n_row_exports      # views of logits
    cdef Py_ssize_t _n_other_exports    # views of anything else
    # tokens that a recurrent memory can give back, by sequence; -1 while it gave some back and did not go on; or NULL
    cdef int* _n_rollback
    cdef bint _update_pending           # cells were shifted or copied: the next decode does it to their data
    cdef int* _overwritten              # by sequence: first position that a decode wrote anew, or INT32_MAX; or NULL
    cdef int _n_overwritten             # positions noted there
    cdef bint _needs_state              # for multi-token prediction: each entry of a batch needs a hidden state


cdef int context_adopt(Context self, object child) except -1
cdef void context_disown(Context self, object child) noexcept
