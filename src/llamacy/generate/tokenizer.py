"""Prompts in text become tokens; what earlier prompts had in common with them is found again."""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from llamacy.errors import TokenizeError
from llamacy.types import TokenAttr, VocabType

if TYPE_CHECKING:
    from llamacy.core.vocab import Vocab

# tokenizers that take each text between two special tokens for itself
_DIVIDED = frozenset((VocabType.SPM, VocabType.BPE, VocabType.UGM))
# a template writes a few special tokens; a text that spells many others must not make all later ones slow
_MAX_MARKS = 64
# characters of the pieces of late
_MAX_KEPT = 1 << 19


class Tokenizer:
    """Converts the prompts of a model, whose special tokens are recognised by their spelling.

    A conversation comes again with every turn, and converting all of it takes longer than most of what else a request
    needs. Its special tokens divide it into pieces that are converted one by one, so the tokens of pieces that were
    seen before are known. All tokens are the same that `Vocab.tokenize` returns for the whole text.

    Parameters
    ----------
    vocab
        The vocabulary of the model.

    Thread safety
    -------------
    May be used by several threads at once.
    """

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self._divides = vocab.type in _DIVIDED
        self._lock = threading.Lock()
        # pieces of late, and those before them, of which what is used comes to the others: so the rest is forgotten
        self._known: dict[str, array[int]] = {}
        self._known_before: dict[str, array[int]] = {}
        self._n_known = 0
        self._seen: set[int] = set()
        self._marks: list[str] = []
        self._split = re.compile("((?!))").split

    def tokens(self, text: str | bytes) -> array[int]:
        """Return the tokens of a text, with those that the model wants around it.

        Raises
        ------
        TokenizeError
            As for `Vocab.tokenize`.
        """
        if isinstance(text, bytes) or len(text) > _MAX_KEPT or not self._divides:
            return self.vocab.tokenize(text, parse_special=True)
        begin, end = self._around
        tokens = array("i", begin)
        first, *rest = self._split(text)
        pieces = [first] if first else []
        pieces += map(str.__add__, rest[::2], rest[1::2])
        known = self._known
        try:
            for piece in pieces:
                tokens += known.get(piece) or self._converted(piece)
        except TokenizeError:
            return self.vocab.tokenize(text, parse_special=True)  # the error tells a place in the whole text
        tokens += end
        return tokens

    def _converted(self, piece: str) -> array[int]:
        """Return the tokens of a piece that isn't among the ones of late, and remember them."""
        tokens = self._known_before.get(piece)
        if tokens is None:
            tokens = self.vocab.tokenize(piece, add_special=False, parse_special=True)
            self._learn(self._special.intersection(tokens) - self._seen)
        with self._lock:
            self._n_known += len(piece)
            if self._n_known > _MAX_KEPT:
                self._known_before, self._known, self._n_known = self._known, {}, len(piece)
            self._known[piece] = tokens
        return tokens

    def _learn(self, tokens: Iterable[int]) -> None:
        """Divide texts at these special tokens, too, where that changes nothing."""
        for token in tokens:
            with self._lock:
                if token in self._seen or len(self._seen) >= _MAX_MARKS:
                    continue
                self._seen.add(token)
                spelling = self._dividing(token)
                if spelling:
                    self._marks.append(re.escape(spelling.decode()))
                    self._split = re.compile(f"({'|'.join(self._marks)})").split

    def _dividing(self, token: int) -> bytes | None:
        """Return the spelling of a special token, if texts with it are converted in two: before it, and from it on.

        llama.cpp looks for the longest special tokens first (`tokenizer_st_partition`), so no other one that is as long
        may share any of its characters with it. White space around special tokens may go with them.
        """
        spelling = self.vocab.piece(token)
        first, last = spelling[:1], spelling[-1:]
        if not (first.isascii() and last.isascii() and first.strip() and last.strip()) or not _is_text(spelling):
            return None
        if TokenAttr.LSTRIP in self.vocab.attr(token):
            return None
        longer = (other for other in self._spellings if len(other) >= len(spelling) and other != spelling)
        return None if any(_may_overlap(spelling, other) for other in longer) else spelling

    @cached_property
    def _special(self) -> frozenset[int]:
        return frozenset(self.vocab.special_tokens)

    @cached_property
    def _spellings(self) -> list[bytes]:
        return [self.vocab.piece(token) for token in self._special]

    @cached_property
    def _around(self) -> tuple[array[int], array[int]]:
        """Tokens that the model wants before and after every text."""
        both = self.vocab.tokenize("", parse_special=True)
        n_before = int(bool(both) and self.vocab.add_bos)
        return both[:n_before], both[n_before:]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _may_overlap(spelling: bytes, longer: bytes) -> bool:
    """Tell whether two words can share characters in a text."""
    n = len(spelling)
    # the first character of one is nowhere in the other for nearly all, which is quick to tell
    return (
        spelling in longer
        or any(longer.startswith(spelling[at:]) for at in range(1, n) if spelling[at] == longer[0])
        or any(
            spelling.startswith(longer[at:])
            for at in range(len(longer) - n + 1, len(longer))
            if longer[at] == spelling[0]
        )
    )
