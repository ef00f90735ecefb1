"""Sets of strings: a language, and how long the strings may be."""

from __future__ import annotations

from dataclasses import dataclass

from llamacy.grammar import automaton
from llamacy.grammar.automaton import Dfa


class NotKnown(ValueError):
    """The strings outside of a set are asked for, but the set is narrower than what it stands for."""

    def __str__(self) -> str:
        return "a format that is only enforced in part can't be negated (not, oneOf and if need what is outside of it)"


@dataclass(frozen=True)
class Strings:
    """A set of strings.

    The bounds are kept apart from the language as long as that works: an automaton that counts to 100,000 has as many
    states.

    Attributes
    ----------
    language
        What the strings are.
    minimum, maximum
        How long they are, in characters; `maximum` is None when there is no limit.
    narrow
        Some strings that should be in the set are not, so what is outside of it is not known.
    """

    language: Dfa
    minimum: int = 0
    maximum: int | None = None
    narrow: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no such string, as far as is known."""
        if self is ALL:
            return False
        if self.language.is_empty or (self.maximum is not None and self.minimum > self.maximum):
            return True
        shortest, longest = self.language.min_length or 0, self.language.max_length
        if (self.maximum is not None and shortest > self.maximum) or (longest is not None and longest < self.minimum):
            return True
        if self.minimum <= shortest or self.language == automaton.everything() or (longest and self.maximum is None):
            return False
        return self.folded().is_empty

    @property
    def is_bounded(self) -> bool:
        """Whether the bounds say anything."""
        return self.minimum > 0 or self.maximum is not None

    def folded(self) -> Dfa:
        """Return the same set as one automaton.

        Raises
        ------
        AutomatonSizeError
            It has too many states.
        """
        language = self.language
        if not self.is_bounded or language.is_empty:
            return language
        longest = language.max_length
        minimum = 0 if (language.min_length or 0) >= self.minimum else self.minimum
        maximum = None if self.maximum is None or (longest is not None and longest <= self.maximum) else self.maximum
        if minimum == 0 and maximum is None:
            return language
        return language & automaton.lengths(minimum, maximum)

    def __and__(self, other: Strings) -> Strings:
        if other is ALL:
            return self
        if self is ALL:
            return other
        limits = [limit for limit in (self.maximum, other.maximum) if limit is not None]
        for one in (self, other):
            if one.language.is_empty and not one.narrow:
                return NONE
        language = self.language & other.language
        narrow = self.narrow or other.narrow
        if language.is_empty and not narrow:
            return NONE
        return Strings(
            language,
            max(self.minimum, other.minimum),
            min(limits) if limits else None,
            narrow,
        )

    def __or__(self, other: Strings) -> Strings:
        if self == other or other is NONE:
            return self
        if self is NONE:
            return other
        return Strings(self.folded() | other.folded(), narrow=self.narrow or other.narrow)

    def __invert__(self) -> Strings:
        if self.narrow:
            raise NotKnown
        if self.language == automaton.everything():
            if self.maximum is None:
                return NONE if self.minimum == 0 else Strings(self.language, 0, self.minimum - 1)
            if self.minimum == 0:
                return Strings(self.language, self.maximum + 1)
        inverse = ~self.folded()
        return ALL if inverse == automaton.everything() else Strings(inverse)


ALL = Strings(automaton.everything())
NONE = Strings(automaton.nothing())
