"""Places in a schema: what stands there, how to name it, and what it refers to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

from llamacy.errors import SchemaError, UnsupportedSchemaError
from llamacy.grammar.schema.dialect import (
    DIALECTS,
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    Dialect,
    known_dialect,
)

Schema = dict[str, Any] | bool
Resolver = Callable[[str], Any]
# which resource gives each dynamic anchor its meaning: the outermost one on the way to a place
Scope = tuple[tuple[str, "Resource"], ...]

_NO_SCHEMA = object()


class NeedsDynamicScope(Exception):
    """There is a reference that depends on the way to it."""


class Resource:
    """A schema with an identifier of its own, and all that stands in it up to the next one.

    Attributes
    ----------
    uri
        Where it is, without a fragment.
    root
        The schema.
    pointer
        Where it stands in the document of the caller, to name it in messages.
    dialect
        The draft that it is written in.
    dynamic_anchors
        Names that ``$dynamicRef`` may look for.
    """

    def __init__(self, uri: str, root: Schema, pointer: str, dialect: Dialect) -> None:
        self.uri = uri
        self.root = root
        self.pointer = pointer
        self.dialect = dialect
        self.anchors: dict[str, tuple[Schema, str]] = {}
        self.dynamic_anchors: set[str] = set()


# the first to blame first
_BRANCHING = ("oneOf", "anyOf", "if", "not", "dependentSchemas", "dependentRequired", "dependencies", "enum", "allOf")


class Place:
    """One schema where it stands, with the dynamic scope in which it is read.

    Attributes
    ----------
    schema
        The schema, never changed.
    resource
        What it belongs to.
    scope
        The meaning of dynamic anchors here.
    identity
        The `id` of the schema in the document, which `schema` may be a shortened copy of.
    scalars
        What `ScalarReader` found that the schema says, or None.
    """

    __slots__ = ("_parent", "_tokens", "identity", "resource", "scalars", "schema", "scope")

    def __init__(
        self, schema: Schema, resource: Resource, scope: Scope, parent: Place | str, tokens: tuple[str, ...]
    ) -> None:
        self.schema = schema
        self.identity = id(schema)
        self.resource = resource
        self.scope = scope
        self._parent = parent
        self._tokens = tokens
        self.scalars: Any = None

    @property
    def pointer(self) -> str:
        """Where the schema stands, as a URI fragment."""
        parts = []
        place: Place | str = self
        while not isinstance(place, str):
            parts.append("".join(["/" + token.replace("~", "~0").replace("/", "~1") for token in place._tokens]))
            place = place._parent
        return place + "".join(reversed(parts))

    @property
    def branching_keyword(self) -> str | None:
        """A keyword of the schema that gives several ways to satisfy it, the first to blame first, or None."""
        schema: Any = self.schema
        return next((keyword for keyword in _BRANCHING if keyword in schema), None)

    def error(self, message: str, keyword: str | None = None, kind: type[SchemaError] = SchemaError) -> SchemaError:
        """Return an error that names this place, and the keyword if one is at fault."""
        if keyword is not None:
            message = f"{keyword}: {message}"
            if isinstance(self.schema, dict) and keyword not in self.schema:
                # what can't be said follows from a combination of schemas that are fine by themselves
                keyword = self.branching_keyword
                message = message if keyword is None else f"{keyword}: {message}"
        return kind(message, pointer=self.pointer, keyword=keyword, place=self)

    def __repr__(self) -> str:
        return f"Place({self.pointer!r}, {self.schema!r})"


class Literal(NamedTuple):
    """A schema that holds, or doesn't."""

    place: Place
    holds: bool

    def __repr__(self) -> str:
        return f"{'' if self.holds else 'not '}{self.place.pointer}"


_NO_DOCUMENT = Resource("", True, "#", DIALECTS["2020-12"])
ANYTHING = Place(True, _NO_DOCUMENT, (), "#", ())
NOTHING = Place(False, _NO_DOCUMENT, (), "#", ())


class Places:
    """All places of a schema, each made once.

    No place knows what it leads to. Without cycles all is freed as soon as a grammar is made; what they left to the
    garbage collector took a fifth of the time.

    Parameters
    ----------
    schema
        The whole schema.
    dialect
        What it is written in unless ``$schema`` says so.
    resolver
        Returns the schema for a URI, for references that lead outside; None refuses them.
    ignored
        Keywords to leave out, as (id of the schema, keyword).
    dynamic
        Keep track of dynamic scopes. This costs time, so it is asked for by the first reference that needs it.
    """

    def __init__(
        self,
        schema: Schema,
        dialect: Dialect,
        resolver: Resolver | None,
        ignored: frozenset[tuple[int, str]],
        dynamic: bool,
    ) -> None:
        self._default_dialect = dialect
        self._resolver = resolver
        self._dialects: dict[str, Dialect] = {}
        self._ignored = ignored
        self._ignored_ids = {identity for identity, _ in ignored}
        self._places: dict[tuple[int, Resource, Scope], Place] = {}
        # by what they say, schemas of scalars, of which equal ones in a resource are one place
        self._leaves: dict[Resource, dict[Any, Place]] = defaultdict(dict)
        self._resources: dict[str, Resource] = {}
        self._indexed: set[int] = set()
        self._made: list[Any] = []
        self._dynamic = dynamic
        uri = schema.get(dialect.id_keyword, "") if isinstance(schema, dict) else ""
        resource = Resource(
            _split(uri)[0] if uri and isinstance(uri, str) else "", schema, "#", self._dialect(schema, dialect, "#")
        )
        self._resources[resource.uri] = self._resources[""] = resource
        if dynamic:
            self._index(resource)
        self.root = self._place(schema, resource, self._entered((), resource), "#", ())

    # making

    def _dialect(self, schema: Schema, default: Dialect, pointer: str) -> Dialect:
        if not isinstance(schema, dict) or "$schema" not in schema:
            return default
        uri = schema["$schema"]
        if not isinstance(uri, str):
            raise SchemaError(f"$schema: must be a URI, not {uri!r}", pointer=pointer, keyword="$schema")
        dialect = known_dialect(uri) or self._dialects.get(uri)
        if dialect is None and self._resolver is not None:
            try:
                meta_schema = self._resolver(uri)
            except Exception as error:
                raise SchemaError(
                    f"$schema: the resolver has no {uri!r}: {error}", pointer=pointer, keyword="$schema"
                ) from error
            base = known_dialect(meta_schema.get("$schema", "")) if isinstance(meta_schema, dict) else None
            if base is not None:
                dialect = self._dialects[uri] = base.with_vocabulary(meta_schema.get("$vocabulary"))
        if dialect is None:
            raise UnsupportedSchemaError(
                f"$schema: {uri!r} is no draft that is known here (4, 6, 7, 2019-09, 2020-12), and no resolver has it",
                pointer=pointer,
                keyword="$schema",
            )
        return dialect

    def _place(
        self, schema: Any, resource: Resource, scope: Scope, parent: Place | str, tokens: tuple[str, ...]
    ) -> Place:
        key = (id(schema), resource, scope)
        place = self._places.get(key)
        if place is None:
            if type(schema) is bool:
                return ANYTHING if schema else NOTHING
            shown = schema
            if not isinstance(schema, (dict, bool)):
                raise Place(True, resource, scope, parent, tokens).error(
                    f"a schema must be an object or a boolean, not {schema!r:.100}"
                )
            if id(schema) in self._ignored_ids:
                shown = self._without_ignored(schema)
            place = self._places[key] = Place(shown, resource, scope, parent, tokens)
            place.identity = id(schema)
        return place

    def _without_ignored(self, schema: Any) -> dict[str, Any]:
        shown = {}
        for keyword, value in schema.items():
            if (id(schema), keyword) not in self._ignored:
                shown[keyword] = value
            elif keyword == "oneOf" and "anyOf" not in schema and (id(schema), "anyOf") not in self._ignored:
                shown["anyOf"] = value  # at least one of them is what is left of exactly one
        self._made.append(schema)
        return shown

    def child(self, place: Place, schema: Any, *tokens: str) -> Place:
        """Return the place of a schema inside of another one."""
        if type(schema) is dict:
            key = _leaf_key(schema)
            if key is not None:
                if self._ignored and id(schema) in self._ignored_ids:
                    return self._place(schema, place.resource, place.scope, place, tokens)  # not what equal ones say
                leaves = self._leaves[place.resource]
                known = leaves.get(key)
                if known is None:
                    known = leaves[key] = self._place(schema, place.resource, place.scope, place, tokens)
                return known
            identifier = schema.get(place.resource.dialect.id_keyword)
            if isinstance(identifier, str) and not (
                place.resource.dialect.ref_stands_alone and ("$ref" in schema or identifier.startswith("#"))
            ):
                resource = self._embedded(place.resource, schema, identifier, place.pointer, tokens)
                return self._place(schema, resource, self._entered(place.scope, resource), place, tokens)
        return self._place(schema, place.resource, place.scope, place, tokens)

    def children(self, place: Place, keyword: str, schemas: dict[str, Any]) -> dict[str, Place]:
        """Return the places of the schemas of a keyword, by name."""
        leaves, child = self._leaves[place.resource], self.child
        found = {}
        for name, schema in schemas.items():
            known = None
            if type(schema) is dict and len(schema) == 1:
                # most properties are nothing but a type that was seen before
                kind = schema.get("type")
                if type(kind) is str:
                    known = leaves.get(kind)
            found[name] = known or child(place, schema, keyword, name)
        return found

    def made(self, place: Place, schema: dict[str, Any]) -> Place:
        """Return a place for a schema that is not in the document but follows from the one at `place`."""
        self._made.append(schema)
        return self._place(schema, place.resource, place.scope, place, ())

    def made_of_values(self, place: Place, schema: dict[str, Any]) -> Place:
        """Return a place for a schema made of values alone, which is in no draft that the document may be in."""
        self._made.append(schema)
        return self._place(schema, _NO_DOCUMENT, (), place, ())

    def _embedded(
        self, outer: Resource, schema: dict[str, Any], identifier: str, pointer: str, tokens: tuple[str, ...]
    ) -> Resource:
        uri = _split(_join(outer.uri, identifier))[0]
        resource = self._resources.get(uri)
        if resource is None or resource.root is not schema:
            at = pointer + "".join(["/" + token.replace("~", "~0").replace("/", "~1") for token in tokens])
            resource = Resource(uri, schema, at, self._dialect(schema, outer.dialect, at))
            self._resources.setdefault(uri, resource)
        return resource

    def _entered(self, scope: Scope, resource: Resource) -> Scope:
        """Return the dynamic scope after entering a resource."""
        if not self._dynamic or not resource.dynamic_anchors:
            return scope
        known = {name for name, _ in scope}
        return scope + tuple([(name, resource) for name in sorted(resource.dynamic_anchors) if name not in known])

    # references

    def follow(self, place: Place, reference: Any, keyword: str) -> Place:
        """Return the place that a reference leads to.

        Raises
        ------
        SchemaError
            It leads nowhere, or outside and there is no resolver.
        """
        if not isinstance(reference, str):
            raise place.error(f"must be a URI reference, not {reference!r}", keyword)
        if keyword in ("$dynamicRef", "$recursiveRef") and not self._dynamic:
            raise NeedsDynamicScope
        if keyword == "$recursiveRef":
            return self._follow_recursive(place)
        resource = place.resource
        path, fragment = _split(reference)
        if path:
            resource = self._resource(place, _join(resource.uri, path), reference, keyword)
        target = self._within(place, resource, unquote(fragment), reference, keyword)
        if keyword != "$dynamicRef":
            return target
        schema = target.schema
        if isinstance(schema, dict) and schema.get("$dynamicAnchor") == unquote(fragment) and fragment:
            for name, outer in place.scope:
                if name == fragment:
                    schema, pointer = outer.anchors[name]
                    return self._place(schema, outer, self._entered(place.scope, outer), pointer, ())
        return target

    def _follow_recursive(self, place: Place) -> Place:
        resource = place.resource
        if isinstance(resource.root, dict) and resource.root.get("$recursiveAnchor") is True:
            for name, outer in place.scope:
                if name == "":
                    resource = outer
                    break
        return self._place(resource.root, resource, self._entered(place.scope, resource), resource.pointer, ())

    def _within(self, place: Place, resource: Resource, fragment: str, reference: str, keyword: str) -> Place:
        """Return what a fragment names in a resource."""
        if fragment == "":
            return self._place(resource.root, resource, self._entered(place.scope, resource), resource.pointer, ())
        if not fragment.startswith("/"):
            self._index(resource)
            found = resource.anchors.get(fragment)
            if found is None:
                raise place.error(f"{reference!r} leads nowhere: there is no anchor {fragment!r}", keyword)
            schema, pointer = found
            return self._place(schema, resource, self._entered(place.scope, resource), pointer, ())
        value: Any = resource.root
        pointer = resource.pointer
        for token in fragment[1:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            value = _step(value, name)
            if value is _NO_SCHEMA:
                raise place.error(f"{reference!r} leads nowhere: there is no {name!r} in {pointer}", keyword)
            pointer += "/" + token
            identifier = value.get(resource.dialect.id_keyword) if isinstance(value, dict) else None
            if isinstance(identifier, str) and not identifier.startswith("#"):
                resource = self._embedded(resource, value, identifier, pointer, ())
        if not isinstance(value, (dict, bool)):
            raise place.error(f"{reference!r} leads to something that is no schema: {value!r:.100}", keyword)
        if isinstance(value, bool):
            return ANYTHING if value else NOTHING
        # resources that the pointer only passes through are not entered
        return self._place(value, resource, self._entered(place.scope, resource), pointer, ())

    def _resource(self, place: Place, uri: str, reference: str, keyword: str) -> Resource:
        resource = self._resources.get(uri)
        if resource is None:
            self._index(self._resources[""])
            resource = self._resources.get(uri)
        if resource is None:
            if self._resolver is None:
                raise place.error(
                    f"{reference!r} leads to {uri!r}, outside of this schema; pass a resolver that returns it "
                    "(nothing is ever fetched)",
                    keyword,
                )
            try:
                schema = self._resolver(uri)
            except Exception as error:
                raise place.error(f"the resolver has no {uri!r}: {error}", keyword) from error
            if not isinstance(schema, (dict, bool)):
                raise place.error(f"the resolver returned no schema for {uri!r}, but {schema!r:.100}", keyword)
            self._made.append(schema)
            base = uri
            if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
                base = _split(_join(uri, schema["$id"]))[0]
            resource = Resource(base, schema, uri + "#", self._dialect(schema, self._default_dialect, uri + "#"))
            self._resources[uri] = self._resources[base] = resource
            self._index(resource)
        return resource

    def _index(self, resource: Resource) -> None:
        """Find all identifiers and anchors in a document."""
        if id(resource.root) in self._indexed:
            return
        self._indexed.add(id(resource.root))
        pending: list[tuple[Any, Resource, str]] = [(resource.root, resource, resource.pointer)]
        while pending:
            schema, owner, pointer = pending.pop()
            if not isinstance(schema, dict):
                continue
            dialect = owner.dialect
            identifier = schema.get(dialect.id_keyword)
            if isinstance(identifier, str) and not (dialect.ref_stands_alone and "$ref" in schema):
                if dialect.ref_stands_alone and identifier.startswith("#"):
                    owner.anchors.setdefault(identifier[1:], (schema, pointer))
                elif schema is not owner.root:
                    owner = self._embedded(owner, schema, identifier, pointer, ())
                    self._indexed.add(id(schema))
            for keyword in ("$anchor", "$dynamicAnchor"):
                name = schema.get(keyword)
                if isinstance(name, str) and not dialect.ref_stands_alone:
                    owner.anchors.setdefault(name, (schema, pointer))
                    if keyword == "$dynamicAnchor":
                        owner.dynamic_anchors.add(name)
            if schema is owner.root and schema.get("$recursiveAnchor") is True:
                owner.anchors.setdefault("", (schema, pointer))
                owner.dynamic_anchors.add("")
            pending.extend([(child, owner, pointer + tail) for tail, child in subschemas(schema)])


_LEAF_TYPES = frozenset(("null", "boolean", "number", "integer", "string"))
_LEAF_KEYWORDS = frozenset(
    [
        "type",
        "const",
        "enum",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ]
)
COMMENTS = frozenset(["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"])


def _leaf_key(schema: dict[str, Any]) -> str | tuple[Any, ...] | None:
    """Return what equal schemas of scalars have in common, so that they are read once; None for other schemas."""
    leaf = schema.get("type")
    if type(leaf) is not str or leaf not in _LEAF_TYPES:
        return None
    if len(schema) == 1:
        return leaf
    key: list[Any] = []
    for keyword, value in schema.items():
        if keyword in COMMENTS:
            continue
        kind = type(value)
        if keyword not in _LEAF_KEYWORDS or (kind is not str and kind is not int and kind is not float):
            return None
        key += (keyword, kind, value)
    return tuple(key)


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the schemas that stand right in a schema, each with the end of its pointer."""
    for keyword, value in schema.items():
        if keyword in SCHEMA_LIST_KEYWORDS and isinstance(value, list):
            for i, child in enumerate(value):
                yield f"/{keyword}/{i}", child
        elif keyword in SCHEMA_KEYWORDS:
            yield f"/{keyword}", value
        elif keyword in SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
            for name, child in value.items():
                yield f"/{keyword}/{name.replace('~', '~0').replace('/', '~1')}", child


def _split(uri: str) -> tuple[str, str]:
    """Return a URI without its fragment, and the fragment."""
    path, _, fragment = uri.partition("#")
    return path, fragment


def _join(base: str, reference: str) -> str:
    if not base or reference.startswith("urn:"):
        return reference
    if base.startswith("urn:") and reference.startswith("#"):
        return _split(base)[0] + reference
    try:
        return urljoin(base, reference)
    except ValueError as error:
        raise SchemaError(f"{reference!r} is no URI reference: {error}") from error


def _step(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, _NO_SCHEMA)
    if isinstance(value, list) and name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"):
        return value[int(name)] if int(name) < len(value) else _NO_SCHEMA
    return _NO_SCHEMA
