from llamacy.core.model cimport Model
from llamacy.native.handles cimport llama_adapter_lora


cdef class LoraAdapter:
    cdef llama_adapter_lora* _ptr       # NULL once closed
    cdef object __weakref__
    cdef readonly Model model
    cdef readonly object path           # str, or None for an adapter that came from an open file
    cdef dict _contexts                 # id -> weak reference: contexts that it was set on


cdef llama_adapter_lora* adapter_handle(LoraAdapter self) except NULL
