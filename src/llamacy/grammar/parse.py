"""GBNF text as grammar trees.

The language is that of llama.cpp's parser (src/llama-grammar.cpp), down to where a new line may stand, without what
that parser can't survive: the limits are those of `llamacy.core.grammar_guard`, which stands before llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache
from typing import NamedTuple

from llamacy.errors import GrammarError, GrammarSyntaxError
from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.check import check
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules, Token

MAX_NESTING = 256  # groups inside each other
MAX_REPETITIONS = 2_000
MAX_ELEMENTS = 1_000_000  # of all rules, once repetitions are written out
MAX_TOKEN = 1_024  # bytes of <text>
_MAX_TOKEN_ID = 2**31 - 1
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}


def parse(text: str, root: str = "root") -> Rules:
    """Read a grammar in GBNF.

    Nothing is merged or reordered: a quoted literal is one `str`, and a group of one thing is that thing. What says
    nothing is left out: ``""`` and ``[]``, which llama.cpp passes over, and the mark in ``x{1}``.

    Parameters
    ----------
    text
        The grammar.
    root
        Name of the rule that a text must match.

    Raises
    ------
    GrammarSyntaxError
        The text is no GBNF, or a rule is undefined, begins with itself, never ends, or is too large for llama.cpp; the
        error says where.
    GrammarError
        The text is empty, or has no rule `root`.
    """
    part = parse_part(text)
    rules = Rules(root, part.rules)
    check(rules, part.error, part.stacked)
    return rules


class Part(NamedTuple):
    """Rules that were read.

    Attributes
    ----------
    rules
        The rules by name.
    used
        All names in them.
    stacked
        What `check` wants to know of them.
    error
        Makes an error that says where a name stands first.
    """

    rules: dict[str, Node]
    used: frozenset[str]
    stacked: set[int]
    error: Callable[[str, str], GrammarError]


def parse_part(text: str, known: Collection[str] = ()) -> Part:
    """Read rules that aren't checked yet.

    Parameters
    ----------
    text
        Rules in GBNF.
    known
        Names of the rules that are defined elsewhere.

    Raises
    ------
    GrammarSyntaxError
        The text is no GBNF, defines a rule of `known`, or uses one that isn't defined.
    GrammarError
        The text is empty.
    """
    if not text.strip():
        raise GrammarError("the grammar is empty")
    reader = _Reader(text)
    rules = reader.read(known)

    def error(name: str, message: str) -> GrammarError:
        return reader.error(message, reader.used[name]) if name in reader.used else GrammarError(message)

    return Part(rules, frozenset(reader.used), reader.stacked, error)


class _Patterns(NamedTuple):
    """What a grammar is made of, as regular expressions."""

    space: re.Pattern[str]
    any_space: re.Pattern[str]
    name: re.Pattern[str]
    number: re.Pattern[str]
    plain: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    return _Patterns(
        space=re.compile(r"(?:[ \t]+|#[^\r\n\0]*)*"),
        any_space=re.compile(r"(?:[ \t\r\n]+|#[^\r\n\0]*)*"),
        name=re.compile(r"[A-Za-z0-9-]+"),
        number=re.compile(r"[0-9]+"),
        plain=re.compile(r'[^"\\\0]*'),
    )


class _Open:
    """A rule or group that is being read.

    Attributes
    ----------
    alternatives, items
        What was read of it; `items` are those of the last alternative.
    n_rules_before
        Rules that there were when it began.
    """

    __slots__ = ("alternatives", "items", "n_rules_before")

    def __init__(self, n_rules_before: int) -> None:
        self.alternatives: list[Node] = []
        self.items: list[Node] = []
        self.n_rules_before = n_rules_before

    def finish_alternative(self) -> None:
        self.alternatives.append(self.items[0] if len(self.items) == 1 else tuple(self.items))
        self.items = []

    def node(self) -> Node:
        self.finish_alternative()
        return self.alternatives[0] if len(self.alternatives) == 1 else Choice(self.alternatives)


class _Reader:
    """One pass over a text.

    Attributes
    ----------
    used
        Where the name of each rule stands first.
    stacked
        Identities of the repetitions that are repeated without a group around them.
    """

    def __init__(self, text: str) -> None:
        self._text = text + "\0"  # an end that is no part of anything
        self._pos = 0
        self._patterns = _patterns()
        self._rules: dict[str, Node] = {}
        self.used: dict[str, int] = {}
        self.stacked: set[int] = set()
        self._n_rules = 0  # those that llama.cpp makes, which are more than there are names
        self._n_elements = 0
        # the item before the next mark: its elements, its rules times its repetitions, its marks
        self._weight = 0
        self._weight_in_rules = 1
        self._n_marks = 0
        self._repeatable = False
        self._refuse_what_is_no_text()

    def error(self, message: str, offset: int | None = None) -> GrammarSyntaxError:
        before = self._text[: self._pos if offset is None else offset]
        return GrammarSyntaxError(message, line=before.count("\n") + 1, column=len(before) - before.rfind("\n"))

    def _refuse_what_is_no_text(self) -> None:
        nul = self._text.index("\0")
        if nul < len(self._text) - 1:
            raise self.error("the grammar contains a NUL character", nul)
        try:
            self._text.encode()
        except UnicodeEncodeError as wrong:
            raise self.error("half of a surrogate pair, which is no character", wrong.start) from None

    # rules

    def read(self, known: Collection[str]) -> dict[str, Node]:
        """Read all rules; those `known` are defined elsewhere."""
        self._space(newlines=True)
        while not self._at_end():
            start = self._pos
            name = self._name()
            self._space(newlines=False)
            if not self._text.startswith("::=", self._pos):
                raise self.error("::= is expected here")
            if name in self._rules:
                raise self.error(f"rule {name!r} is defined twice", start)
            if name in known:
                raise self.error(f"rule {name!r} is defined here, and in schemas or patterns too", start)
            self._rules[name] = ()
            self._pos += 3
            self._space(newlines=True)
            self._rules[name] = self._body()
            if not self._at_end() and self._text[self._pos] not in "\r\n":
                raise self.error("a new line or the end of the grammar is expected here")
            self._space(newlines=True)
        for name, start in self.used.items():
            if name not in self._rules and name not in known:
                raise self.error(f"rule {name!r} is not defined", start)
        return self._rules

    def _body(self) -> Node:
        """Read what a rule says, up to what can't be part of it."""
        around: list[_Open] = []
        here = _Open(self._n_rules)
        self._repeatable = False
        while True:
            char = self._text[self._pos]
            if char == "(":
                if len(around) >= MAX_NESTING:
                    raise self.error(f"more than {MAX_NESTING} groups inside each other")
                self._pos += 1
                self._space(newlines=True)
                around.append(here)
                here = _Open(self._n_rules)
                self._n_rules += 1
                self._repeatable = False
            elif char == "|":
                here.finish_alternative()
                self._count(1)
                self._pos += 1
                self._space(newlines=True)
                self._repeatable = False
            elif char == ")" and around:
                self._pos += 1
                self._count(1)
                group, inner = here.node(), here
                here = around.pop()
                self._append(here, group, 1, self._n_rules - inner.n_rules_before)
                self._space(newlines=bool(around))
            elif char in "*+?{":
                self._repeat(here, nested=bool(around))
            elif not self._item(here):
                break
            else:
                self._space(newlines=bool(around))
        if around:
            raise self.error("a ) is expected here")
        self._count(1)
        return here.node()

    def _append(self, here: _Open, node: Node, weight: int, weight_in_rules: int = 1) -> None:
        here.items.append(node)
        self._count(weight)
        self._weight = weight
        self._weight_in_rules = weight_in_rules
        self._n_marks = 0
        self._repeatable = True

    def _item(self, here: _Open) -> bool:
        """Read one item that is no group; return whether there was one."""
        char = self._text[self._pos]
        self._repeatable = False
        if char == '"':
            literal = self._literal()
            if literal:
                self._append(here, literal, len(literal))
        elif char == "[":
            characters, weight = self._class()
            if weight:
                self._append(here, characters, weight)
        elif char in "<!":
            self._append(here, self._token(), 1)
        elif char == ".":
            self._pos += 1
            self._append(here, ANY, 1)
        elif self._patterns.name.match(self._text, self._pos):
            self._append(here, Ref(self._name()), 1)
        else:
            return False
        return True

    # items

    def _name(self) -> str:
        found = self._patterns.name.match(self._text, self._pos)
        if found is None:
            raise self.error("a rule name (letters, digits and -) is expected here")
        name = found[0]
        if name not in self.used:
            self.used[name] = self._pos
            self._n_rules += 1
        self._pos = found.end()
        return name

    def _literal(self) -> str:
        self._pos += 1
        parts = []
        while True:
            found = self._patterns.plain.match(self._text, self._pos)
            assert found is not None
            parts.append(found[0])
            self._pos = found.end()
            if self._text[self._pos] == '"':
                self._pos += 1
                return "".join(parts)
            start = self._pos
            code = self._character()
            if code > _LAST or code in _SURROGATES:
                raise self.error(f"{self._text[start : self._pos]} is no character, so no text could match it", start)
            parts.append(chr(code))

    def _class(self) -> tuple[CharSet, int]:
        """Read a character class; return also how many characters and ends of ranges it is written with."""
        self._pos += 1
        negated = self._text[self._pos] == "^"
        self._pos += negated
        ranges: list[tuple[int, int]] = []
        n_elements = 0
        while self._text[self._pos] != "]":
            low = high = self._character()
            n_elements += 1
            if self._text[self._pos] == "-" and self._text[self._pos + 1] != "]":
                self._pos += 1
                high = self._character()
                n_elements += 1
            # what is no character, and a range that ends before it begins, matches nothing
            if low <= (high := min(high, _LAST)):
                ranges.append((low, high))
        self._pos += 1
        characters = CharSet(ranges)
        return (~characters if negated else characters), n_elements

    def _character(self) -> int:
        char = self._text[self._pos]
        if self._at_end():
            raise self._unfinished()
        if char != "\\":
            self._pos += 1
            return ord(char)
        kind = self._text[self._pos + 1]
        n_digits = _HEX_DIGITS.get(kind, 0)
        if n_digits:
            digits = self._text[self._pos + 2 : self._pos + 2 + n_digits]
            if len(digits) < n_digits or not set(digits) <= set("0123456789abcdefABCDEF"):
                raise self.error(f"this escape needs {n_digits} hexadecimal digits")
            self._pos += 2 + n_digits
            return int(digits, 16)
        if kind not in _ESCAPES:
            raise self.error('unknown escape; there are \\t \\r \\n \\\\ \\" \\[ \\] \\- \\xHH \\uHHHH \\UHHHHHHHH')
        self._pos += 2
        return ord(_ESCAPES[kind])

    def _token(self) -> Token:
        negated = self._text[self._pos] == "!"
        self._pos += negated
        start = self._pos
        if self._text[start] != "<":
            raise self.error("a token, <text> or <[id]>, is expected after !")
        if self._text[start + 1] == "[":
            self._pos += 2
            number = self._number()
            if not self._text.startswith("]>", self._pos):
                raise self.error("]> is expected here")
            if number > _MAX_TOKEN_ID:
                raise self.error(f"there is no token {number}", start)
            self._pos += 2
            return Token(number, negated)
        end = self._text.find(">", start)
        if end < 0:
            raise self.error("this token has no >", start)
        spelled = self._text[start : end + 1]
        if len(spelled.encode()) > MAX_TOKEN:
            raise self.error(f"a token has no text of {len(spelled.encode())} bytes", start)
        self._pos = end + 1
        return Token(spelled, negated)

    # repetitions

    def _repeat(self, here: _Open, *, nested: bool) -> None:
        minimum, maximum = self._bounds(nested)
        if not self._repeatable:
            raise self.error("there is nothing to repeat before this")
        self._weight_in_rules *= maximum or minimum or 1
        if self._weight_in_rules > MAX_REPETITIONS:
            raise self.error(f"repetitions inside each other come to more than {MAX_REPETITIONS}")
        n_optional = 1 if maximum is None else maximum - minimum
        self._count(self._weight * max(minimum - 1, 0) + n_optional * (self._weight + 3) + 1)
        self._n_rules += n_optional
        self._weight = self._weight * minimum + (n_optional > 0)
        self._repeatable = maximum != 0
        if minimum == maximum == 1:
            return
        self._n_marks += 1
        if self._n_marks > MAX_NESTING:
            raise self.error(f"more than {MAX_NESTING} repetitions of one thing")
        if self._n_marks > 1:
            self.stacked.add(id(here.items[-1]))
        here.items[-1] = Repeat(here.items[-1], minimum, maximum)

    def _bounds(self, nested: bool) -> tuple[int, int | None]:
        start = self._pos
        char = self._text[start]
        self._pos += 1
        minimum, maximum = {"*": (0, None), "+": (1, None), "?": (0, 1), "{": (0, None)}[char]
        if char == "{":
            self._space(newlines=nested)
            minimum = maximum = self._number()
            self._space(newlines=nested)
            if self._text[self._pos] == ",":
                self._pos += 1
                self._space(newlines=nested)
                maximum = self._number() if self._text[self._pos] in "0123456789" else None
                self._space(newlines=nested)
            if self._text[self._pos] != "}":
                raise self.error("a , or } is expected here")
            self._pos += 1
            if max(minimum, maximum or 0) > MAX_REPETITIONS:
                raise self.error(
                    f"more than {MAX_REPETITIONS} repetitions, which llama.cpp does not count; leave the upper bound "
                    "out",
                    start,
                )
            if maximum is not None and maximum < minimum:
                raise self.error(f"the upper bound {maximum} is below the lower bound {minimum}", start)
        self._space(newlines=nested)
        return minimum, maximum

    # text

    def _space(self, *, newlines: bool) -> None:
        found = (self._patterns.any_space if newlines else self._patterns.space).match(self._text, self._pos)
        assert found is not None
        self._pos = found.end()

    def _at_end(self) -> bool:
        return self._pos >= len(self._text) - 1

    def _unfinished(self) -> GrammarSyntaxError:
        return self.error("the grammar ends inside of a literal or character class")

    def _number(self) -> int:
        found = self._patterns.number.match(self._text, self._pos)
        if found is None:
            raise self.error("a number is expected here")
        self._pos = found.end()
        digits = found[0].lstrip("0")
        # no number of so many digits is allowed anywhere, and `int` refuses some of them
        return int(digits or "0") if len(digits) <= 18 else 10**18

    def _count(self, n: int) -> None:
        self._n_elements += n
        if self._n_elements > MAX_ELEMENTS:
            raise self.error(
                f"the grammar is too large: more than {MAX_ELEMENTS} elements once repetitions are written out"
            )
