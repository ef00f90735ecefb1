from llamacy.native.handles cimport ggml_threadpool_t


cdef class ThreadPool:
    cdef ggml_threadpool_t _ptr         # NULL once closed
    cdef object __weakref__
    cdef readonly int n_threads
    cdef readonly object cpu_mask       # frozenset of CPU numbers, or None
    cdef readonly object priority       # ThreadPriority
    cdef readonly object poll           # int, or None where the build doesn't poll
    cdef readonly bint strict_cpu
    cdef readonly int n_attached        # contexts that compute on it
    cdef int _busy                      # 1 while a graph runs on it; taken and given back atomically
    cdef int _n_held                    # contexts whose native side may point to it
    cdef bint _closing                  # closed, to be freed once none does

    cdef void _release(self) noexcept


cdef ggml_threadpool_t threadpool_handle(ThreadPool self) except NULL
cdef int threadpool_attach(ThreadPool self) except -1
cdef void threadpool_detach(ThreadPool self) noexcept
cdef void threadpool_hold(ThreadPool self) noexcept
cdef void threadpool_let_go(ThreadPool self) noexcept
cdef bint threadpool_try_begin(ThreadPool self) noexcept nogil
cdef void threadpool_end(ThreadPool self) noexcept nogil
