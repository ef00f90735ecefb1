"""What a schema says of null, booleans, numbers and strings.

These are sets that union, intersection and complement lead to sets of the same kind again, so every combination of
schemas is worked out exactly, here and now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from llamacy.errors import AutomatonSizeError, RegexSyntaxError, RegexUnsupportedError, UnsupportedSchemaError
from llamacy.grammar import automaton, numbers
from llamacy.grammar.automaton import Dfa
from llamacy.grammar.formats import format_language, format_limits
from llamacy.grammar.regex import pattern_language
from llamacy.grammar.schema import strings
from llamacy.grammar.schema.keywords import count, schema_list, type_names
from llamacy.grammar.schema.location import Place, Places
from llamacy.grammar.schema.names import is_text
from llamacy.grammar.schema.policy import Policy
from llamacy.grammar.schema.strings import NotKnown, Strings
from llamacy.grammar.work import uncounted


class Scalars(NamedTuple):
    """A set of values that contain no other values.

    Attributes
    ----------
    null
        Whether null is one of them.
    booleans
        False and True, as far as they belong to it.
    numbers
        How its numbers can be written, without exponents.
    strings
        Its strings.
    """

    null: bool
    booleans: frozenset[bool]
    numbers: Dfa
    strings: Strings

    @property
    def is_empty(self) -> bool:
        """Whether there is certainly no such value."""
        if self.null or self.booleans or not self.numbers.is_empty:
            return False
        return self.strings.is_empty and not self.strings.narrow

    def __and__(self, other: Scalars) -> Scalars:
        return Scalars(
            self.null and other.null,
            self.booleans & other.booleans,
            _both(self.numbers, other.numbers),
            self.strings & other.strings,
        )

    def __or__(self, other: Scalars) -> Scalars:
        return Scalars(
            self.null or other.null,
            self.booleans | other.booleans,
            self.numbers if self.numbers == other.numbers else self.numbers | other.numbers,
            self.strings | other.strings,
        )

    def __invert__(self) -> Scalars:
        if self.numbers == numbers.plain():
            inverse = automaton.nothing()
        else:
            inverse = numbers.plain() - self.numbers
        return Scalars(not self.null, _BOTH - self.booleans, inverse, ~self.strings)


_BOTH = frozenset((False, True))
_NEITHER: frozenset[bool] = frozenset()


def _both(a: Dfa, b: Dfa) -> Dfa:
    if a is numbers.plain() or a is b:
        return b
    return a if b is numbers.plain() else a & b


@cache
@uncounted
def everything() -> Scalars:
    """Return the set of all of them."""
    return Scalars(True, _BOTH, numbers.plain(), strings.ALL)


_NOTHING = Scalars(False, _NEITHER, automaton.nothing(), strings.NONE)
_Step = Callable[["ScalarReader", Place, Any, Scalars], Scalars]


class ScalarReader:
    """Works out which null, booleans, numbers and strings satisfy a schema.

    Parameters
    ----------
    places
        The schema.
    policy
        Whether formats count.
    """

    def __init__(self, places: Places, policy: Policy) -> None:
        self._places = places
        self._policy = policy
        self._open: set[Place] = set()
        self.longest_number = 0

    def read(self, place: Place) -> Scalars:
        """Return the values that satisfy the schema at a place.

        Raises
        ------
        SchemaError
            The schema is wrong, refers to itself with nothing in between, or can't be enforced.
        """
        if place.scalars is None:
            if place in self._open:
                raise place.error("refers to itself, with nothing in between; such a schema describes nothing")
            if len(self._open) > _MAX_DEPTH:
                raise place.error(f"more than {_MAX_DEPTH} schemas that apply to one value lie in each other")
            self._open.add(place)
            try:
                place.scalars = self._read(place)
            finally:
                self._open.discard(place)
        found: Scalars = place.scalars
        return found

    def _read(self, place: Place) -> Scalars:
        schema = place.schema
        if isinstance(schema, bool):
            return everything() if schema else _NOTHING
        dialect = place.resource.dialect
        if dialect.ref_stands_alone and "$ref" in schema:
            return self.read(self._places.follow(place, schema["$ref"], "$ref"))
        found = everything()
        if "type" in schema:
            names = type_names(place)
            found = _of_types(names)
            if len(schema) == 1 or not names & _SCALAR_TYPES:
                return found
        for keyword, value in schema.items():
            step = _STEPS.get(keyword)
            if step is not None and keyword in dialect.keywords:
                try:
                    found = step(self, place, value, found)
                except (AutomatonSizeError, NotKnown) as error:
                    raise place.error(str(error), keyword, UnsupportedSchemaError) from error
        return found

    def _sub(self, place: Place, keyword: str) -> Place:
        return self._places.child(place, place.schema[keyword], keyword)  # type: ignore[index]

    # any type

    def _enum(self, place: Place, values: Any, found: Scalars) -> Scalars:
        if not isinstance(values, list):
            raise place.error(f"must be a list, not {values!r:.100}", "enum")
        if not values:
            raise place.error("is empty, so that nothing can satisfy it", "enum")
        return found & self.of_values(place, values, "enum")

    def _const(self, place: Place, value: Any, found: Scalars) -> Scalars:
        return found & self.of_values(place, [value], "const")

    def of_values(self, place: Place, values: Iterable[Any], keyword: str) -> Scalars:
        """Return the set of those of some values that are scalars."""
        null = False
        booleans = set()
        texts = []
        exact = []
        for value in values:
            if value is None:
                null = True
            elif isinstance(value, bool):
                booleans.add(value)
            elif isinstance(value, str):
                texts.append(value)
            elif not isinstance(value, (list, dict)):
                exact.append(self._number(place, value, keyword))
        for text in texts:
            if not is_text(text):
                raise place.error(f"{text!r} has a lone surrogate, which no text can hold", keyword)
        return Scalars(
            null,
            frozenset(booleans),
            _equal_to_one_of(exact) if exact else automaton.nothing(),
            Strings(automaton.choices(texts)) if texts else strings.NONE,
        )

    def _all_of(self, place: Place, value: Any, found: Scalars) -> Scalars:
        for child in schema_list(self._places, place, "allOf"):
            found = found & self.read(child)
        return found

    def _any_of(self, place: Place, value: Any, found: Scalars) -> Scalars:
        union = _NOTHING
        for child in schema_list(self._places, place, "anyOf"):
            union = union | self.read(child)
        return found & union

    def _one_of(self, place: Place, value: Any, found: Scalars) -> Scalars:
        once = more = _NOTHING
        for child in schema_list(self._places, place, "oneOf"):
            one = self.read(child) & found
            more = more | (once & one)
            once = once | one
        return once if more == _NOTHING else once & ~more

    def _not(self, place: Place, value: Any, found: Scalars) -> Scalars:
        return found & ~self.read(self._sub(place, "not"))

    def _if(self, place: Place, value: Any, found: Scalars) -> Scalars:
        schema = place.schema
        assert isinstance(schema, dict)
        if "then" not in schema and "else" not in schema:
            return found
        condition = self.read(self._sub(place, "if"))
        then = found & condition
        otherwise = found & ~condition
        if "then" in schema:
            then = then & self.read(self._sub(place, "then"))
        if "else" in schema:
            otherwise = otherwise & self.read(self._sub(place, "else"))
        return then | otherwise

    def _ref(self, place: Place, value: Any, found: Scalars) -> Scalars:
        return found & self.read(self._places.follow(place, value, "$ref"))

    def _dynamic_ref(self, place: Place, value: Any, found: Scalars) -> Scalars:
        return found & self.read(self._places.follow(place, value, "$dynamicRef"))

    def _recursive_ref(self, place: Place, value: Any, found: Scalars) -> Scalars:
        return found & self.read(self._places.follow(place, value, "$recursiveRef"))

    # numbers

    def _number(self, place: Place, value: Any, keyword: str) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise place.error(f"must be a number, not {value!r:.100}", keyword)
        try:
            exact = numbers.exact(value)
        except ValueError as error:
            raise place.error(f"must be a finite number, not {value!r}", keyword) from error
        _, digits, exponent = exact.as_tuple()
        assert isinstance(exponent, int)
        if abs(exponent) + len(digits) > _MAX_DIGITS:
            raise place.error(
                f"{value!r:.60} takes more than {_MAX_DIGITS} digits to write out", keyword, UnsupportedSchemaError
            )
        self.longest_number = max(self.longest_number, len(digits) + max(exponent, 0), -exponent)
        return exact

    def _bound(self, place: Place, value: Any, found: Scalars, keyword: str, exclusive: bool) -> Scalars:
        if found.numbers.is_empty:
            return found
        side = numbers.at_least if keyword.lower().endswith("minimum") else numbers.at_most
        limit = side(self._number(place, value, keyword), exclusive=exclusive)
        return found._replace(numbers=_both(found.numbers, limit))

    def _minimum(self, place: Place, value: Any, found: Scalars) -> Scalars:
        return self._bound(place, value, found, "minimum", self._draft_4_exclusive(place, "exclusiveMinimum"))

    def _maximum(self, place: Place, value: Any, found: Scalars) -> Scalars:
        return self._bound(place, value, found, "maximum", self._draft_4_exclusive(place, "exclusiveMaximum"))

    def _exclusive_minimum(self, place: Place, value: Any, found: Scalars) -> Scalars:
        if _is_flag(place, value):
            return found
        return self._bound(place, value, found, "exclusiveMinimum", True)

    def _exclusive_maximum(self, place: Place, value: Any, found: Scalars) -> Scalars:
        if _is_flag(place, value):
            return found
        return self._bound(place, value, found, "exclusiveMaximum", True)

    def _draft_4_exclusive(self, place: Place, keyword: str) -> bool:
        schema = place.schema
        assert isinstance(schema, dict)
        return _is_flag(place, schema.get(keyword)) and schema[keyword] is True

    def _multiple_of(self, place: Place, value: Any, found: Scalars) -> Scalars:
        if found.numbers.is_empty:
            return found
        factor = self._number(place, value, "multipleOf")
        if factor <= 0:
            raise place.error(f"must be above 0, not {value}", "multipleOf")
        multiples = numbers.multiple_of(factor)
        if found.numbers is numbers.integers() and factor == factor.to_integral_value():
            return found._replace(numbers=multiples)  # all of which are integers
        return found._replace(numbers=_both(found.numbers, multiples))

    # strings

    def _min_length(self, place: Place, value: Any, found: Scalars) -> Scalars:
        return found._replace(strings=found.strings & _lengths(count(place, "minLength"), None))

    def _max_length(self, place: Place, value: Any, found: Scalars) -> Scalars:
        maximum = count(place, "maxLength")
        schema = place.schema
        assert isinstance(schema, dict)
        if "minLength" in schema and count(place, "minLength") > maximum:
            raise place.error(f"{maximum} is below the minLength {schema['minLength']}", "maxLength")
        return found._replace(strings=found.strings & _lengths(0, maximum))

    def _pattern(self, place: Place, value: Any, found: Scalars) -> Scalars:
        if found.strings is strings.NONE:
            return found
        return found._replace(strings=found.strings & Strings(read_pattern(place, value, "pattern")))

    def _format(self, place: Place, value: Any, found: Scalars) -> Scalars:
        if not isinstance(value, str):
            raise place.error(f"must be a string, not {value!r:.100}", "format")
        if not (self._policy.formats or place.resource.dialect.asserts_formats) or found.strings is strings.NONE:
            return found
        language = format_language(value)
        if language is None:
            return found
        return found._replace(strings=found.strings & Strings(language, narrow=bool(format_limits(value))))


def _lengths(minimum: int, maximum: int | None) -> Strings:
    return Strings(automaton.everything(), minimum, maximum)


def read_pattern(place: Place, pattern: Any, keyword: str) -> Dfa:
    """Return the language of the strings in which a pattern is found.

    Raises
    ------
    SchemaError
        It is no regular expression, or one that no automaton can stand for.
    """
    if not isinstance(pattern, str):
        raise place.error(f"must be a string, not {pattern!r:.100}", keyword)
    try:
        return pattern_language(pattern)
    except RegexUnsupportedError as error:
        raise place.error(f"{pattern!r:.200}: {error}", keyword, UnsupportedSchemaError) from error
    except RegexSyntaxError as error:
        raise place.error(f"{pattern!r:.200}: {error}", keyword) from error
    except AutomatonSizeError as error:
        raise place.error(f"{pattern!r:.200}: {error}", keyword, UnsupportedSchemaError) from error


def _is_flag(place: Place, value: Any) -> bool:
    """Return whether a value is the boolean of draft 4 that makes its neighbour exclusive."""
    return isinstance(value, bool) and place.resource.dialect.name in ("4", "unstated")


def _equal_to_one_of(values: list[Decimal]) -> Dfa:
    whole: list[str] = []
    broken: list[str] = []
    for value in values:
        text = format(value, "f")
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        if text == "-0":
            text = "0"
        (broken if "." in text else whole).append(text)
    zeros = automaton.literal("0").repeat(0, None)
    fraction = automaton.literal(".0").concat(zeros)
    return automaton.choices(whole).concat(fraction.repeat(0, 1)) | automaton.choices(broken).concat(zeros)


@cache
@uncounted
def _of_types(names: frozenset[str]) -> Scalars:
    """Return the scalars of some types."""
    if "number" in names:
        allowed = numbers.plain()
    else:
        allowed = numbers.integers() if "integer" in names else automaton.nothing()
    return Scalars(
        "null" in names,
        _BOTH if "boolean" in names else _NEITHER,
        allowed,
        strings.ALL if "string" in names else strings.NONE,
    )


@cache
@uncounted
def shortest_numbers() -> Dfa:
    """Return the numbers in their shortest spellings."""
    return pattern_language(r"-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", search=False)


@cache
@uncounted
def numbers_of_digits(n: int) -> Dfa:
    """Return the numbers of at most so many digits before and after the point."""
    return pattern_language(rf"-?[0-9]{{1,{n}}}(\.[0-9]{{1,{n}}})?", search=False)


_MAX_DEPTH = 100
_MAX_DIGITS = 400
_SCALAR_TYPES = frozenset(("null", "boolean", "number", "integer", "string"))

_STEPS: dict[str, _Step] = {
    "enum": ScalarReader._enum,
    "const": ScalarReader._const,
    "allOf": ScalarReader._all_of,
    "anyOf": ScalarReader._any_of,
    "oneOf": ScalarReader._one_of,
    "not": ScalarReader._not,
    "if": ScalarReader._if,
    "$ref": ScalarReader._ref,
    "$dynamicRef": ScalarReader._dynamic_ref,
    "$recursiveRef": ScalarReader._recursive_ref,
    "minimum": ScalarReader._minimum,
    "maximum": ScalarReader._maximum,
    "exclusiveMinimum": ScalarReader._exclusive_minimum,
    "exclusiveMaximum": ScalarReader._exclusive_maximum,
    "multipleOf": ScalarReader._multiple_of,
    "minLength": ScalarReader._min_length,
    "maxLength": ScalarReader._max_length,
    "pattern": ScalarReader._pattern,
    "format": ScalarReader._format,
}
