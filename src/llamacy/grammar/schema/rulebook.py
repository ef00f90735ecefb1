"""The rules of a grammar in the making."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from llamacy.errors import UnsupportedSchemaError
from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.emit import keep
from llamacy.grammar.schema.keywords import MAX_COUNT
from llamacy.grammar.schema.policy import DEFAULT, Policy
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, refs

MAX_RULES = 20_000
# llama.cpp counts no further; longer repetitions are made of repetitions
MAX_REPETITIONS = 2_000
_BLOCK = 250

HEX = CharSet.of(("0", "9"), ("A", "F"), ("a", "f"))
_D = CharSet.of("Dd")
DIGIT = CharSet.of(("0", "9"))
_NOT_ZERO = CharSet.of(("1", "9"))
# what a JSON string may hold as it is
RAW = ANY - CharSet.of('"\\', (0, 0x1F))

# a pair of surrogates is one character; one alone is none
_UNICODE = Choice(
    (
        (HEX - _D, Repeat(HEX, 3, 3)),
        (_D, CharSet.of(("0", "7")), Repeat(HEX, 2, 2)),
        (_D, CharSet.of("89ABab"), Repeat(HEX, 2, 2), "\\u", _D, CharSet.of(("C", "F"), ("c", "f")), Repeat(HEX, 2, 2)),
    )
)


class Rulebook:
    """Rules by name, and those that many grammars have in common.

    Names are a word and a number, so nothing that a schema calls its properties or definitions can meet them.

    Parameters
    ----------
    policy
        White space, and limits of what is open.
    first
        Where numbers begin, so that the rules of several books can stand beside each other.

    Attributes
    ----------
    has_dead
        Some rule may match nothing.
    """

    def __init__(self, policy: Policy, first: int = 0) -> None:
        self.policy = policy
        self.rules: dict[str, Node] = {}
        self._first = first
        self.has_dead = False
        self._layout, self._common = _BY_DEFAULT if policy is DEFAULT else _common(policy)
        self._names: dict[Node, Ref] = {}

    @property
    def brace(self) -> Node:
        """The end of an object, with the white space that may stand before it."""
        self._used(self._layout.padding)
        return self._layout.brace

    @property
    def comma(self) -> tuple[Node, ...]:
        """A comma between members, with the white space that may follow it."""
        return self._used(self._layout.comma)

    @property
    def colon(self) -> tuple[Node, ...]:
        """The white space that may follow a colon."""
        return self._used(self._layout.colon)

    @property
    def padding(self) -> tuple[Node, ...]:
        """The white space that may stand inside of brackets and braces."""
        return self._used(self._layout.padding)

    def _used(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        for node in nodes:
            if type(node) is Ref:
                self.shared(str(node))
        return nodes

    def new(self, kind: str) -> Ref:
        """Return a name for a rule that `define` will be called for."""
        return self.add(kind, ())

    def define(self, name: Ref, node: Node) -> Ref:
        """Say what a rule says, and return its name."""
        self.rules[str(name)] = node
        return name

    def add(self, kind: str, node: Node) -> Ref:
        """Add a rule and return its name."""
        rules = self.rules
        n = len(rules)
        if n >= MAX_RULES:
            raise UnsupportedSchemaError(
                f"takes more than {MAX_RULES} rules; make it smaller, or leave parts of it open", pointer="#"
            )
        name, ref = _name(kind, n + self._first)
        rules[name] = node
        return ref

    def named(self, kind: str, node: Node) -> Node:
        """Return a node that stands for another one in few words: itself, or the rule for all nodes like it."""
        if isinstance(node, (str, Ref)):
            return node
        ref = self._names.get(node)
        if ref is None:
            ref = self._names[node] = self.add(kind, node)
        return ref

    def shared(self, name: str) -> Ref:
        """Return one of the rules that many grammars have in common, after adding it and those that it uses."""
        ref, rules = self._common.get(name) or self._make_common(name)
        if name not in self.rules:
            self.rules.update(rules)
        return ref

    def _make_common(self, name: str) -> _Made:
        rules: dict[str, Node] = {}
        pending = [name]
        while pending:
            wanted = pending.pop(0)
            if wanted not in rules:
                known = self._common.get(wanted)
                rules[wanted] = keep(_COMMON[wanted](self.policy)) if known is None else known[1][wanted]
                pending[:0] = refs(rules[wanted])
        made = self._common[name] = Ref(name), rules
        return made

    def of_type(self, kind: str) -> Node:
        """Return all values of a type that is no array or object."""
        return "null" if kind == "null" else self.shared(kind)

    def list_of(self, item: Node, minimum: int, maximum: int | None) -> Node:
        """Return an array of items that are all alike."""
        if maximum == 0:
            return ("[", *self.padding, "]")
        more = Ref("") if maximum == 1 else self.add("more", (*self.comma, item))
        return _list(item, more, minimum, maximum, self.padding)


def repeat(item: Node, minimum: int, maximum: int | None) -> tuple[Node, ...]:
    """Return a repetition of any length, made of repetitions that llama.cpp sees none too large of."""
    if maximum == 0:
        return ()
    if maximum is not None and maximum > MAX_COUNT:
        maximum = None
    if minimum == maximum == 1:
        return (item,)
    if maximum is None:
        if minimum <= MAX_REPETITIONS:
            return (Repeat(item, minimum, None),)
        return (*_exactly(item, minimum), Repeat(item, 0, None))
    if maximum <= MAX_REPETITIONS:
        return (Repeat(item, minimum, maximum),)
    return (*_exactly(item, minimum), *_up_to(item, maximum - minimum))


def _exactly(item: Node, n: int) -> tuple[Node, ...]:
    if n <= (2 * _BLOCK if isinstance(item, Repeat) else MAX_REPETITIONS):
        return (Repeat(item, n, n),) if n else ()
    blocks, rest = divmod(n, _BLOCK)
    return (*_exactly(Repeat(item, _BLOCK, _BLOCK), blocks), *_exactly(item, rest))


def _up_to(item: Node, n: int) -> tuple[Node, ...]:
    if n <= (2 * _BLOCK if isinstance(item, Repeat) else MAX_REPETITIONS):
        return (Repeat(item, 0, n),) if n else ()
    blocks = (n - _BLOCK + 1) // _BLOCK
    return (*_up_to(Repeat(item, _BLOCK, _BLOCK), blocks), *_up_to(item, n - blocks * _BLOCK))


class _Layout(NamedTuple):
    """White space around the signs of JSON."""

    comma: tuple[Node, ...]
    colon: tuple[Node, ...]
    padding: tuple[Node, ...]
    brace: Node

    @classmethod
    def of(cls, policy: Policy) -> _Layout:
        """Return what a policy asks for."""
        padding = _padding(policy)
        return cls(_comma(policy), _colon(policy), padding, (*padding, "}") if padding else "}")


def _comma(policy: Policy) -> tuple[Node, ...]:
    if policy.whitespace == "compact":
        return (",",)
    return (",", Ref("blank" if policy.whitespace == "single" else "space"))


def _colon(policy: Policy) -> tuple[Node, ...]:
    return () if policy.whitespace == "compact" else (Ref("blank"),)


def _padding(policy: Policy) -> tuple[Node, ...]:
    return (Ref("space"),) if policy.whitespace == "pretty" else ()


def _list(item: Node, more: Node, minimum: int, maximum: int | None, padding: tuple[Node, ...]) -> Node:
    most = None if maximum is None else maximum - 1
    items: tuple[Node, ...] = (item, *repeat(more, max(minimum - 1, 0), most), *padding, "]")
    if minimum == 0:
        # no repetition of the whole: llama.cpp multiplies repetitions that lie in each other
        items = (Choice((items, (*padding, "]") if padding else "]")),)
    return ("[", *padding, *items)


@lru_cache(maxsize=4096)
def _name(kind: str, n: int) -> tuple[str, Ref]:
    name = f"{kind}-{n}"
    return name, Ref(name)


# a rule that many grammars have, and what it says, with those that it uses
_Made = tuple[Ref, dict[str, Node]]


@lru_cache(maxsize=64)
def _common(policy: Policy) -> tuple[_Layout, dict[str, _Made]]:
    """Return what the grammars under a policy have in common."""
    return _Layout.of(policy), {}


def _value(_policy: Policy) -> Node:
    return Choice((Ref("object"), Ref("array"), Ref("string"), Ref("number"), "true", "false", "null"))


def _object(policy: Policy) -> Node:
    members = (Ref("member"), Repeat((*_comma(policy), Ref("member")), 0, None))
    return ("{", *_padding(policy), Repeat(members, 0, 1), *_padding(policy), "}")


def _array(policy: Policy) -> Node:
    more = (*_comma(policy), Ref("value"))
    if policy.max_array_length == 0:
        return ("[", *_padding(policy), "]")
    return _list(Ref("value"), more, 0, policy.max_array_length, _padding(policy))


def _string(policy: Policy) -> Node:
    return ('"', *repeat(Ref("char"), 0, policy.max_string_length), '"')


def _next(policy: Policy) -> Node:
    comma = _comma(policy)
    return (*comma, '"') if len(comma) > 1 else ',"'


def _integer(policy: Policy) -> Node:
    return Choice(("0", (Repeat("-", 0, 1), _NOT_ZERO, Repeat(DIGIT, 0, policy.max_digits - 1))))


def _number(policy: Policy) -> Node:
    return (
        Repeat("-", 0, 1),
        Choice(("0", (_NOT_ZERO, Repeat(DIGIT, 0, policy.max_digits - 1)))),
        Repeat((".", Repeat(DIGIT, 1, policy.max_digits)), 0, 1),
        Repeat((CharSet.of("Ee"), Repeat(CharSet.of("+-"), 0, 1), Repeat(DIGIT, 1, 3)), 0, 1),
    )


_COMMON: dict[str, Callable[[Policy], Node]] = {
    "value": _value,
    "object": _object,
    "member": lambda policy: (Ref("string"), ":", *_colon(policy), Ref("value")),
    "array": _array,
    "string": _string,
    "char": lambda _policy: Choice((RAW, ("\\", Choice((CharSet.of('"\\/bfnrt'), ("u", Ref("unicode"))))))),
    "unicode": lambda _policy: _UNICODE,
    "number": _number,
    "integer": _integer,
    "boolean": lambda _policy: Choice(("true", "false")),
    "next": _next,
    "blank": lambda _policy: Repeat(" ", 0, 1),
    "space": lambda _policy: Repeat(Choice((" ", ("\n", Repeat(" ", 0, 64)))), 0, 1),
}

# to hash a policy takes long beside the rest
_BY_DEFAULT = _common(DEFAULT)
