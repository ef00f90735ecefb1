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

// Fill `out`, which has room for 2 * k + 64 candidates, with the `k` highest logits of a row in descending order, equal
// ones by token id; -inf is left out. Returns how many there are, or -1 when a logit is not a number or too large.
//
// It is what the top_k sampler does to all candidates, without writing them all first: most of a row is only compared
// with the lowest logit that is still among the highest, 32 at a time.
static inline int32_t llamacy_candidates_top_k(void * out, const float * logits, int32_t n, int32_t k) {
    enum { BLOCK = 32 };
    llamacy_candidate * data = (llamacy_candidate *) out;
    const auto before = [](const llamacy_candidate & a, const llamacy_candidate & b) {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    };
    float   threshold = -INFINITY;
    int32_t size = 0;
    int     bad = 0;
    for (int32_t start = 0; start < n; start += BLOCK) {
        const int32_t end = std::min(start + (int32_t) BLOCK, n);
        int above = 0;
        if (end - start == BLOCK) {
            for (int32_t i = 0; i < BLOCK; ++i) {
                bad   |= !(logits[start + i] <= LLAMACY_LOGIT_MAX);
                above |= logits[start + i] > threshold;
            }
        } else {
            for (int32_t i = start; i < end; ++i) {
                bad   |= !(logits[i] <= LLAMACY_LOGIT_MAX);
                above |= logits[i] > threshold;
            }
        }
        if (!above) {
            continue;
        }
        for (int32_t i = start; i < end; ++i) {
            // written without a branch, and kept only when it is above
            data[size].id    = i;
            data[size].logit = logits[i];
            data[size].p     = 0.0f;
            size += logits[i] > threshold;
        }
        if (size >= 2 * k + BLOCK) {
            std::nth_element(data, data + k - 1, data + size, before);
            size      = k;
            threshold = data[k - 1].logit;
        }
    }
    if (bad) {
        return -1;
    }
    const int32_t left = std::min(size, k);
    std::partial_sort(data, data + left, data + size, before);
    return left;
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
