# Mirror of ggml/include/ggml-opt.h of llama.cpp: same names, same order.
#
# Implemented in C++: `except +` marks what allocates, computes or throws.
# The two structs inside ggml_opt_optimizer_params have no name in C; here they are named after their member.

from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool

from llamacy.native.handles cimport (
    ggml_backend_sched_t,
    ggml_cgraph,
    ggml_context,
    ggml_opt_context,
    ggml_opt_context_t,
    ggml_opt_dataset,
    ggml_opt_dataset_t,
    ggml_opt_result,
    ggml_opt_result_t,
)
from llamacy.native.ggml cimport ggml_tensor, ggml_type


cdef extern from "ggml-opt.h" nogil:
    # ====== Loss ======

    enum ggml_opt_loss_type:
        GGML_OPT_LOSS_TYPE_MEAN
        GGML_OPT_LOSS_TYPE_SUM
        GGML_OPT_LOSS_TYPE_CROSS_ENTROPY
        GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR

    # ====== Dataset ======

    ggml_opt_dataset_t ggml_opt_dataset_init(
        ggml_type type_data, ggml_type type_label, int64_t ne_datapoint, int64_t ne_label, int64_t ndata,
        int64_t ndata_shard
    ) except +
    void ggml_opt_dataset_free(ggml_opt_dataset_t dataset)

    # get underlying tensors that store the data
    int64_t ggml_opt_dataset_ndata(ggml_opt_dataset_t dataset)
    ggml_tensor *ggml_opt_dataset_data(ggml_opt_dataset_t dataset)
    ggml_tensor *ggml_opt_dataset_labels(ggml_opt_dataset_t dataset)

    void ggml_opt_dataset_shuffle(
        ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, int64_t idata
    ) except +

    # get batch at position ibatch from dataset and copy the data to data_batch and labels_batch
    void ggml_opt_dataset_get_batch(
        ggml_opt_dataset_t dataset, ggml_tensor *data_batch, ggml_tensor *labels_batch, int64_t ibatch
    ) except +
    void ggml_opt_dataset_get_batch_host(
        ggml_opt_dataset_t dataset, void *data_batch, size_t nb_data_batch, void *labels_batch,
        int64_t ibatch
    ) except +

    # ====== Model / Context ======

    enum ggml_opt_build_type:
        GGML_OPT_BUILD_TYPE_FORWARD
        GGML_OPT_BUILD_TYPE_GRAD
        GGML_OPT_BUILD_TYPE_OPT

    enum ggml_opt_optimizer_type:
        GGML_OPT_OPTIMIZER_TYPE_ADAMW
        GGML_OPT_OPTIMIZER_TYPE_SGD
        GGML_OPT_OPTIMIZER_TYPE_COUNT

    ctypedef struct ggml_opt_optimizer_params_adamw "decltype(ggml_opt_optimizer_params::adamw)":
        float alpha
        float beta1
        float beta2
        float eps
        float wd

    ctypedef struct ggml_opt_optimizer_params_sgd "decltype(ggml_opt_optimizer_params::sgd)":
        float alpha
        float wd

    struct ggml_opt_optimizer_params:
        ggml_opt_optimizer_params_adamw adamw
        ggml_opt_optimizer_params_sgd sgd

    ctypedef ggml_opt_optimizer_params (*ggml_opt_get_optimizer_params)(void *userdata) noexcept nogil

    ggml_opt_optimizer_params ggml_opt_get_default_optimizer_params(void *userdata)

    # casts userdata to ggml_opt_optimizer_params and returns it
    ggml_opt_optimizer_params ggml_opt_get_constant_optimizer_params(void *userdata)

    # parameters for initializing a new optimization context
    struct ggml_opt_params:
        ggml_backend_sched_t backend_sched
        ggml_context *ctx_compute
        ggml_tensor *inputs
        ggml_tensor *outputs
        ggml_opt_loss_type loss_type
        ggml_opt_build_type build_type
        int32_t opt_period
        ggml_opt_get_optimizer_params get_opt_pars
        void *get_opt_pars_ud
        ggml_opt_optimizer_type optimizer

    ggml_opt_params ggml_opt_default_params(ggml_backend_sched_t backend_sched, ggml_opt_loss_type loss_type)

    ggml_opt_context_t ggml_opt_init(ggml_opt_params params) except +
    void ggml_opt_free(ggml_opt_context_t opt_ctx)

    # set gradients to zero, initialize loss, and optionally reset the optimizer
    void ggml_opt_reset(ggml_opt_context_t opt_ctx, bool optimizer) except +

    bool ggml_opt_static_graphs(ggml_opt_context_t opt_ctx)

    ggml_tensor *ggml_opt_inputs(ggml_opt_context_t opt_ctx)
    ggml_tensor *ggml_opt_outputs(ggml_opt_context_t opt_ctx)
    ggml_tensor *ggml_opt_labels(ggml_opt_context_t opt_ctx)
    ggml_tensor *ggml_opt_loss(ggml_opt_context_t opt_ctx)
    ggml_tensor *ggml_opt_pred(ggml_opt_context_t opt_ctx)
    ggml_tensor *ggml_opt_ncorrect(ggml_opt_context_t opt_ctx)

    # get the gradient accumulator for a node from the forward graph
    ggml_tensor *ggml_opt_grad_acc(ggml_opt_context_t opt_ctx, ggml_tensor *node)

    ggml_opt_optimizer_type ggml_opt_context_optimizer_type(ggml_opt_context_t)

    const char *ggml_opt_optimizer_name(ggml_opt_optimizer_type)

    # ====== Optimization Result ======

    ggml_opt_result_t ggml_opt_result_init() except +
    void ggml_opt_result_free(ggml_opt_result_t result)
    void ggml_opt_result_reset(ggml_opt_result_t result)

    # get data from result, uncertainties are optional and can be ignored by passing NULL
    void ggml_opt_result_ndata(ggml_opt_result_t result, int64_t *ndata)
    void ggml_opt_result_loss(ggml_opt_result_t result, double *loss, double *unc) except +
    void ggml_opt_result_pred(ggml_opt_result_t result, int32_t *pred) except +
    void ggml_opt_result_accuracy(ggml_opt_result_t result, double *accuracy, double *unc) except +

    # ====== Computation ======

    # if not using static graphs, this function must be called prior to ggml_opt_alloc
    void ggml_opt_prepare_alloc(
        ggml_opt_context_t opt_ctx, ggml_context *ctx_compute, ggml_cgraph *gf, ggml_tensor *inputs,
        ggml_tensor *outputs
    ) except +

    void ggml_opt_alloc(ggml_opt_context_t opt_ctx, bool backward) except +

    # do forward pass, increment result if not NULL, do backward pass if allocated
    void ggml_opt_eval(ggml_opt_context_t opt_ctx, ggml_opt_result_t result) except +

    # signature for a callback while evaluating opt_ctx on dataset, called after an evaluation
    ctypedef void (*ggml_opt_epoch_callback)(
        bool train, ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, ggml_opt_result_t result,
        int64_t ibatch, int64_t ibatch_max, int64_t t_start_us
    ) noexcept nogil

    # do training on front of dataset, do evaluation only on back of dataset
    void ggml_opt_epoch(
        ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, ggml_opt_result_t result_train,
        ggml_opt_result_t result_eval, int64_t idata_split, ggml_opt_epoch_callback callback_train,
        ggml_opt_epoch_callback callback_eval
    ) except +

    # callback that prints a progress bar on stderr
    void ggml_opt_epoch_callback_progress_bar(
        bool train, ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, ggml_opt_result_t result,
        int64_t ibatch, int64_t ibatch_max, int64_t t_start_us
    ) except +

    # fit model defined by inputs and outputs to dataset
    void ggml_opt_fit(
        ggml_backend_sched_t backend_sched, ggml_context *ctx_compute, ggml_tensor *inputs,
        ggml_tensor *outputs, ggml_opt_dataset_t dataset, ggml_opt_loss_type loss_type,
        ggml_opt_optimizer_type optimizer, ggml_opt_get_optimizer_params get_opt_pars, int64_t nepoch,
        int64_t nbatch_logical, float val_split, bool silent
    ) except +
