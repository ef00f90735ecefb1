"""Sets of property names."""

from __future__ import annotations

from collections.abc import Iterable

from llamacy.grammar import automaton
from llamacy.grammar.automaton import Dfa


def is_text(name: str) -> bool:
    """Return whether a text can hold a name, which one with half of a surrogate pair in it can't."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


class Names:
    """A set of property names: a few, all but a few, or what a language has.

    Most objects only ever need the first two, for which no automaton is made.

    Attributes
    ----------
    words
        The names, or with `inverted` those that are left out; None for a language.
    inverted
        Whether `words` are the ones that are not in the set.
    """

    __slots__ = ("_language", "inverted", "words")

    def __init__(self, words: frozenset[str] | None, inverted: bool = False, language: Dfa | None = None) -> None:
        self.words = words
        self.inverted = inverted
        self._language = language

    @classmethod
    def of(cls, words: Iterable[str]) -> Names:
        """Return the set of these names."""
        return cls(frozenset(words))

    @classmethod
    def but(cls, words: Iterable[str]) -> Names:
        """Return the set of all names but these."""
        return cls(frozenset(words), True)

    @classmethod
    def matching(cls, language: Dfa) -> Names:
        """Return the set of the names in a language."""
        if language == automaton.everything():
            return ALL
        return cls(None, False, language)

    @property
    def language(self) -> Dfa:
        """The same set as an automaton."""
        if self._language is None:
            assert self.words is not None
            # a name with half of a surrogate pair stands in no text
            found = automaton.choices([word for word in self.words if is_text(word)])
            self._language = ~found if self.inverted else found
        return self._language

    @property
    def is_empty(self) -> bool:
        """Whether there is no such name."""
        if self.words is not None:
            return not self.inverted and not self.words
        return self.language.is_empty

    @property
    def is_all(self) -> bool:
        """Whether every name is in it."""
        return self.words is not None and self.inverted and not self.words

    def has(self, name: str) -> bool:
        """Return whether a name is in the set."""
        if self.words is not None:
            return (name in self.words) is not self.inverted
        return self.language.accepts(name)

    def __invert__(self) -> Names:
        if self.words is not None:
            return Names(self.words, not self.inverted)
        return Names.matching(~self.language)

    def __and__(self, other: Names) -> Names:
        a, b = self.words, other.words
        if a is not None and b is not None:
            if self.inverted:
                return Names(a | b, True) if other.inverted else Names(b - a)
            return Names(a - b) if other.inverted else Names(a & b)
        for one, two in ((self, other), (other, self)):
            if one.words is not None and not one.inverted:
                return Names.of([word for word in one.words if two.has(word)])
            if one.is_all:
                return two
        return Names.matching(self.language & other.language)

    def __or__(self, other: Names) -> Names:
        return ~(~self & ~other)

    def __sub__(self, other: Names) -> Names:
        return self & ~other


ALL = Names.but(())
NONE = Names.of(())
