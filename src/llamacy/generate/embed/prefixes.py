"""Prefixes that models want before queries and before documents."""

from __future__ import annotations

from difflib import get_close_matches


class Prefixes:
    """The prefixes of a model, by name.

    Parameters
    ----------
    query, document
        Text that goes before each, ``""`` where the model wants none; None when it isn't known.

    Raises
    ------
    TypeError
        One is no text.
    """

    def __init__(self, query: str | None = None, document: str | None = None) -> None:
        for name, text in (("query_prefix", query), ("document_prefix", document)):
            if not isinstance(text, (str, type(None))):
                raise TypeError(f"{name} must be a text, not {text!r:.80}")
        self._texts = {"query": query, "document": document}

    def text(self, prompt: str | None) -> str:
        """Return the text that goes before each of the texts.

        A single word is a name; anything else is the prefix itself.

        Raises
        ------
        TypeError, ValueError
            There is no such name, or nobody said what it stands for.
        """
        if prompt is None:
            return ""
        if not isinstance(prompt, str):
            raise TypeError(f"prompt is a prefix or the name of one, not {prompt!r:.80}")
        if prompt in self._texts:
            text = self._texts[prompt]
            if text is None:
                raise ValueError(
                    f"a model file doesn't say what goes before a {prompt}: give {prompt}_prefix (the "
                    "model's page has it; an empty text for a model that wants none)"
                )
            return text
        if prompt.isidentifier():
            close = get_close_matches(prompt, self._texts, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"names are {', '.join(map(repr, self._texts))}."
            raise ValueError(
                f"there is no prompt named {prompt!r}; {hint} A prefix of one word ends in a space or a colon"
            )
        return prompt
