"""Text that arrives in pieces, read by coroutines.

A reader is a generator that yields where it needs more text than there is, and goes on when a piece has come or the
text has ended. So a format is written down as one reads it, and the text is looked at once, whatever its pieces are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from typing import Any, TypeVar

_T = TypeVar("_T")

# a coroutine that reads; it yields where it waits for text
Steps = Generator[None, None, _T]
Write = Callable[[str], None]

_SPACE = re.compile(r"\s*")


class NotACall(Exception):
    """What has been read since the last promise is not what its beginning looked like."""


def _never(_: str) -> None:
    """Find nothing."""


class Markers:
    """Words to look for, all at once.

    Parameters
    ----------
    words
        The words; empty ones are nothing to look for.
    """

    __slots__ = ("_beginnings", "_first", "_pattern", "first", "length", "may_begin_in", "words")

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(sorted({*words} - {""}, key=lambda word: (-len(word), word)))
        self.length = max((len(word) for word in self.words), default=0)
        self._beginnings = {word[:count] for word in self.words for count in range(1, len(word))}
        self._first = {word[0] for word in self.words}
        # the one character with which all words begin, where there is one
        self.first = "".join(self._first) if len(self._first) == 1 else ""

    # a format has many words that a model may never come near, so patterns are compiled when they are needed

    _pattern: re.Pattern[str]
    #: Finds what may be the beginning of a word, anywhere in a text.
    may_begin_in: Callable[[str], re.Match[str] | None]

    def __getattr__(self, name: str) -> Any:
        if name == "_pattern":
            self._pattern = re.compile("|".join(map(re.escape, self.words)) if self.words else "(?!)")
        elif name == "may_begin_in":
            firsts = re.escape("".join(sorted(self._first)))
            self.may_begin_in = re.compile(f"[{firsts}]").search if firsts else _never
        else:
            raise AttributeError(name)
        return getattr(self, name)

    def begins(self, text: str) -> bool:
        """Tell whether a longer text that begins with `text` may be a word."""
        return text in self._beginnings

    def find(self, text: str, at: int, ended: bool) -> tuple[int, str | None]:
        """Find the first word.

        Parameters
        ----------
        text, at
            Where to look.
        ended
            Nothing follows the text.

        Returns
        -------
        tuple
            Where the first word begins and the word, the longest one there; without a word, or when more text may make
            it a longer one, None and where a word may have begun.
        """
        found = self._pattern.search(text, at)
        end = len(text)
        if not ended:
            for start in range(max(at, end - self.length + 1), found.start() + 1 if found else end):
                if text[start] in self._first and text[start:] in self._beginnings:
                    return start, None
        return (found.start(), found.group()) if found else (end, None)

    def at(self, text: str, at: int) -> str | None:
        """Return the longest word that is at a place, if any."""
        found = self._pattern.match(text, at)
        return found.group() if found else None


@lru_cache(maxsize=256)
def markers_of(*words: str) -> Markers:
    """Return the markers of words that a format has; they are made once."""
    return Markers(words)


class Source:
    """The text so far that nobody has taken.

    Attributes
    ----------
    data, at
        The text, and how far it was taken.
    ended
        No more text comes.
    answer, thoughts
        What takes the answer, and the thinking.
    awaited, awaited_thoughts
        While all text is taken and `until` waits for what goes to the answer, or to the thinking: the words that may
        end it. A piece in which none may begin can go there at once.
    """

    __slots__ = ("_kept", "answer", "at", "awaited", "awaited_thoughts", "data", "ended", "thoughts")

    def __init__(self) -> None:
        self.data = ""
        self.at = 0
        self.ended = False
        self.answer: Write | None = None
        self.thoughts: Write | None = None
        self.awaited: Markers | None = None
        self.awaited_thoughts: Markers | None = None
        self._kept: list[str] | None = None

    def feed(self, piece: str) -> None:
        """Add a piece."""
        self.data = self.data[self.at :] + piece
        self.at = 0

    # what was taken and may have to be given back

    def keep(self, text: str = "") -> None:
        """Keep from now on what is taken, after `text` that was taken already."""
        self._kept = [text]

    def release(self) -> str:
        """Return what was kept, and keep no more."""
        kept, self._kept = self._kept, None
        return "".join(kept or ())

    # reading

    def take(self, end: int) -> str:
        """Take the text up to a place."""
        text = self.data[self.at : end]
        self.at = end
        if self._kept is not None:
            self._kept.append(text)
        return text

    def peek(self) -> Steps[str]:
        """Return the next character, or nothing at the end of the text."""
        while self.at == len(self.data):
            if self.ended:
                return ""
            yield
        return self.data[self.at]

    def skip_space(self, write: Write | None = None) -> Steps[str]:
        """Take white space; return the character after it, or nothing at the end of the text.

        Parameters
        ----------
        write
            Takes the white space.
        """
        while True:
            found = _SPACE.match(self.data, self.at)
            if found and found.end() > self.at:
                space = self.take(found.end())
                if write is not None:
                    write(space)
            if self.at < len(self.data):
                return self.data[self.at]
            if self.ended:
                return ""
            yield

    def match(self, markers: Markers) -> Steps[str | None]:
        """Take the longest of some words if one is next."""
        while markers.words and not self.ended:
            rest = self.data[self.at : self.at + markers.length]
            if rest and not markers.begins(rest):
                break
            yield
        word = markers.at(self.data, self.at)
        if word is not None:
            self.take(self.at + len(word))
        return word

    def expect(self, markers: Markers) -> Steps[str]:
        """Take the word that has to be next."""
        word = yield from self.match(markers)
        if word is None:
            raise NotACall
        return word

    def closer(self, markers: Markers) -> Steps[bool]:
        """Take white space and a word if one is next, or as much of it as there is where the text ends."""
        yield from self.skip_space()
        word = yield from self.match(markers)
        rest = self.data[self.at :]
        if word is None and self.ended and markers.begins(rest):
            self.take(len(self.data))
            return True
        return word is not None

    def until(
        self, markers: Markers, write: Write, limit: int | None = None, *, is_whole: bool = False
    ) -> Steps[str | None]:
        """Write the text up to a word, and take that word.

        Parameters
        ----------
        markers
            The words.
        write
            Takes the text before it, as it comes.
        limit
            How much text may come before it.
        is_whole
            A word must come, so where the text ends in a part of it, that part is no text.

        Returns
        -------
        str or None
            The word; None when the text ended.
        """
        count = 0
        while True:
            start, word = markers.find(self.data, self.at, self.ended and not is_whole)
            if start > self.at:
                count += start - self.at
                if limit is not None and count > limit:
                    raise NotACall
                write(self.take(start))
            if word is not None:
                self.take(self.at + len(word))
                return word
            if self.ended:
                return None
            if limit is None and self._kept is None and self.at == len(self.data):
                if write == self.answer:
                    self.awaited = markers
                elif write == self.thoughts:
                    self.awaited_thoughts = markers
            yield
            self.awaited = self.awaited_thoughts = None

    def word(self, pattern: re.Pattern[str], limit: int) -> Steps[str]:
        """Take the longest text that matches a pattern of one character repeated; it may be empty."""
        pieces: list[str] = []
        count = 0
        while True:
            found = pattern.match(self.data, self.at)
            if found is not None and found.end() > self.at:
                count += found.end() - self.at
                if count > limit:
                    raise NotACall
                pieces.append(self.take(found.end()))
            if self.at < len(self.data) or self.ended:
                return "".join(pieces)
            yield
