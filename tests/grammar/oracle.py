"""What jsonschema says of a text, with exact numbers and with patterns as ECMA-262 means them."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from typing import Any

from jsonschema import Draft7Validator, Draft202012Validator, TypeChecker, validators
from jsonschema.protocols import Validator

_KINDS = {"2020-12": Draft202012Validator, "7": Draft7Validator}


def _is_integer(_: TypeChecker, value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, Decimal) and value == value.to_integral_value())


def is_valid(schema: Any, dialect: str, value: Any) -> bool:
    """Return whether a value satisfies a schema.

    Parameters
    ----------
    schema
        The schema. `pattern` and `patternProperties` may only hold what Python's `re` understands alike, but for ``$``.
    dialect
        ``"2020-12"`` or ``"7"``.
    value
        The value; its numbers are ints and `Decimal`.

    Raises
    ------
    RecursionError
        A reference leads back to itself without going down in the value.
    """
    kind = _KINDS[dialect]
    checker = kind.TYPE_CHECKER.redefine("integer", _is_integer)
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    validator: Validator = validators.extend(kind, type_checker=checker)(_with_python_patterns(exact))
    with localcontext() as context:
        context.prec = 1000  # what `%` of large numbers needs
        return validator.is_valid(value)


def value_of(text: str) -> Any:
    """Return what a JSON text says, its numbers exact; of a key that stands twice the last one.

    Raises
    ------
    ValueError
        It isn't JSON.
    """
    return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _with_python_patterns(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_python_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {}
    for keyword, value in schema.items():
        if keyword == "pattern" and isinstance(value, str):
            changed[keyword] = _python(value)
        elif keyword == "patternProperties":
            changed[keyword] = {_python(name): _with_python_patterns(child) for name, child in value.items()}
        elif keyword in ("enum", "const"):
            changed[keyword] = value
        else:
            changed[keyword] = _with_python_patterns(value)
    return changed


def _python(pattern: str) -> str:
    # Python's $ also matches before a line break at the end, and its . all line breaks but one
    return pattern.replace("$", r"\Z").replace(".", r"[^\n\r\u2028\u2029]")
