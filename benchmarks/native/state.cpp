// States of sequences, saved and restored by llama.h alone: a library that bench_cache loads into its process.

#include "llama.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#define EXPORT extern "C" __attribute__((visibility("default")))

static const int KEPT = 4;

struct bench_state {
    llama_model *              model   = nullptr;
    llama_context *            ctx     = nullptr;
    size_t                     size    = 0;
    int                        n_saves = 0;
    std::unique_ptr<uint8_t[]> data;
    std::unique_ptr<uint8_t[]> kept[KEPT];
};

static double seconds() {
    timespec now {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

EXPORT void state_close(bench_state * self) {
    llama_free(self->ctx);
    llama_model_free(self->model);
    delete self;
}

// A context whose sequence 0 holds these tokens, or NULL.
EXPORT bench_state * state_open(const char * path, int32_t n_ctx, const int32_t * tokens, int32_t n_tokens) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_threads = params.n_threads_batch = 1;
    auto * self = new bench_state;
    self->model = llama_model_load_from_file(path, llama_model_default_params());
    if (self->model != nullptr) {
        self->ctx = llama_init_from_model(self->model, params);
    }
    std::unique_ptr<llama_token[]> copy(new llama_token[n_tokens]);
    std::copy_n(tokens, n_tokens, copy.get());
    if (self->ctx == nullptr || llama_decode(self->ctx, llama_batch_get_one(copy.get(), n_tokens)) != 0) {
        state_close(self);
        return nullptr;
    }
    self->size = llama_state_seq_get_size(self->ctx, 0);
    self->data.reset(new uint8_t[self->size]);
    if (llama_state_seq_get_data(self->ctx, self->data.get(), self->size, 0) != self->size) {
        state_close(self);
        return nullptr;
    }
    return self;
}

// Seconds of a save into new memory, as who keeps it needs; the last ones are kept. Negative when it fails.
EXPORT double state_get(bench_state * self) {
    auto & place = self->kept[self->n_saves++ % KEPT];
    place.reset();
    const double begin = seconds();
    const size_t size = llama_state_seq_get_size(self->ctx, 0);
    place.reset(new uint8_t[size]);
    const size_t n = llama_state_seq_get_data(self->ctx, place.get(), size, 0);
    const double took = seconds() - begin;
    return n == size ? took : -1;
}

// Seconds of a restore of what was saved first; negative when it fails.
EXPORT double state_set(bench_state * self) {
    const double begin = seconds();
    const size_t n = llama_state_seq_set_data(self->ctx, self->data.get(), self->size, 0);
    const double took = seconds() - begin;
    return n == self->size ? took : -1;
}

// Seconds of a copy of as many bytes.
EXPORT double state_copy(bench_state * self) {
    std::unique_ptr<uint8_t[]> data(new uint8_t[self->size]);
    std::memset(data.get(), 0, self->size);
    const double begin = seconds();
    std::memcpy(data.get(), self->data.get(), self->size);
    asm volatile("" : : "r"(data.get()) : "memory");  // nobody reads it, so it could be left out
    return seconds() - begin;
}
