// What this CPU can execute, under the names that ggml's CPU backend gives its compile-time features.
#ifndef LLAMACY_CPU_FEATURES_H
#define LLAMACY_CPU_FEATURES_H

#include <string.h>

// 1: the CPU has it, 0: it doesn't, -1: not known here
static inline int llamacy_cpu_has(const char * feature) {
#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
    if (!strcmp(feature, "SSE3"))        return !!__builtin_cpu_supports("sse3");
    if (!strcmp(feature, "SSSE3"))       return !!__builtin_cpu_supports("ssse3");
    if (!strcmp(feature, "AVX"))         return !!__builtin_cpu_supports("avx");
    if (!strcmp(feature, "AVX2"))        return !!__builtin_cpu_supports("avx2");
    if (!strcmp(feature, "FMA"))         return !!__builtin_cpu_supports("fma");
    if (!strcmp(feature, "BMI2"))        return !!__builtin_cpu_supports("bmi2");
    if (!strcmp(feature, "AVX512"))      return !!__builtin_cpu_supports("avx512f");
    if (!strcmp(feature, "AVX512_VBMI")) return !!__builtin_cpu_supports("avx512vbmi");
    if (!strcmp(feature, "AVX512_VNNI")) return !!__builtin_cpu_supports("avx512vnni");
    if (!strcmp(feature, "AVX512_BF16")) return !!__builtin_cpu_supports("avx512bf16");
#endif
    (void) feature;
    return -1;
}

#endif  // LLAMACY_CPU_FEATURES_H
