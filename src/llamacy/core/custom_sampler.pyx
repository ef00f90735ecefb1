# distutils: language = c++
"""Samplers written in Python, and in Cython or C."""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from libcpp.string cimport string

from llamacy.core._callback cimport stash_exception
from llamacy.core._handle cimport CALLBACK, handle_closed, handle_opened
from llamacy.core.candidates cimport (
    Candidates, candidate, candidate_array, candidates_assign, candidates_check, candidates_copy, candidates_raise
)
from llamacy.core.sampler_base cimport SAMPLER_CLOSED, SAMPLER_IN_CHAIN, SAMPLER_OPEN, SamplerBase
from llamacy.core.samplers cimport Sampler, sampler_wrap
from llamacy.native cimport llama as c_llama

from llamacy.errors import SamplerError

__all__ = ["CustomSampler"]

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)

# The native samplers of Python objects hold them without a reference: the chain that owns the former has the latter in
# its list of links, where the garbage collector sees them. Only a clone owns its object until a chain takes it over.
cdef cppclass python_data:
    PyObject* object
    bint owned
    string name

cdef c_llama.llama_sampler_i _python_interface
cdef c_llama.llama_sampler_i _functions_interface


@cython.no_gc_clear
cdef class CustomSampler(Sampler):
    """Base of samplers written in Python.

    Derive from it, define `apply` and whatever else is needed, and add an instance to a `SamplerChain`. The methods are
    called with the GIL, by the thread that samples; an exception in one of them is raised by the call that led there
    (`SamplerChain.sample`, `apply`, `accept`, …); one in `accept` comes after all links have accepted the token. `name`
    may be a class attribute.

    Lifetime: an instance belongs to one chain at most; `SamplerChain.remove` gives it back.
    """

    def __cinit__(self, *args, **kwargs):
        self.kind = "custom"
        self._values = {}

    def __init__(self):
        pass

    cdef int _release(self) except -1:
        if self._state == SAMPLER_OPEN:
            self._state = SAMPLER_CLOSED
        return 0

    def __repr__(self):
        return f"<{type(self).__name__}{' closed' if self._state == SAMPLER_CLOSED else ''}>"

    @property
    def name(self):
        """Name of the sampler; that of the class unless it is defined otherwise."""
        return type(self).__name__

    @property
    def seed(self):
        """None, unless it is defined otherwise."""
        return None

    @property
    def awaiting_trigger(self):
        """False."""
        return False

    def apply(self, Candidates candidates not None):
        """Change the candidates; every custom sampler defines this.

        Parameters
        ----------
        candidates : Candidates
            Valid until the method returns; its views stay readable, but change nothing any more.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define apply()")

    def accept(self, token):
        """Take note of the chosen token. Does nothing unless it is defined."""

    def allows(self, token):
        """Return True: custom samplers can't refuse a token."""
        return True

    def reset(self):
        """Go back to the state at the start. Does nothing unless it is defined."""

    def clone(self):
        """Return an independent `CustomSampler` in the same state; needed for cloning the chain."""
        raise SamplerError(f"{type(self).__name__} does not define clone()")

    def copy_to(self, other):
        """Copying state works on the chain only."""
        raise SamplerError("copy the state of the chain that a custom sampler is in, not of the sampler")

    cdef bint _same(self, SamplerBase other):
        return type(self) is type(other)


cdef c_llama.llama_sampler* custom_native(CustomSampler self) except NULL:
    """Return a native sampler for an object that the caller keeps alive."""
    name = str(self.name).encode("utf-8", "replace")
    cdef c_llama.llama_sampler* native = _new_native()
    (<python_data*>native.ctx).object = <PyObject*>self
    (<python_data*>native.ctx).name = name
    return native


cdef CustomSampler custom_take(c_llama.llama_sampler* native):
    """Take the object out of a native sampler that is a clone; None when it isn't, or has none."""
    cdef python_data* data = <python_data*>native.ctx
    if native.iface != &_python_interface or not data.owned:
        return None
    data.owned = False
    self = <CustomSampler>data.object
    Py_DECREF(self)
    return self


cdef c_llama.llama_sampler* _new_native() except NULL:
    cdef python_data* data = new python_data()
    cdef c_llama.llama_sampler* native
    data.object = NULL
    data.owned = False
    native = c_llama.llama_sampler_init(&_python_interface, data)
    handle_opened(CALLBACK)
    return native


cdef const char* _name(const c_llama.llama_sampler* native) noexcept nogil:
    return (<python_data*>native.ctx).name.c_str()


cdef void _apply(c_llama.llama_sampler* native, c_llama.llama_token_data_array* array) noexcept with gil:
    cdef CustomSampler self
    cdef Candidates lent = None
    if (<python_data*>native.ctx).object == NULL:
        return
    self = <CustomSampler>(<python_data*>native.ctx).object
    try:
        # a view that outlives the call keeps what it looks at, so the memory is lent again only when there is none
        lent, self._lent = self._lent, None
        if lent is None or lent._n_exports or Py_REFCNT(lent) > 1:
            lent = candidates_copy(<candidate_array*>array)
        else:
            candidates_assign(lent, <candidate_array*>array)
        self.apply(lent)
        _take_back(lent, <candidate_array*>array)
    except BaseException:
        stash_exception()
    if lent is not None:
        lent._expired = True
        self._lent = lent


cdef int _take_back(Candidates lent, candidate_array* array) except -1:
    cdef int problem = candidates_check(&lent._c, 0)
    if problem:
        candidates_raise(problem, 0)
    if lent._c.size > array.size:
        raise SamplerError(f"a custom sampler was given {array.size} candidates and left {lent._c.size}")
    memcpy(array.data, lent._c.data, lent._c.size * sizeof(candidate))
    array.size = lent._c.size
    array.selected = lent._c.selected
    array.sorted = lent._c.sorted
    return 0


cdef void _accept(c_llama.llama_sampler* native, c_llama.llama_token token) noexcept with gil:
    if (<python_data*>native.ctx).object != NULL:
        try:
            (<object>(<python_data*>native.ctx).object).accept(token)
        except BaseException:
            stash_exception()


cdef void _reset(c_llama.llama_sampler* native) noexcept with gil:
    if (<python_data*>native.ctx).object != NULL:
        try:
            (<object>(<python_data*>native.ctx).object).reset()
        except BaseException:
            stash_exception()


cdef c_llama.llama_sampler* _clone(const c_llama.llama_sampler* native) noexcept with gil:
    cdef c_llama.llama_sampler* copy = NULL
    cdef python_data* data
    try:
        copy = _new_native()
        if (<python_data*>native.ctx).object == NULL:
            return copy
        original = <object>(<python_data*>native.ctx).object
        made = original.clone()
        if not isinstance(made, CustomSampler) or (<CustomSampler>made)._state != SAMPLER_OPEN:
            raise SamplerError(f"{type(original).__name__}.clone() must return a new CustomSampler, not {made!r}")
        data = <python_data*>copy.ctx
        data.name = str(made.name).encode("utf-8", "replace")
        data.object = <PyObject*>made
        data.owned = True
        Py_INCREF(made)
        (<CustomSampler>made)._state = SAMPLER_IN_CHAIN
    except BaseException:
        # the copy stays without an object and does nothing: the call that led here throws it away
        stash_exception()
    return copy


cdef void _free(c_llama.llama_sampler* native) noexcept with gil:
    cdef python_data* data = <python_data*>native.ctx
    if data.owned:
        Py_DECREF(<object>data.object)
    del data
    handle_closed(CALLBACK)


_python_interface.name = _name
_python_interface.accept = _accept
_python_interface.apply = _apply
_python_interface.reset = _reset
_python_interface.clone = _clone
_python_interface.free = _free


# samplers of C functions

cdef struct functions_data:
    sampler_functions functions
    void* data


cdef Sampler sampler_from_functions(const sampler_functions* functions, void* data, object owner=None):
    if functions.name == NULL or functions.apply == NULL:
        raise ValueError("a sampler of C functions needs a name and apply")
    native = _new_functions(functions, data)
    if native == NULL:
        raise MemoryError()
    return sampler_wrap(
        native, "from_functions", {"name": functions.name.decode("utf-8", "replace")}, 0, None, owner,
        functions.clone != NULL or data == NULL)


cdef c_llama.llama_sampler* _new_functions(const sampler_functions* functions, void* data) noexcept:
    cdef functions_data* made = <functions_data*>calloc(1, sizeof(functions_data))
    if made == NULL:
        return NULL
    made.functions = functions[0]
    made.data = data
    try:
        return c_llama.llama_sampler_init(&_functions_interface, made)
    except MemoryError:
        free(made)
        return NULL


cdef const char* _functions_name(const c_llama.llama_sampler* native) noexcept nogil:
    return (<functions_data*>native.ctx).functions.name


cdef void _functions_apply(c_llama.llama_sampler* native, c_llama.llama_token_data_array* array) noexcept nogil:
    cdef functions_data* made = <functions_data*>native.ctx
    made.functions.apply(made.data, <candidate_array*>array)


cdef void _functions_accept(c_llama.llama_sampler* native, c_llama.llama_token token) noexcept nogil:
    cdef functions_data* made = <functions_data*>native.ctx
    if made.functions.accept != NULL:
        made.functions.accept(made.data, token)


cdef void _functions_reset(c_llama.llama_sampler* native) noexcept nogil:
    cdef functions_data* made = <functions_data*>native.ctx
    if made.functions.reset != NULL:
        made.functions.reset(made.data)


cdef c_llama.llama_sampler* _functions_clone(const c_llama.llama_sampler* native) noexcept with gil:
    cdef functions_data* made = <functions_data*>native.ctx
    cdef void* data = NULL
    if made.functions.clone != NULL:
        data = made.functions.clone(made.data)
    return _new_functions(&made.functions, data)


cdef void _functions_free(c_llama.llama_sampler* native) noexcept nogil:
    cdef functions_data* made = <functions_data*>native.ctx
    if made.functions.free != NULL:
        made.functions.free(made.data)
    free(made)


_functions_interface.name = _functions_name
_functions_interface.accept = _functions_accept
_functions_interface.apply = _functions_apply
_functions_interface.reset = _functions_reset
_functions_interface.clone = _functions_clone
_functions_interface.free = _functions_free
