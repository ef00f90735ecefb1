"""Texts to embed: what callers give, as tokens."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamacy.errors import ContextLengthError, TokenizeError
from llamacy.generate.prompts import checked_tokens

if TYPE_CHECKING:
    from llamacy.core.vocab import Vocab

    Text = str | bytes | Sequence[int]

_logger = logging.getLogger("llamacy")


def is_single(given: Any) -> bool:
    """Return whether this is one text, or the tokens of one, and not several.

    Raises
    ------
    TypeError
        It is neither.
    """
    if isinstance(given, (str, bytes)):
        return True
    if isinstance(given, (array, memoryview)):
        return True
    if (n_dimensions := getattr(given, "ndim", None)) is not None and hasattr(given, "dtype"):
        return bool(n_dimensions == 1) and getattr(given.dtype, "kind", "") in "iu"
    if isinstance(given, Sequence):
        return len(given) > 0 and isinstance(given[0], int)
    if isinstance(given, (Mapping, set, frozenset)):
        raise TypeError(
            f"what is embedded comes in an order, which vectors have too: give a list, not a {type(given).__name__}"
        )
    if isinstance(given, Iterable):
        return False
    raise TypeError(f"what is embedded is a text, token ids, or several of these, not {given!r:.80}")


class TextTokens:
    """Makes tokens of texts.

    Parameters
    ----------
    vocab
        Of the model.
    n_most
        Most tokens that a text may have.
    prefix
        Text that is put before each; not before tokens.
    truncate
        Cut what is too long at its end.

    Raises
    ------
    ValueError
        The prefix is no Unicode.
    """

    def __init__(self, vocab: Vocab, n_most: int, *, prefix: str = "", truncate: bool = False) -> None:
        self._vocab = vocab
        self._n_most = n_most
        self._prefix = prefix
        try:
            self._prefix_bytes = prefix.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"prompt has a lone surrogate at index {error.start}, which is no character: {prefix!r:.80}"
            ) from None
        self._truncate = truncate
        self._ends = _end_tokens(vocab)

    def tokens(self, text: Text, index: int) -> array[int]:
        """Return the tokens of a text.

        An empty text is what the model puts around a text; where that is nothing, the token that begins or ends one.

        Raises
        ------
        ContextLengthError
            It has too many, and is not to be cut.
        TokenizeError, TypeError, ValueError
            It can't be converted, or is no text. The message names `index`.
        """
        try:
            if isinstance(text, str):
                tokens = self._vocab.tokenize(self._prefix + text if self._prefix else text)
            elif isinstance(text, bytes):
                tokens = self._vocab.tokenize(self._prefix_bytes + text)
            else:
                tokens = checked_tokens(self._vocab, text)
        except (TokenizeError, TypeError, ValueError) as error:
            error.args = (f"text {index}: {error.args[0]}", *error.args[1:])
            raise
        if len(tokens) > self._n_most:
            return self._cut(tokens, index)
        if not tokens:
            first = self._vocab.bos if self._vocab.bos is not None else self._vocab.eos
            if first is None:
                raise ValueError(f"text {index} is empty, and the model has no token that stands for an empty text")
            tokens.append(first)
        return tokens

    def _cut(self, tokens: array[int], index: int) -> array[int]:
        if not self._truncate:
            raise ContextLengthError(
                f"text {index} has {len(tokens)} tokens, but at most {self._n_most} can be computed; shorten it, let "
                "it be cut (truncate=True), or use a larger n_ctx where the model allows one",
                n_prompt=len(tokens),
                n_ctx=self._n_most,
            )
        _logger.info("text %d has %d tokens and is cut to %d", index, len(tokens), self._n_most)
        end = tokens[-1:] if tokens[-1] in self._ends else array("i")
        return tokens[: self._n_most - len(end)] + end


def _end_tokens(vocab: Vocab) -> frozenset[int]:
    """Return the tokens that the model puts after a text."""
    # vocabularies of BERT's kind add the SEP token whatever the file says of it
    ends = {vocab.sep} if vocab.add_sep or vocab.type.name == "WPM" else set()
    if vocab.add_eos:
        ends.add(vocab.eos)
    return frozenset(token for token in ends if token is not None)
