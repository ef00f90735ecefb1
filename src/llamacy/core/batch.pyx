# distutils: language = c++
"""Batches: the tokens or embeddings that one decode takes, for one sequence or many."""

cimport cython
from libc.limits cimport INT_MAX
from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from llamacy.core._handle cimport BATCH, handle_closed, handle_opened
from llamacy.native cimport llama as c_llama

from array import array

from llamacy.errors import BatchFullError, ClosedError, InUseError

__all__ = ["Batch"]


@cython.no_gc_clear
cdef class Batch:
    """Input of one decode: token ids or embeddings, with positions, sequences and which rows to output.

    Parameters
    ----------
    capacity : int
        Most entries.
    n_embd : int
        0 for token ids; the width of an entry for embeddings.
    n_seq_max : int
        Most sequences that one entry may belong to.
    n_pos_per_embd : int
        Positions of an embedding: 1, or 4 for models with M-RoPE.

    Raises
    ------
    ValueError
        A number is out of range.
    MemoryError
        The columns don't fit into memory.

    Thread safety: one thread at a time.
    Source: ``llama_batch``.
    """

    def __cinit__(self, int capacity, *, int n_embd=0, int n_seq_max=1, int n_pos_per_embd=1):
        cdef size_t n = capacity
        cdef size_t i
        if capacity < 1 or capacity > INT_MAX // 8:
            raise ValueError(f"capacity must be from 1 to {INT_MAX // 8}, not {capacity}")
        if n_embd < 0:
            raise ValueError(f"n_embd must be from 0, not {n_embd}")
        if not 1 <= n_seq_max <= 256:
            raise ValueError(f"n_seq_max must be from 1 to 256, not {n_seq_max}")
        if n_pos_per_embd not in (1, 4) or (n_pos_per_embd == 4 and n_embd == 0):
            raise ValueError(f"n_pos_per_embd must be 1, or 4 for embeddings, not {n_pos_per_embd}")
        self.capacity = capacity
        self.n_embd = n_embd
        self.n_seq_max = n_seq_max
        self.n_pos_per_embd = n_pos_per_embd
        self._c = calloc(1, sizeof(c_llama.llama_batch))
        if n_embd:
            self._embd = <float*>calloc(n * n_embd, sizeof(float))
        else:
            self._token = <int32_t*>calloc(n, sizeof(int32_t))
        self._pos = <int32_t*>calloc(n * n_pos_per_embd, sizeof(int32_t))
        self._n_seq_id = <int32_t*>calloc(n, sizeof(int32_t))
        self._seq_id = <int32_t**>calloc(n + 1, sizeof(int32_t*))
        self._seq_id_data = <int32_t*>calloc(n * n_seq_max, sizeof(int32_t))
        self._logits = <int8_t*>calloc(n, sizeof(int8_t))
        if (
            self._c == NULL or (self._embd == NULL and self._token == NULL) or self._pos == NULL
            or self._n_seq_id == NULL or self._seq_id == NULL or self._seq_id_data == NULL or self._logits == NULL
        ):
            _free(self)
            raise MemoryError(f"a batch of {capacity} entries does not fit into memory")
        for i in range(n):
            self._seq_id[i] = self._seq_id_data + i * n_seq_max
        _bind(self)
        handle_opened(BATCH)

    def __dealloc__(self):
        if self._c != NULL:
            _free(self)
            handle_closed(BATCH)

    def close(self):
        """Free the columns; the batch can't be used afterwards.

        Raises
        ------
        InUseError
            A decode reads the batch now.
        """
        if self._c != NULL:
            _check_idle(self)
            _free(self)
            handle_closed(BATCH)

    @property
    def closed(self):
        """Whether the batch is closed."""
        return self._c == NULL

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __len__(self):
        return self._n_tokens

    def __repr__(self):
        if self._c == NULL:
            return "<Batch closed>"
        kind = f"embeddings of {self.n_embd}" if self.n_embd else "tokens"
        return f"<Batch {self._n_tokens} of {self.capacity} {kind}, {self.n_outputs} outputs>"

    @property
    def n_outputs(self):
        """Entries whose row is output."""
        cdef int i
        cdef int n = 0
        _check_open(self)
        for i in range(self._n_tokens):
            n += self._logits[i] != 0
        return n

    @property
    def space_left(self):
        """Entries that can still be added."""
        return self.capacity - self._n_tokens

    def clear(self):
        """Remove all entries."""
        _check_idle(self)
        batch_clear(self)

    def add(self, token, int pos, seq_ids=(0,), *, bint logits=False):
        """Add one token.

        Parameters
        ----------
        token : int
            Token id.
        pos : int
            Position in its sequences.
        seq_ids : int or sequence of int
            Sequences that it belongs to.
        logits : bool
            Output the row of this token.

        Returns
        -------
        int
            Index of the entry.

        Raises
        ------
        BatchFullError
            There is no room, or too many sequences; nothing was added.
        """
        cdef int32_t c_token = token
        index = _reserve(self, 1, pos, seq_ids, False)
        self._token[index] = c_token
        self._pos[index] = pos
        self._logits[index] = logits
        self._n_tokens = index + 1
        _bind(self)
        return index

    def extend(self, tokens, int pos, seq_ids=(0,), *, logits="last"):
        """Add a run of tokens at consecutive positions.

        Parameters
        ----------
        tokens : buffer of int32, or sequence of int
            Token ids.
        pos : int
            Position of the first.
        seq_ids : int or sequence of int
            Sequences that they belong to.
        logits : {"last", "all", "none"} or buffer of int8
            Rows to output.

        Raises
        ------
        BatchFullError
            There is no room; nothing was added.
        """
        cdef const int32_t[::1] ids = _ints(tokens)
        cdef Py_ssize_t n = ids.shape[0]
        cdef Py_ssize_t i
        cdef const int8_t[::1] flags = None
        if not isinstance(logits, str):
            flags = memoryview(logits).cast("B").cast("b")
            if flags.shape[0] != n:
                raise ValueError(f"logits has {flags.shape[0]} flags for {n} tokens")
        elif logits not in ("last", "all", "none"):
            raise ValueError(f'logits must be "last", "all", "none" or a buffer of flags, not {logits!r}')
        if n == 0:
            return
        index = _reserve(self, n, pos, seq_ids, False)
        memcpy(self._token + <Py_ssize_t>index, &ids[0], n * sizeof(int32_t))
        for i in range(n):
            self._pos[index + i] = pos + <int>i
            self._logits[index + i] = flags[i] if flags is not None else logits == "all"
        if flags is None and logits == "last":
            self._logits[index + n - 1] = 1
        self._n_tokens = index + <int>n
        _bind(self)

    def extend_embeddings(self, const float[:, ::1] rows, pos, seq_ids=(0,), *, logits="none"):
        """Add a run of embeddings.

        Parameters
        ----------
        rows : buffer of float32, (n, n_embd), C order
            Embeddings.
        pos : int, or buffer of int32 of shape (n_pos_per_embd, n)
            Position of the first of consecutive ones, or all positions, section by section as M-RoPE has them.
        seq_ids : int or sequence of int
            Sequences that they belong to.
        logits : {"last", "all", "none"}
            Rows to output.

        Raises
        ------
        BatchFullError
            There is no room; nothing was added.
        ValueError
            The width or the shape of the positions is wrong.
        """
        cdef Py_ssize_t n = rows.shape[0]
        cdef Py_ssize_t i, section
        cdef const int32_t[:, ::1] sections = None
        _check_open(self)
        if self.n_embd == 0 or rows.shape[1] != self.n_embd:
            raise ValueError(f"embeddings are {rows.shape[1]} wide; this batch takes {self.n_embd or 'tokens'}")
        if logits not in ("last", "all", "none"):
            raise ValueError(f'logits must be "last", "all" or "none", not {logits!r}')
        first = 0
        if isinstance(pos, int):
            first = pos
            if self.n_pos_per_embd != 1:
                raise ValueError(f"an embedding has {self.n_pos_per_embd} positions here; give them all")
        else:
            sections = pos
            if sections.shape[0] != self.n_pos_per_embd or sections.shape[1] != n:
                raise ValueError(
                    f"pos has the shape ({sections.shape[0]}, {sections.shape[1]}), not ({self.n_pos_per_embd}, {n})"
                )
        if n == 0:
            return
        index = _reserve(self, n, first, seq_ids, True)
        memcpy(self._embd + <Py_ssize_t>index * self.n_embd, &rows[0, 0], n * self.n_embd * sizeof(float))
        for i in range(n):
            for section in range(self.n_pos_per_embd):
                self._pos[section * self.capacity + index + i] = (
                    sections[section, i] if sections is not None else first + <int>i
                )
            self._logits[index + i] = logits == "all" or (logits == "last" and i == n - 1)
        self._n_tokens = index + <int>n
        _bind(self)

    @property
    def tokens(self):
        """Token ids, a copy as array of int32; empty for embeddings."""
        _check_open(self)
        return array("i", [self._token[i] for i in range(self._n_tokens)] if self._token != NULL else [])

    @property
    def positions(self):
        """Positions, a copy as array of int32 (the first of each entry)."""
        _check_open(self)
        return array("i", [self._pos[i] for i in range(self._n_tokens)])

    @property
    def seq_ids(self):
        """Sequences of each entry, as a list of tuples."""
        _check_open(self)
        return [
            tuple([self._seq_id[i][j] for j in range(self._n_seq_id[i])]) for i in range(self._n_tokens)
        ]

    @property
    def outputs(self):
        """Indices of the entries whose row is output, as a list."""
        _check_open(self)
        return [i for i in range(self._n_tokens) if self._logits[i]]

    def set_output(self, int index, bint value=True):
        """Set whether the row of an entry is output.

        Raises
        ------
        IndexError
            There is no such entry.
        """
        _check_idle(self)
        if not 0 <= index < self._n_tokens:
            raise IndexError(f"entry {index} is not in a batch of {self._n_tokens}")
        self._logits[index] = value


cdef void batch_clear(Batch self) noexcept nogil:
    self._n_tokens = 0
    if self._c != NULL:
        (<c_llama.llama_batch*>self._c).n_tokens = 0


cdef int batch_add(Batch self, int32_t token, int32_t pos, int32_t seq_id, bint logits) except -1 nogil:
    """Add one token of one sequence; for loops that hold the batch to themselves."""
    cdef int index = self._n_tokens
    if self._token == NULL or index >= self.capacity:
        with gil:
            _raise_full(self, 1)
    self._token[index] = token
    self._pos[index] = pos
    self._n_seq_id[index] = 1
    self._seq_id[index][0] = seq_id
    self._logits[index] = logits
    self._n_tokens = index + 1
    (<c_llama.llama_batch*>self._c).n_tokens = index + 1
    return index


cdef int batch_extend(
    Batch self, const int32_t* tokens, int n_tokens, int32_t pos, int32_t seq_id, bint logits_last
) except -1 nogil:
    """Add a run of tokens of one sequence, the row of the last one an output on request."""
    cdef int i
    cdef int index = self._n_tokens
    if self._token == NULL or n_tokens > self.capacity - index or n_tokens < 0:
        with gil:
            _raise_full(self, n_tokens)
    for i in range(n_tokens):
        self._token[index + i] = tokens[i]
        self._pos[index + i] = pos + i
        self._n_seq_id[index + i] = 1
        self._seq_id[index + i][0] = seq_id
        self._logits[index + i] = logits_last and i == n_tokens - 1
    self._n_tokens = index + n_tokens
    (<c_llama.llama_batch*>self._c).n_tokens = self._n_tokens
    return index


cdef void _bind(Batch self) noexcept:
    """Point the llama_batch to the columns."""
    cdef c_llama.llama_batch* c = <c_llama.llama_batch*>self._c
    c.n_tokens = self._n_tokens
    c.token = self._token
    c.embd = self._embd
    c.pos = self._pos
    c.n_seq_id = self._n_seq_id
    c.seq_id = self._seq_id
    c.logits = self._logits


cdef void _free(Batch self) noexcept:
    free(self._c)
    free(self._token)
    free(self._embd)
    free(self._pos)
    free(self._n_seq_id)
    free(self._seq_id)
    free(self._seq_id_data)
    free(self._logits)
    self._c = NULL
    self._token = NULL
    self._embd = NULL
    self._pos = NULL
    self._n_seq_id = NULL
    self._seq_id = NULL
    self._seq_id_data = NULL
    self._logits = NULL
    self._n_tokens = 0


cdef int _check_open(Batch self) except -1:
    if self._c == NULL:
        raise ClosedError("this batch is closed")
    return 0


cdef int _check_idle(Batch self) except -1:
    _check_open(self)
    if self._busy:
        raise InUseError("a decode reads this batch now")
    return 0


cdef int _reserve(Batch self, Py_ssize_t n, int pos, object seq_ids, bint embeddings) except -1:
    """Check everything about `n` new entries and set their sequences; returns the index of the first."""
    cdef int index
    cdef Py_ssize_t i, j
    cdef Py_ssize_t n_ids
    # iterating may run code of the caller, which may do anything to the batch
    ids = array("q", (seq_ids,) if isinstance(seq_ids, int) else seq_ids)
    _check_idle(self)
    index = self._n_tokens
    if embeddings != (self._embd != NULL):
        raise ValueError("this batch takes embeddings" if self._embd != NULL else "this batch takes tokens")
    n_ids = len(ids)
    if not 1 <= n_ids <= self.n_seq_max:
        raise BatchFullError(f"an entry belongs to 1 to {self.n_seq_max} sequences here, not {n_ids}")
    if any(not 0 <= seq_id < 2**31 for seq_id in ids):
        raise ValueError(f"sequence ids must be from 0, not {ids.tolist()}")
    if pos < 0 or pos + n > INT_MAX:
        raise ValueError(f"positions must be from 0 to {INT_MAX}, not {pos} to {pos + n - 1}")
    if n > self.capacity - index:
        _raise_full(self, n)
    for i in range(n):
        self._n_seq_id[index + i] = <int32_t>n_ids
        for j in range(n_ids):
            self._seq_id[index + i][j] = ids[j]
    return index


cdef int _raise_full(Batch self, Py_ssize_t n) except -1:
    _check_open(self)
    if self._embd != NULL:
        raise ValueError("this batch takes embeddings")
    raise BatchFullError(f"{n} entries don't fit: the batch holds {self._n_tokens} of {self.capacity}")


cdef object _ints(object tokens):
    try:
        view = memoryview(tokens)
    except TypeError:
        return array("i", tokens)
    return tokens if view.format == "i" and view.contiguous else array("i", view.tolist())
