"""What to leave out of a schema that can't be enforced, so that what is left allows more than before and not less."""

from __future__ import annotations

from typing import Any

from llamacy.errors import SchemaError
from llamacy.grammar.schema.location import Place, Places, subschemas

# what a schema has to fail for, at least for some values
_NEGATING = frozenset(("not", "oneOf", "if"))
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
# whose schemas apply to the value itself
_IN_PLACE = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"))

Keyword = tuple[Place, str]


def to_leave_out(places: Places, place: Place, keyword: str) -> list[Keyword]:
    """Return the keywords to leave out in place of one that can't be enforced.

    Parameters
    ----------
    places
        The schema.
    place, keyword
        What can't be enforced. Where it stands below a `not` or the like, leaving it out there would allow less: then
        it is the outermost of those.
    """
    outermost = _outermost_negations(places).get(place.identity)
    if outermost is not None and outermost != (place, keyword):
        return [outermost]
    schema: Any = place.schema
    if keyword == "patternProperties" and "additionalProperties" in schema:
        return [(place, "additionalProperties"), (place, keyword)]  # which would speak of more names
    return [(place, keyword)]


def _outermost_negations(places: Places) -> dict[int, Keyword]:
    """Return for the schemas that some values have to fail the keyword to blame, by the identity of the schema."""
    found: dict[int, Keyword] = {}
    seen: set[tuple[int, bool]] = set()
    pending: list[tuple[Place, Keyword | None]] = [(places.root, None)]
    while pending:
        place, negation = pending.pop()
        if (place.identity, negation is not None) in seen:
            continue
        seen.add((place.identity, negation is not None))
        schema = place.schema
        if negation is not None:
            found.setdefault(place.identity, negation)
        if not isinstance(schema, dict):
            continue
        within = negation
        if within is None:
            # what is no longer evaluated is forbidden
            within = next(((place, keyword) for keyword in _UNEVALUATED if keyword in schema), None)
            if within is not None:
                found.setdefault(place.identity, within)
        for keyword, child in _children(places, place, schema):
            if keyword in _REFERENCES or keyword in _IN_PLACE:
                blamed = within
            else:
                blamed = negation
            if blamed is None and (keyword in _NEGATING or (keyword == "contains" and "maxContains" in schema)):
                blamed = place, keyword
            pending.append((child, blamed))
    return found


def _children(places: Places, place: Place, schema: dict[str, Any]) -> list[tuple[str, Place]]:
    found = []
    for tail, child in subschemas(schema):
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in tail[1:].split("/")]
        if isinstance(child, (dict, bool)):
            found.append((tokens[0], places.child(place, child, *tokens)))
    for keyword in _REFERENCES:
        if keyword in schema:
            try:
                found.append((keyword, places.follow(place, schema[keyword], keyword)))
            except SchemaError:
                continue  # it is told where it is compiled
    return found
