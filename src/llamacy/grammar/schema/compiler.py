"""A JSON Schema as a grammar."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from llamacy._caller import levels_to_caller
from llamacy.errors import (
    AutomatonSizeError,
    SchemaError,
    SchemaRelaxedWarning,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from llamacy.grammar.plain import check_plain
from llamacy.grammar.schema.arrays import ARRAYS
from llamacy.grammar.schema.containers import ContainerReader
from llamacy.grammar.schema.dialect import DIALECTS, UNSTATED
from llamacy.grammar.schema.keywords import TYPES
from llamacy.grammar.schema.location import NeedsDynamicScope, Place, Places, Resolver
from llamacy.grammar.schema.objects import OBJECTS
from llamacy.grammar.schema.policy import Policy
from llamacy.grammar.schema.prune import NEVER, prune
from llamacy.grammar.schema.relax import to_leave_out
from llamacy.grammar.schema.rulebook import Rulebook
from llamacy.grammar.schema.scalars import ScalarReader, everything
from llamacy.grammar.schema.shapes import ANY_ARRAY, ANY_OBJECT
from llamacy.grammar.schema.shapes import Node as Members
from llamacy.grammar.schema.write_arrays import ArrayWriter
from llamacy.grammar.schema.write_objects import ObjectWriter
from llamacy.grammar.schema.write_scalars import ScalarWriter
from llamacy.grammar.tree import Choice, Node, Ref, Rules
from llamacy.grammar.work import attempt, limited, may_try_again

_MAX_RELAXED = 100
# what makes automata large, the likeliest first
_LARGE = ("maxLength", "minLength", "pattern", "format", "multipleOf", "patternProperties", "propertyNames", "enum")
_SCALAR_TYPES = frozenset(("null", "boolean", "number", "integer", "string"))


def compile_schema(schema: Any, policy: Policy | None = None, *, resolver: Any = None) -> Rules:
    """Return the grammar of the JSON texts that satisfy a schema.

    Parameters
    ----------
    schema
        A JSON Schema as `json.loads` returns it; it is not changed.
    policy
        What is written where the schema leaves a choice.
    resolver
        What references to other documents lead to: a function that returns the schema for a URI, or a registry of the
        package `referencing`. Without one such references are refused; nothing is ever fetched.

    Raises
    ------
    SchemaError
        The schema is wrong (the message names the place and the keyword).
    UnsupportedSchemaError
        It says something that can't be enforced, and the policy is strict.
    UnsatisfiableSchemaError
        Nothing satisfies it.
    """
    if not isinstance(schema, (dict, bool)):
        raise SchemaError(f"a schema must be an object or a boolean, not {schema!r:.100}")
    check_plain(schema)
    return compile_plain(schema, policy or Policy(), resolver)


@limited
def compile_plain(
    schema: Any, policy: Policy, resolver: Any = None, root: str = "root", first: int = 0, name: str | None = None
) -> Rules:
    """Return the grammar of a schema that `check_plain` has nothing against, or that was read as JSON.

    Parameters
    ----------
    schema, policy, resolver
        As for `compile_schema`.
    root
        Name of the rule to begin with.
    first
        Number of the first of the other rules.
    name
        What the schema is called in warnings.
    """
    find = _resolver(resolver)
    ignored: set[tuple[int, str]] = set()
    dynamic = False
    while True:
        compiler = _Compiler(schema, find, frozenset(ignored), dynamic, Rulebook(policy, first))
        try:
            return compiler.compile(root) if policy.strict else attempt(partial(compiler.compile, root))
        except NeedsDynamicScope:
            dynamic = True
        except UnsupportedSchemaError as error:
            place = error.place
            keyword = error.keyword or place.branching_keyword if isinstance(place, Place) else None
            if not isinstance(place, Place) or keyword is None:
                raise
            if policy.strict:
                if "strict=False" not in str(error):
                    error.hinted("strict=False leaves it out, with a warning")
                raise
            found = to_leave_out(compiler.places, place, keyword)
            more = {(at.identity, what) for at, what in found} - ignored
            if not more or not may_try_again() or len(ignored) >= _MAX_RELAXED:
                raise
            ignored |= more
            where = "" if name is None else f"{name}: "
            instead = [f"{at.pointer}: {what}" for at, what in found if (at, what) != (place, keyword)]
            because = f"{' and '.join(instead)}, because of " if instead else ""
            message = f"left out: {where}{because}{error}"
            warnings.warn(SchemaRelaxedWarning(message), stacklevel=levels_to_caller())


def _resolver(resolver: Any) -> Resolver | None:
    if resolver is None or callable(resolver):
        found: Resolver | None = resolver
        return found
    if hasattr(resolver, "get_or_retrieve"):
        return lambda uri: resolver.get_or_retrieve(uri).value.contents
    raise TypeError(
        f"resolver must be a function that returns the schema for a URI, or a registry of the package referencing, not "
        f"{type(resolver).__name__}"
    )


class _Compiler:
    """One compilation."""

    def __init__(
        self, schema: Any, resolver: Resolver | None, ignored: frozenset[tuple[int, str]], dynamic: bool, book: Rulebook
    ) -> None:
        policy = book.policy
        dialect = UNSTATED if policy.dialect is None else DIALECTS[policy.dialect]
        self._book = book
        self.places = Places(schema, dialect, resolver, ignored, dynamic)
        self._scalars = ScalarReader(self.places, policy)
        self._reader = ContainerReader(self.places, self._scalars, (ARRAYS, OBJECTS))
        self._scalar_writer = ScalarWriter(self._book)
        self._nodes: dict[Members, Node] = {}
        self._containers: set[Ref] = set()
        self._pending: list[tuple[Ref, Members]] = []
        self._impossible: Place | None = None
        # of a format that is only offered in part
        self._not_offered: Place | None = None

    def compile(self, name: str) -> Rules:
        """Return the grammar, whose root rule has a name."""
        book = self._book
        book.rules[name] = ()
        root = self.places.root
        members = self._reader.node(root)
        start = Ref(name)
        if members:
            self._nodes[members] = start
            self._containers.add(start)
            self._pending.append((start, members))
        else:
            book.define(start, book.shared("value"))
        while self._pending:
            ref, members = self._pending.pop()
            book.define(ref, self._write(members, _only_type(members)))
        rules: dict[str, Node] = book.rules
        if book.has_dead:
            rules = prune(rules, name)
            if name not in rules:
                if self._not_offered is not None:
                    raise self._not_offered.error(
                        "none of the texts of this format that can be offered satisfies the schema; "
                        "llamacy.grammar.formats says which can",
                        "format",
                        UnsupportedSchemaError,
                    )
                place = self._impossible or root
                raise place.error("nothing can satisfy this schema", kind=UnsatisfiableSchemaError)
        return Rules(name, rules)

    def _value(self, members: Members) -> Node:
        """Return the grammar of a node: what it is when that is short, or else the name of its rule."""
        node = self._nodes.get(members)
        if node is not None:
            if type(node) is Ref and node in self._containers:
                self._book.has_dead = True  # it may contain itself without end
            return node
        if not members:
            return self._book.shared("value")
        kind = _only_type(members)
        if kind in _SCALAR_TYPES:
            assert kind is not None
            (literal,) = members
            if len(literal.place.schema) == 1:  # type: ignore[arg-type]
                node = self._book.of_type(kind)
            else:
                node = self._book.named(kind, self._write(members, kind))
            self._nodes[members] = node
            return node
        ref = self._book.new("value")
        self._containers.add(ref)
        self._nodes[members] = ref
        self._pending.append((ref, members))
        return ref

    def _write(self, members: Members, kind: str | None) -> Node:
        """Return all ways to write a value of a node, which has one type only unless `kind` is None."""
        if len(members) == 1:
            (literal,) = members
        else:
            literal = min(members, key=lambda literal: literal.place.pointer)
        place = literal.place
        try:
            return self._ways(members, place, kind)
        except AutomatonSizeError as error:
            schema = place.schema if isinstance(place.schema, dict) else {}
            keyword = next((keyword for keyword in _LARGE if keyword in schema), None)
            raise place.error(str(error), keyword, UnsupportedSchemaError) from error

    def _ways(self, members: Members, place: Place, kind: str | None) -> Node:
        read = self._reader.read
        scalars = self._reader.read_scalars(members) if kind is None or kind in _SCALAR_TYPES else None
        objects = read(members, OBJECTS) if kind is None or kind == "object" else []
        arrays = read(members, ARRAYS) if kind is None or kind == "array" else []
        if objects == [ANY_OBJECT] and arrays == [ANY_ARRAY] and scalars == everything():
            return self._book.shared("value")
        ways: list[Node] = []
        for shape in objects:
            node = ObjectWriter(self._book, self._reader, self._value, shape, place).write()
            if node is not None:
                ways.append(node)
        for array in arrays:
            node = ArrayWriter(self._book, self._reader, self._value, array, place).write()
            if node is not None:
                ways.append(node)
        if scalars is not None:
            ways += self._scalar_writer.write(scalars, self._scalars.longest_number)
        if len(ways) > 1:
            ways = list(dict.fromkeys(ways))
        if not ways:
            self._book.has_dead = True
            self._impossible = self._impossible or place
            if scalars is not None and scalars.strings.narrow:
                self._not_offered = self._not_offered or place
            return NEVER
        return ways[0] if len(ways) == 1 else Choice(ways)


def _only_type(members: Members) -> str | None:
    """Return the type that all values of a node have, where its schema says so in a word."""
    if len(members) != 1:
        return None
    (literal,) = members
    place = literal.place
    schema = place.schema
    if not literal.holds or type(schema) is not dict or ("$ref" in schema and place.resource.dialect.ref_stands_alone):
        return None
    kind = schema.get("type")
    return kind if type(kind) is str and kind in TYPES else None
