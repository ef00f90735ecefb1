"""Counts of the native handles that are alive, by kind; tests assert that they come back to where they were."""

__all__ = ["live_handles"]

cdef long _live[N_KINDS]

cdef tuple _names = ("model", "context", "batch", "sampler", "lora_adapter", "threadpool", "gguf", "callback")


cdef void handle_opened(HandleKind kind) noexcept:
    _live[<int>kind] += 1


cdef void handle_closed(HandleKind kind) noexcept:
    _live[<int>kind] -= 1


def live_handles():
    """Return the number of native handles alive in this process, by kind.

    Returns
    -------
    dict of str to int
        For instance ``{"model": 1, "context": 1, …}``.
    """
    return {name: _live[index] for index, name in enumerate(_names)}
