# Mirror of src/llama-ext.h of llama.cpp: same names, same order.
#
# The header has C++ linkage and is not installed by CMake: compile as C++17 with the `src` folder of
# llama.cpp on the include path. Upstream calls it a staging area, so this mirror follows the pinned version
# only.

from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool
from libcpp.map cimport map

from llamacy.native.handles cimport (
    ggml_backend_buffer_type_t,
    ggml_backend_dev_t,
    ggml_cgraph,
    llama_batch_ext,
    llama_context,
    llama_model,
    quantize_state_impl,
)
from llamacy.native.ggml cimport ggml_tensor, ggml_type
from llamacy.native.llama cimport llama_ftype, llama_model_quantize_params


cdef extern from "llama-ext.h" nogil:
    # Reserve a new compute graph. It is valid until the next call to llama_graph_reserve.
    ggml_cgraph *llama_graph_reserve(
        llama_context *ctx, uint32_t n_tokens, uint32_t n_seqs, uint32_t n_outputs
    ) except +

    # Get the default ggml_type for a given ftype.
    ggml_type llama_ftype_get_default_type(llama_ftype ftype)

    quantize_state_impl *llama_quant_init(
        const llama_model *model, const llama_model_quantize_params *params
    ) except +

    void llama_quant_free(quantize_state_impl *qs)

    # Descriptor for constructing a mock model for quantization testing.
    struct llama_quant_model_desc:
        const char *architecture
        uint32_t n_embd
        uint32_t n_ff
        uint32_t n_layer
        uint32_t n_head
        uint32_t n_head_kv
        uint32_t n_expert
        uint32_t n_embd_head_k
        uint32_t n_embd_head_v

    llama_model *llama_quant_model_from_metadata(const llama_quant_model_desc *desc) except +

    # Returns true if this tensor should be quantized (based on name, dims, params).
    bool llama_quant_tensor_allows_quantization(
        const quantize_state_impl *qs, const ggml_tensor *tensor
    ) except +

    void llama_quant_compute_types(
        quantize_state_impl *qs, llama_ftype ftype, ggml_tensor **tensors, ggml_type *result_types,
        size_t n_tensors
    ) except +

    #
    # device memory querying
    #

    # "memory" as in physical memory for a buffer type, in bytes
    struct llama_memory_breakdown_data:
        size_t model
        size_t context
        size_t compute

    struct llama_device_memory_data:
        int64_t total
        int64_t free
        llama_memory_breakdown_data mb

    ctypedef map[ggml_backend_buffer_type_t, llama_memory_breakdown_data] llama_memory_breakdown

    int32_t llama_model_n_expert(const llama_model *model)
    int32_t llama_model_n_devices(const llama_model *model)

    ggml_backend_dev_t llama_model_get_device(const llama_model *model, int i) except +

    llama_memory_breakdown llama_get_memory_breakdown(const llama_context *ctx) except +

    void llama_set_embeddings_nextn(llama_context *ctx, bool value, bool masked) except +

    void llama_set_nextn_layer_offset(llama_context *ctx, int32_t offset)

    enum llama_decision_order:
        LLAMA_DECISION_ORDER_NONE
        LLAMA_DECISION_ORDER_QUESTION_NOUL
        LLAMA_DECISION_ORDER_QUESTION_CHOICE
        LLAMA_DECISION_ORDER_QUESTION_SCORE
        LLAMA_DECISION_ORDER_OPTION

    # The embeddings output has one value per entry: row i is the score of option i
    bool llama_batch_ext_set_decision_order(
        llama_batch_ext *batch, int32_t idx, llama_decision_order order
    ) except +

    float *llama_get_embeddings_nextn(llama_context *ctx)

    float *llama_get_embeddings_nextn_ith(llama_context *ctx, int32_t i)

    # Set whether the context outputs the input embeddings of a specific layer
    void llama_set_embeddings_layer_inp(llama_context *ctx, uint32_t lid, bool value) except +

    float *llama_get_embeddings_layer_inp(llama_context *ctx, uint32_t lid)

    llama_context *llama_get_ctx_other(llama_context *ctx)

    #
    # model/context data extraction
    #

    int32_t llama_model_dflash_selector_top_k(const llama_model *model)

    # returns pointer to the target-model layer indices
    const int32_t *llama_model_target_layer_ids(const llama_model *model)

    # returns the number of extracted layers from target model
    uint32_t llama_model_target_layer_ids_n(const llama_model *model)

    uint32_t llama_model_get_tok_embd(const llama_model *model, float *out) except +
