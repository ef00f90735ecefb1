"""Regular languages and expressions as grammars."""

from __future__ import annotations

from collections.abc import Iterable

from llamacy.errors import AutomatonSizeError, GrammarError
from llamacy.grammar import automaton
from llamacy.grammar.automaton import Dfa
from llamacy.grammar.emit import emit
from llamacy.grammar.parse import parse
from llamacy.grammar.regex import pattern_language
from llamacy.grammar.schema.automata import AutomatonWriter, as_is
from llamacy.grammar.schema.policy import Policy
from llamacy.grammar.schema.rulebook import Rulebook
from llamacy.grammar.tree import Rules
from llamacy.grammar.work import limited, spend

# of `llamacy.grammar.work`: of a grammar that is read again
_CHARACTERS_A_STEP = 4


@limited
def pattern_rules(pattern: str, root: str = "root") -> Rules:
    """Return the grammar of the texts that a regular expression matches from their beginning to their end.

    Parameters
    ----------
    pattern
        The expression.
    root
        As for `language_rules`.

    Raises
    ------
    GrammarError
        The pattern is wrong, says what is not regular, is too large, or matches nothing.
    """
    try:
        language = pattern_language(pattern, search=False)
    except AutomatonSizeError as error:
        raise AutomatonSizeError(f"pattern {pattern!r:.100}: {error}") from None
    if language.is_empty:
        raise GrammarError(f"pattern {pattern!r:.100}: no text matches it")
    return language_rules(language, root)


@limited
def pattern_text(pattern: str) -> str:
    """Return the same as text, after checking it as text of others is checked.

    Raises
    ------
    GrammarError
        As for `pattern_rules`; or llama.cpp can't use the grammar.
    """
    return _checked_text(pattern_rules(pattern))


@limited
def choices_text(texts: Iterable[str]) -> str:
    """Return the grammar of some texts, of which there must be one, as text.

    Raises
    ------
    GrammarError
        They are too many, or llama.cpp can't use the grammar.
    """
    return _checked_text(language_rules(automaton.choices(texts)))


def _checked_text(rules: Rules) -> str:
    text = emit(rules)
    spend(len(text) // _CHARACTERS_A_STEP)
    parse(text, rules.root)
    return text


def language_rules(language: Dfa, root: str = "root") -> Rules:
    """Return the grammar of the texts of a language, which must have one, each as it is.

    Parameters
    ----------
    language
        The language.
    root
        Name of the rule that says it; what it needs besides are rules named after it.
    """
    book = Rulebook(Policy())
    book.rules[root] = ()
    book.rules[root] = AutomatonWriter(book, root, language, as_is, "").write()
    return Rules(root, book.rules)
