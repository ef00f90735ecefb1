# The types that the `.pxd` of a class needs, and nothing else.
#
# A module that cimports only this one needs no include path and links nothing: the structs are opaque forward
# declarations that the true headers repeat word for word, so both may appear in one translation unit, in any
# order, in C and in C++. The mirrors of the headers take these names from here, so that a `llama_model *` is
# the same type everywhere. Where a mirror defines the fields of a struct (ggml_tensor, llama_sampler), Cython
# takes both for one type.

from libc.stdint cimport int32_t


cdef extern from *:
    """
    #include <stdint.h>

    struct ggml_object;
    struct ggml_context;
    struct ggml_tensor;
    struct ggml_cgraph;
    struct ggml_threadpool;
    typedef struct ggml_threadpool * ggml_threadpool_t;

    struct ggml_backend_buffer_type;
    struct ggml_backend_buffer;
    struct ggml_backend_event;
    struct ggml_backend;
    struct ggml_backend_reg;
    struct ggml_backend_device;
    struct ggml_backend_sched;
    struct ggml_gallocr;
    typedef struct ggml_backend_buffer_type * ggml_backend_buffer_type_t;
    typedef struct ggml_backend_buffer * ggml_backend_buffer_t;
    typedef struct ggml_backend_event * ggml_backend_event_t;
    typedef struct ggml_backend * ggml_backend_t;
    typedef void * ggml_backend_graph_plan_t;
    typedef struct ggml_backend_reg * ggml_backend_reg_t;
    typedef struct ggml_backend_device * ggml_backend_dev_t;
    typedef struct ggml_backend_sched * ggml_backend_sched_t;
    typedef struct ggml_gallocr * ggml_gallocr_t;

    struct gguf_context;
    struct ggml_opt_dataset;
    struct ggml_opt_context;
    struct ggml_opt_result;
    typedef struct ggml_opt_dataset * ggml_opt_dataset_t;
    typedef struct ggml_opt_context * ggml_opt_context_t;
    typedef struct ggml_opt_result * ggml_opt_result_t;

    struct llama_vocab;
    struct llama_model;
    struct llama_context;
    struct llama_sampler;
    struct llama_memory_i;
    struct llama_adapter_lora;
    struct llama_batch_ext;
    struct quantize_state_impl;
    typedef struct llama_memory_i * llama_memory_t;
    typedef int32_t llama_pos;
    typedef int32_t llama_token;
    typedef int32_t llama_seq_id;

    struct mtmd_context;
    struct mtmd_bitmap;
    struct mtmd_image_tokens;
    struct mtmd_input_chunk;
    struct mtmd_input_chunks;
    struct mtmd_batch;
    struct mtmd_helper_video;
    struct mtmd_helper_gen_audio;
    """

    # ggml.h
    struct ggml_object:
        pass
    struct ggml_context:
        pass
    struct ggml_tensor:
        pass
    struct ggml_cgraph:
        pass
    struct ggml_threadpool:
        pass
    ctypedef ggml_threadpool *ggml_threadpool_t

    # ggml-backend.h, ggml-alloc.h
    struct ggml_backend_buffer_type:
        pass
    struct ggml_backend_buffer:
        pass
    struct ggml_backend_event:
        pass
    struct ggml_backend:
        pass
    struct ggml_backend_reg:
        pass
    struct ggml_backend_device:
        pass
    struct ggml_backend_sched:
        pass
    struct ggml_gallocr:
        pass
    ctypedef ggml_backend_buffer_type *ggml_backend_buffer_type_t
    ctypedef ggml_backend_buffer *ggml_backend_buffer_t
    ctypedef ggml_backend_event *ggml_backend_event_t
    ctypedef ggml_backend *ggml_backend_t
    ctypedef void *ggml_backend_graph_plan_t
    ctypedef ggml_backend_reg *ggml_backend_reg_t
    ctypedef ggml_backend_device *ggml_backend_dev_t
    ctypedef ggml_backend_sched *ggml_backend_sched_t
    ctypedef ggml_gallocr *ggml_gallocr_t

    # gguf.h, ggml-opt.h
    struct gguf_context:
        pass
    struct ggml_opt_dataset:
        pass
    struct ggml_opt_context:
        pass
    struct ggml_opt_result:
        pass
    ctypedef ggml_opt_dataset *ggml_opt_dataset_t
    ctypedef ggml_opt_context *ggml_opt_context_t
    ctypedef ggml_opt_result *ggml_opt_result_t

    # llama.h, llama-ext.h
    struct llama_vocab:
        pass
    struct llama_model:
        pass
    struct llama_context:
        pass
    struct llama_sampler:
        pass
    struct llama_memory_i:
        pass
    struct llama_adapter_lora:
        pass
    struct llama_batch_ext:
        pass
    struct quantize_state_impl:
        pass
    ctypedef llama_memory_i *llama_memory_t
    ctypedef int32_t llama_pos
    ctypedef int32_t llama_token
    ctypedef int32_t llama_seq_id

    # mtmd.h, mtmd-helper.h
    struct mtmd_context:
        pass
    struct mtmd_bitmap:
        pass
    struct mtmd_image_tokens:
        pass
    struct mtmd_input_chunk:
        pass
    struct mtmd_input_chunks:
        pass
    struct mtmd_batch:
        pass
    struct mtmd_helper_video:
        pass
    struct mtmd_helper_gen_audio:
        pass
