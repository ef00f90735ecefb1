# distutils: language = c++
"""Pools of CPU threads that contexts compute on."""

cimport cython

from llamacy.core._abort cimport abort_guard_begin, abort_guard_end
from llamacy.core._handle cimport THREADPOOL, handle_closed, handle_opened
from llamacy.core._status cimport raise_closed
from llamacy.core.backend cimport backend_initialize, cpu_proc_address
from llamacy.native cimport ggml as c_ggml

import os
import sys
import threading

from llamacy.core.backend import backends
from llamacy.errors import BackendError, InUseError
from llamacy.types import ThreadPriority

__all__ = ["ThreadPool"]

cdef extern from "_atomic.h" nogil:
    int llamacy_flag_take(int* flag) noexcept
    void llamacy_flag_give(int* flag) noexcept

# the CPU backend may be a module that nothing links against, so its functions are asked for by name
ctypedef c_ggml.ggml_threadpool_t (*_new_t)(c_ggml.ggml_threadpool_params* params) except + nogil
ctypedef void (*_free_t)(c_ggml.ggml_threadpool_t pool) noexcept nogil


@cython.final
@cython.no_gc_clear
cdef class ThreadPool:
    """Threads of the CPU backend, for `Context.attach_threadpool`.

    Without one, a context computes on threads of the OpenMP runtime, or starts threads for every batch.

    Parameters
    ----------
    n_threads : int
        Number of threads, 1 to 512. The thread that decodes is one of them. A context can be attached when it uses no
        more than that.
    cpu_mask : iterable of int, optional
        Numbers of the CPUs that the threads may run on.
    priority : ThreadPriority
        Scheduling priority.
    poll : int, optional
        How eagerly idle threads wait for work, from 0 (sleep at once) to 100; 50 by default.
    strict_cpu : bool
        Pin each thread to one CPU of `cpu_mask`, in turn, instead of leaving it all of them.
    paused : bool
        Let the threads sleep until the first batch.

    Raises
    ------
    ValueError, TypeError
        A number is out of range, or `strict_cpu` comes without `cpu_mask`.
    BackendError
        This system does not allow the priority or the CPUs, or this build can't honour an option: with OpenMP, `poll`
        and `paused` have no effect, and `cpu_mask` and `priority` none on a single thread.

    Lifetime
    --------
    Contexts hold the pools that are attached to them. `close` raises InUseError until all are detached. A context that
    has not decoded since points to the pool still, which is then freed with the next decode.

    Thread safety
    -------------
    A pool computes one graph at a time: contexts that share one must not decode at the same time.

    CPUs and priority are given to the calling thread, too, and it keeps them: to the one that decodes with OpenMP, else
    to the one that makes the pool (or decodes first, if it was made paused).

    Source: ``ggml_threadpool_new``, ``ggml_threadpool_free``.
    """

    def __cinit__(
        self,
        n_threads,
        *,
        cpu_mask=None,
        priority=ThreadPriority.NORMAL,
        poll=None,
        bint strict_cpu=False,
        bint paused=False,
    ):
        cdef c_ggml.ggml_threadpool_params params
        cdef _new_t new
        cdef int cpu
        self.n_threads = _int_in(n_threads, 1, c_ggml.GGML_MAX_N_THREADS, "n_threads")
        self.cpu_mask = None if cpu_mask is None else _cpus(cpu_mask)
        self.priority = _priority(priority)
        self.strict_cpu = strict_cpu
        if strict_cpu and self.cpu_mask is None:
            raise ValueError("strict_cpu needs a cpu_mask to take the CPUs from")
        if poll is not None:
            poll = _int_in(poll, 0, 100, "poll")
        backend_initialize()
        with_openmp = "OPENMP" in backends().get("CPU", {})
        if with_openmp and (poll is not None or paused):
            raise BackendError(
                f"{'poll' if poll is not None else 'paused'} has no effect in this build, whose threads are those of "
                "OpenMP; leave it out, or install llamacy with CMAKE_ARGS=-DGGML_OPENMP=OFF"
            )
        if with_openmp and self.n_threads == 1 and (cpu_mask is not None or self.priority != ThreadPriority.NORMAL):
            # ggml_graph_compute() leaves a single thread as it is
            raise BackendError(
                f"{'cpu_mask' if cpu_mask is not None else 'priority'} has no effect on a pool of one thread in this "
                "build, whose threads are those of OpenMP; leave it out, or give the pool two threads"
            )
        self.poll = None if with_openmp else 50 if poll is None else poll
        _check_allowed(self.cpu_mask, self.priority)
        c_ggml.ggml_threadpool_params_init(&params, self.n_threads)
        params.prio = <c_ggml.ggml_sched_priority><int>self.priority
        params.strict_cpu = strict_cpu
        params.paused = paused
        if self.poll is not None:
            params.poll = self.poll
        for cpu in self.cpu_mask or ():
            params.cpumask[cpu] = True
        new = <_new_t>cpu_proc_address("ggml_threadpool_new")
        if new == NULL:
            raise BackendError("the CPU backend of this build has no thread pools")
        abort_guard_begin()
        try:
            with nogil:
                self._ptr = new(&params)
        except RuntimeError as error:
            raise BackendError(f"the system does not give {self.n_threads} threads: {error}") from None
        finally:
            abort_guard_end()
        if self._ptr == NULL:
            raise MemoryError
        handle_opened(THREADPOOL)

    def __dealloc__(self):
        self._release()

    def close(self):
        """End the threads. It may be called again.

        Raises
        ------
        InUseError
            The pool is attached to a context.
        """
        if self.n_attached:
            n = "1 context" if self.n_attached == 1 else f"{self.n_attached} contexts"
            raise InUseError(f"this ThreadPool is attached to {n}; detach it before close()")
        self._closing = True
        if self._n_held == 0:
            self._release()

    @property
    def closed(self):
        """Whether `close` was called."""
        return self._closing

    def __enter__(self):
        threadpool_handle(self)
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        cpus = "" if self.cpu_mask is None else f", CPUs {sorted(self.cpu_mask)}"
        state = "closed" if self._closing else f"attached to {self.n_attached} contexts"
        return f"<ThreadPool of {self.n_threads} threads, {self.priority.name}{cpus} ({state})>"

    cdef void _release(self) noexcept:
        cdef _free_t free
        cdef c_ggml.ggml_threadpool_t ptr = self._ptr
        if ptr == NULL:
            return
        self._ptr = NULL  # before another thread, which may run now, closes it too
        free = <_free_t>cpu_proc_address("ggml_threadpool_free")
        with nogil:
            free(ptr)
        handle_closed(THREADPOOL)


cdef c_ggml.ggml_threadpool_t threadpool_handle(ThreadPool self) except NULL:
    if self._ptr == NULL or self._closing:
        raise_closed("ThreadPool")
    return self._ptr


cdef int threadpool_attach(ThreadPool self) except -1:
    """Note that a context computes on the pool; every call needs one of `threadpool_detach`."""
    threadpool_handle(self)
    self.n_attached += 1
    return 0


cdef void threadpool_detach(ThreadPool self) noexcept:
    """Note that a context doesn't compute on the pool any more, though its native side may point to it still."""
    self.n_attached -= 1


cdef void threadpool_hold(ThreadPool self) noexcept:
    """Note that the native side of a context points to the pool; every call needs one of `threadpool_let_go`."""
    self._n_held += 1


cdef void threadpool_let_go(ThreadPool self) noexcept:
    """Note that the native side of a context doesn't point to the pool any more."""
    self._n_held -= 1
    if self._closing and self._n_held == 0:
        self._release()


cdef bint threadpool_try_begin(ThreadPool self) noexcept nogil:
    """Take the pool for one graph; False when another context computes on it."""
    return llamacy_flag_take(&self._busy)


cdef void threadpool_end(ThreadPool self) noexcept nogil:
    llamacy_flag_give(&self._busy)


cdef int _int_in(object value, int low, int high, str name) except -1:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high}, not {value}")
    return value.__index__()


cdef object _priority(object value):
    try:
        return ThreadPriority[value.upper()] if isinstance(value, str) else ThreadPriority(value)
    except (KeyError, ValueError):
        names = ", ".join(member.name for member in ThreadPriority)
        raise ValueError(f"priority must be one of {names}, not {value!r}") from None


cdef object _cpus(object cpu_mask):
    n_cpus = min(os.cpu_count() or 1, c_ggml.GGML_MAX_N_THREADS)
    if sys.platform == "win32":
        n_cpus = min(n_cpus, 64)  # ggml_thread_apply_affinity() sets no others
    cpus = frozenset([_int_in(cpu, 0, n_cpus - 1, "a CPU of cpu_mask") for cpu in cpu_mask])
    if not cpus:
        raise ValueError("cpu_mask must name at least one CPU")
    return cpus


cdef int _check_allowed(object cpus, object priority) except -1:
    """Try on a thread of its own what ggml would only complain about on stderr, in every batch."""
    failures = []

    def attempt():
        try:
            if priority > ThreadPriority.NORMAL and hasattr(os, "sched_setscheduler"):
                level = {ThreadPriority.MEDIUM: 40, ThreadPriority.HIGH: 80, ThreadPriority.REALTIME: 90}[priority]
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(level))
            for cpu in cpus or ():
                if hasattr(os, "sched_setaffinity"):
                    os.sched_setaffinity(0, {cpu})
        except OSError as error:
            failures.append(error)

    if cpus is not None and sys.platform == "darwin":
        raise BackendError("macOS does not let threads be bound to CPUs; leave cpu_mask out")
    if cpus is None and priority <= ThreadPriority.NORMAL:
        return 0
    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    if failures:
        raise BackendError(
            f"this system does not allow priority {priority.name} on CPUs "
            f"{'of any number' if cpus is None else sorted(cpus)}: {failures[0]}"
        )
    return 0
