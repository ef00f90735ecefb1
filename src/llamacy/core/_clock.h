// A clock that only goes forward, in seconds.
#ifndef LLAMACY_CLOCK_H
#define LLAMACY_CLOCK_H

#include <chrono>

static inline double llamacy_clock(void) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#endif  // LLAMACY_CLOCK_H
