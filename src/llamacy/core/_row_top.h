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

// A number that at least `k` logits are above, found from the maxima of blocks; -inf when there are not so many blocks.
// It is close to the k-th logit: few of the highest logits are in the same blocks. `scratch` has room for the maxima.
inline float row_threshold(const float * maxima, int32_t n_blocks, int32_t k, float * scratch) {
    if (k > n_blocks) {
        return -INFINITY;
    }
    // looking for the k-th of four times as many says nearly as much as looking for it among all
    const int32_t n = std::min(n_blocks, std::max(4 * k, 64));
    std::copy(maxima, maxima + n, scratch);
    for (int32_t start = n; start < n_blocks; start += n) {
        const int32_t width = std::min(n, n_blocks - start);
        for (int32_t i = 0; i < width; ++i) {
            scratch[i] = higher(scratch[i], maxima[start + i]);
        }
    }
    std::nth_element(scratch, scratch + k - 1, scratch + n, std::greater<float>());
    return scratch[k - 1] == -INFINITY ? -INFINITY : std::nextafter(scratch[k - 1], -INFINITY);
}

// Write what is above `threshold` to `out`, where only the highest are kept once they are many more than `k`: in the end
// these hold the `k` highest of what `select` leaves, but for those of -inf. Returns how many there are. `select` is given
// the end of what it has left so far, and the end of what came in since; it returns how many it leaves.
template <typename Select>
inline int32_t row_collect(
    llamacy_candidate * out, const float * row, int32_t n, int32_t k, const float * maxima, float threshold,
    Select select
) {
    enum { PART = 16 };
    const int32_t n_blocks = row_n_blocks(n);
    int32_t size = 0;
    for (int32_t block = 0; block < n_blocks; ++block) {
        if (!(maxima[block] > threshold)) {
            continue;
        }
        const int32_t old = size;
        const int32_t end = std::min((block + 1) * (int32_t) ROW_BLOCK, n);
        for (int32_t start = block * ROW_BLOCK; start < end; start += PART) {
            const int32_t stop = std::min(start + (int32_t) PART, end);
            if (stop - start == PART) {
                int above = 0;
                for (int32_t i = 0; i < PART; ++i) {
                    above |= row[start + i] > threshold;
                }
                if (!above) {
                    continue;
                }
            }
            for (int32_t i = start; i < stop; ++i) {
                // written without a branch, and kept only when it is above
                out[size].id    = i;
                out[size].logit = row[i];
                out[size].p     = 0.0f;
                size += row[i] > threshold;
            }
        }
        size = select(old, size);
        if (size >= 2 * k + ROW_BLOCK) {
            // an equal logit further on has a higher id, so it isn't wanted
            std::nth_element(out, out + k - 1, out + size, row_before);
            size      = k;
            threshold = out[k - 1].logit;
        }
    }
    return size;
}

// Put the `k` highest of some candidates in order, and return how many that are.
inline int32_t row_order(llamacy_candidate * data, int32_t size, int32_t k) {
    if (size > k) {
        std::nth_element(data, data + k - 1, data + size, row_before);
        size = k;
    }
    std::sort(data, data + size, row_before);
    return size;
}

// Write the `k` highest logits of a row to `out`, in descending order, equal ones by token id, without those of -inf;
// return how many there are. `maxima` are those of the row's blocks, with as much room again behind them.
inline int32_t row_top(llamacy_candidate * out, const float * row, int32_t n, int32_t k, float * maxima) {
    const int32_t n_blocks = row_n_blocks(n);
    const float threshold = row_threshold(maxima, n_blocks, k, maxima + n_blocks);
    const int32_t size = row_collect(out, row, n, k, maxima, threshold, [](int32_t, int32_t end) { return end; });
    return row_order(out, size, k);
}

}  // namespace llamacy

#endif  // LLAMACY_ROW_TOP_H
