// A flag that one caller at a time can hold, and a counter.
#ifndef LLAMACY_ATOMIC_H
#define LLAMACY_ATOMIC_H

#if defined(_MSC_VER)
#include <intrin.h>
static inline int  llamacy_flag_take(int * flag) { return _InterlockedExchange((volatile long *) flag, 1) == 0; }
static inline void llamacy_flag_give(int * flag) { _InterlockedExchange((volatile long *) flag, 0); }
static inline void llamacy_count_add(int * count, int n) { _InterlockedExchangeAdd((volatile long *) count, n); }
#else
static inline int  llamacy_flag_take(int * flag) { return __atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE) == 0; }
static inline void llamacy_flag_give(int * flag) { __atomic_store_n(flag, 0, __ATOMIC_RELEASE); }
static inline void llamacy_count_add(int * count, int n) { __atomic_add_fetch(count, n, __ATOMIC_ACQ_REL); }
#endif

#endif  // LLAMACY_ATOMIC_H
