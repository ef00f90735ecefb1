// The highest logits of a row, without sorting or even writing the others.
#ifndef LLAMACY_ROW_TOP_H
#define LLAMACY_ROW_TOP_H

#include <functional>

#include "_candidates.h"
#include "_row_vectors.h"

namespace llamacy {

// Descending logits, equal ones by token id.
inline bool row_before(const llamacy_candidate & a, const llamacy_candidate & b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// How many candidates, and how many numbers besides them, looking for the `k` highest of a row needs room for.
inline size_t row_top_room(int32_t k) {
    return 2 * (size_t) k + 2 * ROW_BLOCK;
}

inline size_t row_top_numbers(int32_t n) {
    return 2 * (size_t) row_n_blocks(n);
}

// A number that at least `k` logits reach, found from the maxima of blocks; -inf when there are not so many blocks. It is
// close to the k-th logit: that many of the highest logits are seldom in the same blocks. `scratch` has room for the maxima.
inline float row_threshold(const float * maxima, int32_t n_blocks, int32_t k, float * scratch) {
    if (k > n_blocks) {
        return -INFINITY;
    }
    // looking for the k-th of four times as many says nearly as much as looking for it among all
    const int32_t n = std::min(n_blocks, std::max(4 * k, 64));
    if (n == n_blocks) {
        std::copy(maxima, maxima + n_blocks, scratch);
    } else {
        std::copy(maxima, maxima + n, scratch);
        for (int32_t start = n; start < n_blocks; start += n) {
            const int32_t width = std::min(n, n_blocks - start);
            for (int32_t i = 0; i < width; ++i) {
                scratch[i] = higher(scratch[i], maxima[start + i]);
            }
        }
    }
    std::nth_element(scratch, scratch + k - 1, scratch + n, std::greater<float>());
    return scratch[k - 1];
}

// Write the `k` highest logits of a row to `out`, in descending order, equal ones by token id, without those of -inf;
// return how many there are. `maxima` are those of the row's blocks, with as much room again behind them.
inline int32_t row_top(llamacy_candidate * out, const float * row, int32_t n, int32_t k, float * maxima) {
    const int32_t n_blocks = row_n_blocks(n);
    const float least = row_threshold(maxima, n_blocks, k, maxima + n_blocks);
    // only what is above the threshold is kept, so that must be below the logits that are wanted
    float   threshold = least == -INFINITY ? least : std::nextafter(least, -INFINITY);
    int32_t size = 0;
    for (int32_t block = 0; block < n_blocks; ++block) {
        if (!(maxima[block] > threshold)) {
            continue;
        }
        const int32_t end = std::min((block + 1) * (int32_t) ROW_BLOCK, n);
        for (int32_t i = block * ROW_BLOCK; i < end; ++i) {
            // written without a branch, and kept only when it is above
            out[size].id    = i;
            out[size].logit = row[i];
            out[size].p     = 0.0f;
            size += row[i] > threshold;
        }
        if (size >= 2 * k + ROW_BLOCK) {
            // an equal logit further on has a higher id, so it isn't wanted
            std::nth_element(out, out + k - 1, out + size, row_before);
            size      = k;
            threshold = out[k - 1].logit;
        }
    }
    if (size > k) {
        std::nth_element(out, out + k - 1, out + size, row_before);
        size = k;
    }
    std::sort(out, out + size, row_before);
    return size;
}

}  // namespace llamacy

#endif  // LLAMACY_ROW_TOP_H
