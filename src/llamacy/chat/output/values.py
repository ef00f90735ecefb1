"""Values as models write them, turned into JSON text while they come.

One machine reads JSON, Python's literals and the notation of Gemma: they differ in quotes, words and keys. JSON stays
as it was written, but for what no JSON reader would take and what is plain to mend: raw control characters in strings,
and escapes that don't exist.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field

from llamacy.chat.output.source import Markers, NotACall, Source, Steps, Write

MAX_DEPTH = 200  # of arrays and objects in one value; what is deeper is no call

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PYTHON_NUMBER = re.compile(r"[+-]?[0-9.][0-9a-fA-FxobXOB_.]*(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[^\s,:\[\]{}()\"'<]+")
_MAX_WORD = 4000
_SPACE = re.compile(r"[ \t\r\n]+")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPING = frozenset("'\"")  # the quotes between which a backslash means something
_HEX = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}

_JSON_WORDS = {"true": "true", "false": "false", "null": "null"}
_ALL_WORDS = _JSON_WORDS | {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True)
class Dialect:
    """A way to write values.

    Attributes
    ----------
    quotes
        What strings stand in.
    words
        Words that are values, and what they are in JSON.
    verbatim
        What is written is JSON, and stays as it is.
    bare_keys
        Keys are written without quotes.
    python
        Tuples are arrays, and numbers may be written as Python does.
    """

    quotes: tuple[str, ...] = ('"',)
    words: dict[str, str] = field(default_factory=lambda: _JSON_WORDS, hash=False)
    verbatim: bool = True
    bare_keys: bool = False
    python: bool = False


JSON = Dialect()
PYTHON = Dialect(("'", '"'), _ALL_WORDS, verbatim=False, python=True)
GEMMA = Dialect(('<|"|>', '"'), _ALL_WORDS, verbatim=False, bare_keys=True)
FUNCTION_GEMMA = Dialect(("<escape>", '"'), _ALL_WORDS, verbatim=False, bare_keys=True)


def quote(text: str) -> str:
    """Return the text as a string of JSON, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def scan_value(source: Source, dialect: Dialect, write: Write) -> Steps[None]:
    """Read one value and write it as JSON, piece by piece.

    Parameters
    ----------
    source
        The text; white space may come before the value, and nothing after it is taken.
    dialect
        How it is written.
    write
        Takes the JSON text.

    Raises
    ------
    NotACall
        It is no value, or the text ends in it.
    """
    stack: list[str] = []
    quotes = Markers(dialect.quotes)
    # what may come: a value, a value or the end, a key, a key or the end, a separator
    state = "value"
    while True:
        character = yield from _next(source, write if dialect.verbatim and stack else None)
        if not character:
            raise NotACall
        if state in ("separator", "value or end", "key or end") and stack and character == stack[-1]:
            source.take(source.at + 1)
            write("]" if character == ")" else character)
            stack.pop()
        elif state == "separator":
            if character != ",":
                raise NotACall
            source.take(source.at + 1)
            space: list[str] = []
            character = yield from _next(source, space.append)
            # a comma before the end is a slip, and left out
            if character != stack[-1]:
                write("," + "".join(space) if dialect.verbatim else ", ")
                state = "key" if stack[-1] == "}" else "value"
            continue
        elif state.startswith("key"):
            yield from _key(source, dialect, quotes, write)
            state = "value"
            continue
        elif character in "{[" or (character == "(" and dialect.python):
            if len(stack) == MAX_DEPTH:
                raise NotACall
            source.take(source.at + 1)
            write("[" if character == "(" else character)
            stack.append({"{": "}", "[": "]", "(": ")"}[character])
            state = "key or end" if character == "{" else "value or end"
            continue
        elif (mark := (yield from source.match(quotes))) is not None:
            yield from _string(source, dialect, mark, write)
        else:
            word = yield from source.word(_WORD, _MAX_WORD)
            write(_word_value(word, dialect))
        if not stack:
            return
        state = "separator"


def _next(source: Source, write: Write | None) -> Steps[str]:
    """Take white space and return the character after it."""
    while True:
        character = yield from source.peek()
        if not character or character not in " \t\r\n":
            return character
        found = _SPACE.match(source.data, source.at)
        assert found is not None
        space = source.take(found.end())
        if write is not None:
            write(space)


def _key(source: Source, dialect: Dialect, quotes: Markers, write: Write) -> Steps[None]:
    mark = yield from source.match(quotes)
    name = ""
    if mark is not None:
        yield from _string(source, dialect, mark, write)
    elif dialect.bare_keys or dialect.python:
        name = yield from source.word(_WORD, _MAX_WORD)
    if (yield from _next(source, write if dialect.verbatim else None)) != ":" or (mark is None and not name):
        raise NotACall
    if mark is None:
        write(f'"{quote(name)}"')
    source.take(source.at + 1)
    write(":" if dialect.verbatim else ": ")


def _string(source: Source, dialect: Dialect, mark: str, write: Write) -> Steps[None]:
    """Read a string after its first quote."""
    write('"')
    ends = Markers((mark, "\\") if mark in _ESCAPING else (mark,))
    while True:
        word = yield from source.until(
            ends, lambda text: write(text if _PLAIN.fullmatch(text) else quote(text)), is_whole=True
        )
        if word is None:
            raise NotACall
        if word == mark:
            write('"')
            return
        yield from _escape(source, dialect, write)


def _escape(source: Source, dialect: Dialect, write: Write) -> Steps[None]:
    """Read what follows a backslash, and write the escape whole."""
    character = yield from source.peek()
    if not character:
        raise NotACall
    source.take(source.at + 1)
    if dialect.verbatim and character in '"\\/bfnrt':
        write("\\" + character)
    elif character in _HEX and (character == "u" or dialect.python):
        count = _HEX[character]
        while len(source.data) - source.at < count and not source.ended:
            yield
        digits = source.data[source.at : source.at + count]
        if len(digits) < count or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            write("\\\\" + character)
            return
        source.take(source.at + count)
        code = int(digits, 16)
        if count == 4:
            write("\\u" + digits)
        elif code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise NotACall
        else:
            write(quote(chr(code)))
    elif character in "'\"\\/":  # the last of them is one of JSON only
        write(quote(character))
    elif character in _ESCAPES and (dialect.python or character in "bfnrt"):
        write(quote(_ESCAPES[character]))
    else:
        write(quote("\\" + character))


def _word_value(word: str, dialect: Dialect) -> str:
    value = dialect.words.get(word)
    if value is not None:
        return value
    if _NUMBER.fullmatch(word):
        return word
    if dialect.python and _PYTHON_NUMBER.fullmatch(word):
        try:
            return str(int(word, 0))
        except ValueError:
            pass
        try:
            number = float(word)
        except ValueError:
            raise NotACall from None
        if math.isfinite(number):
            return repr(number)
    raise NotACall


def convert(text: str, dialect: Dialect) -> str | None:
    """Return the JSON text of a value that makes up a whole text, or None if it is none."""
    source = Source()
    source.feed(text)
    source.ended = True
    pieces: list[str] = []
    try:
        for _ in scan_value(source, dialect, pieces.append):
            pass  # never: nothing is waited for
        for _ in source.skip_space():
            pass
    except NotACall:
        return None
    return "".join(pieces) if source.at == len(text) else None
