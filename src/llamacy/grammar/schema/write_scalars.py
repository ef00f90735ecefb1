"""Null, booleans, numbers and strings as grammar."""

from __future__ import annotations

import json

from llamacy.grammar import automaton, numbers
from llamacy.grammar.automaton import Dfa
from llamacy.grammar.schema import strings
from llamacy.grammar.schema.automata import AutomatonWriter, Spelling, as_is, in_json, joined
from llamacy.grammar.schema.rulebook import Rulebook, repeat
from llamacy.grammar.schema.scalars import Scalars, numbers_of_digits, shortest_numbers
from llamacy.grammar.schema.strings import Strings
from llamacy.grammar.tree import Node

_MAX_WORDS = 64


class ScalarWriter:
    """Writes sets of scalars; equal sets share their rules.

    Parameters
    ----------
    book
        Where the rules go.
    """

    def __init__(self, book: Rulebook) -> None:
        self._book = book
        self._written: dict[tuple[str, object], list[Node]] = {}

    def write(self, scalars: Scalars, longest_number: int) -> list[Node]:
        """Return the ways to write a value of a set."""
        found: list[Node] = []
        if len(scalars.booleans) == 2:
            found.append(self._book.shared("boolean"))
        elif scalars.booleans:
            found.append("true" if True in scalars.booleans else "false")
        if not scalars.numbers.is_empty:
            key: tuple[str, object] = ("number", scalars.numbers)
            if key not in self._written:
                self._written[key] = self._numbers(scalars.numbers, max(longest_number, self._book.policy.max_digits))
            found += self._written[key]
        if scalars.strings is strings.ALL:
            found.append(self._book.shared("string"))
        elif not scalars.strings.is_empty:
            key = ("string", scalars.strings)
            if key not in self._written:
                self._written[key] = self._strings(scalars.strings)
            found += self._written[key]
        if scalars.null:
            found.append("null")
        return found

    def _numbers(self, found: Dfa, n_digits: int) -> list[Node]:
        if found == numbers.plain():
            return [self._book.shared("number")]
        if found == numbers.integers():
            return [self._book.shared("integer")]
        # each value in its shortest spelling when they are few
        is_whole = (found - numbers.integers()).is_empty
        shortest = found & (numbers.unfractioned() if is_whole else shortest_numbers())
        if shortest.is_finite:
            return self._words(shortest, "number", as_is, "", "")
        found = (shortest if is_whole else found) & numbers_of_digits(n_digits)
        return [AutomatonWriter(self._book, "number", found, as_is, "").write()]

    def _strings(self, found: Strings) -> list[Node]:
        book = self._book
        limit = book.policy.max_string_length
        if found == strings.ALL:
            return [book.shared("string")]
        if found.language == automaton.everything():
            maximum = limit if found.maximum is None and limit is not None and limit >= found.minimum else found.maximum
            characters = repeat(book.shared("char"), found.minimum, maximum)
            return [('"', *characters, '"')]
        language = found.folded()
        if limit is not None and language.max_length is None and (language.min_length or 0) <= limit:
            language = language & automaton.lengths(0, limit)
        return self._words(language, "string", in_json, '"', '"')

    def _words(self, language: Dfa, kind: str, spell: Spelling, opening: str, closing: str) -> list[Node]:
        """Return a language word by word when it has few, and by its automaton otherwise."""
        if language.is_empty:
            return []
        n = language.count(_MAX_WORDS + 1)
        if n is not None and n <= _MAX_WORDS:
            return [json.dumps(word, ensure_ascii=False) if opening else word for word in language.words(n)]
        body = AutomatonWriter(self._book, kind, language, spell, closing).write()
        return [joined([opening, body])]
