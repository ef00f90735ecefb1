"""Grammar trees as GBNF text, each in one canonical form."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules, Token

_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord("\\"): "\\\\"}
_IN_LITERAL = {**_ESCAPES, ord('"'): '\\"'}
_IN_CLASS = {**_ESCAPES, ord("["): "\\[", ord("]"): "\\]", ord("-"): "\\-", ord("^"): "\\x5E"}
_LAST = 0x10FFFF
_COMMON = {text: f'"{text}"' for text in ("{", "}", "[", "]", ",", ":", " ", "-", ".", "0", "true", "false", "null")}


def emit(rules: Rules) -> str:
    """Return the GBNF text of a grammar, one rule a line.

    Raises
    ------
    ValueError
        A character set is empty, which GBNF can't say.
    """
    lines = [f"{name} ::= {_top(node)}\n" for name, node in rules.rules.items()]
    return "".join(lines)


def literal(text: str) -> str:
    """Return a text as a quoted GBNF literal."""
    if text.isprintable():
        if text in _COMMON:
            return _COMMON[text]
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return '"' + "".join([_character(ord(c), _IN_LITERAL) for c in text]) + '"'


def _character(code: int, escapes: dict[int, str]) -> str:
    escape = escapes.get(code)
    if escape is not None:
        return escape
    character = chr(code)
    if character.isprintable():
        return character
    if code <= 0xFF:
        return f"\\x{code:02X}"
    if code <= 0xFFFF:
        return f"\\u{code:04X}"
    return f"\\U{code:08X}"


@lru_cache(maxsize=1024)
def character_class(characters: CharSet) -> str:
    """Return a set of characters as a GBNF character class, negated when that names the last character there is."""
    if characters == ANY:
        return "."
    if not characters:
        raise ValueError("an empty set of characters has no GBNF; leave the alternative out")
    if characters[-1][1] == _LAST:
        return "[^" + _ranges(~characters) + "]"
    return "[" + _ranges(characters) + "]"


def _ranges(characters: CharSet) -> str:
    parts = []
    for low, high in characters:
        parts.append(_character(low, _IN_CLASS))
        if high > low:
            parts.append(("-" if high > low + 1 else "") + _character(high, _IN_CLASS))
    return "".join(parts)


def _top(node: Node) -> str:
    """Return a node as it stands in a rule or in parentheses."""
    kind = type(node)
    if kind is tuple:
        return " ".join([_WRITERS[type(part)](part) for part in node])  # type: ignore[union-attr]
    if kind is Choice:
        return " | ".join([_top(part) if type(part) is tuple else _item(part) for part in node])  # type: ignore[union-attr]
    return _item(node)


def _item(node: Node) -> str:
    """Return a node as it stands in a sequence."""
    return _WRITERS[type(node)](node)


def _group(node: Any) -> str:
    return f"({_top(node)})"


def _repeat(node: Any) -> str:
    item = _item(node.item)
    if type(node.item) is Repeat:
        item = f"({item})"
    return item + _quantifier(node.minimum, node.maximum)


def _quantifier(minimum: int, maximum: int | None) -> str:
    if maximum is None:
        return "*" if minimum == 0 else "+" if minimum == 1 else f"{{{minimum},}}"
    if minimum == maximum:
        return f"{{{minimum}}}"
    if (minimum, maximum) == (0, 1):
        return "?"
    return f"{{{minimum},{maximum}}}"


def _token(node: Any) -> str:
    spelled = f"<[{node.token}]>" if isinstance(node.token, int) else node.token
    return f"!{spelled}" if node.negated else spelled


_WRITERS: dict[type, Any] = {
    str: literal,
    Ref: str.__str__,
    CharSet: character_class,
    tuple: _group,
    Choice: _group,
    Repeat: _repeat,
    Token: _token,
}
