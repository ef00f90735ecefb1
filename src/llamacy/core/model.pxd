from llamacy.native.handles cimport llama_model


cdef class Model:
    cdef llama_model* _ptr              # NULL once closed
    cdef object __weakref__
    cdef dict _children                 # id -> weak reference: what must be closed before the model
    cdef object _vocab                  # weak reference: the Vocab holds the model
    cdef readonly object params         # ModelParams
    cdef readonly object path           # str, or None for a model that came from no path
    cdef readonly str architecture
    cdef readonly bint vocab_only
    cdef bint _one_path                 # path is all there is to load it from
    cdef bint _repacks                  # weights may lie in memory in another layout than in the file
    cdef int _n_uses                    # calls that work on the model without the GIL
    cdef int _n_positions_max           # learned positions of the architecture, or 0 for no such limit


cdef llama_model* model_handle(Model self) except NULL nogil
cdef llama_model* model_use(Model self) except NULL
cdef void model_unuse(Model self) noexcept
cdef int model_adopt(Model self, object child) except -1
cdef void model_disown(Model self, object child) noexcept
