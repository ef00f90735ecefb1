# Counts of the native handles that are alive, by kind.
#
# Every class that owns a handle calls `handle_opened` right after it acquired the handle and `handle_closed` right
# after it freed it. Both need the GIL, which makes the counters exact.

cpdef enum HandleKind:
    MODEL
    CONTEXT
    BATCH
    SAMPLER
    LORA_ADAPTER
    THREADPOOL
    GGUF
    CALLBACK
    N_KINDS


cdef void handle_opened(HandleKind kind) noexcept
cdef void handle_closed(HandleKind kind) noexcept
