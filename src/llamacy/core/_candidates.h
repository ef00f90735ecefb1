// Loops over candidates (llama_token_data), kept in C so that the compiler can unroll and vectorize them.
#ifndef LLAMACY_CANDIDATES_H
#define LLAMACY_CANDIDATES_H

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

// llama-sampler.cpp sorts logits into buckets by converting them to int: a larger one would land in the lowest bucket
// (llama_token_data_array_partial_sort), and with a NaN std::sort may leave the array.
#define LLAMACY_LOGIT_MAX 1e8f

typedef struct {
    int32_t id;
    float   logit;
    float   p;
} llamacy_candidate;

// Fill `out` with a row of logits. Returns 0 when one of them is not a number or too large.
static inline int llamacy_candidates_fill(void * out, const float * logits, int32_t n) {
    llamacy_candidate * data = (llamacy_candidate *) out;
    int bad = 0;
    for (int32_t i = 0; i < n; ++i) {
        const float logit = logits[i];
        bad |= !(logit <= LLAMACY_LOGIT_MAX);
        data[i].id    = i;
        data[i].logit = logit;
        data[i].p     = 0.0f;
    }
    return !bad;
}

// What samplers rely on. `n_vocab` is the end of the valid token ids, or 0 for any that is not negative.
enum { LLAMACY_BAD_LOGIT = 1, LLAMACY_BAD_ID = 2, LLAMACY_UNSORTED = 4 };

static inline int llamacy_candidates_check(const void * array, size_t n, int32_t n_vocab) {
    const llamacy_candidate * data = (const llamacy_candidate *) array;
    const uint32_t end = n_vocab > 0 ? (uint32_t) n_vocab : (uint32_t) INT32_MAX + 1u;
    int bad_logit = 0, bad_id = 0, unsorted = 0;
    float last = FLT_MAX;
    for (size_t i = 0; i < n; ++i) {
        const float logit = data[i].logit;
        bad_logit |= !(logit <= LLAMACY_LOGIT_MAX);
        bad_id    |= (uint32_t) data[i].id >= end;
        unsorted  |= !(logit <= last);
        last = logit;
    }
    return (bad_logit ? LLAMACY_BAD_LOGIT : 0) | (bad_id ? LLAMACY_BAD_ID : 0) | (unsorted ? LLAMACY_UNSORTED : 0);
}

#endif  // LLAMACY_CANDIDATES_H
