# distutils: language = c++
"""Text out of tokens: bytes in, whole characters out, cut at stop strings."""

cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8, PyUnicode_DecodeUTF8Stateful
from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from llamacy.core.vocab cimport Vocab, vocab_piece

__all__ = ["TextAssembler"]

cdef enum:
    PIECE_SIZE = 256


@cython.no_gc_clear
cdef class TextAssembler:
    """Put the text of a stream of tokens together.

    Parameters
    ----------
    vocab : Vocab
        Where the bytes of a token come from.
    stop : sequence of str
        The text ends before the first of these that appears; they may lie across token borders.
    special : bool
        Spell special tokens out; otherwise they leave no text.
    spelled : iterable of int
        Special tokens to spell out while the others leave no text.
    matched : iterable of int
        Special tokens that leave no text either, but end it where a stop string spells them. To stop strings that don't
        they are as if they were not there, as all others are.

    Attributes
    ----------
    n_in, n_out
        Bytes that came in, and those of them that went out as text. At a stop string, `n_out` says where it began.
    stopped, stop
        Whether a stop string appeared, and which one.

    Notes
    -----
    Text comes out as soon as it can't change any more: what may be the beginning of a stop string, and bytes that don't
    make a whole character yet, are held back. Bytes that are not UTF-8 become U+FFFD, one for each maximal subpart.
    The cost of a token depends on its own length and on the stop strings, not on the text before it.

    Raises
    ------
    ValueError
        A stop string is empty.

    Thread safety: one thread at a time.
    """

    def __cinit__(self, Vocab vocab not None, stop=(), *, bint special=False, spelled=(), matched=()):
        stops = (stop,) if isinstance(stop, (str, bytes)) else tuple(stop)
        self._stops = tuple([text.encode() if isinstance(text, str) else bytes(text) for text in stops])
        if b"" in self._stops:
            raise ValueError("a stop string must not be empty")
        self._longest_stop = max([len(text) for text in self._stops], default=0)
        self._vocab = vocab
        self._special = special
        self._spelled = frozenset(spelled)
        spellings = [(token, vocab.piece(token)) for token in frozenset(matched)] if self._stops else []
        self._matched = {
            token: frozenset([stop for stop in self._stops if spelling in stop])
            for token, spelling in spellings
            if spelling
        }

    def __dealloc__(self):
        free(self._pending)

    def __repr__(self):
        return f"<TextAssembler {self._n_pending} bytes held back{', stopped' if self.stopped else ''}>"

    def feed(self, const unsigned char[::1] data):
        """Add bytes and return the text that is certain now, in most cases up to the end.

        Parameters
        ----------
        data : bytes-like
            Bytes of one or more tokens.

        Returns
        -------
        str
            Empty after the text was stopped.
        """
        if self.stopped or data.shape[0] == 0:
            return ""
        _append(self, <const char*>&data[0], data.shape[0])
        return _take(self)

    def feed_token(self, int32_t token):
        """Add a token and return the text that is certain now.

        Raises
        ------
        TokenizeError
            The id is not in the vocabulary.
        """
        return assembler_feed_token(self, token)

    def finish(self):
        """Return what was held back: no more tokens will come."""
        if self.stopped or self._n_pending == 0:
            return ""
        _drop_hidden(self, self._n_pending)
        text = PyUnicode_DecodeUTF8(self._pending, self._n_pending, "replace")
        self.n_out += self._n_pending
        self._n_pending = 0
        return text


cdef str assembler_feed_token(TextAssembler self, int32_t token):
    cdef int32_t n
    if self.stopped:
        return ""
    _reserve(self, PIECE_SIZE)
    n = vocab_piece(self._vocab, token, self._pending + self._n_pending, PIECE_SIZE, self._special)
    if n < 0:
        _reserve(self, -n)
        n = vocab_piece(self._vocab, token, self._pending + self._n_pending, -n, self._special)
    if n == 0 and self._spelled and token in self._spelled:
        n = _spell(self, token)
    elif n == 0 and self._matched and token in self._matched:
        n = _spell(self, token)
        self._hidden.push_back(hidden_span(self._n_pending, n, token))
    if n == 0:
        return ""
    self._n_pending += n
    self.n_in += n
    return _take(self)


cdef int32_t _spell(TextAssembler self, int32_t token) except -1:
    """Put the spelling of a special token behind the pending bytes; return how long it is."""
    cdef int32_t n = vocab_piece(self._vocab, token, self._pending + self._n_pending, PIECE_SIZE, True)
    if n < 0:
        _reserve(self, -n)
        n = vocab_piece(self._vocab, token, self._pending + self._n_pending, -n, True)
    return n


cdef Py_ssize_t _drop_hidden(TextAssembler self, Py_ssize_t n) noexcept:
    """Take what leaves no text out of the first `n` pending bytes; return how many of them are left."""
    cdef Py_ssize_t start, size
    while not self._hidden.empty() and self._hidden[0].start < n:
        start = self._hidden[0].start
        size = self._hidden[0].size  # no stop string begins within it
        memmove(self._pending + start, self._pending + start + size, self._n_pending - start - size)
        n -= size
        self._n_pending -= size
        self.n_out += size
        self._hidden.erase(self._hidden.begin())
        _move_hidden(self, -size)
    return n


cdef void _move_hidden(TextAssembler self, Py_ssize_t by) noexcept:
    cdef size_t i
    for i in range(self._hidden.size()):
        self._hidden[i].start += by


cdef int _reserve(TextAssembler self, Py_ssize_t n) except -1:
    cdef Py_ssize_t capacity = self._n_pending + n
    cdef char* memory
    if capacity > self._capacity:
        capacity += capacity // 2
        memory = <char*>realloc(self._pending, capacity)
        if memory == NULL:
            raise MemoryError
        self._pending = memory
        self._capacity = capacity
    return 0


cdef int _append(TextAssembler self, const char* data, Py_ssize_t n) except -1:
    _reserve(self, n)
    memcpy(self._pending + self._n_pending, data, n)
    self._n_pending += n
    self.n_in += n
    return 0


cdef str _take(TextAssembler self):
    """Take the text that can't change any more off the front of the pending bytes."""
    cdef Py_ssize_t n_certain = self._n_pending
    cdef Py_ssize_t n_decoded = 0
    cdef Py_ssize_t found
    cdef Py_ssize_t first = -1
    if self._longest_stop:
        for stop in self._stops:
            found = _find(self, stop)
            if found >= 0 and (first < 0 or found < first):
                first = found
                self.stop = (<bytes>stop).decode("utf-8", "replace")
        if first >= 0:
            self.stopped = True
            first = _drop_hidden(self, first)
            self.n_out += first
            self._n_pending = 0
            return PyUnicode_DecodeUTF8(self._pending, first, "replace")
        n_certain -= _held_back(self)
    n_certain = _drop_hidden(self, n_certain)
    text = PyUnicode_DecodeUTF8Stateful(self._pending, n_certain, "replace", &n_decoded)
    self._n_pending -= n_decoded
    self.n_out += n_decoded
    memmove(self._pending, self._pending + n_decoded, self._n_pending)
    _move_hidden(self, -n_decoded)
    return text


cdef Py_ssize_t _find(TextAssembler self, bytes stop):
    """Return where a stop string begins in the pending bytes, or -1."""
    cdef Py_ssize_t i
    if self._hidden.empty():
        return _find_plain(self._pending, self._n_pending, stop, len(stop))
    for i in range(self._n_pending):
        if _matches(self, i, stop, len(stop)) == len(stop):
            return i
    return -1


cdef Py_ssize_t _find_plain(const char* data, Py_ssize_t n, const char* stop, Py_ssize_t n_stop) noexcept:
    cdef const char* at = data
    cdef const char* end = data + n - n_stop
    while at <= end:
        at = <const char*>memchr(at, stop[0], end - at + 1)
        if at == NULL:
            return -1
        if memcmp(at, stop, n_stop) == 0:
            return at - data
        at += 1
    return -1


cdef Py_ssize_t _matches(TextAssembler self, Py_ssize_t at, bytes stop, Py_ssize_t n_stop):
    """Return how many bytes of a stop string are in the pending ones from `at` on, up to their end; -1 when others are.

    A special token that the stop string spells is in it as a whole; another one is as if it were not there.
    """
    cdef const char* text = stop
    cdef Py_ssize_t n = 0
    cdef size_t i = 0
    while i < self._hidden.size() and self._hidden[i].start < at:
        if at < self._hidden[i].start + self._hidden[i].size:
            return -1
        i += 1
    while n < n_stop and at < self._n_pending:
        if i < self._hidden.size() and self._hidden[i].start == at:
            if stop in self._matched[self._hidden[i].token]:
                if memcmp(self._pending + at, text + n, min(self._hidden[i].size, n_stop - n)) != 0:
                    return -1
                n += self._hidden[i].size
                if n > n_stop:
                    return -1
            elif n == 0:
                return -1
            at += self._hidden[i].size
            i += 1
        else:
            if self._pending[at] != text[n]:
                return -1
            at += 1
            n += 1
    return n


cdef Py_ssize_t _held_back(TextAssembler self):
    """Return the length of the longest end of the pending bytes that is the beginning of a stop string."""
    cdef Py_ssize_t n, n_stop
    cdef Py_ssize_t longest = min(self._n_pending, self._longest_stop - 1)
    cdef const char* stop
    if not self._hidden.empty():
        return _held_with_hidden(self)
    for n in range(longest, 0, -1):
        for text in self._stops:
            n_stop = len(<bytes>text)
            stop = <bytes>text
            if n < n_stop and memcmp(self._pending + self._n_pending - n, stop, n) == 0:
                return n
    return 0


cdef Py_ssize_t _held_with_hidden(TextAssembler self):
    cdef Py_ssize_t at
    for at in range(self._n_pending):
        for stop in self._stops:
            if _matches(self, at, stop, len(<bytes>stop)) > 0:  # up to the end of what there is
                return self._n_pending - at
    return 0
