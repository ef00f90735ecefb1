// Rows of logits for llama_sampler_sample, and its time: a library that bench_sampling loads into its process.

#include "llama.h"

#include <time.h>

#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct rows {
    llama_model *   model;
    llama_context * ctx;
    int32_t         n_rows;
};

EXPORT void rows_close(rows * self) {
    llama_free(self->ctx);
    llama_model_free(self->model);
    delete self;
}

// A context with so many output rows, or NULL.
EXPORT rows * rows_open(const char * path, int32_t n_rows) {
    llama_model_params model_params = llama_model_default_params();
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 64;
    params.n_threads = params.n_threads_batch = 1;
    auto * self = new rows { llama_model_load_from_file(path, model_params), nullptr, n_rows };
    if (self->model != nullptr) {
        self->ctx = llama_init_from_model(self->model, params);
    }
    if (self->ctx == nullptr) {
        rows_close(self);
        return nullptr;
    }
    llama_batch batch = llama_batch_init(n_rows, 0, 1);
    batch.n_tokens = n_rows;
    for (int32_t i = 0; i < n_rows; ++i) {
        batch.token[i] = 5;
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    const bool good = llama_decode(self->ctx, batch) == 0;
    llama_batch_free(batch);
    if (!good) {
        rows_close(self);
        return nullptr;
    }
    return self;
}

EXPORT float * rows_data(rows * self, int32_t index) {
    return llama_get_logits_ith(self->ctx, index);
}

// Sample all rows, one after the other; the seconds that took.
EXPORT double rows_sample(rows * self, llama_sampler * chain, int32_t * tokens) {
    timespec begin {}, end {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (int32_t i = 0; i < self->n_rows; ++i) {
        tokens[i] = llama_sampler_sample(chain, self->ctx, i);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return double(end.tv_sec - begin.tv_sec) + 1e-9 * double(end.tv_nsec - begin.tv_nsec);
}
