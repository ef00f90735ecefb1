// What this CPU can execute, under the names that ggml's CPU backend gives its compile-time features, and under those of
// /proc/cpuinfo.
#ifndef LLAMACY_CPU_FEATURES_H
#define LLAMACY_CPU_FEATURES_H

#include <string.h>

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>

static inline int llamacy_cpuid_bit(unsigned leaf, unsigned subleaf, int reg, int bit) {
    unsigned regs[4];
    if (!__get_cpuid_count(leaf, subleaf, &regs[0], &regs[1], &regs[2], &regs[3])) {
        return 0;
    }
    return (int) (regs[reg] >> bit & 1);
}
#endif

static inline int llamacy_cpu_named(const char * feature, const char * ggml, const char * cpuinfo) {
    return !strcmp(feature, ggml) || !strcmp(feature, cpuinfo);
}

// 1: the CPU has it, 0: it doesn't, -1: not known here
static inline int llamacy_cpu_has(const char * feature) {
#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
    // the compiler's own test asks the operating system, too; what older compilers don't know by name comes from cpuid
    __builtin_cpu_init();
    const int avx = !!__builtin_cpu_supports("avx");
    if (llamacy_cpu_named(feature, "SSE3", "pni"))                return !!__builtin_cpu_supports("sse3");
    if (llamacy_cpu_named(feature, "SSSE3", "ssse3"))             return !!__builtin_cpu_supports("ssse3");
    if (llamacy_cpu_named(feature, "SSE42", "sse4_2"))            return !!__builtin_cpu_supports("sse4.2");
    if (llamacy_cpu_named(feature, "AVX", "avx"))                 return avx;
    if (llamacy_cpu_named(feature, "F16C", "f16c"))               return avx && llamacy_cpuid_bit(1, 0, 2, 29);
    if (llamacy_cpu_named(feature, "FMA", "fma"))                 return !!__builtin_cpu_supports("fma");
    if (llamacy_cpu_named(feature, "BMI2", "bmi2"))               return !!__builtin_cpu_supports("bmi2");
    if (llamacy_cpu_named(feature, "AVX2", "avx2"))               return !!__builtin_cpu_supports("avx2");
    if (llamacy_cpu_named(feature, "AVX_VNNI", "avx_vnni"))       return avx && llamacy_cpuid_bit(7, 1, 0, 4);
    if (llamacy_cpu_named(feature, "AVX512", "avx512f"))          return !!__builtin_cpu_supports("avx512f");
    if (llamacy_cpu_named(feature, "AVX512BW", "avx512bw"))       return !!__builtin_cpu_supports("avx512bw");
    if (llamacy_cpu_named(feature, "AVX512VL", "avx512vl"))       return !!__builtin_cpu_supports("avx512vl");
    if (llamacy_cpu_named(feature, "AVX512DQ", "avx512dq"))       return !!__builtin_cpu_supports("avx512dq");
    if (llamacy_cpu_named(feature, "AVX512CD", "avx512cd"))       return !!__builtin_cpu_supports("avx512cd");
    if (llamacy_cpu_named(feature, "AVX512_VBMI", "avx512vbmi"))  return !!__builtin_cpu_supports("avx512vbmi");
    if (llamacy_cpu_named(feature, "AVX512_VNNI", "avx512_vnni")) return !!__builtin_cpu_supports("avx512vnni");
    if (llamacy_cpu_named(feature, "AVX512_BF16", "avx512_bf16")) return !!__builtin_cpu_supports("avx512bf16");
    if (llamacy_cpu_named(feature, "AVX512_FP16", "avx512_fp16")) return avx && llamacy_cpuid_bit(7, 0, 3, 23);
    if (llamacy_cpu_named(feature, "AMX_TILE", "amx_tile"))       return llamacy_cpuid_bit(7, 0, 3, 24);
    if (llamacy_cpu_named(feature, "AMX_INT8", "amx_int8"))       return llamacy_cpuid_bit(7, 0, 3, 25);
    if (llamacy_cpu_named(feature, "AMX_BF16", "amx_bf16"))       return llamacy_cpuid_bit(7, 0, 3, 22);
#endif
    (void) feature;
    return -1;
}

#endif  // LLAMACY_CPU_FEATURES_H
