"""What a way to write calls has to tell."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

from llamacy.chat.output.grammar import Rules, literal
from llamacy.chat.output.sinks import Calls
from llamacy.chat.output.source import Steps


class Syntax(ABC):
    """A way to write calls."""

    @property
    @abstractmethod
    def openers(self) -> tuple[str, ...]:
        """Words with which calls begin, anywhere in the answer."""

    @property
    def bare(self) -> str:
        """Characters with which a call may begin that has no opener; it then begins the answer."""
        return ""

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """All words that are not text: special tokens of the model may be among them."""

    @abstractmethod
    def read(self, calls: Calls, opener: str) -> Steps[None]:
        """Read calls after their opener, to the end of the last.

        Parameters
        ----------
        calls
            The text, and where the calls go.
        opener
            What was read; empty for a call without.

        Raises
        ------
        NotACall
            It is none; what was kept of the text becomes content.
        """

    @property
    def triggers(self) -> tuple[str, ...]:
        """Openers with which a text of the grammar begins."""
        return self.openers[:1]

    @property
    def trigger_patterns(self) -> tuple[str, ...]:
        """Patterns for the beginning of a text of the grammar that has no opener."""
        return ()

    @abstractmethod
    def example(self, name: str, key: str, value: str) -> str:
        """Return a call with one argument, which is a string."""

    def text_of(self, calls: Sequence[tuple[str, str]]) -> str:
        """Return calls as a text that a model can read back, for templates that don't write them.

        Parameters
        ----------
        calls
            Names, and arguments as JSON text.
        """
        items = (f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {text}}}' for name, text in calls)
        return f"[{', '.join(items)}]"

    @abstractmethod
    def grammar(self, rules: Rules, parallel: bool) -> str:
        """Add rules for calls, and return the expression for all of them with their openers."""


def one_or_more(first: str, join: str | None) -> str:
    """Return an expression for something once, or any number of times.

    Parameters
    ----------
    first
        Expression for the thing.
    join
        What stands between two; white space may be missing. None: it stands there once.
    """
    if join is None:
        return first
    between = f"{literal(join)}?" if join.isspace() else literal(join)
    return f"{first} ({between} {first})*"
