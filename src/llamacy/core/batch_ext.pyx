# distutils: language = c++
"""Extended batches: entries with tokens, embeddings, or both, which belong to one context."""

cimport cython
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t
from libcpp.utility cimport pair

from llamacy.core._handle cimport BATCH, handle_closed, handle_opened
from llamacy.core._status cimport native_error, raise_closed
from llamacy.core.context cimport Context, context_adopt, context_disown
from llamacy.core.decoding cimport context_acquire, context_handle, context_release
from llamacy.core.log cimport log_begin
from llamacy.native cimport llama as c_llama
from llamacy.native cimport llama_ext as c_ext

from array import array
from enum import IntEnum

from llamacy.errors import BatchFullError, InUseError, InvalidBatchError

__all__ = ["DecisionOrder", "ExtendedBatch"]


class DecisionOrder(IntEnum):
    """Part that an entry plays in a joint decision head (`enum llama_decision_order`)."""

    NONE = 0
    QUESTION_NOUL = 1
    QUESTION_CHOICE = 2
    QUESTION_SCORE = 3
    OPTION = 4


@cython.no_gc_clear
cdef class ExtendedBatch:
    """Input of one `process` call, on one context: entries with a token, an embedding, or both.

    Entries are numbered from 0 in the order in which they were added. A token without positions goes on from
    the entry before it of the same sequence, or from the memory. Embeddings are copied.

    Parameters
    ----------
    context : Context
        The context that will compute the batch; no other can. The batch has room for its `n_batch` entries.

    Lifetime: keeps its context alive; closing the context closes the batch.
    Thread safety: one thread at a time.
    Source: ``llama_batch_ext``.
    """

    def __cinit__(self, Context context not None):
        context_handle(context)
        self.context = context
        self.capacity = context.n_batch
        self._last_embd = self._last_state = -1
        context_acquire(context)
        try:
            self._ptr = c_llama.llama_batch_ext_init(context._ptr)
        finally:
            context_release(context)
        handle_opened(BATCH)
        context_adopt(context, self)

    def __dealloc__(self):
        _free(self)

    def _check_closable(self):
        if self._busy:
            raise InUseError("the context computes this batch now")

    def close(self):
        """Free the batch.

        Raises
        ------
        InUseError
            The context computes it now.
        """
        if self._ptr != NULL:
            self._check_closable()
            _free(self)

    @property
    def closed(self):
        """Whether the batch is closed."""
        return self._ptr == NULL

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __len__(self):
        return self._entries.size()

    def __repr__(self):
        if self._ptr == NULL:
            return "<ExtendedBatch closed>"
        return f"<ExtendedBatch {self._entries.size()} of {self.capacity} entries, {self.n_outputs} outputs>"

    @property
    def n_tokens(self):
        """Number of entries."""
        return self._entries.size()

    @property
    def n_outputs(self):
        """Number of entries whose row is output."""
        cdef size_t i
        cdef int n = 0
        for i in range(self._entries.size()):
            n += self._entries[i].output
        return n

    def clear(self):
        """Remove all entries.

        Source: ``llama_batch_ext_clear``.
        """
        batch_ext_check_idle(self)
        c_llama.llama_batch_ext_clear(self._ptr)
        self._entries.clear()
        self._shared.clear()
        self._last_embd = self._last_state = -1
        self._spoiled = False

    def add(self, int seq_id):
        """Add an entry that has nothing yet; `set_embd_token` gives it an embedding.

        Parameters
        ----------
        seq_id : int
            Its sequence.

        Returns
        -------
        int
            Index of the entry.

        Raises
        ------
        BatchFullError
            There is no room; nothing was added.
        ValueError
            There is no such sequence; nothing was added.

        Source: ``llama_batch_ext_add``.
        """
        _check_add(self, seq_id)
        return _added(self, c_llama.llama_batch_ext_add(self._ptr, seq_id), seq_id, False)

    def add_token(self, int seq_id, int token):
        """Add a token.

        Parameters
        ----------
        seq_id : int
            Its sequence.
        token : int
            Token id.

        Returns
        -------
        int
            Index of the entry.

        Raises
        ------
        BatchFullError
            There is no room; nothing was added.
        ValueError
            There is no such sequence or token; nothing was added.

        Source: ``llama_batch_ext_add_token``.
        """
        _check_add(self, seq_id)
        if not 0 <= token < self.context.n_vocab:
            raise ValueError(f"token {token} is not in the vocabulary (0 to {self.context.n_vocab - 1})")
        return _added(self, c_llama.llama_batch_ext_add_token(self._ptr, seq_id, token), seq_id, True)

    def add_embd(self, int seq_id, embd):
        """Add an embedding.

        Parameters
        ----------
        seq_id : int
            Its sequence.
        embd : buffer of float32
            The embedding, which is copied: `Model.n_embd_inp` numbers, or as many as the encoder takes; of
            one dimension or several rows.

        Returns
        -------
        int
            Index of the entry.

        Raises
        ------
        BatchFullError
            There is no room; nothing was added.
        ValueError
            There is no such sequence; nothing was added.
        InvalidBatchError
            The embedding has another width: `clear` the batch.

        Source: ``llama_batch_ext_add_embd``.
        """
        cdef const float[::1] row = _floats(embd)
        _check_add(self, seq_id)
        index = _added(self, c_llama.llama_batch_ext_add(self._ptr, seq_id), seq_id, False)
        try:
            _set_embd(self, index, row)
        except InvalidBatchError:
            # the entry can't be taken back, and one that stays empty makes llama.cpp refuse the batch
            self._spoiled = True
            raise
        return index

    def add_seq(self, int index, int seq_id):
        """Let an entry belong to one more sequence.

        Raises
        ------
        IndexError
            There is no such entry.
        ValueError
            There is no such sequence.

        Source: ``llama_batch_ext_add_seq``.
        """
        cdef pair[int32_t, int32_t] shared
        cdef size_t i
        _check_entry(self, index)
        _check_seq(self, seq_id)
        shared.first = index
        shared.second = seq_id
        if seq_id == self._entries[index].seq_id:
            return
        for i in range(self._shared.size()):
            if self._shared[i] == shared:
                return
        c_llama.llama_batch_ext_add_seq(self._ptr, index, seq_id)
        self._shared.push_back(shared)

    def set_pos(self, int index, pos):
        """Set the position of an entry.

        Parameters
        ----------
        index : int
            The entry.
        pos : int or sequence of int
            Its position; four of them for an embedding of a model with M-RoPE.

        Raises
        ------
        IndexError
            There is no such entry.
        ValueError
            The number of positions is wrong, or one is negative.

        Source: ``llama_batch_ext_set_pos``.
        """
        cdef int32_t[4] positions
        _check_entry(self, index)
        wanted = 4 if self.context._mrope and not self._entries[index].has_token else 1
        values = (pos,) if hasattr(pos, "__index__") else tuple(pos)
        if len(values) != wanted:
            raise ValueError(f"entry {index} takes {wanted} positions, not {len(values)}")
        if not all([0 <= value < INT_MAX for value in values]):
            raise ValueError(f"positions must be from 0 to {INT_MAX - 1}, not {pos}")
        positions[:] = [0, 0, 0, 0]
        for i, value in enumerate(values):
            positions[i] = value
        c_llama.llama_batch_ext_set_pos(self._ptr, index, positions)
        self._entries[index].pos = positions[0]
        self._entries[index].has_pos = True

    def set_embd_token(self, int index, embd):
        """Give an entry an embedding, in addition to its token if it has one.

        Parameters
        ----------
        index : int
            The entry; embeddings must be given in the order of the entries.
        embd : buffer of float32
            As for `add_embd`.

        Raises
        ------
        IndexError
            There is no such entry.
        InvalidBatchError
            The embedding has another width, the entry has one, or one after it has; nothing was changed.

        Source: ``llama_batch_ext_set_embd_token``.
        """
        cdef const float[::1] row = _floats(embd)
        _check_entry(self, index)
        _set_embd(self, index, row)

    def set_embd_state(self, int index, state):
        """Give an entry of a multi-token-prediction context the hidden state of the target model.

        Parameters
        ----------
        index : int
            The entry; states must be given in the order of the entries.
        state : buffer of float32
            `Model.n_embd_out` numbers, which are copied.

        Raises
        ------
        IndexError
            There is no such entry.
        InvalidBatchError
            The context takes no states, the state has another width, the entry has one, or one after it has;
            nothing was changed.

        Source: ``llama_batch_ext_set_embd_state``.
        """
        cdef const float[::1] row = _floats(state)
        _check_entry(self, index)
        if index <= self._last_state:
            raise InvalidBatchError(f"entry {index} gets no state: entry {self._last_state} has one already")
        log_begin()
        if not c_llama.llama_batch_ext_set_embd_state(self._ptr, index, _native_embd(row)):
            raise native_error(
                InvalidBatchError,
                f"entry {index} can't get a state of {row.shape[0]} numbers: a context for multi-token "
                f"prediction takes {self.context.n_embd_out}, others take none",
            )
        self._entries[index].has_state = True
        self._last_state = index

    def set_output(self, int index, bint value=True):
        """Set whether the row of an entry, logits and embedding, is output.

        Raises
        ------
        IndexError
            There is no such entry.

        Source: ``llama_batch_ext_set_output_logits``, and ``llama_batch_ext_set_output_embd``, which is the
        same.
        """
        _check_entry(self, index)
        c_llama.llama_batch_ext_set_output_logits(self._ptr, index, value)
        self._entries[index].output = value

    def set_decision_order(self, int index, order):
        """Set which part an entry plays in a joint decision head.

        Parameters
        ----------
        index : int
            The entry.
        order : DecisionOrder
            The part.

        Raises
        ------
        IndexError
            There is no such entry.
        ValueError
            There is no such part.

        Source: ``llama_batch_ext_set_decision_order``.
        """
        cdef int c_order = DecisionOrder(order)
        _check_entry(self, index)
        c_ext.llama_batch_ext_set_decision_order(self._ptr, index, <c_ext.llama_decision_order>c_order)

cdef int batch_ext_raise_unusable(ExtendedBatch self) except -1:
    if self._ptr == NULL:
        raise_closed("batch")
    if self._spoiled:
        raise InvalidBatchError("an embedding could not be added to this batch; clear() it and begin again")
    raise InvalidBatchError("the batch is empty")


cdef void _free(ExtendedBatch self) noexcept:
    cdef c_llama.llama_batch_ext* ptr = self._ptr
    if ptr != NULL:
        self._ptr = NULL
        self._entries.clear()
        c_llama.llama_batch_ext_free(ptr)
        handle_closed(BATCH)
        context_disown(self.context, self)


cdef int batch_ext_check_idle(ExtendedBatch self) except -1:
    if self._ptr == NULL:
        raise_closed("batch")
    if self._busy:
        raise InUseError("the context computes this batch now")
    return 0


cdef int _check_seq(ExtendedBatch self, int seq_id) except -1:
    if not 0 <= seq_id < self.context.n_seq_max:
        raise ValueError(f"sequence ids must be from 0 to {self.context.n_seq_max - 1}, not {seq_id}")
    return 0


cdef int _check_entry(ExtendedBatch self, int index) except -1:
    batch_ext_check_idle(self)
    if not 0 <= index < <int>self._entries.size():
        raise IndexError(f"entry {index} is not in a batch of {self._entries.size()}")
    return 0


cdef int _check_add(ExtendedBatch self, int seq_id) except -1:
    batch_ext_check_idle(self)
    _check_seq(self, seq_id)
    if self._spoiled:
        batch_ext_raise_unusable(self)
    if <int>self._entries.size() >= self.capacity:
        raise BatchFullError(f"the batch is full: its context takes {self.capacity} at once (n_batch)")
    return 0


cdef int _added(ExtendedBatch self, int index, int seq_id, bint has_token) except -1:
    cdef BatchEntry entry
    if index != <int>self._entries.size():
        raise native_error(InvalidBatchError, f"llama.cpp refuses the entry with status {index}")
    entry.seq_id = seq_id
    entry.pos = 0
    entry.has_pos = entry.has_embd = entry.has_state = entry.output = False
    entry.has_token = has_token
    self._entries.push_back(entry)
    return index


cdef int _set_embd(ExtendedBatch self, int index, const float[::1] row) except -1:
    # native code puts embeddings behind each other as they come, and reads them as if they were in the order
    # of entries
    if index <= self._last_embd:
        raise InvalidBatchError(f"entry {index} gets no embedding: entry {self._last_embd} has one already")
    log_begin()
    if not c_llama.llama_batch_ext_set_embd_token(self._ptr, index, _native_embd(row)):
        raise native_error(
            InvalidBatchError,
            f"entry {index} can't get an embedding of {row.shape[0]} numbers: the model takes "
            f"{self.context._n_embd_inp}, and all of a batch have the same width",
        )
    self._entries[index].has_embd = True
    self._last_embd = index
    return 0


cdef c_llama.llama_embd _native_embd(const float[::1] row) noexcept:
    cdef c_llama.llama_embd embd
    embd.data = &row[0] if row.shape[0] else NULL
    embd.n_rows = 1
    embd.n_embd = row.shape[0]
    return embd


cdef object _floats(object values):
    try:
        view = memoryview(values)
    except TypeError:
        return array("f", values)
    if view.format != "f" or not view.c_contiguous:
        raise ValueError(f"an embedding must be float32 in C order, not {view.format!r}")
    return view.cast("B").cast("f")
