# distutils: language = c++
"""The candidates that samplers choose from."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from array import array

from llamacy.errors import ClosedError, ConcurrentUseError, SamplerError

__all__ = ["Candidates"]

cdef extern from "_atomic.h" nogil:
    int llamacy_flag_take(int* flag) noexcept
    void llamacy_flag_give(int* flag) noexcept

cdef extern from "_candidates.h" nogil:
    int LLAMACY_BAD_LOGIT
    int LLAMACY_BAD_ID
    int LLAMACY_UNSORTED
    int llamacy_candidates_check(const void* data, size_t n, int32_t n_vocab) noexcept

cdef const char* _FORMAT = "T{i:id:f:logit:f:p:}"


@cython.final
cdef class Candidates:
    """Tokens with their logits and probabilities, as samplers see them (``llama_token_data_array``).

    Parameters
    ----------
    logits : buffer of float32, or sequence of float
        One logit for each candidate; -inf rules a candidate out.
    ids : buffer of int32, or sequence of int, optional
        Token ids of the candidates; 0, 1, 2, … when left out.

    Raises
    ------
    ValueError
        No candidates, or `ids` has another length.

    Shapes: exports a writable structured buffer of shape (size,) with the fields ``id`` (int32), ``logit`` and ``p``
    (float32): ``numpy.asarray(candidates)["logit"]``. `p` is what the last sampler left there, 0 before.

    Lifetime: a view keeps the candidates alive and shows those that there were when it was made. Samplers reorder and
    drop candidates in place, so take a new view after each.
    Thread safety: one sampler at a time; a second one raises `ConcurrentUseError`.
    """

    def __cinit__(self, logits, ids=None):
        self._c.selected = -1
        _fill(self, logits, ids)

    def __dealloc__(self):
        free(self._base)

    def __len__(self):
        return self._c.size

    def __repr__(self):
        if self._expired:
            return "<Candidates of a sampler that has returned>"
        return f"<Candidates size={self._c.size} selected={self._c.selected} sorted={bool(self._c.sorted)}>"

    def __getitem__(self, Py_ssize_t index):
        """Return one candidate as ``(id, logit, p)``."""
        cdef candidate* data
        _check_open(self)
        if index < 0:
            index += self._c.size
        if not 0 <= index < <Py_ssize_t>self._c.size:
            raise IndexError(f"there are {self._c.size} candidates, so no candidate {index}")
        data = self._c.data + index
        return data.id, data.logit, data.p

    def __iter__(self):
        """Iterate over ``(id, logit, p)``."""
        return iter([self[i] for i in range(<Py_ssize_t>self._c.size)])

    @property
    def size(self):
        """Number of candidates. Setting it drops those at the end; at least one must stay."""
        return self._c.size

    @size.setter
    def size(self, Py_ssize_t value):
        _check_open(self)
        if not 1 <= value <= <Py_ssize_t>self._c.size:
            raise ValueError(f"size can be set to 1 to {self._c.size}, not {value}")
        self._c.size = value
        if self._c.selected >= value:
            self._c.selected = -1

    @property
    def selected(self):
        """Index of the candidate that a sampler picked (not its token id), or -1."""
        return self._c.selected

    @selected.setter
    def selected(self, Py_ssize_t value):
        _check_open(self)
        if not -1 <= value < <Py_ssize_t>self._c.size:
            raise ValueError(f"selected is an index from 0 to {self._c.size - 1}, or -1, not {value}")
        self._c.selected = value

    @property
    def token(self):
        """Token id of the candidate that a sampler picked, or None."""
        _check_open(self)
        if not 0 <= self._c.selected < <int64_t>self._c.size:
            return None
        return self._c.data[self._c.selected].id

    @property
    def sorted(self):
        """Whether the candidates are in descending order of their logits, as far as samplers know."""
        return bool(self._c.sorted)

    @property
    def ids(self):
        """Token ids, as an owned array of int32."""
        _check_open(self)
        return array("i", [self._c.data[i].id for i in range(self._c.size)])

    @property
    def logits(self):
        """Logits, as an owned array of float32."""
        _check_open(self)
        return array("f", [self._c.data[i].logit for i in range(self._c.size)])

    @property
    def probs(self):
        """Probabilities that the last sampler left, as an owned array of float32."""
        _check_open(self)
        return array("f", [self._c.data[i].p for i in range(self._c.size)])

    def copy(self):
        """Return an independent copy."""
        _check_open(self)
        return candidates_copy(&self._c)

    def fill(self, logits, ids=None):
        """Start anew with other logits, in the same memory when they fit.

        Raises
        ------
        BufferError
            They don't fit, and a view of the candidates is alive.
        """
        _check_open(self)
        if not llamacy_flag_take(&self._busy):
            raise ConcurrentUseError("a sampler in another thread works on these candidates")
        try:
            _fill(self, logits, ids)
        finally:
            llamacy_flag_give(&self._busy)

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef Py_ssize_t* shape
        _check_open(self)
        shape = <Py_ssize_t*>malloc(2 * sizeof(Py_ssize_t))
        if shape == NULL:
            raise MemoryError()
        shape[0] = self._c.size
        shape[1] = sizeof(candidate)
        view.obj = self
        view.buf = self._c.data
        view.len = shape[0] * shape[1]
        view.itemsize = shape[1]
        view.readonly = 0
        view.ndim = 1
        view.format = <char*>_FORMAT if flags & PyBUF_FORMAT else NULL
        view.shape = shape
        view.strides = shape + 1
        view.suboffsets = NULL
        view.internal = shape
        self._n_exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        free(view.internal)
        self._n_exports -= 1


cdef int _check_open(Candidates self) except -1:
    if self._expired:
        raise ClosedError("these candidates were lent to a sampler that has returned; take candidates.copy() inside it")
    return 0


cdef int _reserve(Candidates self, size_t n) except -1:
    """Make room for `n` candidates; what was there is lost."""
    cdef candidate* data
    if n > self._capacity:
        if self._n_exports:
            raise BufferError(
                f"{n} candidates don't fit in the memory of {self._capacity}, and {self._n_exports} views of it are "
                "alive"
            )
        data = <candidate*>malloc(n * sizeof(candidate))
        if data == NULL:
            raise MemoryError()
        free(self._base)
        self._base = data
        self._capacity = n
    self._c.data = self._base
    self._c.size = n
    self._c.selected = -1
    self._c.sorted = 0
    return 0


cdef int _fill(Candidates self, logits, ids) except -1:
    cdef const float[::1] c_logits
    cdef const int[::1] c_ids = None
    cdef Py_ssize_t i, n
    cdef candidate* data
    try:
        c_logits = logits
    except (TypeError, ValueError):
        c_logits = array("f", logits)
    n = c_logits.shape[0]
    if n == 0:
        raise ValueError("there must be at least one candidate")
    if n > 0x7fffffff:
        raise ValueError(f"{n} candidates are more than there can be token ids")
    if ids is not None:
        try:
            c_ids = ids
        except (TypeError, ValueError):
            c_ids = array("i", ids)
        if c_ids.shape[0] != n:
            raise ValueError(f"there are {n} logits but {c_ids.shape[0]} ids")
    _reserve(self, n)
    data = self._base
    for i in range(n):
        data[i].id = i if c_ids is None else c_ids[i]
        data[i].logit = c_logits[i]
        data[i].p = 0.0
    return 0


cdef Candidates candidates_copy(const candidate_array* native):
    cdef Candidates self = Candidates.__new__(Candidates, (0.0,))
    candidates_assign(self, native)
    return self


cdef int candidates_assign(Candidates self, const candidate_array* native) except -1:
    _reserve(self, native.size)
    memcpy(self._base, native.data, native.size * sizeof(candidate))
    self._c.selected = native.selected
    self._c.sorted = native.sorted
    self._expired = False
    return 0


cdef int candidates_acquire(Candidates self, int32_t n_vocab) except -1:
    """Take the candidates for a sampler, once they are what samplers rely on."""
    cdef int problem
    _check_open(self)
    if not llamacy_flag_take(&self._busy):
        raise ConcurrentUseError("a sampler in another thread works on these candidates")
    problem = candidates_check(&self._c, n_vocab)
    if problem:
        candidates_release(self)
        candidates_raise(problem, n_vocab)
    return 0


cdef void candidates_release(Candidates self) noexcept nogil:
    llamacy_flag_give(&self._busy)


cdef int candidates_check(candidate_array* native, int32_t n_vocab) noexcept nogil:
    """Return what is wrong with candidates, or 0; a wrong `sorted` is put right."""
    cdef int found = llamacy_candidates_check(native.data, native.size, n_vocab)
    if found & LLAMACY_UNSORTED:
        native.sorted = 0
    return found & (LLAMACY_BAD_LOGIT | LLAMACY_BAD_ID)


cdef int candidates_raise(int problem, int32_t n_vocab) except -1:
    if problem & LLAMACY_BAD_LOGIT:
        raise SamplerError(
            "a logit is not a number or above 1e8, which samplers can't order; use -inf to rule tokens out"
        )
    raise SamplerError(
        f"a candidate has a token id outside of 0 to {n_vocab - 1}"
        if n_vocab > 0
        else "a candidate has a negative token id"
    )
