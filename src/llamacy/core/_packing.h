// Puts texts in order of their length, those of equal length as they came.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

static inline void llamacy_order_by_length(const int32_t * lengths, int32_t * order, size_t n) noexcept {
    std::iota(order, order + n, 0);
    // equal lengths are told apart by the index, so that no buffer for a stable sort is needed
    std::sort(order, order + n, [lengths](int32_t a, int32_t b) {
        return lengths[a] != lengths[b] ? lengths[a] < lengths[b] : a < b;
    });
}
