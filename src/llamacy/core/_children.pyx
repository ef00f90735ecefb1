"""Keep track of the objects whose native side must be freed before their owner's."""

import weakref


cdef int children_add(dict children, object child) except -1:
    children[id(child)] = weakref.ref(child)
    return 0


cdef void children_remove(dict children, object child) noexcept:
    """Forget a child; also called from its `__dealloc__`, when its weak reference is dead already."""
    children.pop(id(child), None)


cdef int children_check(dict children) except -1:
    """Raise InUseError or BufferError when one of the children can't be closed now."""
    for child in _alive(children):
        child._check_closable()
    return 0


cdef int children_close(dict children) except -1:
    """Close all children, the last one first, or none when one of them can't be closed now.

    Raises
    ------
    InUseError, BufferError
        What the `_check_closable` of a child raised; nothing was closed.
    """
    alive = _alive(children)
    for child in alive:
        child._check_closable()
    for child in alive:
        child.close()
    return 0


cdef list _alive(dict children):
    """Return the children that still exist, the last one first."""
    return [child for child in [reference() for reference in reversed(list(children.values()))] if child is not None]
