# A context's life, apart from acquiring the handle.

from llamacy.core.context cimport Context
from llamacy.core.model cimport Model
from llamacy.core.threadpool cimport ThreadPool


cdef int context_check_create(Model model, Context ctx_other, const void* params) except -1
cdef int context_head_size(Model model, str letter)
cdef int context_check_created(Context self) except -1
cdef int context_warm_up(Context self) except -1
cdef int context_set_threads(Context self, object n_threads, object n_threads_batch) except -1
cdef int context_attach_threadpools(Context self, ThreadPool pool, ThreadPool pool_batch) except -1
cdef void context_retire_threadpools(Context self) noexcept
cdef void context_free(Context self) noexcept
