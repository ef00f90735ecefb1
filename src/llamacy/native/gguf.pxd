# Mirror of ggml/include/gguf.h of llama.cpp: same names, same order.
#
# Implemented in C++: what adds to a context or reads or writes a file may throw and is declared `except +`.
# The getters abort the process on a bad index or type: check both before the call.

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdio cimport FILE
from libcpp cimport bool

from llamacy.native.handles cimport ggml_context, gguf_context
from llamacy.native.ggml cimport ggml_tensor, ggml_type


cdef extern from "gguf.h" nogil:
    const char *GGUF_MAGIC
    const int GGUF_VERSION

    const char *GGUF_KEY_GENERAL_ALIGNMENT

    const int GGUF_DEFAULT_ALIGNMENT

    # types that can be stored as GGUF KV data
    enum gguf_type:
        GGUF_TYPE_UINT8
        GGUF_TYPE_INT8
        GGUF_TYPE_UINT16
        GGUF_TYPE_INT16
        GGUF_TYPE_UINT32
        GGUF_TYPE_INT32
        GGUF_TYPE_FLOAT32
        GGUF_TYPE_BOOL
        GGUF_TYPE_STRING
        GGUF_TYPE_ARRAY
        GGUF_TYPE_UINT64
        GGUF_TYPE_INT64
        GGUF_TYPE_FLOAT64
        GGUF_TYPE_COUNT

    struct gguf_init_params:
        bool no_alloc
        ggml_context **ctx

    ctypedef size_t (*gguf_reader_callback_t)(
        void *userdata, void *output, uint64_t offset, size_t len
    ) noexcept nogil

    gguf_context *gguf_init_empty() except +
    gguf_context *gguf_init_from_file_ptr(FILE *file, gguf_init_params params) except +
    gguf_context *gguf_init_from_file(const char *fname, gguf_init_params params) except +
    gguf_context *gguf_init_from_buffer(const void *data, size_t size, gguf_init_params params) except +

    gguf_context *gguf_init_from_callback(
        gguf_reader_callback_t callback, void *userdata, size_t max_chunk_read, uint64_t max_expected_size,
        gguf_init_params params
    ) except +

    void gguf_free(gguf_context *ctx)

    const char *gguf_type_name(gguf_type type)

    uint32_t gguf_get_version(const gguf_context *ctx)
    size_t gguf_get_alignment(const gguf_context *ctx)
    size_t gguf_get_data_offset(const gguf_context *ctx)

    int64_t gguf_get_n_kv(const gguf_context *ctx)
    int64_t gguf_find_key(const gguf_context *ctx, const char *key)
    const char *gguf_get_key(const gguf_context *ctx, int64_t key_id)

    gguf_type gguf_get_kv_type(const gguf_context *ctx, int64_t key_id)
    gguf_type gguf_get_arr_type(const gguf_context *ctx, int64_t key_id)

    # will abort if the wrong type is used for the key
    uint8_t gguf_get_val_u8(const gguf_context *ctx, int64_t key_id)
    int8_t gguf_get_val_i8(const gguf_context *ctx, int64_t key_id)
    uint16_t gguf_get_val_u16(const gguf_context *ctx, int64_t key_id)
    int16_t gguf_get_val_i16(const gguf_context *ctx, int64_t key_id)
    uint32_t gguf_get_val_u32(const gguf_context *ctx, int64_t key_id)
    int32_t gguf_get_val_i32(const gguf_context *ctx, int64_t key_id)
    float gguf_get_val_f32(const gguf_context *ctx, int64_t key_id)
    uint64_t gguf_get_val_u64(const gguf_context *ctx, int64_t key_id)
    int64_t gguf_get_val_i64(const gguf_context *ctx, int64_t key_id)
    double gguf_get_val_f64(const gguf_context *ctx, int64_t key_id)
    bool gguf_get_val_bool(const gguf_context *ctx, int64_t key_id)
    const char *gguf_get_val_str(const gguf_context *ctx, int64_t key_id)
    const void *gguf_get_val_data(const gguf_context *ctx, int64_t key_id)
    size_t gguf_get_arr_n(const gguf_context *ctx, int64_t key_id)

    const void *gguf_get_arr_data(const gguf_context *ctx, int64_t key_id)

    # get ith C string from array with given key_id
    const char *gguf_get_arr_str(const gguf_context *ctx, int64_t key_id, size_t i)

    int64_t gguf_get_n_tensors(const gguf_context *ctx)
    int64_t gguf_find_tensor(const gguf_context *ctx, const char *name)
    size_t gguf_get_tensor_offset(const gguf_context *ctx, int64_t tensor_id)
    const char *gguf_get_tensor_name(const gguf_context *ctx, int64_t tensor_id)
    const int64_t *gguf_get_tensor_ne(const gguf_context *ctx, int64_t tensor_id)
    ggml_type gguf_get_tensor_type(const gguf_context *ctx, int64_t tensor_id)
    size_t gguf_get_tensor_size(const gguf_context *ctx, int64_t tensor_id)

    # removes key if it exists, returns id that the key had prior to removal (-1 if it didn't exist)
    int64_t gguf_remove_key(gguf_context *ctx, const char *key) except +

    # overrides an existing KV pair or adds a new one, the new KV pair is always at the back
    void gguf_set_val_u8(gguf_context *ctx, const char *key, uint8_t val) except +
    void gguf_set_val_i8(gguf_context *ctx, const char *key, int8_t val) except +
    void gguf_set_val_u16(gguf_context *ctx, const char *key, uint16_t val) except +
    void gguf_set_val_i16(gguf_context *ctx, const char *key, int16_t val) except +
    void gguf_set_val_u32(gguf_context *ctx, const char *key, uint32_t val) except +
    void gguf_set_val_i32(gguf_context *ctx, const char *key, int32_t val) except +
    void gguf_set_val_f32(gguf_context *ctx, const char *key, float val) except +
    void gguf_set_val_u64(gguf_context *ctx, const char *key, uint64_t val) except +
    void gguf_set_val_i64(gguf_context *ctx, const char *key, int64_t val) except +
    void gguf_set_val_f64(gguf_context *ctx, const char *key, double val) except +
    void gguf_set_val_bool(gguf_context *ctx, const char *key, bool val) except +
    void gguf_set_val_str(gguf_context *ctx, const char *key, const char *val) except +

    void gguf_set_arr_data(
        gguf_context *ctx, const char *key, gguf_type type, const void *data, size_t n
    ) except +

    # creates a new array with n strings and copies the corresponding strings from data
    void gguf_set_arr_str(gguf_context *ctx, const char *key, const char **data, size_t n) except +

    # set or add KV pairs from another context
    void gguf_set_kv(gguf_context *ctx, const gguf_context *src) except +

    # add tensor to GGUF context, tensor name must be unique
    void gguf_add_tensor(gguf_context *ctx, const ggml_tensor *tensor) except +

    void gguf_set_tensor_type(gguf_context *ctx, const char *name, ggml_type type) except +

    # assumes that at least gguf_get_tensor_size bytes can be read from data
    void gguf_set_tensor_data(gguf_context *ctx, const char *name, const void *data) except +

    # write the entire context to a binary file
    bool gguf_write_to_file_ptr(const gguf_context *ctx, FILE *file, bool only_meta) except +
    bool gguf_write_to_file(const gguf_context *ctx, const char *fname, bool only_meta) except +

    # get the size in bytes of the meta data (header, kv pairs, tensor info) including padding
    size_t gguf_get_meta_size(const gguf_context *ctx) except +

    # writes the meta data to pointer "data"
    void gguf_get_meta_data(const gguf_context *ctx, void *data) except +
