"""Random JSON Schemas with all keywords, and instances that are likely to satisfy them or nearly do.

Names, texts and numbers come from small pools, so that keywords meet each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "ab", "c\u00e9", 'q"', "")
TEXTS = ("", "a", "b", "ab", "abc", "b1", "\u00e9", "\U0001f600", 'q"', "\\", "a\tb", "1")
INTEGERS = (-12, -3, -1, 0, 1, 2, 3, 5, 9, 10, 12, 100)
DECIMALS = (-1.5, -0.25, 0.5, 0.1, 1.0, 2.5, 10.75)
# no \d, \w, \s: their Python meaning is another one
PATTERNS = ("^a", "b$", "^[a-c]+$", "^(ab|b1)?$", "[0-9]", "^.{2,3}$", "^[^a]*$", "a|\\\\", "^(?!ab)", '"')
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
DEPTHS = (0, 1, 2, 2, 3)

_KIND_OF_FACET = {"_array": "array", "_object": "object", "_string": "string", "_number": "number"}
_names = st.sampled_from(NAMES)
_counts = st.integers(0, 3)
_numbers = st.sampled_from(INTEGERS + DECIMALS)
scalars = st.one_of(
    st.none(), st.booleans(), st.sampled_from(INTEGERS), st.sampled_from(DECIMALS), st.sampled_from(TEXTS)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=2), max_leaves=4
)


class _Source:
    """Draws the parts of one schema."""

    def __init__(self, draw: st.DrawFn, dialect: str) -> None:
        self.draw = draw
        self.dialect = dialect

    def schema(self, depth: int) -> Any:
        """Return a schema that is at most so deep."""
        if self.draw(st.integers(0, 14)) == 0:
            return self.draw(st.booleans())
        scalar: list[Callable[[int], dict[str, Any]]] = [self._type, self._values, self._string, self._number]
        deep = [self._array, self._object, self._object, self._combined, self._reference] if depth > 0 else []
        facets = [*scalar, *deep, *deep]
        chosen = [self.draw(st.sampled_from(deep or scalar))]
        chosen += self.draw(st.lists(st.sampled_from(facets), max_size=2))
        schema: dict[str, Any] = {}
        if self.draw(st.booleans()):
            schema["type"] = _KIND_OF_FACET.get(chosen[0].__name__) or self.draw(st.sampled_from(TYPES))
        for facet in chosen:
            schema.update(facet(depth))
        return schema

    def _some(self, makers: dict[str, Any], most: int = 3) -> dict[str, Any]:
        """Return some of the keywords."""
        chosen = self.draw(st.lists(st.sampled_from(sorted(makers)), min_size=1, max_size=most, unique=True))
        return {keyword: makers[keyword]() for keyword in chosen}

    def _type(self, _depth: int) -> dict[str, Any]:
        if self.draw(st.booleans()):
            return {"type": self.draw(st.sampled_from(TYPES))}
        return {"type": self.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True))}

    def _values(self, _depth: int) -> dict[str, Any]:
        if self.draw(st.booleans()):
            return {"const": self.draw(values)}
        return {"enum": self.draw(st.lists(values, min_size=1, max_size=4))}

    def _string(self, _depth: int) -> dict[str, Any]:
        return self._some(
            {
                "minLength": lambda: self.draw(_counts),
                "maxLength": lambda: self.draw(_counts),
                "pattern": lambda: self.draw(st.sampled_from(PATTERNS)),
            }
        )

    def _number(self, _depth: int) -> dict[str, Any]:
        bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        makers: dict[str, Any] = {bound: lambda: self.draw(_numbers) for bound in bounds}
        makers["multipleOf"] = lambda: self.draw(st.sampled_from((1, 2, 3, 7, 0.5, 0.1, 2.5)))
        return self._some(makers, 2)

    def _array(self, depth: int) -> dict[str, Any]:
        makers: dict[str, Any] = {
            "items": lambda: self.schema(depth - 1),
            "minItems": lambda: self.draw(_counts),
            "maxItems": lambda: self.draw(_counts),
            "contains": lambda: self.schema(depth - 1),
            "uniqueItems": lambda: self.draw(st.booleans()),
        }
        if self.dialect == "7":
            makers["items"] = lambda: self.schema(depth - 1) if self.draw(st.booleans()) else self._schemas(depth)
            makers["additionalItems"] = lambda: self.schema(depth - 1)
        else:
            makers["prefixItems"] = lambda: self._schemas(depth)
            makers["minContains"] = lambda: self.draw(_counts)
            makers["maxContains"] = lambda: self.draw(_counts)
            makers["unevaluatedItems"] = lambda: (
                self.draw(st.just(False)) if self.draw(st.booleans()) else self.schema(0)
            )
        schema = self._some(makers)
        if isinstance(schema.get("items"), bool):
            # means nothing here, and jsonschema fails on it
            schema.pop("additionalItems", None)
        return schema

    def _object(self, depth: int) -> dict[str, Any]:
        def mapping(names: Any, inner: Any) -> dict[str, Any]:
            keys = self.draw(st.lists(names, min_size=1, max_size=3, unique=True))
            return {key: inner() for key in keys}

        def schema() -> Any:
            return self.schema(depth - 1)

        def names() -> Any:
            return self.draw(st.lists(_names, max_size=2, unique=True))

        makers: dict[str, Any] = {
            "properties": lambda: mapping(_names, schema),
            "required": names,
            "additionalProperties": lambda: False if self.draw(st.booleans()) else schema(),
            "patternProperties": lambda: mapping(st.sampled_from(PATTERNS), schema),
            "propertyNames": lambda: self.schema(0),
            "minProperties": lambda: self.draw(_counts),
            "maxProperties": lambda: self.draw(_counts),
        }
        if self.dialect == "7":
            makers["dependencies"] = lambda: mapping(_names, lambda: names() if self.draw(st.booleans()) else schema())
        else:
            makers["dependentRequired"] = lambda: mapping(_names, names)
            makers["dependentSchemas"] = lambda: mapping(_names, schema)
            makers["unevaluatedProperties"] = lambda: False if self.draw(st.booleans()) else schema()
        return self._some(makers, 4)

    def _combined(self, depth: int) -> dict[str, Any]:
        makers: dict[str, Any] = {name: lambda: self._schemas(depth) for name in ("allOf", "anyOf", "oneOf")}
        makers["not"] = lambda: self.schema(depth - 1)
        combined = self._some(makers, 1)
        if self.draw(st.integers(0, 3)) == 0:
            combined |= self._some({name: lambda: self.schema(depth - 1) for name in ("if", "then", "else")})
        return combined

    def _reference(self, _depth: int) -> dict[str, Any]:
        names = ("#", "#/definitions/x", "#/definitions/y~1z")
        return {"$ref": self.draw(st.sampled_from(names))}

    def _schemas(self, depth: int) -> list[Any]:
        return [self.schema(depth - 1) for _ in range(self.draw(st.integers(1, 3)))]


@st.composite
def schemas(draw: st.DrawFn, dialect: str) -> Any:
    """Return a schema of a dialect, with definitions that its references lead to."""
    source = _Source(draw, dialect)
    depth = draw(st.sampled_from(DEPTHS))
    schema = source.schema(depth)
    if isinstance(schema, dict) and "$ref" in repr(schema):
        schema["definitions"] = {"x": source.schema(1), "y/z": source.schema(0)}
    return schema


class _Instances:
    """Draws instances of a schema, most of them as it wants them."""

    def __init__(self, draw: st.DrawFn, root: Any) -> None:
        self.draw = draw
        self.root = root

    def instance(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or not schema or depth == 0 or self.draw(st.integers(0, 11)) == 0:
            return self.draw(values)
        if "$ref" in schema:
            return self.instance(self._followed(schema["$ref"]), depth - 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self.draw(st.sampled_from(schema["enum"]))
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = [branch for branch in schema.get(keyword, ()) if isinstance(branch, dict)]
            if branches:
                rest = {name: value for name, value in schema.items() if name != keyword}
                return self.instance(_merged(rest, self.draw(st.sampled_from(branches))), depth - 1)
        for keyword in ("then", "else"):
            if isinstance(schema.get(keyword), dict) and self.draw(st.booleans()):
                rest = {name: value for name, value in schema.items() if name not in ("then", "else")}
                return self.instance(_merged(rest, schema[keyword]), depth - 1)
        return self._of_type(schema, depth)

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        kinds = schema.get("type", [])
        kind = self.draw(st.sampled_from(kinds if isinstance(kinds, list) and kinds else [kinds or _usual(schema)]))
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            return self.draw(st.sampled_from(TEXTS + PATTERNS))
        if kind in ("integer", "number"):
            near = [schema[name] for name in ("minimum", "maximum", "multipleOf") if name in schema]
            pool = INTEGERS if kind == "integer" else INTEGERS + DECIMALS
            return self.draw(st.sampled_from((*pool, *near)))
        return self.draw(st.booleans()) if kind == "boolean" else None if kind == "null" else self.draw(values)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        named = schema.get("properties", {})
        required = [name for name in schema.get("required", ()) if name in NAMES]
        keys = list(dict.fromkeys([*named, *required]))
        kept = [key for key in keys if key in required or self.draw(st.booleans())]
        kept += self.draw(
            st.lists(st.sampled_from(NAMES + TEXTS), max_size=1).filter(lambda more: not set(more) & set(kept))
        )
        other = schema.get("additionalProperties", True)
        return {key: self.instance(named.get(key, other), depth - 1) for key in kept[:4]}

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        items = schema.get("items", True)
        first = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        if rest is True and "contains" in schema:
            rest = schema["contains"]
        count = self.draw(st.integers(0, 3))
        return [self.instance(first[i] if i < len(first) else rest, depth - 1) for i in range(count)]

    def _followed(self, reference: str) -> Any:
        if reference == "#":
            return self.root
        return self.root["definitions"]["x" if reference.endswith("/x") else "y/z"]


def _usual(schema: dict[str, Any]) -> str:
    """Return the type that a schema without one speaks of."""
    for kind, keywords in (
        (
            "object",
            "properties required additionalProperties patternProperties propertyNames minProperties maxProperties",
        ),
        ("array", "items prefixItems contains minItems maxItems uniqueItems unevaluatedItems additionalItems"),
        ("string", "minLength maxLength pattern"),
        ("number", "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"),
    ):
        if set(keywords.split()) & set(schema):
            return kind
    return "any"


def _merged(schema: dict[str, Any], branch: dict[str, Any]) -> dict[str, Any]:
    merged = {**schema, **branch}
    if "properties" in schema and "properties" in branch:
        merged["properties"] = {**schema["properties"], **branch["properties"]}
    if "required" in schema and "required" in branch:
        merged["required"] = [*schema["required"], *branch["required"]]
    return merged


@st.composite
def instances(draw: st.DrawFn, schema: Any) -> Any:
    """Return a value that may satisfy a schema of `schemas`."""
    return _Instances(draw, schema).instance(schema, 5)
