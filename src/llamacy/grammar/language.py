"""Regular languages as grammars."""

from __future__ import annotations

from llamacy.grammar.automaton import Dfa
from llamacy.grammar.schema.automata import AutomatonWriter, as_is
from llamacy.grammar.schema.policy import Policy
from llamacy.grammar.schema.rulebook import Rulebook
from llamacy.grammar.tree import Rules


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
