# The ways a model gets into memory.

from llamacy.core.params cimport ModelParams
from llamacy.native.handles cimport llama_model

cdef llama_model* model_load(object source, object set_tensor, ModelParams params) except NULL
