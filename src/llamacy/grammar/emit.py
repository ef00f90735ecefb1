"""Grammar trees as GBNF text, each in one canonical form."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules, Token

_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord("\\"): "\\\\"}
_IN_LITERAL = {**_ESCAPES, ord('"'): '\\"'}
_IN_CLASS = {**_ESCAPES, ord("["): "\\[", ord("]"): "\\]", ord("-"): "\\-", ord("^"): "\\x5E"}
_LAST = 0x10FFFF
_MAX_KEPT = 4096
# by identity, of nodes that are never freed
_kept: dict[int, tuple[Node, str]] = {}


def emit(rules: Rules) -> str:
    """Return the GBNF text of a grammar, one rule a line.

    Raises
    ------
    ValueError
        A character set is empty, which GBNF can't say.
    """
    lines = []
    for name, node in rules.rules.items():
        kept = _kept.get(id(node))
        lines.append(f"{name} ::= {_top(node) if kept is None else kept[1]}\n")
    return "".join(lines)


def keep(node: Node) -> Node:
    """Return a node after remembering its text, which is worth it for those that most grammars have."""
    if len(_kept) < _MAX_KEPT:
        _kept[id(node)] = node, _top(node)
    return node


def literal(text: str) -> str:
    """Return a text as a quoted GBNF literal."""
    if text.isprintable():
        return encode_basestring(text)  # only quotes and backslashes are left to escape, in the same way
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
    if characters[-1][1] == _LAST and (~characters)[-1][1] < 0x80:
        return "[^" + _ranges(~characters) + "]"
    return "[" + _ranges(characters) + "]"


def _ranges(characters: CharSet) -> str:
    parts = []
    for low, high in characters:
        parts.append(_character(low, _IN_CLASS))
        if high > low:
            parts.append(("-" if high > low + 1 else "") + _character(high, _IN_CLASS))
    return "".join(parts)


def _top(node: Any) -> str:
    """Return a node as it stands in a rule or in parentheses."""
    kind = type(node)
    if kind is not Choice:
        return _sequence(node) if kind is tuple else _WRITERS[kind](node)
    ways = []
    for way in node:
        kind = type(way)
        ways.append(way if kind is Ref else _sequence(way) if kind is tuple else _WRITERS[kind](way))
    return " | ".join(ways)


def _sequence(node: tuple[Any, ...]) -> str:
    parts = []
    for part in node:
        kind = type(part)
        if kind is Ref:
            parts.append(part)
        elif kind is Choice:
            parts.append("(" + _top(part) + ")")
        elif kind is str and part.isprintable():
            parts.append(encode_basestring(part))
        else:
            parts.append(_WRITERS[kind](part))
    return " ".join(parts) or '""'


def _group(node: Any) -> str:
    return "(" + _top(node) + ")"


def _repeat(node: Any) -> str:
    item = _WRITERS[type(node.item)](node.item)
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


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: literal,
    Ref: str.__str__,
    CharSet: character_class,
    tuple: _group,
    Choice: _group,
    Repeat: _repeat,
    Token: _token,
}
