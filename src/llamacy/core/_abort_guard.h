// A failed GGML_ASSERT as a C++ exception.
//
// ggml_abort() calls a hook right before it ends the process. A hook that throws unwinds the native frames instead, as
// any C++ exception would: destructors run, and llama.cpp's own `catch (const std::exception &)` around load, context
// creation and quantization sees an ordinary error. Only threads that asked for it are treated so, one call at a time:
// what the failed call was working on can't be trusted afterwards and has to be thrown away.
#ifndef LLAMACY_ABORT_GUARD_H
#define LLAMACY_ABORT_GUARD_H

#include "ggml.h"

#include <cstdio>
#include <mutex>
#include <stdexcept>

namespace llamacy {

static thread_local int      abort_guard_depth    = 0;
static ggml_abort_callback_t abort_guard_previous = nullptr;

static void abort_guard_hook(const char * message) {
    if (abort_guard_depth > 0) {
        throw std::runtime_error(message);
    }
    if (abort_guard_previous) {
        abort_guard_previous(message);
    } else {
        std::fprintf(stderr, "%s\n", message);
    }
}

static void abort_guard_enter() {
    static std::once_flag once;
    std::call_once(once, [] { abort_guard_previous = ggml_set_abort_callback(abort_guard_hook); });
    ++abort_guard_depth;
}

static void abort_guard_leave() {
    --abort_guard_depth;
}

}  // namespace llamacy

#endif  // LLAMACY_ABORT_GUARD_H
