# Mirror of include/llama.h of llama.cpp: same names, same order.
#
# `except +` marks what allocates with C++ containers or is known to throw: an exception that leaves a
# function without it terminates the process. Plain getters, setters and free functions are bare. Two enums
# share their name with a function: here the enum gets the suffix `_enum`, its enumerators keep theirs.

from libc.stdint cimport int32_t, int64_t, int8_t, uint32_t, uint64_t, uint8_t
from libc.stdio cimport FILE
from libcpp cimport bool

from llamacy.native.handles cimport (
    ggml_backend_buffer_type_t,
    ggml_backend_dev_t,
    ggml_cgraph,
    ggml_context,
    ggml_opt_dataset_t,
    ggml_opt_result_t,
    ggml_threadpool_t,
    gguf_context,
    llama_adapter_lora,
    llama_batch_ext,
    llama_context,
    llama_memory_i,
    llama_memory_t,
    llama_model,
    llama_pos,
    llama_seq_id,
    llama_token,
    llama_vocab,
)
from llamacy.native.ggml cimport ggml_abort_callback, ggml_log_callback, ggml_tensor, ggml_type
from llamacy.native.ggml_backend cimport ggml_backend_sched_eval_callback
from llamacy.native.ggml_cpu cimport ggml_numa_strategy
from llamacy.native.ggml_opt cimport (
    ggml_opt_epoch_callback,
    ggml_opt_get_optimizer_params,
    ggml_opt_optimizer_type,
)


cdef extern from "llama.h" nogil:
    const uint32_t LLAMA_DEFAULT_SEED

    const int LLAMA_TOKEN_NULL

    const uint32_t LLAMA_FILE_MAGIC_GGLA
    const uint32_t LLAMA_FILE_MAGIC_GGSN
    const uint32_t LLAMA_FILE_MAGIC_GGSQ

    const uint32_t LLAMA_SESSION_MAGIC
    const int LLAMA_SESSION_VERSION

    const uint32_t LLAMA_STATE_SEQ_MAGIC
    const int LLAMA_STATE_SEQ_VERSION

    struct llama_sampler

    enum llama_vocab_type_enum "llama_vocab_type":
        LLAMA_VOCAB_TYPE_NONE
        LLAMA_VOCAB_TYPE_SPM
        LLAMA_VOCAB_TYPE_BPE
        LLAMA_VOCAB_TYPE_WPM
        LLAMA_VOCAB_TYPE_UGM
        LLAMA_VOCAB_TYPE_RWKV
        LLAMA_VOCAB_TYPE_PLAMO2
        LLAMA_VOCAB_TYPE_TEST
        LLAMA_VOCAB_TYPE_PLAMO3

    enum llama_rope_type:
        LLAMA_ROPE_TYPE_NONE
        LLAMA_ROPE_TYPE_NORM
        LLAMA_ROPE_TYPE_NEOX
        LLAMA_ROPE_TYPE_MROPE
        LLAMA_ROPE_TYPE_IMROPE
        LLAMA_ROPE_TYPE_VISION

    enum llama_token_type:
        LLAMA_TOKEN_TYPE_UNDEFINED
        LLAMA_TOKEN_TYPE_NORMAL
        LLAMA_TOKEN_TYPE_UNKNOWN
        LLAMA_TOKEN_TYPE_CONTROL
        LLAMA_TOKEN_TYPE_USER_DEFINED
        LLAMA_TOKEN_TYPE_UNUSED
        LLAMA_TOKEN_TYPE_BYTE

    enum llama_token_attr:
        LLAMA_TOKEN_ATTR_UNDEFINED
        LLAMA_TOKEN_ATTR_UNKNOWN
        LLAMA_TOKEN_ATTR_UNUSED
        LLAMA_TOKEN_ATTR_NORMAL
        LLAMA_TOKEN_ATTR_CONTROL
        LLAMA_TOKEN_ATTR_USER_DEFINED
        LLAMA_TOKEN_ATTR_BYTE
        LLAMA_TOKEN_ATTR_NORMALIZED
        LLAMA_TOKEN_ATTR_LSTRIP
        LLAMA_TOKEN_ATTR_RSTRIP
        LLAMA_TOKEN_ATTR_SINGLE_WORD

    # model file types
    enum llama_ftype:
        LLAMA_FTYPE_ALL_F32
        LLAMA_FTYPE_MOSTLY_F16
        LLAMA_FTYPE_MOSTLY_Q4_0
        LLAMA_FTYPE_MOSTLY_Q4_1
        LLAMA_FTYPE_MOSTLY_Q8_0
        LLAMA_FTYPE_MOSTLY_Q5_0
        LLAMA_FTYPE_MOSTLY_Q5_1
        LLAMA_FTYPE_MOSTLY_Q2_K
        LLAMA_FTYPE_MOSTLY_Q3_K_S
        LLAMA_FTYPE_MOSTLY_Q3_K_M
        LLAMA_FTYPE_MOSTLY_Q3_K_L
        LLAMA_FTYPE_MOSTLY_Q4_K_S
        LLAMA_FTYPE_MOSTLY_Q4_K_M
        LLAMA_FTYPE_MOSTLY_Q5_K_S
        LLAMA_FTYPE_MOSTLY_Q5_K_M
        LLAMA_FTYPE_MOSTLY_Q6_K
        LLAMA_FTYPE_MOSTLY_IQ2_XXS
        LLAMA_FTYPE_MOSTLY_IQ2_XS
        LLAMA_FTYPE_MOSTLY_Q2_K_S
        LLAMA_FTYPE_MOSTLY_IQ3_XS
        LLAMA_FTYPE_MOSTLY_IQ3_XXS
        LLAMA_FTYPE_MOSTLY_IQ1_S
        LLAMA_FTYPE_MOSTLY_IQ4_NL
        LLAMA_FTYPE_MOSTLY_IQ3_S
        LLAMA_FTYPE_MOSTLY_IQ3_M
        LLAMA_FTYPE_MOSTLY_IQ2_S
        LLAMA_FTYPE_MOSTLY_IQ2_M
        LLAMA_FTYPE_MOSTLY_IQ4_XS
        LLAMA_FTYPE_MOSTLY_IQ1_M
        LLAMA_FTYPE_MOSTLY_BF16
        LLAMA_FTYPE_MOSTLY_TQ1_0
        LLAMA_FTYPE_MOSTLY_TQ2_0
        LLAMA_FTYPE_MOSTLY_MXFP4_MOE
        LLAMA_FTYPE_MOSTLY_NVFP4
        LLAMA_FTYPE_MOSTLY_Q1_0
        LLAMA_FTYPE_MOSTLY_Q2_0
        LLAMA_FTYPE_GUESSED

    # Get the model file type (quantization) as a string, e.g. "Q8_0" or "Q4_K - Medium"
    const char *llama_ftype_name(llama_ftype ftype)

    enum llama_rope_scaling_type:
        LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED
        LLAMA_ROPE_SCALING_TYPE_NONE
        LLAMA_ROPE_SCALING_TYPE_LINEAR
        LLAMA_ROPE_SCALING_TYPE_YARN
        LLAMA_ROPE_SCALING_TYPE_LONGROPE
        LLAMA_ROPE_SCALING_TYPE_MAX_VALUE

    enum llama_pooling_type_enum "llama_pooling_type":
        LLAMA_POOLING_TYPE_UNSPECIFIED
        LLAMA_POOLING_TYPE_NONE
        LLAMA_POOLING_TYPE_MEAN
        LLAMA_POOLING_TYPE_CLS
        LLAMA_POOLING_TYPE_LAST
        LLAMA_POOLING_TYPE_RANK

    enum llama_attention_type:
        LLAMA_ATTENTION_TYPE_UNSPECIFIED
        LLAMA_ATTENTION_TYPE_CAUSAL
        LLAMA_ATTENTION_TYPE_NON_CAUSAL

    enum llama_flash_attn_type:
        LLAMA_FLASH_ATTN_TYPE_AUTO
        LLAMA_FLASH_ATTN_TYPE_DISABLED
        LLAMA_FLASH_ATTN_TYPE_ENABLED

    const char *llama_flash_attn_type_name(llama_flash_attn_type flash_attn_type)

    enum llama_split_mode:
        LLAMA_SPLIT_MODE_NONE
        LLAMA_SPLIT_MODE_LAYER
        LLAMA_SPLIT_MODE_ROW
        LLAMA_SPLIT_MODE_TENSOR

    enum llama_load_mode:
        LLAMA_LOAD_MODE_AUTO
        LLAMA_LOAD_MODE_NONE
        LLAMA_LOAD_MODE_MMAP
        LLAMA_LOAD_MODE_MLOCK
        LLAMA_LOAD_MODE_MMAP_MLOCK
        LLAMA_LOAD_MODE_DIRECT_IO

    const char *llama_load_mode_name(llama_load_mode load_mode)
    llama_load_mode llama_load_mode_from_str(const char *str)

    enum llama_lazy_mode:
        LLAMA_LAZY_MODE_OFF
        LLAMA_LAZY_MODE_AUTO
        LLAMA_LAZY_MODE_ON

    enum llama_context_type:
        LLAMA_CONTEXT_TYPE_DEFAULT
        LLAMA_CONTEXT_TYPE_MTP

    struct llama_token_data:
        llama_token id
        float logit
        float p

    struct llama_token_data_array:
        llama_token_data *data
        size_t size
        int64_t selected
        bool sorted

    ctypedef bool (*llama_progress_callback)(float progress, void *user_data) noexcept nogil

    struct llama_batch:
        int32_t n_tokens
        llama_token *token
        float *embd
        llama_pos *pos
        int32_t *n_seq_id
        llama_seq_id **seq_id
        int8_t *logits

    enum llama_model_kv_override_type:
        LLAMA_KV_OVERRIDE_TYPE_INT
        LLAMA_KV_OVERRIDE_TYPE_FLOAT
        LLAMA_KV_OVERRIDE_TYPE_BOOL
        LLAMA_KV_OVERRIDE_TYPE_STR

    enum llama_model_meta_key:
        LLAMA_MODEL_META_KEY_SAMPLING_SEQUENCE
        LLAMA_MODEL_META_KEY_SAMPLING_TOP_K
        LLAMA_MODEL_META_KEY_SAMPLING_TOP_P
        LLAMA_MODEL_META_KEY_SAMPLING_MIN_P
        LLAMA_MODEL_META_KEY_SAMPLING_XTC_PROBABILITY
        LLAMA_MODEL_META_KEY_SAMPLING_XTC_THRESHOLD
        LLAMA_MODEL_META_KEY_SAMPLING_TEMP
        LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_LAST_N
        LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_REPEAT
        LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT
        LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT_TAU
        LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT_ETA

    enum llama_process_type:
        LLAMA_PROCESS_TYPE_ENCODE
        LLAMA_PROCESS_TYPE_DECODE

    struct llama_model_kv_override:
        llama_model_kv_override_type tag
        char key[128]
        # an anonymous union in C: the tag says which one is set
        int64_t val_i64
        double val_f64
        bool val_bool
        char val_str[128]

    struct llama_model_tensor_buft_override:
        const char *pattern
        ggml_backend_buffer_type_t buft

    struct llama_model_params:
        ggml_backend_dev_t *devices
        const llama_model_tensor_buft_override *tensor_buft_overrides
        int32_t n_gpu_layers
        llama_split_mode split_mode
        llama_load_mode load_mode
        llama_lazy_mode lazy_mode
        int32_t main_gpu
        const float *tensor_split
        llama_progress_callback progress_callback
        void *progress_callback_user_data
        const llama_model_kv_override *kv_overrides
        bool vocab_only
        bool check_tensors
        bool use_extra_bufts
        bool no_host
        bool no_alloc
        bool load_mtp

    struct llama_sampler_seq_config:
        llama_seq_id seq_id
        llama_sampler *sampler

    struct llama_context_params:
        uint32_t n_ctx
        uint32_t n_batch
        uint32_t n_ubatch
        uint32_t n_seq_max
        uint32_t n_rs_seq
        uint32_t n_outputs_max
        uint32_t n_outputs_max_per_seq
        int32_t n_threads
        int32_t n_threads_batch
        llama_context_type ctx_type
        llama_rope_scaling_type rope_scaling_type
        llama_pooling_type_enum pooling_type
        llama_attention_type attention_type
        llama_flash_attn_type flash_attn_type
        float rope_freq_base
        float rope_freq_scale
        float yarn_ext_factor
        float yarn_attn_factor
        float yarn_beta_fast
        float yarn_beta_slow
        uint32_t yarn_orig_ctx
        float defrag_thold
        ggml_backend_sched_eval_callback cb_eval
        void *cb_eval_user_data
        ggml_type type_k
        ggml_type type_v
        size_t moe_cache_size
        ggml_abort_callback abort_callback
        void *abort_callback_data
        bool embeddings
        bool offload_kqv
        bool no_perf
        bool op_offload
        bool swa_full
        bool kv_unified
        llama_sampler_seq_config *samplers
        size_t n_samplers
        llama_context *ctx_other

    struct llama_model_tensor_override:
        const char *pattern
        ggml_type type

    struct llama_model_imatrix_data:
        const char *name
        const float *data
        size_t size

    # model quantization parameters
    struct llama_model_quantize_params:
        int32_t nthread
        llama_ftype ftype
        ggml_type output_tensor_type
        ggml_type token_embedding_type
        bool allow_requantize
        bool quantize_output_tensor
        bool only_copy
        bool pure
        bool keep_split
        bool dry_run
        const llama_model_imatrix_data *imatrix
        const llama_model_kv_override *kv_overrides
        const llama_model_tensor_override *tt_overrides
        const int32_t *prune_layers
        size_t max_buf_size

    struct llama_logit_bias:
        llama_token token
        float bias

    struct llama_sampler_chain_params:
        bool no_perf

    # used in chat template
    struct llama_chat_message:
        const char *role
        const char *content

    const char *llama_version()

    # Helpers for getting default parameters
    llama_model_params llama_model_default_params()
    llama_context_params llama_context_default_params()
    llama_sampler_chain_params llama_sampler_chain_default_params()
    llama_model_quantize_params llama_model_quantize_default_params()

    void llama_backend_init() except +

    # Call once at the end of the program - currently only used for MPI
    void llama_backend_free() except +

    # Optional: enable numa optimizations
    void llama_numa_init(ggml_numa_strategy numa) except +

    # Optional: an auto threadpool gets created in ggml if not passed explicitly
    void llama_attach_threadpool(
        llama_context *ctx, ggml_threadpool_t threadpool, ggml_threadpool_t threadpool_batch
    )

    void llama_detach_threadpool(llama_context *ctx)

    ctypedef void (*llama_model_set_tensor_data_t)(ggml_tensor *tensor, void *userdata) noexcept nogil

    llama_model *llama_model_init_from_user(
        gguf_context *metadata, llama_model_set_tensor_data_t set_tensor_data, void *set_tensor_data_ud,
        llama_model_params params
    ) except +

    llama_model *llama_load_model_from_file(  # deprecated
        const char *path_model, llama_model_params params
    ) except +
    llama_model *llama_model_load_from_file(const char *path_model, llama_model_params params) except +

    llama_model *llama_model_load_from_file_ptr(FILE *file, llama_model_params params) except +

    llama_model *llama_model_load_from_splits(
        const char **paths, size_t n_paths, llama_model_params params
    ) except +

    void llama_model_save_to_file(const llama_model *model, const char *path_model) except +

    void llama_free_model(llama_model *model)  # deprecated
    void llama_model_free(llama_model *model)

    llama_context *llama_init_from_model(llama_model *model, llama_context_params params) except +

    llama_context *llama_new_context_with_model(  # deprecated
        llama_model *model, llama_context_params params
    ) except +
    void llama_free(llama_context *ctx)

    int64_t llama_time_us()

    size_t llama_max_devices()
    size_t llama_max_parallel_sequences()
    size_t llama_max_tensor_buft_overrides()

    bool llama_supports_mmap()
    bool llama_supports_mlock()
    bool llama_supports_gpu_offload() except +
    bool llama_supports_rpc() except +

    uint32_t llama_n_ctx(const llama_context *ctx)
    uint32_t llama_n_ctx_seq(const llama_context *ctx)
    uint32_t llama_n_batch(const llama_context *ctx)
    uint32_t llama_n_ubatch(const llama_context *ctx)
    uint32_t llama_n_seq_max(const llama_context *ctx)
    uint32_t llama_n_rs_seq(const llama_context *ctx)

    int32_t llama_n_ctx_train(const llama_model *model)  # deprecated
    int32_t llama_n_embd(const llama_model *model)  # deprecated
    int32_t llama_n_layer(const llama_model *model)  # deprecated
    int32_t llama_n_head(const llama_model *model)  # deprecated
    int32_t llama_n_vocab(const llama_vocab *vocab)  # deprecated
    const llama_model *llama_get_model(const llama_context *ctx)
    llama_memory_t llama_get_memory(const llama_context *ctx)
    llama_pooling_type_enum llama_pooling_type(const llama_context *ctx)

    const llama_vocab *llama_model_get_vocab(const llama_model *model)
    llama_rope_type llama_model_rope_type(const llama_model *model)

    int32_t llama_model_n_ctx_train(const llama_model *model)
    int32_t llama_model_n_embd(const llama_model *model)
    int32_t llama_model_n_embd_inp(const llama_model *model)
    int32_t llama_model_n_embd_out(const llama_model *model)
    int32_t llama_model_n_layer(const llama_model *model)
    int32_t llama_model_n_layer_nextn(const llama_model *model)
    int32_t llama_model_n_head(const llama_model *model)
    int32_t llama_model_n_head_kv(const llama_model *model)
    int32_t llama_model_n_swa(const llama_model *model)

    # Get the model's RoPE frequency scaling factor
    float llama_model_rope_freq_scale_train(const llama_model *model)

    uint32_t llama_model_n_cls_out(const llama_model *model)

    # Returns label of classifier output by index (<n_cls_out). Returns nullptr if no label provided
    const char *llama_model_cls_label(const llama_model *model, uint32_t i)

    llama_vocab_type_enum llama_vocab_type(const llama_vocab *vocab)

    int32_t llama_vocab_n_tokens(const llama_vocab *vocab)

    # Get metadata value as a string by key name
    int32_t llama_model_meta_val_str(
        const llama_model *model, const char *key, char *buf, size_t buf_size
    ) except +

    # Get the number of metadata key/value pairs
    int32_t llama_model_meta_count(const llama_model *model)

    # Get sampling metadata key name. Returns nullptr if the key is invalid
    const char *llama_model_meta_key_str(llama_model_meta_key key)

    # Get metadata key name by index
    int32_t llama_model_meta_key_by_index(
        const llama_model *model, int32_t i, char *buf, size_t buf_size
    ) except +

    # Get metadata value as a string by index
    int32_t llama_model_meta_val_str_by_index(
        const llama_model *model, int32_t i, char *buf, size_t buf_size
    ) except +

    # Get a string describing the model type
    int32_t llama_model_desc(const llama_model *model, char *buf, size_t buf_size) except +

    # Get the model file type (quantization), e.g. LLAMA_FTYPE_MOSTLY_Q8_0
    llama_ftype llama_model_ftype(const llama_model *model)

    # Returns the total size of all the tensors in the model in bytes
    uint64_t llama_model_size(const llama_model *model)

    const char *llama_model_chat_template(const llama_model *model, const char *name) except +

    # Returns the total number of parameters in the model
    uint64_t llama_model_n_params(const llama_model *model)

    # Returns true if the model contains an encoder that requires llama_encode() call
    bool llama_model_has_encoder(const llama_model *model)

    # Returns true if the model contains a decoder that requires llama_decode() call
    bool llama_model_has_decoder(const llama_model *model)

    llama_token llama_model_decoder_start_token(const llama_model *model)

    # Returns true if the model is recurrent (like Mamba, RWKV, etc.)
    bool llama_model_is_recurrent(const llama_model *model)

    # Returns true if the model is hybrid (like Jamba, Granite, etc.)
    bool llama_model_is_hybrid(const llama_model *model)

    # Returns true if the model is diffusion-based (like LLaDA, Dream, etc.)
    bool llama_model_is_diffusion(const llama_model *model)

    # Returns 0 on success
    uint32_t llama_model_quantize(
        const char *fname_inp, const char *fname_out, const llama_model_quantize_params *params
    ) except +

    #
    # Adapters
    #

    llama_adapter_lora *llama_adapter_lora_init(llama_model *model, const char *path_lora) except +

    # Load a LoRA adapter from an open FILE pointer, reading from its current position
    llama_adapter_lora *llama_adapter_lora_init_from_file_ptr(llama_model *model, FILE *file) except +

    # Get metadata value as a string by key name
    int32_t llama_adapter_meta_val_str(
        const llama_adapter_lora *adapter, const char *key, char *buf, size_t buf_size
    ) except +

    # Get the number of metadata key/value pairs
    int32_t llama_adapter_meta_count(const llama_adapter_lora *adapter)

    # Get metadata key name by index
    int32_t llama_adapter_meta_key_by_index(
        const llama_adapter_lora *adapter, int32_t i, char *buf, size_t buf_size
    ) except +

    # Get metadata value as a string by index
    int32_t llama_adapter_meta_val_str_by_index(
        const llama_adapter_lora *adapter, int32_t i, char *buf, size_t buf_size
    ) except +

    void llama_adapter_lora_free(llama_adapter_lora *adapter)

    # Get the invocation tokens if the current lora is an alora
    uint64_t llama_adapter_get_alora_n_invocation_tokens(const llama_adapter_lora *adapter)
    const llama_token *llama_adapter_get_alora_invocation_tokens(const llama_adapter_lora *adapter)

    # The following functions operate on a llama_context, hence the naming: llama_verb_...

    int32_t llama_set_adapters_lora(
        llama_context *ctx, llama_adapter_lora **adapters, size_t n_adapters, float *scales
    ) except +

    int32_t llama_set_adapter_cvec(
        llama_context *ctx, const float *data, size_t len, int32_t n_embd, int32_t il_start, int32_t il_end
    ) except +

    #
    # Memory
    #

    void llama_memory_clear(llama_memory_t mem, bool data) except +

    bool llama_memory_seq_rm(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1) except +

    void llama_memory_seq_cp(
        llama_memory_t mem, llama_seq_id seq_id_src, llama_seq_id seq_id_dst, llama_pos p0, llama_pos p1
    ) except +

    # Removes all tokens that do not belong to the specified sequence
    void llama_memory_seq_keep(llama_memory_t mem, llama_seq_id seq_id) except +

    void llama_memory_seq_add(
        llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, llama_pos delta
    ) except +

    void llama_memory_seq_div(
        llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, int d
    ) except +

    llama_pos llama_memory_seq_pos_min(llama_memory_t mem, llama_seq_id seq_id)

    llama_pos llama_memory_seq_pos_max(llama_memory_t mem, llama_seq_id seq_id)

    # Check if the memory supports shifting
    bool llama_memory_can_shift(llama_memory_t mem)

    #
    # State / sessions
    #

    size_t llama_state_get_size(llama_context *ctx) except +
    size_t llama_get_state_size(llama_context *ctx) except +  # deprecated

    size_t llama_state_get_data(llama_context *ctx, uint8_t *dst, size_t size) except +
    size_t llama_copy_state_data(llama_context *ctx, uint8_t *dst) except +  # deprecated

    size_t llama_state_set_data(llama_context *ctx, const uint8_t *src, size_t size) except +
    size_t llama_set_state_data(llama_context *ctx, const uint8_t *src) except +  # deprecated

    # Save/load session file
    bool llama_state_load_file(
        llama_context *ctx, const char *path_session, llama_token *tokens_out, size_t n_token_capacity,
        size_t *n_token_count_out
    ) except +
    bool llama_load_session_file(  # deprecated
        llama_context *ctx, const char *path_session, llama_token *tokens_out, size_t n_token_capacity,
        size_t *n_token_count_out
    ) except +

    bool llama_state_save_file(
        llama_context *ctx, const char *path_session, const llama_token *tokens, size_t n_token_count
    ) except +
    bool llama_save_session_file(  # deprecated
        llama_context *ctx, const char *path_session, const llama_token *tokens, size_t n_token_count
    ) except +

    # Get the exact size needed to copy the state of a single sequence
    size_t llama_state_seq_get_size(llama_context *ctx, llama_seq_id seq_id) except +

    # Copy the state of a single sequence into the specified buffer
    size_t llama_state_seq_get_data(
        llama_context *ctx, uint8_t *dst, size_t size, llama_seq_id seq_id
    ) except +

    size_t llama_state_seq_set_data(
        llama_context *ctx, const uint8_t *src, size_t size, llama_seq_id dest_seq_id
    ) except +

    size_t llama_state_seq_save_file(
        llama_context *ctx, const char *filepath, llama_seq_id seq_id, const llama_token *tokens,
        size_t n_token_count
    ) except +

    size_t llama_state_seq_load_file(
        llama_context *ctx, const char *filepath, llama_seq_id dest_seq_id, llama_token *tokens_out,
        size_t n_token_capacity, size_t *n_token_count_out
    ) except +

    const int LLAMA_STATE_SEQ_FLAGS_NONE

    # for backwards-compat
    const int LLAMA_STATE_SEQ_FLAGS_SWA_ONLY

    # work only with partial states, such as SWA KV cache or recurrent cache (e.g. Mamba)
    const int LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY

    const int LLAMA_STATE_SEQ_FLAGS_ON_DEVICE

    ctypedef uint32_t llama_state_seq_flags

    size_t llama_state_seq_get_size_ext(
        llama_context *ctx, llama_seq_id seq_id, llama_state_seq_flags flags
    ) except +

    size_t llama_state_seq_get_data_ext(
        llama_context *ctx, uint8_t *dst, size_t size, llama_seq_id seq_id, llama_state_seq_flags flags
    ) except +

    size_t llama_state_seq_set_data_ext(
        llama_context *ctx, const uint8_t *src, size_t size, llama_seq_id dest_seq_id,
        llama_state_seq_flags flags
    ) except +

    #
    # Decoding
    #

    llama_batch llama_batch_get_one(llama_token *tokens, int32_t n_tokens)

    llama_batch llama_batch_init(int32_t n_tokens, int32_t embd, int32_t n_seq_max)

    # Frees a batch of tokens allocated with llama_batch_init()
    void llama_batch_free(llama_batch batch)

    int32_t llama_encode(llama_context *ctx, llama_batch batch) except +

    int32_t llama_decode(llama_context *ctx, llama_batch batch) except +

    #
    # Extended batch API
    #

    struct llama_embd:
        const float *data
        size_t n_rows
        size_t n_embd

    llama_batch_ext *llama_batch_ext_init(llama_context *ctx) except +
    void llama_batch_ext_free(llama_batch_ext *batch)
    void llama_batch_ext_clear(llama_batch_ext *batch) except +

    int32_t llama_batch_ext_add(llama_batch_ext *batch, llama_seq_id seq_id) except +

    # Add an input token to the batch, with a specified token ID or token embedding
    int32_t llama_batch_ext_add_token(llama_batch_ext *batch, llama_seq_id seq_id, llama_token id) except +
    int32_t llama_batch_ext_add_embd(llama_batch_ext *batch, llama_seq_id seq_id, llama_embd embd) except +

    bool llama_batch_ext_add_seq(llama_batch_ext *batch, int32_t idx, llama_seq_id seq_id) except +

    bool llama_batch_ext_set_embd_token(llama_batch_ext *batch, int32_t idx, llama_embd embd) except +

    bool llama_batch_ext_set_embd_state(llama_batch_ext *batch, int32_t idx, llama_embd embd) except +

    bool llama_batch_ext_set_output_embd(llama_batch_ext *batch, int32_t idx, bool value) except +

    bool llama_batch_ext_set_output_logits(llama_batch_ext *batch, int32_t idx, bool value) except +

    bool llama_batch_ext_set_pos(llama_batch_ext *batch, int32_t idx, const llama_pos *pos) except +

    # Return values are the same as llama_decode()
    int32_t llama_process(llama_context *ctx, llama_process_type type, llama_batch_ext *batch) except +

    void llama_set_n_threads(llama_context *ctx, int32_t n_threads, int32_t n_threads_batch)

    # Get the number of threads used for generation of a single token.
    int32_t llama_n_threads(llama_context *ctx)

    # Get the number of threads used for prompt and batch processing (multiple token).
    int32_t llama_n_threads_batch(llama_context *ctx)

    # Set whether the context outputs embeddings or not
    void llama_set_embeddings(llama_context *ctx, bool embeddings)

    void llama_set_causal_attn(llama_context *ctx, bool causal_attn)

    # Returns whether the context is currently using causal attention
    bool llama_get_causal_attn(const llama_context *ctx)

    void llama_set_warmup(llama_context *ctx, bool warmup)  # deprecated
    void llama_set_abort_callback(
        llama_context *ctx, ggml_abort_callback abort_callback, void *abort_callback_data
    )

    void llama_synchronize(llama_context *ctx)

    float *llama_get_logits(llama_context *ctx)

    float *llama_get_logits_ith(llama_context *ctx, int32_t i)

    float *llama_get_embeddings(llama_context *ctx)

    float *llama_get_embeddings_ith(llama_context *ctx, int32_t i)

    float *llama_get_embeddings_seq(llama_context *ctx, llama_seq_id seq_id)

    #
    # backend sampling API [EXPERIMENTAL]
    # note: use only if the llama_context was created with at least one llama_sampler_seq_config
    #

    llama_token llama_get_sampled_token_ith(llama_context *ctx, int32_t i)

    float *llama_get_sampled_probs_ith(llama_context *ctx, int32_t i)
    uint32_t llama_get_sampled_probs_count_ith(llama_context *ctx, int32_t i)

    float *llama_get_sampled_logits_ith(llama_context *ctx, int32_t i)
    uint32_t llama_get_sampled_logits_count_ith(llama_context *ctx, int32_t i)

    llama_token *llama_get_sampled_candidates_ith(llama_context *ctx, int32_t i)
    uint32_t llama_get_sampled_candidates_count_ith(llama_context *ctx, int32_t i)

    #
    # Vocab
    #

    const char *llama_vocab_get_text(const llama_vocab *vocab, llama_token token) except +

    float llama_vocab_get_score(const llama_vocab *vocab, llama_token token) except +

    llama_token_attr llama_vocab_get_attr(const llama_vocab *vocab, llama_token token) except +

    # Check if the token is supposed to end generation (end-of-generation, eg. EOS, EOT, etc.)
    bool llama_vocab_is_eog(const llama_vocab *vocab, llama_token token)

    # Identify if Token Id is a control token or a render-able token
    bool llama_vocab_is_control(const llama_vocab *vocab, llama_token token)

    # Special tokens
    llama_token llama_vocab_bos(const llama_vocab *vocab)
    llama_token llama_vocab_eos(const llama_vocab *vocab)
    llama_token llama_vocab_eot(const llama_vocab *vocab)
    llama_token llama_vocab_sep(const llama_vocab *vocab)
    llama_token llama_vocab_nl(const llama_vocab *vocab)
    llama_token llama_vocab_pad(const llama_vocab *vocab)
    llama_token llama_vocab_mask(const llama_vocab *vocab)

    bool llama_vocab_get_add_bos(const llama_vocab *vocab)
    bool llama_vocab_get_add_eos(const llama_vocab *vocab)
    bool llama_vocab_get_add_sep(const llama_vocab *vocab)

    # model-specific suppress tokens (gguf key: tokenizer.ggml.suppress_tokens)
    const llama_token *llama_vocab_get_suppress_tokens(const llama_vocab *vocab, int32_t *n_suppress_tokens)

    llama_token llama_vocab_fim_pre(const llama_vocab *vocab)
    llama_token llama_vocab_fim_suf(const llama_vocab *vocab)
    llama_token llama_vocab_fim_mid(const llama_vocab *vocab)
    llama_token llama_vocab_fim_pad(const llama_vocab *vocab)
    llama_token llama_vocab_fim_rep(const llama_vocab *vocab)
    llama_token llama_vocab_fim_sep(const llama_vocab *vocab)

    const char *llama_token_get_text(const llama_vocab *vocab, llama_token token) except +  # deprecated
    float llama_token_get_score(const llama_vocab *vocab, llama_token token) except +  # deprecated
    llama_token_attr llama_token_get_attr(const llama_vocab *vocab, llama_token token) except +  # deprecated
    bool llama_token_is_eog(const llama_vocab *vocab, llama_token token)  # deprecated
    bool llama_token_is_control(const llama_vocab *vocab, llama_token token)  # deprecated
    llama_token llama_token_bos(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_eos(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_eot(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_cls(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_sep(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_nl(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_pad(const llama_vocab *vocab)  # deprecated
    bool llama_add_bos_token(const llama_vocab *vocab)  # deprecated
    bool llama_add_eos_token(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_fim_pre(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_fim_suf(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_fim_mid(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_fim_pad(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_fim_rep(const llama_vocab *vocab)  # deprecated
    llama_token llama_token_fim_sep(const llama_vocab *vocab)  # deprecated
    llama_token llama_vocab_cls(const llama_vocab *vocab)  # deprecated

    #
    # Tokenization
    #

    int32_t llama_tokenize(
        const llama_vocab *vocab, const char *text, int32_t text_len, llama_token *tokens,
        int32_t n_tokens_max, bool add_special, bool parse_special
    ) except +

    int32_t llama_token_to_piece(
        const llama_vocab *vocab, llama_token token, char *buf, int32_t length, int32_t lstrip, bool special
    ) except +

    int32_t llama_detokenize(
        const llama_vocab *vocab, const llama_token *tokens, int32_t n_tokens, char *text,
        int32_t text_len_max, bool remove_special, bool unparse_special
    ) except +

    #
    # Chat templates
    #

    int32_t llama_chat_apply_template(
        const char *tmpl, const llama_chat_message *chat, size_t n_msg, bool add_ass, char *buf,
        int32_t length
    ) except +

    # Get list of built-in chat templates
    int32_t llama_chat_builtin_templates(const char **output, size_t len) except +

    #
    # Sampling API
    #

    ctypedef void *llama_sampler_context_t

    struct llama_sampler_data:
        ggml_tensor *logits
        ggml_tensor *probs
        ggml_tensor *sampled
        ggml_tensor *candidates

    # user code can implement the interface below in order to create custom llama_sampler
    struct llama_sampler_i:
        const char * (*name)(const llama_sampler *smpl) noexcept nogil
        void (*accept)(llama_sampler *smpl, llama_token token) noexcept nogil
        void (*apply)(llama_sampler *smpl, llama_token_data_array *cur_p) noexcept nogil
        void (*reset)(llama_sampler *smpl) noexcept nogil
        llama_sampler * (*clone)(const llama_sampler *smpl) noexcept nogil
        void (*free)(llama_sampler *smpl) noexcept nogil
        bool (*backend_init)(
            llama_sampler *smpl, ggml_backend_buffer_type_t buft, uint32_t n_outputs_max_per_seq
        ) noexcept nogil
        void (*backend_accept)(
            llama_sampler *smpl, ggml_context *ctx, ggml_cgraph *gf, ggml_tensor *selected_token
        ) noexcept nogil
        void (*backend_apply)(
            llama_sampler *smpl, ggml_context *ctx, ggml_cgraph *gf, llama_sampler_data *data
        ) noexcept nogil
        void (*backend_set_input)(llama_sampler *smpl) noexcept nogil
        void (*backend_reset)(llama_sampler *smpl) noexcept nogil
        void (*copy_state)(const llama_sampler *src, llama_sampler *dst) noexcept nogil

    struct llama_sampler:
        llama_sampler_i *iface
        llama_sampler_context_t ctx

    bool llama_set_sampler(llama_context *ctx, llama_seq_id seq_id, llama_sampler *smpl) except +

    # mirror of llama_sampler_i
    llama_sampler *llama_sampler_init(llama_sampler_i *iface, llama_sampler_context_t ctx) except +
    const char *llama_sampler_name(const llama_sampler *smpl)
    void llama_sampler_accept(llama_sampler *smpl, llama_token token) except +
    void llama_sampler_apply(llama_sampler *smpl, llama_token_data_array *cur_p) except +
    void llama_sampler_reset(llama_sampler *smpl) except +
    llama_sampler *llama_sampler_clone(const llama_sampler *smpl) except +
    void llama_sampler_copy(const llama_sampler *src, llama_sampler *dst) except +
    void llama_sampler_free(llama_sampler *smpl)

    llama_sampler *llama_sampler_chain_init(llama_sampler_chain_params params) except +

    # important: takes ownership of the sampler object and will free it when llama_sampler_free is called
    void llama_sampler_chain_add(llama_sampler *chain, llama_sampler *smpl) except +

    llama_sampler *llama_sampler_chain_get(llama_sampler *chain, int32_t i)

    # the total number of samplers in the chain
    int32_t llama_sampler_chain_n(const llama_sampler *chain)

    llama_sampler *llama_sampler_chain_remove(llama_sampler *chain, int32_t i) except +

    # available samplers

    llama_sampler *llama_sampler_init_greedy() except +

    # seed == LLAMA_DEFAULT_SEED to use a random seed.
    llama_sampler *llama_sampler_init_dist(uint32_t seed) except +

    llama_sampler *llama_sampler_init_top_k(int32_t k) except +

    llama_sampler *llama_sampler_init_top_p(float p, size_t min_keep) except +

    llama_sampler *llama_sampler_init_min_p(float p, size_t min_keep) except +

    llama_sampler *llama_sampler_init_typical(float p, size_t min_keep) except +

    llama_sampler *llama_sampler_init_temp(float t) except +

    llama_sampler *llama_sampler_init_temp_ext(float t, float delta, float exponent) except +

    llama_sampler *llama_sampler_init_xtc(float p, float t, size_t min_keep, uint32_t seed) except +

    llama_sampler *llama_sampler_init_top_n_sigma(float n) except +

    llama_sampler *llama_sampler_init_mirostat(
        int32_t n_vocab, uint32_t seed, float tau, float eta, int32_t m
    ) except +

    llama_sampler *llama_sampler_init_mirostat_v2(uint32_t seed, float tau, float eta) except +

    llama_sampler *llama_sampler_init_grammar(
        const llama_vocab *vocab, const char *grammar_str, const char *grammar_root
    ) except +

    llama_sampler *llama_sampler_init_grammar_lazy(  # deprecated
        const llama_vocab *vocab, const char *grammar_str, const char *grammar_root,
        const char **trigger_words, size_t num_trigger_words, const llama_token *trigger_tokens,
        size_t num_trigger_tokens
    ) except +
    llama_sampler *llama_sampler_init_grammar_lazy_patterns(
        const llama_vocab *vocab, const char *grammar_str, const char *grammar_root,
        const char **trigger_patterns, size_t num_trigger_patterns, const llama_token *trigger_tokens,
        size_t num_trigger_tokens
    ) except +

    llama_sampler *llama_sampler_init_penalties(
        int32_t n_vocab, int32_t penalty_last_n, float penalty_repeat, float penalty_freq,
        float penalty_present
    ) except +

    llama_sampler *llama_sampler_init_dry(
        const llama_vocab *vocab, float dry_multiplier, float dry_base, int32_t dry_allowed_length,
        int32_t dry_penalty_last_n, const char **seq_breakers, size_t num_breakers
    ) except +

    llama_sampler *llama_sampler_init_adaptive_p(float target, float decay, uint32_t seed) except +

    llama_sampler *llama_sampler_init_logit_bias(
        int32_t n_vocab, int32_t n_logit_bias, const llama_logit_bias *logit_bias
    ) except +

    llama_sampler *llama_sampler_init_infill(const llama_vocab *vocab) except +

    # Returns the seed used by the sampler if applicable, LLAMA_DEFAULT_SEED otherwise
    uint32_t llama_sampler_get_seed(const llama_sampler *smpl)

    llama_token llama_sampler_sample(llama_sampler *smpl, llama_context *ctx, int32_t idx) except +

    #
    # Model split
    #

    int32_t llama_split_path(
        char *split_path, size_t maxlen, const char *path_prefix, int32_t split_no, int32_t split_count
    )

    int32_t llama_split_prefix(
        char *split_prefix, size_t maxlen, const char *split_path, int32_t split_no, int32_t split_count
    ) except +

    # Print system information
    const char *llama_print_system_info() except +

    void llama_log_get(ggml_log_callback *log_callback, void **user_data)
    void llama_log_set(ggml_log_callback log_callback, void *user_data)

    #
    # Performance utils
    #

    struct llama_perf_context_data:
        double t_start_ms
        double t_load_ms
        double t_p_eval_ms
        double t_eval_ms
        int32_t n_p_eval
        int32_t n_eval
        int32_t n_reused

    struct llama_perf_sampler_data:
        double t_sample_ms
        int32_t n_sample

    llama_perf_context_data llama_perf_context(const llama_context *ctx)
    void llama_perf_context_print(const llama_context *ctx) except +
    void llama_perf_context_reset(llama_context *ctx)

    # NOTE: the following work only with samplers constructed via llama_sampler_chain_init
    llama_perf_sampler_data llama_perf_sampler(const llama_sampler *chain)
    void llama_perf_sampler_print(const llama_sampler *chain) except +
    void llama_perf_sampler_reset(llama_sampler *chain)

    #
    # training
    #

    # function that returns whether or not a given tensor contains trainable parameters
    ctypedef bool (*llama_opt_param_filter)(const ggml_tensor *tensor, void *userdata) noexcept nogil

    # always returns true
    bool llama_opt_param_filter_all(const ggml_tensor *tensor, void *userdata)

    struct llama_opt_params:
        uint32_t n_ctx_train
        llama_opt_param_filter param_filter
        void *param_filter_ud
        ggml_opt_get_optimizer_params get_opt_pars
        void *get_opt_pars_ud
        ggml_opt_optimizer_type optimizer_type

    void llama_opt_init(llama_context *lctx, llama_model *model, llama_opt_params lopt_params) except +

    void llama_opt_epoch(
        llama_context *lctx, ggml_opt_dataset_t dataset, ggml_opt_result_t result_train,
        ggml_opt_result_t result_eval, int64_t idata_split, ggml_opt_epoch_callback callback_train,
        ggml_opt_epoch_callback callback_eval
    ) except +
