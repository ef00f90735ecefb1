"""The rules of a grammar in the making."""

from __future__ import annotations

from llamacy.errors import UnsupportedSchemaError
from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.schema.policy import Policy
from llamacy.grammar.tree import Choice, Node, Ref, Repeat

MAX_RULES = 20_000
# llama.cpp counts no further; longer repetitions are made of repetitions
MAX_REPETITIONS = 2_000
_BLOCK = 500

HEX = CharSet.of(("0", "9"), ("A", "F"), ("a", "f"))
_D = CharSet.of("Dd")
DIGIT = CharSet.of(("0", "9"))
_NOT_ZERO = CharSet.of(("1", "9"))
# what a JSON string may hold as it is
RAW = ANY - CharSet.of('"\\', (0, 0x1F))

_CHAR = Choice((RAW, ("\\", Choice((CharSet.of('"\\/bfnrt'), ("u", Ref("unicode")))))))
_UNICODE = Choice(
    (
        (HEX - _D, Repeat(HEX, 3, 3)),
        (_D, CharSet.of(("0", "7")), Repeat(HEX, 2, 2)),
        # a pair of surrogates is one character; one alone is none
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

    Attributes
    ----------
    has_dead
        Some rule may match nothing.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rules: dict[str, Node] = {}
        self.has_dead = False
        self._names: dict[Node, Ref] = {}

    @property
    def comma(self) -> tuple[Node, ...]:
        """A comma between members, with the white space that may follow it."""
        if self.policy.whitespace == "compact":
            return (",",)
        return (",", self.shared("blank" if self.policy.whitespace == "single" else "space"))

    @property
    def colon(self) -> tuple[Node, ...]:
        """The white space that may follow a colon."""
        return () if self.policy.whitespace == "compact" else (self.shared("blank"),)

    @property
    def padding(self) -> tuple[Node, ...]:
        """The white space that may stand inside of brackets and braces."""
        return (self.shared("space"),) if self.policy.whitespace == "pretty" else ()

    def new(self, kind: str) -> Ref:
        """Return a name for a rule that `define` will be called for."""
        name = Ref(f"{kind}-{len(self.rules)}")
        self.rules[str(name)] = ()
        if len(self.rules) > MAX_RULES:
            raise UnsupportedSchemaError(
                f"takes more than {MAX_RULES} rules; make it smaller, or leave parts of it open", pointer="#"
            )
        return name

    def define(self, name: Ref, node: Node) -> Ref:
        """Say what a rule says, and return its name."""
        self.rules[str(name)] = node
        return name

    def add(self, kind: str, node: Node) -> Ref:
        """Add a rule."""
        return self.define(self.new(kind), node)

    def named(self, kind: str, node: Node) -> Node:
        """Return a node that stands for another one in few words: itself, or the rule for all nodes like it."""
        if isinstance(node, (str, Ref)):
            return node
        ref = self._names.get(node)
        if ref is None:
            ref = self._names[node] = self.add(kind, node)
        return ref

    def shared(self, name: str) -> Ref:
        """Return one of the rules that many grammars have in common."""
        if name not in self.rules:
            self.rules[name] = ()
            self.rules[name] = getattr(self, "_" + name)()
        return Ref(name)

    # repetitions

    def repeat(self, item: Node, minimum: int, maximum: int | None, kind: str) -> tuple[Node, ...]:
        """Return a repetition of any length, of which llama.cpp sees none above its limit."""
        parts: list[Node] = []
        exact = minimum if maximum is None or maximum > minimum else maximum
        if maximum == minimum == 1:
            return (item,)
        if exact > MAX_REPETITIONS or (maximum is not None and maximum > MAX_REPETITIONS):
            parts += self._exactly(item, exact, kind)
            if maximum is None:
                parts.append(Repeat(item, 0, None))
            elif maximum > minimum:
                parts += self._up_to(item, maximum - minimum, kind)
            return tuple(parts)
        return (Repeat(item, minimum, maximum),) if maximum != 0 else ()

    def _exactly(self, item: Node, n: int, kind: str) -> list[Node]:
        if n <= MAX_REPETITIONS:
            return [Repeat(item, n, n)] if n else []
        blocks, rest = divmod(n, _BLOCK)
        block = self.add(kind, Repeat(item, _BLOCK, _BLOCK))
        return [*self._exactly(block, blocks, kind), *self._exactly(item, rest, kind)]

    def _up_to(self, item: Node, n: int, kind: str) -> list[Node]:
        if n <= MAX_REPETITIONS:
            return [Repeat(item, 0, n)]
        blocks = (n - _BLOCK + 1) // _BLOCK
        block = self.add(kind, Repeat(item, _BLOCK, _BLOCK))
        return [*self._up_to(block, blocks, kind), *self._up_to(item, n - blocks * _BLOCK, kind)]

    # rules in common

    def _next(self) -> Node:
        comma = self.comma
        return (*comma, '"') if len(comma) > 1 else ',"'

    def _blank(self) -> Node:
        return Repeat(" ", 0, 1)

    def _space(self) -> Node:
        return Repeat(Choice((" ", ("\n", Repeat(" ", 0, 64)))), 0, 1)

    def _char(self) -> Node:
        self.shared("unicode")
        return _CHAR

    def _unicode(self) -> Node:
        return _UNICODE

    def _string(self) -> Node:
        return ('"', *self.repeat(self.shared("char"), 0, self.policy.max_string_length, "chars"), '"')

    def _integer(self) -> Node:
        return Choice(("0", (Repeat("-", 0, 1), _NOT_ZERO, Repeat(DIGIT, 0, self.policy.max_digits - 1))))

    def _number(self) -> Node:
        return (
            Repeat("-", 0, 1),
            Choice(("0", (_NOT_ZERO, Repeat(DIGIT, 0, self.policy.max_digits - 1)))),
            Repeat((".", Repeat(DIGIT, 1, self.policy.max_digits)), 0, 1),
            Repeat((CharSet.of("Ee"), Repeat(CharSet.of("+-"), 0, 1), Repeat(DIGIT, 1, 3)), 0, 1),
        )

    def _boolean(self) -> Node:
        return Choice(("true", "false"))

    def _value(self) -> Node:
        kinds = ("object", "array", "string", "number")
        return Choice((*[self.shared(kind) for kind in kinds], "true", "false", "null"))

    def _array(self) -> Node:
        return self.list_of(self.shared("value"), 0, self.policy.max_array_length)

    def _object(self) -> Node:
        pair = self.add("pair", (self.shared("string"), ":", *self.colon, self.shared("value")))
        more = self.add("more", (*self.comma, pair))
        return ("{", *self.padding, Repeat((pair, Repeat(more, 0, None)), 0, 1), *self.padding, "}")

    def list_of(self, item: Node, minimum: int, maximum: int | None) -> Node:
        """Return an array of items that are all alike."""
        if maximum == 0:
            return ("[", *self.padding, "]")
        most = None if maximum is None else maximum - 1
        more = () if most == 0 else self.repeat(
            self.add("more", (*self.comma, item)), max(minimum - 1, 0), most, "items"
        )
        items: tuple[Node, ...] = (item, *more)
        if minimum == 0:
            items = (Repeat(items if len(items) > 1 else item, 0, 1),)
        return ("[", *self.padding, *items, *self.padding, "]")
