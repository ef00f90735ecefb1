"""The texts of a JSON value: every order of the keys, compact and with blanks, numbers written plainly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice, permutations, product
from typing import Any

_MOST_REORDERED = 6


def spellings(value: Any, most: int = 2000, whole: bool = True) -> Iterator[str]:
    """Yield texts of a value, that in its own order first.

    Parameters
    ----------
    value
        As `json.loads` returns it; numbers may be `Decimal`, which keeps their digits.
    most
        How many texts at most.
    whole
        Also with 2.0 written as 2.
    """
    styles = [
        (separators, as_whole) for as_whole in (False, True)[: 1 + whole] for separators in ((",", ":"), (", ", ": "))
    ]
    seen: set[str] = set()
    # all orders in the first style before the second one; a budget of its own for each keeps all styles in
    for separators, as_whole in styles:
        for text in islice(_texts(value, separators, as_whole), most // len(styles)):
            if text not in seen:
                seen.add(text)
                yield text


def _texts(value: Any, separators: tuple[str, str], whole: bool) -> Iterator[str]:
    comma, colon = separators
    if isinstance(value, dict):
        orders = permutations(value) if len(value) <= _MOST_REORDERED else iter([tuple(value)])
        for order in orders:
            for members in product(*[list(_texts(value[key], separators, whole)) for key in order]):
                pairs = [f"{_string(key)}{colon}{text}" for key, text in zip(order, members, strict=True)]
                yield "{" + comma.join(pairs) + "}"
    elif isinstance(value, list):
        for items in product(*[list(_texts(item, separators, whole)) for item in value]):
            yield "[" + comma.join(items) + "]"
    elif isinstance(value, str):
        yield _string(value)
    elif isinstance(value, (float, Decimal)):
        yield plain(Decimal(repr(value)) if isinstance(value, float) else value, whole)
    else:
        yield json.dumps(value)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def plain(number: Decimal, whole: bool) -> str:
    """Return a number without an exponent and without the sign of a zero; with `whole`, 2.0 as 2."""
    if number == 0:
        number = abs(number)
    if whole and number == number.to_integral_value():
        return str(int(number))
    return format(number, "f")
