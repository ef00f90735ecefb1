# distutils: language = c++
"""C functions that work on logits: processors and stopping criteria that need no GIL."""

from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetPointer, PyCapsule_IsValid

__all__ = ["LogitsFunction"]

cdef const char* _NAME = "llamacy.logits_function"


cdef class LogitsFunction:
    """A C function that changes a row of logits before a token is chosen, or says whether to stop after one.

    From Cython: ``cimport llamacy.core.logits_function`` and `logits_function_wrap`.

    Parameters
    ----------
    capsule : PyCapsule
        Named ``"llamacy.logits_function"``; its pointer is a ``logits_function`` (see logits_function.pxd), which gets
        the context of the capsule as its `data`.

    Raises
    ------
    TypeError
        It is another capsule, or none.

    Lifetime: keeps the capsule alive.
    """

    def __init__(self, capsule):
        if not PyCapsule_IsValid(capsule, _NAME):
            raise TypeError(f"a PyCapsule named {_NAME.decode()!r} is needed, not {capsule!r:.80}")
        self._function = <logits_function>PyCapsule_GetPointer(capsule, _NAME)
        self._data = PyCapsule_GetContext(capsule)
        self._owner = capsule

    def __repr__(self):
        return f"<LogitsFunction at {<size_t>self._function:#x}>"


cdef LogitsFunction logits_function_wrap(logits_function function, void* data=NULL, object owner=None):
    cdef LogitsFunction self
    if function == NULL:
        raise ValueError("the function is NULL")
    self = LogitsFunction.__new__(LogitsFunction)
    self._function = function
    self._data = data
    self._owner = owner
    return self
