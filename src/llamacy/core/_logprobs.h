// Log-probabilities of a row of logits: of one token, and of the most probable ones.
#ifndef LLAMACY_LOGPROBS_H
#define LLAMACY_LOGPROBS_H

#include <cstdlib>

#include "_row_top.h"

enum {
    LLAMACY_LOGPROBS_MEMORY = 1, LLAMACY_LOGPROBS_TOKEN, LLAMACY_LOGPROBS_COUNT, LLAMACY_LOGPROBS_NAN,
    LLAMACY_LOGPROBS_NONE
};

// Write the logarithm of the softmax of `row` for the token `chosen`, and the `k` tokens for which it is highest with
// theirs, equal ones by token id. Returns 0, or which of the above is wrong; then nothing is written.
static int llamacy_logprobs(
    const float * row, int32_t n, int32_t chosen, int32_t k, float * out_chosen, int32_t * top_ids, float * top_logprobs
) {
    using namespace llamacy;
    if (chosen < 0 || chosen >= n) {
        return LLAMACY_LOGPROBS_TOKEN;
    }
    if (k < 0 || k > n) {
        return LLAMACY_LOGPROBS_COUNT;
    }
    const int32_t n_blocks = row_n_blocks(n);
    const size_t  n_top    = k > 0 ? row_top_room(k) : 0;
    const size_t  n_bytes  = n_top * sizeof(llamacy_candidate) + row_top_numbers(n) * sizeof(float);
    auto * top = (llamacy_candidate *) std::malloc(n_bytes);
    if (top == nullptr) {
        return LLAMACY_LOGPROBS_MEMORY;
    }
    auto * maxima = (float *) (top + n_top);
    const bool  good = row_maxima(row, n, FLT_MAX, maxima);
    const float high = *std::max_element(maxima, maxima + n_blocks);
    if (!good || high == -INFINITY) {
        std::free(top);
        return good ? LLAMACY_LOGPROBS_NONE : LLAMACY_LOGPROBS_NAN;
    }
    // high and the logarithm are taken off one after the other, since their sum would lose digits to a large high
    const double rest = std::log(row_exp_sum(row, n, high));
    const auto logprob = [&](float logit) { return (float) (((double) logit - high) - rest); };
    *out_chosen = logprob(row[chosen]);
    int32_t size = k > 0 ? row_top(top, row, n, k, maxima) : 0;
    for (int32_t i = 0; i < size; ++i) {
        top_ids[i]      = top[i].id;
        top_logprobs[i] = logprob(top[i].logit);
    }
    for (int32_t id = 0; size < k; ++id) {
        if (row[id] == -INFINITY) {
            top_ids[size]      = id;
            top_logprobs[size] = -INFINITY;
            ++size;
        }
    }
    std::free(top);
    return 0;
}

#endif  // LLAMACY_LOGPROBS_H
