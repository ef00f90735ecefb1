"""Drafts of JSON Schema, and what each of them takes for a keyword."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Dialect:
    """One draft.

    Attributes
    ----------
    name
        What users call it.
    keywords
        Those with a meaning; others are comments.
    id_keyword
        ``"$id"``, or ``"id"`` in draft 4.
    ref_stands_alone
        Keywords beside ``$ref`` are ignored.
    legacy_items
        A list of schemas in `items` describes the first items, and `additionalItems` the rest.
    contains_evaluates
        An item that `contains` describes counts as evaluated.
    asserts_formats
        `format` counts whatever the caller wants.
    """

    name: str
    keywords: frozenset[str]
    id_keyword: str = "$id"
    ref_stands_alone: bool = False
    legacy_items: bool = False
    contains_evaluates: bool = False
    asserts_formats: bool = False

    def with_vocabulary(self, vocabulary: object) -> Dialect:
        """Return the dialect of a meta-schema of this draft that names the vocabularies in use."""
        if not isinstance(vocabulary, dict):
            return self
        used = {str(uri).rpartition("/")[2] for uri in vocabulary}
        left = self.keywords
        for name, keywords in _VOCABULARIES.items():
            if name not in used:
                left = left - keywords
        return replace(self, keywords=left, asserts_formats="format-assertion" in used)


_DRAFT_4 = frozenset(
    [
        "$ref",
        "type",
        "enum",
        "multipleOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "items",
        "additionalItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
        "dependencies",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
    ]
)
_DRAFT_6 = _DRAFT_4 | {"const", "contains", "propertyNames"}
_DRAFT_7 = _DRAFT_6 | {"if", "then", "else"}
# dependencies is a keyword of the past there, which validators still understand
_2019_09 = _DRAFT_7 | {
    "$recursiveRef",
    "dependentRequired",
    "dependentSchemas",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
}
_2020_12 = (_2019_09 - {"$recursiveRef", "additionalItems"}) | {"$dynamicRef", "prefixItems"}

_VOCABULARIES = {
    "validation": frozenset(
        [
            "type",
            "enum",
            "const",
            "multipleOf",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "minLength",
            "maxLength",
            "pattern",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minContains",
            "maxContains",
            "required",
            "minProperties",
            "maxProperties",
            "dependentRequired",
        ]
    ),
    "applicator": frozenset(
        [
            "prefixItems",
            "items",
            "additionalItems",
            "contains",
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
            "dependentSchemas",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "then",
            "else",
        ]
    ),
    "unevaluated": frozenset(("unevaluatedItems", "unevaluatedProperties")),
}

DIALECTS = {
    "2020-12": Dialect("2020-12", _2020_12, contains_evaluates=True),
    "2019-09": Dialect("2019-09", _2019_09, legacy_items=True),
    "7": Dialect("7", _DRAFT_7, ref_stands_alone=True, legacy_items=True),
    "6": Dialect("6", _DRAFT_6, ref_stands_alone=True, legacy_items=True),
    "4": Dialect("4", _DRAFT_4, id_keyword="id", ref_stands_alone=True, legacy_items=True),
}
# for a schema that doesn't say: older spellings that 2020-12 gave no other meaning are understood
UNSTATED = Dialect("unstated", _2020_12 | {"additionalItems"}, legacy_items=True, contains_evaluates=True)

# keywords whose value is a schema, a list of schemas, or an object of schemas
SCHEMA_KEYWORDS = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
SCHEMA_LIST_KEYWORDS = frozenset(["allOf", "anyOf", "oneOf", "items", "prefixItems"])
SCHEMA_MAP_KEYWORDS = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)

_META_SCHEMAS = {
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft-07/schema": "7",
    "json-schema.org/draft-06/schema": "6",
    "json-schema.org/draft-04/schema": "4",
}


def known_dialect(uri: str) -> Dialect | None:
    """Return the dialect that a ``$schema`` names, or None."""
    name = _META_SCHEMAS.get(uri.partition("#")[0].partition("://")[2])
    return None if name is None else DIALECTS[name]
