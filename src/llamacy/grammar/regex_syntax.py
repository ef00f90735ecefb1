r"""The syntax of ECMA-262 regular expressions with the flag `u`, as trees.

More lenient than the standard where people write what can be meant in one way only: `\@` and other escaped punctuation,
a bare `]`, `}` or `{` that is no quantifier, and `[\w-.]` with a plain hyphen.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, NoReturn

from llamacy.errors import RegexSyntaxError, RegexUnsupportedError
from llamacy.grammar.character_class import DOT, ESCAPES, unicode_property
from llamacy.grammar.charset import CharSet

MAX_NESTING = 200
MAX_LOOKS = 20
_HEX = frozenset("0123456789abcdefABCDEF")
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_MANY = 10**9


class Anchor(Enum):
    """What is true between two characters, or not."""

    START = "^"
    END = "$"
    WORD_BOUNDARY = r"\b"
    NO_WORD_BOUNDARY = r"\B"


class Sequence(NamedTuple):
    """One after the other."""

    items: tuple[Node, ...]


class Alternatives(NamedTuple):
    """One of several."""

    items: tuple[Node, ...]


class Loop(NamedTuple):
    """The same several times over; `maximum` None means without limit."""

    item: Node
    minimum: int
    maximum: int | None


class Look(NamedTuple):
    """What the text ahead begins with, or the text behind ends with; or doesn't, if `negated`."""

    item: Node
    behind: bool
    negated: bool


Node = CharSet | Anchor | Sequence | Alternatives | Loop | Look

_LOOKS = {"(?=": (False, False), "(?!": (False, True), "(?<=": (True, False), "(?<!": (True, True)}


class _Group(NamedTuple):
    """What was read before a group that isn't closed yet."""

    position: int
    look: tuple[bool, bool] | None
    alternatives: list[Node]
    items: list[Node]


def parse(pattern: str) -> Node:
    """Read a regular expression.

    Raises
    ------
    RegexSyntaxError
        It breaks the rules of ECMA-262.
    RegexUnsupportedError
        It has a back-reference, inline flags, a Unicode script, or groups nested more than
        `MAX_NESTING` or look-arounds more than `MAX_LOOKS` deep.
    """
    return _Reader(pattern).read()


class _Reader:
    __slots__ = ("pattern", "position")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0

    def read(self) -> Node:
        pattern = self.pattern
        end = len(pattern)
        groups: list[_Group] = []
        alternatives: list[Node] = []
        items: list[Node] = []
        while self.position < end:
            char = pattern[self.position]
            node: Node
            grouped = False
            if char == "(":
                if len(groups) == MAX_NESTING:
                    self.refuse(f"groups are nested more than {MAX_NESTING} deep")
                start, look = self.position, self.open_group()
                if look is not None and sum(group.look is not None for group in groups) == MAX_LOOKS:
                    self.position = start
                    self.refuse(f"look-arounds are nested more than {MAX_LOOKS} deep")
                groups.append(_Group(start, look, alternatives, items))
                alternatives, items = [], []
                continue
            if char == "|":
                alternatives.append(_sequence(items))
                items = []
                self.position += 1
                continue
            if char == ")":
                if not groups:
                    self.fail("')' closes no group; escape it or remove it")
                group = groups.pop()
                node = _alternatives(alternatives, items)
                grouped = group.look is None
                if group.look is not None:
                    node = Look(node, *group.look)
                alternatives, items = group.alternatives, group.items
                self.position += 1
            elif char == "[":
                node = self.read_class()
            elif char == "\\":
                escaped = self.escape(in_class=False)
                node = CharSet.of((escaped, escaped)) if isinstance(escaped, int) else escaped
            elif char == ".":
                node = DOT
                self.position += 1
            elif char == "^" or char == "$":
                node = Anchor.START if char == "^" else Anchor.END
                self.position += 1
            elif char in "*+?" or (char == "{" and self.counts() is not None):
                self.fail(f"{char!r} repeats nothing; escape it, or put something in front of it")
            else:
                node = CharSet.of(char)
                self.position += 1
            if self.position < end:
                node = self.quantified(node, is_condition=isinstance(node, (Anchor, Look)) and not grouped)
            items.append(node)
        if groups:
            self.position = groups[-1].position
            self.fail("'(' is never closed; add ')' or escape it")
        return _alternatives(alternatives, items)

    def open_group(self) -> tuple[bool, bool] | None:
        """Step over the opening of a group; say whether it looks behind and is negated if it looks around."""
        pattern, start = self.pattern, self.position
        if not pattern.startswith("(?", start):
            self.position += 1
            return None
        for opening, look in _LOOKS.items():
            if pattern.startswith(opening, start):
                self.position += len(opening)
                return look
        if pattern.startswith("(?:", start):
            self.position += 3
            return None
        if pattern.startswith("(?<", start):
            end = pattern.find(">", start)
            name = pattern[start + 3 : end] if end > 0 else ""
            if not name.replace("$", "_").isidentifier():
                self.fail("a group's name must be an identifier between '<' and '>'")
            self.position = end + 1
            return None
        letter = pattern[start + 2 : start + 3]
        if letter and letter in "imsx-":
            self.refuse("inline flags aren't supported; write the letters out, such as [Aa]")
        self.fail(f"{pattern[start : start + 3]!r} opens no group of ECMA-262")

    def quantified(self, node: Node, *, is_condition: bool) -> Node:
        """Read the quantifier after a node, if there is one."""
        char = self.pattern[self.position]
        start = self.position
        maximum: int | None = None
        if char == "*":
            minimum = 0
        elif char == "+":
            minimum = 1
        elif char == "?":
            minimum, maximum = 0, 1
        elif char == "{" and (counts := self.counts()) is not None:
            minimum, maximum, self.position = counts
        else:
            return node
        if is_condition:
            self.position = start
            self.fail(f"{char!r} repeats a condition, not characters; remove it")
        if maximum is not None and minimum > maximum:
            self.position = start
            self.fail(f"can't repeat {minimum} to {maximum} times; swap the numbers")
        self.position += 1
        # Greedy or not makes no difference to which texts match.
        if self.pattern.startswith("?", self.position):
            self.position += 1
        return Loop(node, minimum, maximum)

    def counts(self) -> tuple[int, int | None, int] | None:
        """Read ``{m}``, ``{m,}`` or ``{m,n}`` without stepping over it: the numbers and where the brace closes."""
        end = self.pattern.find("}", self.position)
        low, comma, high = self.pattern[self.position + 1 : max(end, 0)].partition(",")
        if not _is_number(low) or not (not high or _is_number(high)):
            return None
        minimum = _number(low)
        return minimum, (_number(high) if high else None) if comma else minimum, end

    def read_class(self) -> CharSet:
        """Read ``[…]``."""
        pattern, start = self.pattern, self.position
        self.position += 1
        negated = pattern.startswith("^", self.position)
        self.position += negated
        ranges: list[tuple[int, int]] = []
        while True:
            if self.position >= len(pattern):
                self.position = start
                self.fail("'[' is never closed; add ']' or escape it")
            if pattern[self.position] == "]":
                break
            at = self.position
            low = self.class_atom()
            if pattern.startswith("-", self.position) and not pattern.startswith("-]", self.position):
                hyphen = self.position
                self.position += 1
                if self.position >= len(pattern):
                    continue
                high = self.class_atom()
                if isinstance(low, int) and isinstance(high, int):
                    if low > high:
                        self.position = at
                        self.fail(f"the range {pattern[at : hyphen + 2]!r} ends before it begins; swap its ends")
                    ranges.append((low, high))
                    continue
                ranges.append((45, 45))
                ranges.extend(((high, high),) if isinstance(high, int) else high)
            ranges.extend(((low, low),) if isinstance(low, int) else low)
        self.position += 1
        charset = CharSet(ranges)
        return ~charset if negated else charset

    def class_atom(self) -> int | CharSet:
        char = self.pattern[self.position]
        if char == "\\":
            escaped = self.escape(in_class=True)
            assert not isinstance(escaped, Anchor)
            return escaped
        self.position += 1
        return ord(char)

    def escape(self, *, in_class: bool) -> int | CharSet | Anchor:
        r"""Read ``\…``: a code point, a set or a word boundary."""
        pattern, start = self.pattern, self.position
        char = pattern[start + 1 : start + 2]
        self.position += 2
        if not char:
            self.position = start
            self.fail(r"'\' escapes nothing; double it to mean a backslash")
        if not (char.isascii() and char.isalnum()):
            return ord(char)
        if char in ESCAPES:
            return ESCAPES[char]
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "b":
            return 8 if in_class else Anchor.WORD_BOUNDARY
        if char == "B" and not in_class:
            return Anchor.NO_WORD_BOUNDARY
        if char == "0" and not pattern[start + 2 : start + 3].isdigit():
            return 0
        if char == "c":
            letter = pattern[start + 2 : start + 3]
            if letter.isascii() and letter.isalpha():
                self.position += 1
                return ord(letter) % 32
        elif char == "x":
            return self.hexadecimal(start, 2)
        elif char == "u":
            return self.unicode_escape(start)
        elif char in "pP":
            return self.property_escape(start, negated=char == "P")
        elif not in_class and (char == "k" or char in "123456789"):
            self.position = start
            self.refuse(f"back-references such as '\\{char}' can't be done by an automaton; spell out what may repeat")
        self.position = start
        self.fail(f"'\\{char}' is no escape of ECMA-262; write the character without '\\'")

    def hexadecimal(self, start: int, length: int) -> int:
        digits = self.pattern[self.position : self.position + length]
        if len(digits) < length or not _HEX.issuperset(digits):
            self.position = start
            self.fail(f"'\\{self.pattern[start + 1]}' needs {length} hexadecimal digits")
        self.position += length
        return int(digits, 16)

    def unicode_escape(self, start: int) -> int:
        r"""Read what follows ``\u``."""
        pattern = self.pattern
        if pattern.startswith("{", self.position):
            end = pattern.find("}", self.position)
            digits = pattern[self.position + 1 : max(end, 0)]
            if not digits or not _HEX.issuperset(digits) or int(digits, 16) > 0x10FFFF:
                self.position = start
                self.fail(r"'\u{' needs the hexadecimal number of a character up to 10FFFF, and '}'")
            self.position = end + 1
            return int(digits, 16)
        point = self.hexadecimal(start, 4)
        if 0xD800 <= point <= 0xDBFF and pattern.startswith("\\u", self.position):
            digits = pattern[self.position + 2 : self.position + 6]
            if len(digits) == 4 and _HEX.issuperset(digits) and 0xDC00 <= int(digits, 16) <= 0xDFFF:
                self.position += 6
                return 0x10000 + ((point - 0xD800) << 10) + int(digits, 16) - 0xDC00
        return point

    def property_escape(self, start: int, *, negated: bool) -> CharSet:
        r"""Read what follows ``\p`` or ``\P``."""
        pattern = self.pattern
        end = pattern.find("}", self.position) if pattern.startswith("{", self.position) else -1
        if end < 0:
            self.position = start
            self.fail(f"'\\{pattern[start + 1]}' needs the name of a Unicode property in braces")
        name = pattern[self.position + 1 : end]
        charset = unicode_property(name)
        if charset is None:
            self.position = start
            self.refuse(f"the Unicode property {name!r} isn't supported; general categories are, such as \\p{{L}}")
        self.position = end + 1
        return ~charset if negated else charset

    def fail(self, message: str) -> NoReturn:
        raise RegexSyntaxError(self.located(message), pattern=self.pattern, position=self.position)

    def refuse(self, message: str) -> NoReturn:
        raise RegexUnsupportedError(self.located(message), pattern=self.pattern, position=self.position)

    def located(self, message: str) -> str:
        shown = self.pattern if len(self.pattern) <= 200 else self.pattern[:200] + "…"
        return f"pattern {shown!r}, position {self.position}: {message}"


def _sequence(items: list[Node]) -> Node:
    return items[0] if len(items) == 1 else Sequence(tuple(items))


def _alternatives(before: list[Node], items: list[Node]) -> Node:
    last = _sequence(items)
    return Alternatives((*before, last)) if before else last


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _number(digits: str) -> int:
    """Read a count; beyond a thousand million it makes no difference how many."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) < 10 else _MANY
