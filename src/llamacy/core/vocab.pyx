# distutils: language = c++
"""The vocabulary of a model: text to tokens and back."""

cimport cython
from cpython.array cimport array, clone
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t

from llamacy.core._status cimport raise_closed
from llamacy.core.model cimport model_unuse, model_use
from llamacy.native cimport llama as c_llama

from llamacy.core.wordpiece import ACCENTS_KEY, LOWERCASE_KEY, normalize_wordpiece
from llamacy.errors import TokenizeError
from llamacy.types import TokenAttr, VocabType

__all__ = ["Vocab"]

cdef array _int_array = array("i")

cdef enum:
    _SPECIAL = (
        c_llama.LLAMA_TOKEN_ATTR_CONTROL | c_llama.LLAMA_TOKEN_ATTR_USER_DEFINED | c_llama.LLAMA_TOKEN_ATTR_UNKNOWN
    )

# only this module may make these objects: an empty one would lead native code astray
cdef bint _wrapping = False


@cython.final
@cython.no_gc_clear
cdef class Vocab:
    """The vocabulary of a model.

    Vocabularies come from `Model.vocab` and can't be created. Token ids are ints from 0 to `n_tokens` - 1.

    Lifetime: belongs to its model; every use after `Model.close()` raises `ClosedError`.
    Thread safety: all methods may be called from several threads at once; meanwhile the model can't be closed.
    """

    def __cinit__(self):
        if not _wrapping:
            raise TypeError("a vocabulary belongs to a model: use Model.vocab")

    def __len__(self):
        return self.n_tokens

    def __repr__(self):
        if self._model._ptr == NULL:
            return "<Vocab of a closed model>"
        return f"<Vocab {self.type.name} n_tokens={self.n_tokens}>"

    def tokenize(self, text, *, bint add_special=True, bint parse_special=False):
        """Convert text into tokens.

        Parameters
        ----------
        text : str or bytes-like
            Bytes are taken as they are, valid UTF-8 or not. For BERT's tokenizer (type WPM) the text is first made what
            it would be in training, see `llamacy.core.wordpiece`.
        add_special : bool
            Add the tokens (BOS, EOS, …) that the model wants around a text.
        parse_special : bool
            Recognise the spelling of special tokens in the text; otherwise it is plain text.

        Returns
        -------
        array.array of int32
            Supports the buffer protocol, so `numpy.asarray` of it copies nothing.

        Raises
        ------
        TokenizeError
            The text holds a lone surrogate, is too long, or the model lacks a token that `add_special` needs.

        Source: ``llama_tokenize``.
        """
        cdef Py_buffer view
        cdef array tokens
        cdef int32_t n
        data = _encode(self, text)
        _check_special(self, add_special)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len >= INT_MAX - 16:
                raise TokenizeError(f"the text has {view.len} bytes; at most {INT_MAX - 17} can be converted at once")
            # no vocabulary makes more tokens than bytes, but for the special ones around the text
            tokens = clone(_int_array, view.len + 16, zero=False)
            n = _tokenize(self, <const char*>view.buf, view.len, <int32_t*>tokens.data.as_ints, view.len + 16,
                          add_special, parse_special)
            if n < 0:
                tokens = clone(_int_array, -<Py_ssize_t>n, zero=False)
                n = _tokenize(self, <const char*>view.buf, view.len, <int32_t*>tokens.data.as_ints, len(tokens),
                              add_special, parse_special)
        finally:
            PyBuffer_Release(&view)
        if n < 0:
            raise TokenizeError(f"the text of {view.len} bytes makes more tokens than can be counted")
        del tokens[n:]
        return tokens

    def tokenize_into(self, text, int32_t[::1] out, *, bint add_special=True, bint parse_special=False):
        """Convert text into tokens, into memory of the caller.

        Parameters
        ----------
        text, add_special, parse_special
            As for `tokenize`.
        out : writable buffer of int32
            Where the tokens go.

        Returns
        -------
        int
            Number of tokens written.

        Raises
        ------
        TokenizeError
            As for `tokenize`, or the tokens don't fit `out`, which is then not meaningful.

        Source: ``llama_tokenize``.
        """
        cdef Py_buffer view
        cdef int32_t n
        cdef int32_t size = <int32_t>min(out.shape[0], INT_MAX)
        data = _encode(self, text)
        _check_special(self, add_special)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len >= INT_MAX - 16:
                raise TokenizeError(f"the text has {view.len} bytes; at most {INT_MAX - 17} can be converted at once")
            n = _tokenize(self, <const char*>view.buf, view.len, &out[0] if size else NULL, size,
                          add_special, parse_special)
        finally:
            PyBuffer_Release(&view)
        if n < 0:
            raise TokenizeError(f"the text makes {-<long long>n} tokens, but `out` holds {size}")
        return n

    def detokenize(self, tokens, *, bint remove_special=False, bint unparse_special=False):
        """Convert tokens into text.

        Parameters
        ----------
        tokens : buffer of int32, or sequence of int
            Token ids.
        remove_special : bool
            Leave out the BOS and EOS that the model puts around a text.
        unparse_special : bool
            Spell special tokens out; otherwise they are left out.

        Returns
        -------
        bytes
            May end in the middle of a UTF-8 character.

        Raises
        ------
        TokenizeError
            An id is not in the vocabulary.

        Source: ``llama_detokenize``.
        """
        cdef const int32_t[::1] ids = _token_array(tokens)
        cdef int32_t n_tokens = <int32_t>ids.shape[0]
        cdef int32_t size = 8 * n_tokens + 64
        cdef const c_llama.llama_vocab* vocab = vocab_handle(self)
        cdef const int32_t* first
        cdef int32_t n
        cdef char* buffer
        if n_tokens == 0:
            return b""
        if ids.shape[0] > INT_MAX // 16:
            raise TokenizeError(f"{ids.shape[0]} tokens are too many to convert at once")
        _check_tokens(self, ids)
        _check_type(self)
        first = &ids[0]
        while True:
            text = PyBytes_FromStringAndSize(NULL, size)
            buffer = PyBytes_AS_STRING(text)
            model_use(self._model)
            try:
                with nogil:
                    n = c_llama.llama_detokenize(vocab, first, n_tokens, buffer, size, remove_special, unparse_special)
            finally:
                model_unuse(self._model)
            if n >= 0:
                return text[:n]
            size = -n

    def piece(self, int32_t token, *, bint special=True):
        """Return the bytes that a token stands for.

        Parameters
        ----------
        token : int
            Token id.
        special : bool
            Spell special tokens out; otherwise they are empty.

        Raises
        ------
        TokenizeError
            The id is not in the vocabulary.

        Source: ``llama_token_to_piece``.
        """
        cdef char[256] buffer
        cdef int32_t n = vocab_piece(self, token, buffer, sizeof(buffer), special)
        if n >= 0:
            return buffer[:n]
        text = PyBytes_FromStringAndSize(NULL, -n)
        vocab_piece(self, token, PyBytes_AS_STRING(text), -n, special)
        return text

    def text(self, int32_t token):
        """Return how the token is spelled in the model file, for instance ``"Ġthe"`` or ``"<0x0A>"``."""
        return c_llama.llama_vocab_get_text(_checked(self, token), token).decode("utf-8", "replace")

    def score(self, int32_t token):
        """Return the score of a token (a log probability in SPM and unigram vocabularies, else 0)."""
        return c_llama.llama_vocab_get_score(_checked(self, token), token)

    def attr(self, int32_t token):
        """Return the `TokenAttr` flags of a token."""
        return TokenAttr(<int>c_llama.llama_vocab_get_attr(_checked(self, token), token))

    def is_eog(self, int32_t token):
        """Return whether the token ends a generation."""
        return c_llama.llama_vocab_is_eog(vocab_handle(self), token)

    def is_control(self, int32_t token):
        """Return whether the token is a control token, which has no text of its own."""
        return c_llama.llama_vocab_is_control(_checked(self, token), token)

    @property
    def type(self):
        """`VocabType` of the tokenizer."""
        return VocabType(<int>c_llama.llama_vocab_type(vocab_handle(self)))

    @property
    def bos(self):
        """Token that begins a text, or None."""
        return _optional(c_llama.llama_vocab_bos(vocab_handle(self)))

    @property
    def eos(self):
        """Token that ends a text, or None."""
        return _optional(c_llama.llama_vocab_eos(vocab_handle(self)))

    @property
    def eot(self):
        """Token that ends a turn, or None."""
        return _optional(c_llama.llama_vocab_eot(vocab_handle(self)))

    @property
    def sep(self):
        """Token between two sentences, or None."""
        return _optional(c_llama.llama_vocab_sep(vocab_handle(self)))

    @property
    def nl(self):
        """Token of a line feed, or None."""
        return _optional(c_llama.llama_vocab_nl(vocab_handle(self)))

    @property
    def pad(self):
        """Token that fills up, or None."""
        return _optional(c_llama.llama_vocab_pad(vocab_handle(self)))

    @property
    def mask(self):
        """Token that stands for an unknown one, or None."""
        return _optional(c_llama.llama_vocab_mask(vocab_handle(self)))

    @property
    def fim_pre(self):
        """Token before the prefix in fill-in-the-middle, or None."""
        return _optional(c_llama.llama_vocab_fim_pre(vocab_handle(self)))

    @property
    def fim_suf(self):
        """Token before the suffix in fill-in-the-middle, or None."""
        return _optional(c_llama.llama_vocab_fim_suf(vocab_handle(self)))

    @property
    def fim_mid(self):
        """Token before the middle in fill-in-the-middle, or None."""
        return _optional(c_llama.llama_vocab_fim_mid(vocab_handle(self)))

    @property
    def fim_pad(self):
        """Token that fills up in fill-in-the-middle, or None."""
        return _optional(c_llama.llama_vocab_fim_pad(vocab_handle(self)))

    @property
    def fim_rep(self):
        """Token that names the repository in fill-in-the-middle, or None."""
        return _optional(c_llama.llama_vocab_fim_rep(vocab_handle(self)))

    @property
    def fim_sep(self):
        """Token between files in fill-in-the-middle, or None."""
        return _optional(c_llama.llama_vocab_fim_sep(vocab_handle(self)))

    @property
    def add_bos(self):
        """Whether `add_special` adds the BOS token."""
        return c_llama.llama_vocab_get_add_bos(vocab_handle(self))

    @property
    def add_eos(self):
        """Whether `add_special` adds the EOS token."""
        return c_llama.llama_vocab_get_add_eos(vocab_handle(self))

    @property
    def add_sep(self):
        """Whether `add_special` adds the SEP token."""
        return c_llama.llama_vocab_get_add_sep(vocab_handle(self))

    @property
    def special_tokens(self):
        """Tokens whose spelling divides a text before anything else does, as a tuple of ids.

        These are control, user-defined and unknown tokens; of them, `tokenize` heeds all with `parse_special`, and the
        user-defined ones without.

        Source: ``tokenizer_st_partition`` of llama-vocab.cpp.
        """
        cdef const c_llama.llama_vocab* vocab = vocab_handle(self)
        cdef int32_t token
        if c_llama.llama_vocab_type(vocab) == c_llama.LLAMA_VOCAB_TYPE_NONE:
            return ()
        return tuple([
            token for token in range(self.n_tokens) if c_llama.llama_vocab_get_attr(vocab, token) & _SPECIAL
        ])

    @property
    def suppress_tokens(self):
        """Tokens that the model must never generate, as a tuple of ids."""
        cdef int32_t n = 0
        cdef int32_t i
        cdef const int32_t* tokens = c_llama.llama_vocab_get_suppress_tokens(vocab_handle(self), &n)
        return tuple([tokens[i] for i in range(n)])


cdef Vocab vocab_wrap(Model model):
    global _wrapping
    cdef Vocab vocab
    _wrapping = True
    try:
        vocab = Vocab.__new__(Vocab)
    finally:
        _wrapping = False
    vocab._model = model
    vocab._ptr = c_llama.llama_model_get_vocab(model._ptr)
    vocab.n_tokens = c_llama.llama_vocab_n_tokens(vocab._ptr)
    vocab._missing_special = _missing_special(vocab._ptr)
    return vocab


cdef str _missing_special(const c_llama.llama_vocab* vocab):
    """Name the token that llama.cpp asserts when it adds special tokens (llama-vocab.cpp, impl::tokenize)."""
    cdef int kind = <int>c_llama.llama_vocab_type(vocab)
    cdef bint wpm = kind == c_llama.LLAMA_VOCAB_TYPE_WPM
    if kind in (c_llama.LLAMA_VOCAB_TYPE_RWKV, c_llama.LLAMA_VOCAB_TYPE_TEST, c_llama.LLAMA_VOCAB_TYPE_NONE):
        return None
    if (wpm or c_llama.llama_vocab_get_add_bos(vocab)) and c_llama.llama_vocab_bos(vocab) < 0:
        return "BOS"
    if wpm and c_llama.llama_vocab_sep(vocab) < 0:
        return "SEP"
    if not wpm and c_llama.llama_vocab_get_add_eos(vocab) and c_llama.llama_vocab_eos(vocab) < 0:
        return "EOS"
    return None


cdef const c_llama.llama_vocab* vocab_handle(Vocab self) except NULL nogil:
    if self._model._ptr == NULL:
        with gil:
            raise_closed("model")
    return self._ptr


cdef bint vocab_is_eog(Vocab self, int32_t token) noexcept nogil:
    return c_llama.llama_vocab_is_eog(self._ptr, token)


cdef int32_t vocab_piece(Vocab self, int32_t token, char* buffer, int32_t size, bint special) except? -2147483648 nogil:
    """Write the bytes of a token; returns their number, or minus the size that would have been enough."""
    cdef const c_llama.llama_vocab* vocab = vocab_handle(self)
    if not 0 <= token < self.n_tokens or c_llama.llama_vocab_type(vocab) == c_llama.LLAMA_VOCAB_TYPE_NONE:
        with gil:
            _checked(self, token)
    return c_llama.llama_token_to_piece(vocab, token, buffer, size, 0, special)


cdef object _encode(Vocab self, object text):
    if c_llama.llama_vocab_type(vocab_handle(self)) == c_llama.LLAMA_VOCAB_TYPE_WPM:
        if not isinstance(text, str):
            # this tokenizer leaves out what is no character
            text = str(memoryview(text).cast("B"), "utf-8", "replace")
        text = normalize_wordpiece(text, _strips_accents(self))
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise TokenizeError(
                f"the text has a lone surrogate at index {error.start}; pass bytes if it is not meant as Unicode"
            ) from None
    return text


cdef bint _strips_accents(Vocab self) except -1:
    """Say whether the model wants its texts without accents, by what the caller has overridden and the file says."""
    cdef char[8] value
    given = self._model.params.values["kv_overrides"] or {}
    for key in (ACCENTS_KEY, LOWERCASE_KEY):
        if key in given:
            return bool(given[key])
        if c_llama.llama_model_meta_val_str(self._model._ptr, key.encode(), value, sizeof(value)) >= 0:
            return value[0] == b"t"
    return True


cdef object _token_array(object tokens):
    """Return a buffer of int32: the object itself when it is one, else a converted copy."""
    try:
        view = memoryview(tokens)
    except TypeError:
        try:
            return array("i", tokens)
        except OverflowError:
            raise TokenizeError("a token id is not a 32-bit number") from None
    if view.format == "i" and view.contiguous:
        return tokens
    return _token_array(view.tolist())


cdef object _optional(int32_t token):
    return None if token < 0 else token


cdef int _check_type(Vocab self) except -1:
    if c_llama.llama_vocab_type(vocab_handle(self)) == c_llama.LLAMA_VOCAB_TYPE_NONE:
        raise TokenizeError("this model has no vocabulary, so it can't convert text; work with token ids")
    return 0


cdef int _check_special(Vocab self, bint add_special) except -1:
    _check_type(self)
    if add_special and self._missing_special is not None:
        raise TokenizeError(
            f"the model wants a {self._missing_special} token around texts but has none; use add_special=False"
        )
    return 0


cdef int _check_tokens(Vocab self, const int32_t[::1] tokens) except -1:
    cdef Py_ssize_t i
    for i in range(tokens.shape[0]):
        if not 0 <= tokens[i] < self.n_tokens:
            raise TokenizeError(
                f"token {tokens[i]} at index {i} is not in the vocabulary (0 to {self.n_tokens - 1})"
            )
    return 0


cdef const c_llama.llama_vocab* _checked(Vocab self, int32_t token) except NULL:
    cdef const c_llama.llama_vocab* vocab = vocab_handle(self)
    if not 0 <= token < self.n_tokens:
        raise TokenizeError(f"token {token} is not in the vocabulary (0 to {self.n_tokens - 1})")
    _check_type(self)
    return vocab


cdef int32_t _tokenize(
    Vocab self, const char* text, Py_ssize_t length, int32_t* tokens, int32_t size, bint add_special, bint parse_special
) except? -1:
    cdef const c_llama.llama_vocab* vocab = vocab_handle(self)
    cdef int32_t n
    model_use(self._model)
    try:
        with nogil:
            n = c_llama.llama_tokenize(vocab, text, <int32_t>length, tokens, size, add_special, parse_special)
    except (IndexError, RuntimeError) as error:
        raise TokenizeError(f"the vocabulary has no token for a part of the text ({error})") from None
    finally:
        model_unuse(self._model)
    return n
