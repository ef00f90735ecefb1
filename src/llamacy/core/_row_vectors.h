// Loops over a whole row of logits in vector code, for CPUs of any kind; with twice as wide vectors where the CPU has AVX2,
// which is asked at run time.
#ifndef LLAMACY_ROW_VECTORS_H
#define LLAMACY_ROW_VECTORS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define LLAMACY_WIDE __attribute__((target("avx2,fma")))
#endif

namespace llamacy {

enum { ROW_BLOCK = 64 };

inline int32_t row_n_blocks(int32_t n) {
    return (n + ROW_BLOCK - 1) / ROW_BLOCK;
}

inline float higher(float a, float b) {
    return b > a ? b : a;
}

#if defined(__GNUC__)

#define LLAMACY_INLINE inline __attribute__((always_inline))

template <int WIDTH> struct row_vector {
    typedef float    numbers __attribute__((vector_size(4 * WIDTH)));
    typedef uint32_t bits    __attribute__((vector_size(4 * WIDTH)));
};

// The highest logit of each whole block. Returns whether all are numbers, at most `limit`; NaN is passed over.
template <int WIDTH>
LLAMACY_INLINE bool row_maxima_of(const float * row, int32_t n_blocks, float limit, float * maxima) {
    typedef typename row_vector<WIDTH>::numbers numbers;
    typedef typename row_vector<WIDTH>::bits    bits;
    bits bad = {};
    for (int32_t block = 0; block < n_blocks; ++block, row += ROW_BLOCK) {
        numbers high = {};
        high -= INFINITY;
        for (int i = 0; i < ROW_BLOCK; i += WIDTH) {
            numbers x;
            std::memcpy(&x, row + i, sizeof(x));
            high = x > high ? x : high;
            bad |= ~(bits) (x <= limit);
        }
        float best = high[0];
        for (int j = 1; j < WIDTH; ++j) {
            best = higher(best, high[j]);
        }
        maxima[block] = best;
    }
    uint32_t any = 0;
    for (int j = 0; j < WIDTH; ++j) {
        any |= bad[j];
    }
    return !any;
}

// Replace numbers that are not above 0 by their exp; what is below exp(-87), which no sum notices, by about that.
template <int WIDTH>
LLAMACY_INLINE void row_exp(typename row_vector<WIDTH>::numbers & x) {
    typedef typename row_vector<WIDTH>::numbers numbers;
    typedef typename row_vector<WIDTH>::bits    bits;
    const numbers least = numbers {} - 87.0f;
    x = x > least ? x : least;
    // x = n ln 2 + r: adding 1.5 * 2^23 rounds x / ln 2 to the whole number n, which then is in the lowest bits
    const numbers shifted = x * 1.44269504f + 12582912.0f;
    const numbers n = shifted - 12582912.0f;
    const numbers r = (x - n * 0.693359375f) + n * 2.12194440e-4f; // ln 2 in two parts: the first product is exact
    // the series of exp up to r^7; what it leaves out is below 1e-8, since r is at most ln 2 / 2
    numbers series = r * (1.0f / 5040) + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    x = (numbers) ((bits) series + ((bits) shifted << 23)); // times 2^n
}

// The sum of exp(logit - high) over whole blocks. None may be NaN or above `high`.
template <int WIDTH>
LLAMACY_INLINE double row_exp_sum_of(const float * row, int32_t n_blocks, float high) {
    typedef typename row_vector<WIDTH>::numbers numbers;
    double sum = 0.0;
    for (int32_t block = 0; block < n_blocks; ++block, row += ROW_BLOCK) {
        numbers part[2] = {}; // a few at a time in float, all in double
        for (int i = 0; i < ROW_BLOCK; i += 2 * WIDTH) {
            for (int half = 0; half < 2; ++half) {
                numbers x;
                std::memcpy(&x, row + i + half * WIDTH, sizeof(x));
                x -= high;
                row_exp<WIDTH>(x);
                part[half] += x;
            }
        }
        part[0] += part[1];
        float lanes = 0.0f;
        for (int j = 0; j < WIDTH; ++j) {
            lanes += part[0][j];
        }
        sum += lanes;
    }
    return sum;
}

#ifdef LLAMACY_WIDE

inline bool row_has_wide() {
    static const bool has = [] {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }();
    return has;
}

LLAMACY_WIDE inline bool row_maxima_wide(const float * row, int32_t n_blocks, float limit, float * maxima) {
    return row_maxima_of<8>(row, n_blocks, limit, maxima);
}

LLAMACY_WIDE inline double row_exp_sum_wide(const float * row, int32_t n_blocks, float high) {
    return row_exp_sum_of<8>(row, n_blocks, high);
}

#endif // LLAMACY_WIDE

inline bool row_maxima_whole(const float * row, int32_t n_blocks, float limit, float * maxima) {
#ifdef LLAMACY_WIDE
    if (row_has_wide()) {
        return row_maxima_wide(row, n_blocks, limit, maxima);
    }
#endif
    return row_maxima_of<4>(row, n_blocks, limit, maxima);
}

inline double row_exp_sum_whole(const float * row, int32_t n_blocks, float high) {
#ifdef LLAMACY_WIDE
    if (row_has_wide()) {
        return row_exp_sum_wide(row, n_blocks, high);
    }
#endif
    return row_exp_sum_of<4>(row, n_blocks, high);
}

#else // a compiler without vector types

inline bool row_maxima_whole(const float * row, int32_t n_blocks, float limit, float * maxima) {
    int bad = 0;
    for (int32_t block = 0; block < n_blocks; ++block, row += ROW_BLOCK) {
        float high[ROW_BLOCK];
        for (int i = 0; i < ROW_BLOCK; ++i) {
            bad |= !(row[i] <= limit);
            high[i] = higher(-INFINITY, row[i]);
        }
        for (int half = ROW_BLOCK / 2; half > 0; half /= 2) {
            for (int i = 0; i < half; ++i) {
                high[i] = higher(high[i], high[i + half]);
            }
        }
        maxima[block] = high[0];
    }
    return !bad;
}

inline double row_exp_sum_whole(const float * row, int32_t n_blocks, float high) {
    double sum = 0.0;
    for (int64_t i = 0; i < (int64_t) n_blocks * ROW_BLOCK; ++i) {
        sum += std::exp(row[i] - high);
    }
    return sum;
}

#endif // vector types

// The highest logit of each block of a row, the last of which may be short. Returns whether all are numbers, at most
// `limit`.
inline bool row_maxima(const float * row, int32_t n, float limit, float * maxima) {
    const int32_t n_whole = n / ROW_BLOCK;
    bool good = row_maxima_whole(row, n_whole, limit, maxima);
    if (n_whole * ROW_BLOCK < n) {
        float best = -INFINITY;
        for (int32_t i = n_whole * ROW_BLOCK; i < n; ++i) {
            best = higher(best, row[i]);
            good &= row[i] <= limit;
        }
        maxima[n_whole] = best;
    }
    return good;
}

// The sum of exp(logit - high) over a row of numbers, of which `high`, which is finite, is the highest.
inline double row_exp_sum(const float * row, int32_t n, float high) {
    const int32_t n_whole = n / ROW_BLOCK;
    double sum = row_exp_sum_whole(row, n_whole, high);
    for (int32_t i = n_whole * ROW_BLOCK; i < n; ++i) {
        sum += std::exp((double) row[i] - high);
    }
    return sum;
}

}  // namespace llamacy

#endif  // LLAMACY_ROW_VECTORS_H
