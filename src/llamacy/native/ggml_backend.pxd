# Mirror of ggml/include/ggml-backend.h of llama.cpp: same names, same order.
#
# `except +` marks what allocates, loads or talks to a device through C++.
# One enum and one struct share their name with a function; here they get the suffix `_enum` and `_struct`.

from libc.stdint cimport int64_t, uint32_t, uint8_t
from libcpp cimport bool

from llamacy.native.handles cimport (
    ggml_backend,
    ggml_backend_buffer,
    ggml_backend_buffer_t,
    ggml_backend_buffer_type,
    ggml_backend_buffer_type_t,
    ggml_backend_dev_t,
    ggml_backend_device,
    ggml_backend_event,
    ggml_backend_event_t,
    ggml_backend_graph_plan_t,
    ggml_backend_reg,
    ggml_backend_reg_t,
    ggml_backend_sched,
    ggml_backend_sched_t,
    ggml_backend_t,
    ggml_cgraph,
    ggml_context,
)
from llamacy.native.ggml cimport ggml_abort_callback, ggml_guid_t, ggml_status, ggml_tensor


cdef extern from "ggml-backend.h" nogil:
    #
    # Backend buffer type
    #

    const char *ggml_backend_buft_name(ggml_backend_buffer_type_t buft)
    ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(
        ggml_backend_buffer_type_t buft, size_t size
    ) except +
    ggml_backend_buffer_t ggml_backend_buft_alloc_buffer_n(
        ggml_backend_buffer_type_t buft, ggml_tensor **tensors, int n_tensors
    ) except +
    size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t buft)
    size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t buft)
    size_t ggml_backend_buft_get_alloc_size(
        ggml_backend_buffer_type_t buft, const ggml_tensor *tensor
    ) except +
    size_t ggml_backend_buft_get_alloc_size_n(
        ggml_backend_buffer_type_t buft, ggml_tensor **tensors, int n_tensors
    ) except +
    bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t buft)
    ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft)

    #
    # Backend buffer
    #

    enum ggml_backend_buffer_usage:
        GGML_BACKEND_BUFFER_USAGE_ANY
        GGML_BACKEND_BUFFER_USAGE_WEIGHTS
        GGML_BACKEND_BUFFER_USAGE_COMPUTE

    const char *ggml_backend_buffer_name(ggml_backend_buffer_t buffer)
    void ggml_backend_buffer_free(ggml_backend_buffer_t buffer)
    void *ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer)
    size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer)
    ggml_status ggml_backend_buffer_init_tensor(ggml_backend_buffer_t buffer, ggml_tensor *tensor) except +
    size_t ggml_backend_buffer_get_alignment(ggml_backend_buffer_t buffer)
    size_t ggml_backend_buffer_get_max_size(ggml_backend_buffer_t buffer)
    size_t ggml_backend_buffer_get_alloc_size(
        ggml_backend_buffer_t buffer, const ggml_tensor *tensor
    ) except +
    void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) except +
    bool ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer)
    void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, ggml_backend_buffer_usage usage)
    ggml_backend_buffer_usage ggml_backend_buffer_get_usage(ggml_backend_buffer_t buffer)
    ggml_backend_buffer_type_t ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer)
    void ggml_backend_buffer_reset(ggml_backend_buffer_t buffer) except +

    # tensor copy between different backends
    void ggml_backend_tensor_copy(const ggml_tensor *src, ggml_tensor *dst) except +

    #
    # Backend (stream)
    #

    ggml_guid_t ggml_backend_guid(ggml_backend_t backend)
    const char *ggml_backend_name(ggml_backend_t backend)
    void ggml_backend_free(ggml_backend_t backend)

    ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend)
    ggml_backend_buffer_t ggml_backend_alloc_buffer(ggml_backend_t backend, size_t size) except +
    size_t ggml_backend_get_alignment(ggml_backend_t backend)
    size_t ggml_backend_get_max_size(ggml_backend_t backend)

    void ggml_backend_tensor_set_async(
        ggml_backend_t backend, ggml_tensor *tensor, const void *data, size_t offset, size_t size
    ) except +
    void ggml_backend_tensor_get_async(
        ggml_backend_t backend, const ggml_tensor *tensor, void *data, size_t offset, size_t size
    ) except +
    void ggml_backend_tensor_set_2d_async(
        ggml_backend_t backend, ggml_tensor *tensor, const void *data, size_t offset, size_t size,
        size_t n_copies, size_t stride_tensor, size_t stride_data
    ) except +
    void ggml_backend_tensor_get_2d_async(
        ggml_backend_t backend, const ggml_tensor *tensor, void *data, size_t offset, size_t size,
        size_t n_copies, size_t stride_tensor, size_t stride_data
    ) except +

    # "offset" refers to the offset in tensor->data for setting/getting data
    void ggml_backend_tensor_set(ggml_tensor *tensor, const void *data, size_t offset, size_t size) except +
    void ggml_backend_tensor_get(const ggml_tensor *tensor, void *data, size_t offset, size_t size) except +
    void ggml_backend_tensor_set_2d(
        ggml_tensor *tensor, const void *data, size_t offset, size_t size, size_t n_copies,
        size_t stride_tensor, size_t stride_data
    ) except +
    void ggml_backend_tensor_get_2d(
        const ggml_tensor *tensor, void *data, size_t offset, size_t size, size_t n_copies,
        size_t stride_tensor, size_t stride_data
    ) except +
    void ggml_backend_tensor_memset(ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) except +

    void ggml_backend_synchronize(ggml_backend_t backend) except +

    ggml_backend_graph_plan_t ggml_backend_graph_plan_create(
        ggml_backend_t backend, ggml_cgraph *cgraph
    ) except +
    void ggml_backend_graph_plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan)

    ggml_status ggml_backend_graph_plan_compute(
        ggml_backend_t backend, ggml_backend_graph_plan_t plan
    ) except +
    ggml_status ggml_backend_graph_compute(ggml_backend_t backend, ggml_cgraph *cgraph) except +
    ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, ggml_cgraph *cgraph) except +

    # NOTE: will be removed, use device version instead
    bool ggml_backend_supports_op(ggml_backend_t backend, const ggml_tensor *op)
    bool ggml_backend_supports_buft(ggml_backend_t backend, ggml_backend_buffer_type_t buft)
    bool ggml_backend_offload_op(ggml_backend_t backend, const ggml_tensor *op)

    void ggml_backend_tensor_copy_async(
        ggml_backend_t backend_src, ggml_backend_t backend_dst, const ggml_tensor *src, ggml_tensor *dst
    ) except +

    ggml_backend_dev_t ggml_backend_get_device(ggml_backend_t backend)

    #
    # Events
    #

    ggml_backend_event_t ggml_backend_event_new(ggml_backend_dev_t device) except +
    void ggml_backend_event_free(ggml_backend_event_t event)
    void ggml_backend_event_record(ggml_backend_event_t event, ggml_backend_t backend) except +
    void ggml_backend_event_synchronize(ggml_backend_event_t event) except +
    void ggml_backend_event_wait(ggml_backend_t backend, ggml_backend_event_t event) except +

    #
    # Backend device
    #

    enum ggml_backend_dev_type_enum "ggml_backend_dev_type":
        GGML_BACKEND_DEVICE_TYPE_CPU
        GGML_BACKEND_DEVICE_TYPE_GPU
        GGML_BACKEND_DEVICE_TYPE_IGPU
        GGML_BACKEND_DEVICE_TYPE_ACCEL
        GGML_BACKEND_DEVICE_TYPE_META

    # functionality supported by the device
    struct ggml_backend_dev_caps:
        bool async_ "async"
        bool host_buffer
        bool buffer_from_host_ptr
        bool events
        bool mmap_support

    # all the device properties
    struct ggml_backend_dev_props:
        const char *name
        const char *description
        size_t memory_free
        size_t memory_total
        ggml_backend_dev_type_enum type
        const char *device_id
        ggml_backend_dev_caps caps

    const char *ggml_backend_dev_name(ggml_backend_dev_t device)
    const char *ggml_backend_dev_description(ggml_backend_dev_t device)
    void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total) except +
    ggml_backend_dev_type_enum ggml_backend_dev_type(ggml_backend_dev_t device)
    void ggml_backend_dev_get_props(ggml_backend_dev_t device, ggml_backend_dev_props *props) except +
    ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t device)
    ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char *params) except +
    ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t device)
    ggml_backend_buffer_type_t ggml_backend_dev_host_buffer_type(ggml_backend_dev_t device)
    ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(
        ggml_backend_dev_t device, void *ptr, size_t size, size_t max_tensor_size
    ) except +

    bool ggml_backend_dev_supports_op(ggml_backend_dev_t device, const ggml_tensor *op)
    bool ggml_backend_dev_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t buft)
    bool ggml_backend_dev_offload_op(ggml_backend_dev_t device, const ggml_tensor *op)

    #
    # Backend (reg)
    #

    const char *ggml_backend_reg_name(ggml_backend_reg_t reg)
    size_t ggml_backend_reg_dev_count(ggml_backend_reg_t reg)
    ggml_backend_dev_t ggml_backend_reg_dev_get(ggml_backend_reg_t reg, size_t index)
    void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char *name)

    # Common functions that may be obtained using ggml_backend_reg_get_proc_address

    ctypedef void * (*ggml_backend_comm_init_t)(ggml_backend_t *backends, size_t n_backends) noexcept nogil
    ctypedef void (*ggml_backend_comm_free_t)(void *comm_ctx) noexcept nogil
    ctypedef bool (*ggml_backend_comm_allreduce_tensor_t)(
        void *comm_ctx, ggml_tensor **tensors
    ) noexcept nogil

    # Split buffer type for tensor parallelism (old)
    ctypedef ggml_backend_buffer_type_t (*ggml_backend_split_buffer_type_t)(
        int main_device, const float *tensor_split
    ) noexcept nogil

    # Set the number of threads for the backend
    ctypedef void (*ggml_backend_set_n_threads_t)(ggml_backend_t backend, int n_threads) noexcept nogil

    # Get additional buffer types provided by the device (returns a NULL-terminated array)
    ctypedef ggml_backend_buffer_type_t * (*ggml_backend_dev_get_extra_bufts_t)(
        ggml_backend_dev_t device
    ) noexcept nogil

    # Set the abort callback for the backend
    ctypedef void (*ggml_backend_set_abort_callback_t)(
        ggml_backend_t backend, ggml_abort_callback abort_callback, void *abort_callback_data
    ) noexcept nogil

    # Get a list of feature flags supported by the backend (returns a NULL-terminated array)
    struct ggml_backend_feature:
        const char *name
        const char *value

    ctypedef ggml_backend_feature * (*ggml_backend_get_features_t)(ggml_backend_reg_t reg) noexcept nogil

    #
    # Backend registry
    #

    void ggml_backend_register(ggml_backend_reg_t reg) except +

    void ggml_backend_device_register(ggml_backend_dev_t device) except +

    # Backend (reg) enumeration
    size_t ggml_backend_reg_count() except +
    ggml_backend_reg_t ggml_backend_reg_get(size_t index) except +
    ggml_backend_reg_t ggml_backend_reg_by_name(const char *name) except +

    # Device enumeration
    size_t ggml_backend_dev_count() except +
    ggml_backend_dev_t ggml_backend_dev_get(size_t index) except +
    ggml_backend_dev_t ggml_backend_dev_by_name(const char *name) except +
    ggml_backend_dev_t ggml_backend_dev_by_type(ggml_backend_dev_type_enum type) except +

    ggml_backend_t ggml_backend_init_by_name(const char *name, const char *params) except +

    # = ggml_backend_dev_init(ggml_backend_dev_by_type(type), params)
    ggml_backend_t ggml_backend_init_by_type(ggml_backend_dev_type_enum type, const char *params) except +

    # = ggml_backend_dev_init(ggml_backend_dev_by_type(GPU) OR ggml_backend_dev_by_type(CPU), NULL)
    ggml_backend_t ggml_backend_init_best() except +

    # Load a backend from a dynamic library and register it
    ggml_backend_reg_t ggml_backend_load(const char *path) except +

    # Unload a backend if loaded dynamically and unregister it
    void ggml_backend_unload(ggml_backend_reg_t reg) except +

    # Load all known backends from dynamic libraries
    void ggml_backend_load_all() except +
    void ggml_backend_load_all_from_path(const char *dir_path) except +

    #
    # Backend scheduler
    #

    ctypedef bool (*ggml_backend_sched_eval_callback)(
        ggml_tensor *t, bool ask, void *user_data
    ) noexcept nogil

    ctypedef bool (*ggml_backend_sched_copy_callback)(
        ggml_backend_t backend, const ggml_tensor *src, ggml_tensor *dst, ggml_cgraph *graph, void *user_data
    ) noexcept nogil

    ggml_backend_sched_t ggml_backend_sched_new(
        ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, int n_backends, size_t graph_size,
        bool parallel, bool op_offload
    ) except +
    void ggml_backend_sched_free(ggml_backend_sched_t sched)

    # Initialize backend buffers from a measure graph
    void ggml_backend_sched_reserve_size(
        ggml_backend_sched_t sched, ggml_cgraph *measure_graph, size_t *sizes
    ) except +
    bool ggml_backend_sched_reserve(ggml_backend_sched_t sched, ggml_cgraph *measure_graph) except +

    int ggml_backend_sched_get_n_backends(ggml_backend_sched_t sched)
    ggml_backend_t ggml_backend_sched_get_backend(ggml_backend_sched_t sched, int i)

    # Get the number of splits of the last graph
    int ggml_backend_sched_get_n_splits(ggml_backend_sched_t sched)
    int ggml_backend_sched_get_n_copies(ggml_backend_sched_t sched)

    ggml_backend_buffer_type_t ggml_backend_sched_get_buffer_type(
        ggml_backend_sched_t sched, ggml_backend_t backend
    )
    size_t ggml_backend_sched_get_buffer_size(ggml_backend_sched_t sched, ggml_backend_t backend)

    void ggml_backend_sched_set_tensor_backend(
        ggml_backend_sched_t sched, ggml_tensor *node, ggml_backend_t backend
    ) except +
    ggml_backend_t ggml_backend_sched_get_tensor_backend(ggml_backend_sched_t sched, ggml_tensor *node)

    # Split graph without allocating it
    void ggml_backend_sched_split_graph(ggml_backend_sched_t sched, ggml_cgraph *graph) except +

    # Allocate and compute graph on the backend scheduler
    bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, ggml_cgraph *graph) except +
    ggml_status ggml_backend_sched_graph_compute(ggml_backend_sched_t sched, ggml_cgraph *graph) except +
    ggml_status ggml_backend_sched_graph_compute_async(
        ggml_backend_sched_t sched, ggml_cgraph *graph
    ) except +
    void ggml_backend_sched_synchronize(ggml_backend_sched_t sched) except +

    void ggml_backend_sched_reset(ggml_backend_sched_t sched) except +

    # Set a callback to be called for each resulting node during graph compute
    void ggml_backend_sched_set_eval_callback(
        ggml_backend_sched_t sched, ggml_backend_sched_eval_callback callback, void *user_data
    )

    # Set a callback to be called when the inputs weights of a split are being copied
    void ggml_backend_sched_set_copy_callback(
        ggml_backend_sched_t sched, ggml_backend_sched_copy_callback callback, void *user_data
    )

    #
    # Meta backend
    #

    const int GGML_BACKEND_META_MAX_DEVICES

    enum ggml_backend_meta_split_axis:
        GGML_BACKEND_SPLIT_AXIS_0
        GGML_BACKEND_SPLIT_AXIS_1
        GGML_BACKEND_SPLIT_AXIS_2
        GGML_BACKEND_SPLIT_AXIS_3
        GGML_BACKEND_SPLIT_AXIS_MIRRORED
        GGML_BACKEND_SPLIT_AXIS_PARTIAL
        GGML_BACKEND_SPLIT_AXIS_NONE
        GGML_BACKEND_SPLIT_AXIS_UNKNOWN

    const char *ggml_backend_meta_split_axis_name(ggml_backend_meta_split_axis split_axis)

    struct ggml_backend_meta_split_state:
        ggml_backend_meta_split_axis axis
        int64_t ne[256]  # 16*GGML_BACKEND_META_MAX_DEVICES
        uint32_t nr[16]
        uint32_t n_segments

    ctypedef ggml_backend_meta_split_state (*ggml_backend_meta_get_split_state_t)(
        const ggml_tensor *tensor, void *userdata
    ) noexcept nogil

    ggml_backend_dev_t ggml_backend_meta_device(
        ggml_backend_dev_t *devs, size_t n_devs, ggml_backend_meta_get_split_state_t get_split_state,
        void *get_split_state_ud
    ) except +

    #
    # Utils
    #

    struct ggml_backend_graph_copy_struct "ggml_backend_graph_copy":
        ggml_backend_buffer_t buffer
        ggml_context *ctx_allocated
        ggml_context *ctx_unallocated
        ggml_cgraph *graph

    # Copy a graph to a different backend
    ggml_backend_graph_copy_struct ggml_backend_graph_copy(
        ggml_backend_t backend, ggml_cgraph *graph
    ) except +
    void ggml_backend_graph_copy_free(ggml_backend_graph_copy_struct copy)

    ctypedef bool (*ggml_backend_eval_callback)(
        int node_index, ggml_tensor *t1, ggml_tensor *t2, void *user_data
    ) noexcept nogil

    # Compare the output of two backends
    bool ggml_backend_compare_graph_backend(
        ggml_backend_t backend1, ggml_backend_t backend2, ggml_cgraph *graph,
        ggml_backend_eval_callback callback, void *user_data, const ggml_tensor * const *test_nodes,
        size_t num_test_nodes
    ) except +

    # Tensor initialization
    ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, ggml_tensor *tensor, void *addr)
    ggml_status ggml_backend_view_init(ggml_tensor *tensor)

    # CPU buffer types are always available
    ggml_backend_buffer_t ggml_backend_cpu_buffer_from_ptr(void *ptr, size_t size) except +
    ggml_backend_buffer_type_t ggml_backend_cpu_buffer_type()
