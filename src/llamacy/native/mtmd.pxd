# Mirror of tools/mtmd/mtmd.h of llama.cpp: same names, same order.
#
# The C++ wrappers in `namespace mtmd` are inline classes over the functions below and are left out.

from libc.stdint cimport int32_t, uint32_t
from libcpp cimport bool
from libcpp.map cimport map

from llamacy.native.handles cimport (
    ggml_backend_dev_t,
    llama_model,
    llama_pos,
    llama_token,
    mtmd_batch,
    mtmd_bitmap,
    mtmd_context,
    mtmd_image_tokens,
    mtmd_input_chunk,
    mtmd_input_chunks,
)
from llamacy.native.ggml cimport ggml_log_callback
from llamacy.native.ggml_backend cimport ggml_backend_sched_eval_callback
from llamacy.native.llama cimport llama_flash_attn_type


cdef extern from "mtmd.h" nogil:
    enum mtmd_input_chunk_type:
        MTMD_INPUT_CHUNK_TYPE_TEXT
        MTMD_INPUT_CHUNK_TYPE_IMAGE
        MTMD_INPUT_CHUNK_TYPE_AUDIO
        MTMD_INPUT_CHUNK_TYPE_COUNT

    struct mtmd_input_text:
        const char *text
        size_t text_len
        bool add_special
        bool parse_special

    struct mtmd_input_part:
        const mtmd_input_text *text
        const mtmd_bitmap *bitmap

    #
    # C API
    #

    ctypedef bool (*mtmd_progress_callback)(float progress, void *user_data) noexcept nogil

    struct mtmd_context_params:
        bool use_gpu
        ggml_backend_dev_t device
        bool print_timings
        int n_threads
        const char *image_marker
        const char *media_marker
        llama_flash_attn_type flash_attn_type
        bool warmup
        int image_min_tokens
        int image_max_tokens
        ggml_backend_sched_eval_callback cb_eval
        void *cb_eval_user_data
        int32_t batch_max_tokens
        mtmd_progress_callback progress_callback
        void *progress_callback_user_data

    const char *mtmd_default_marker()

    mtmd_context_params mtmd_context_params_default()

    mtmd_context *mtmd_init_from_file(
        const char *mmproj_fname, const llama_model *text_model, mtmd_context_params ctx_params
    ) except +

    void mtmd_free(mtmd_context *ctx)

    bool mtmd_decode_use_non_causal(const mtmd_context *ctx, const mtmd_input_chunk *chunk)

    # whether the current model use M-RoPE for llama_decode
    bool mtmd_decode_use_mrope(const mtmd_context *ctx)

    # whether the current model supports vision input
    bool mtmd_support_vision(const mtmd_context *ctx)

    # whether the current model supports audio input
    bool mtmd_support_audio(const mtmd_context *ctx)

    int mtmd_get_audio_sample_rate(const mtmd_context *ctx)

    # get the current marker string
    const char *mtmd_get_marker(const mtmd_context *ctx)

    mtmd_bitmap *mtmd_bitmap_init(uint32_t nx, uint32_t ny, const unsigned char *data) except +
    mtmd_bitmap *mtmd_bitmap_init_from_audio(size_t n_samples, const float *data) except +
    uint32_t mtmd_bitmap_get_nx(const mtmd_bitmap *bitmap)
    uint32_t mtmd_bitmap_get_ny(const mtmd_bitmap *bitmap)
    const unsigned char *mtmd_bitmap_get_data(const mtmd_bitmap *bitmap)
    size_t mtmd_bitmap_get_n_bytes(const mtmd_bitmap *bitmap)
    bool mtmd_bitmap_is_audio(const mtmd_bitmap *bitmap)
    void mtmd_bitmap_free(mtmd_bitmap *bitmap)
    const char *mtmd_bitmap_get_id(const mtmd_bitmap *bitmap)
    void mtmd_bitmap_set_id(mtmd_bitmap *bitmap, const char *id) except +
    void mtmd_bitmap_set_mergeable(mtmd_bitmap *bitmap, bool mergeable)

    ctypedef int (*mtmd_bitmap_lazy_callback)(
        size_t chunk_idx, void *user_data, mtmd_bitmap **out_bitmap, char **out_text
    ) noexcept nogil

    mtmd_bitmap *mtmd_bitmap_init_lazy(
        const mtmd_context *ctx, const char *id, void *user_data, mtmd_bitmap_lazy_callback callback
    ) except +

    mtmd_input_chunks *mtmd_input_chunks_init() except +
    size_t mtmd_input_chunks_size(const mtmd_input_chunks *chunks)
    const mtmd_input_chunk *mtmd_input_chunks_get(const mtmd_input_chunks *chunks, size_t idx)
    void mtmd_input_chunks_free(mtmd_input_chunks *chunks)

    mtmd_input_chunk_type mtmd_input_chunk_get_type(const mtmd_input_chunk *chunk)
    const llama_token *mtmd_input_chunk_get_tokens_text(
        const mtmd_input_chunk *chunk, size_t *n_tokens_output
    )
    const mtmd_image_tokens *mtmd_input_chunk_get_tokens_image(const mtmd_input_chunk *chunk)
    size_t mtmd_input_chunk_get_n_tokens(const mtmd_input_chunk *chunk)

    # returns nullptr for ID on text chunk
    const char *mtmd_input_chunk_get_id(const mtmd_input_chunk *chunk)

    # number of temporal positions (equals to max(t,h,w) for M-RoPE; equals to n_tokens otherwise)
    llama_pos mtmd_input_chunk_get_n_pos(const mtmd_input_chunk *chunk)

    mtmd_input_chunk *mtmd_input_chunk_copy(const mtmd_input_chunk *chunk) except +
    void mtmd_input_chunk_free(mtmd_input_chunk *chunk)

    # similar to mtmd_input_chunk_copy, but returns a placeholder chunk
    mtmd_input_chunk *mtmd_input_chunk_get_placeholder(const mtmd_input_chunk *chunk) except +

    int32_t mtmd_input_chunk_save(
        const mtmd_input_chunk *chunk, char *out_buf, size_t out_len, size_t *expected_out_len
    ) except +

    # returns nullptr on failure
    mtmd_input_chunk *mtmd_input_chunk_load(const char *buf, size_t len) except +

    size_t mtmd_image_tokens_get_n_tokens(const mtmd_image_tokens *image_tokens)
    const char *mtmd_image_tokens_get_id(const mtmd_image_tokens *image_tokens)

    # number of temporal positions (equals to max(t,h,w) for M-RoPE; equals to n_tokens otherwise)
    llama_pos mtmd_image_tokens_get_n_pos(const mtmd_image_tokens *image_tokens)

    size_t mtmd_image_tokens_get_nx(const mtmd_image_tokens *image_tokens)  # deprecated
    size_t mtmd_image_tokens_get_ny(const mtmd_image_tokens *image_tokens)  # deprecated

    struct mtmd_decoder_pos:
        uint32_t t
        uint32_t x
        uint32_t y
        uint32_t z

    mtmd_decoder_pos mtmd_image_tokens_get_decoder_pos(
        const mtmd_image_tokens *image_tokens, llama_pos pos_0, size_t i
    )

    int32_t mtmd_tokenize(
        const mtmd_context *ctx, mtmd_input_chunks *output, const mtmd_input_text *text,
        const mtmd_bitmap * const *bitmaps, size_t n_bitmaps
    ) except +

    int32_t mtmd_tokenize_from_parts(
        const mtmd_context *ctx, mtmd_input_chunks *output, const mtmd_input_part * const *parts,
        size_t n_parts, bool add_special
    ) except +

    int32_t mtmd_encode(mtmd_context *ctx, const mtmd_image_tokens *image_tokens) except +  # deprecated
    int32_t mtmd_encode_chunk(mtmd_context *ctx, const mtmd_input_chunk *chunk) except +

    float *mtmd_get_output_embd(mtmd_context *ctx)

    mtmd_batch *mtmd_batch_init(mtmd_context *ctx) except +
    void mtmd_batch_free(mtmd_batch *batch)

    int32_t mtmd_batch_add_chunk(mtmd_batch *batch, const mtmd_input_chunk *chunk) except +

    int32_t mtmd_batch_encode(mtmd_batch *batch) except +
    float *mtmd_batch_get_output_embd(mtmd_batch *batch, const mtmd_input_chunk *chunk)

    void mtmd_log_set(ggml_log_callback log_callback, void *user_data)

    struct mtmd_caps:
        bool inp_vision
        bool inp_audio

    mtmd_caps mtmd_get_cap_from_file(const char *mmproj_fname) except +

    #
    # Audio generation (experimental upstream: changes with every version)
    #

    # represent the pipeline type
    enum mtmd_gen_audio_type:
        MTMD_GEN_AUDIO_TYPE_NONE
        MTMD_GEN_AUDIO_TYPE_QWEN3TTS
        MTMD_GEN_AUDIO_TYPE_POCKETTTS

    struct mtmd_gen_audio_info:
        mtmd_gen_audio_type type
        int32_t sample_rate
        const char *model_variant

    mtmd_gen_audio_info mtmd_gen_audio_get_info(const mtmd_context *ctx)

    enum mtmd_gen_process_type:
        MTMD_GEN_PROCESS_TYPE_GEN_CODE
        MTMD_GEN_PROCESS_TYPE_GEN_WAV

    struct mtmd_gen_inp:
        mtmd_gen_process_type type
        int32_t code0
        float *embd
        int32_t top_k
        float top_p
        uint32_t seed
        float temp
        int32_t *codes
        size_t n_codes
        const float *feats
        size_t n_feats
        const char *state_data
        size_t state_size

    struct mtmd_gen_out:
        const int32_t *codes
        size_t n_codes
        const float *feats
        size_t n_feats
        const float *embd
        bool is_eos
        const float *audio
        size_t n_samples
        const char *state_data
        size_t state_size

    # defaults tuned for the loaded pipeline, callers override only what they care about
    mtmd_gen_inp mtmd_gen_inp_default(const mtmd_context *ctx)

    # note: this API is stateless, caller must handle state management and audio frame accumulation
    int32_t mtmd_gen_audio_process(mtmd_context *ctx, const mtmd_gen_inp *inp, mtmd_gen_out *out) except +

    # test function, to be used in test-mtmd-c-api.c
    mtmd_input_chunks *mtmd_test_create_input_chunks() except +

    struct mtmd_memory_usage:
        map[ggml_backend_dev_t, size_t] backend_mem_usage
        int image_max_tokens
        bool use_non_causal

    mtmd_memory_usage mtmd_get_memory_usage(const char *mmproj_fname, mtmd_context_params ctx_params) except +
