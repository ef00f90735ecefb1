"""Grammars of calls with their open rules filled in."""

from __future__ import annotations

import re

from llamacy.chat.output import CallGrammar
from llamacy.grammar import Grammar

# what isn't the name of a rule, and names
_PARTS = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|(?P<name>[A-Za-z][\w-]*)')


def filled(call: CallGrammar) -> Grammar:
    """Return the whole grammar."""
    texts = [call.text]
    order = "any" if call.any_order else "declared"
    for name, schema in call.schemas.items():
        texts.append(_renamed(Grammar.from_json_schema(schema, property_order=order).text, name))
    for name, pattern in call.patterns.items():
        texts.append(_renamed(Grammar.from_regex(pattern).text, name))
    return Grammar.from_string("\n".join(texts))


def _renamed(text: str, name: str) -> str:
    """Return a grammar whose rules have names of their own, with `name` for its root."""

    def rename(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        return name if found["name"] == "root" else f"{name}-of-{found['name']}"

    return _PARTS.sub(rename, text)
