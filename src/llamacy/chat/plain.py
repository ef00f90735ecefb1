"""Plain data out of what users give: the only values that a template sees."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from llamacy.chat.budget import MAX_NESTING

#: Values that a request may hold; lists that hold the same list again and again have no other end.
MAX_ITEMS = 1_000_000

_EXACT = (str, int, float, bool, type(None))


class Plain:
    """Copies of values, made of dicts, lists, tuples, texts, numbers, booleans and None only.

    A template can call methods of what it is given, so it gets no object that has other methods. What isn't data (an
    image, an array) becomes a text that names its type, since templates look only whether it is there.

    Attributes
    ----------
    n_items, n_bytes
        How much was copied.
    """

    __slots__ = ("n_bytes", "n_items")

    def __init__(self) -> None:
        self.n_items = 0
        self.n_bytes = 0

    def copy(self, value: Any, where: str, level: int = 0) -> Any:
        """Return a plain copy.

        Parameters
        ----------
        value
            What to copy.
        where
            What to call it in an error.

        Raises
        ------
        ValueError
            It holds itself, or nests too deep.
        """
        self.n_items += 1
        if self.n_items > MAX_ITEMS:
            raise ValueError(f"{where} holds more than {MAX_ITEMS} values")
        kind = type(value)
        if kind is str:
            self.n_bytes += len(value)
            return value
        if kind in _EXACT:
            return value
        if level > MAX_NESTING:
            raise ValueError(f"{where} nests more than {MAX_NESTING} levels deep, or holds itself")
        level += 1
        if isinstance(value, Mapping):
            return {
                self.copy(key, where, level): self.copy(item, where, level)
                for key, item in (value.items() if kind is dict else _items(value, where))
            }
        if isinstance(value, list):
            return [self.copy(item, where, level) for item in value]
        if isinstance(value, tuple):
            return tuple([self.copy(item, where, level) for item in value])
        if isinstance(value, str):
            return self.copy(str.__str__(value), where, level)
        if isinstance(value, int):
            return int.__index__(value)
        if isinstance(value, float):
            return float.__float__(value)
        fields = object_fields(value)
        if fields is not None:
            return self.copy(fields, where, level)
        item = getattr(value, "item", None)
        if kind.__module__ == "numpy" and callable(item) and getattr(value, "ndim", 1) == 0:
            return self.copy(item(), where, level)
        return f"<{kind.__name__}>"


def _items(value: Mapping[Any, Any], where: str) -> list[tuple[Any, Any]]:
    try:
        return list(value.items())
    except Exception as error:
        raise ValueError(f"{where} can't be read: {error}") from error


def object_fields(value: Any) -> dict[str, Any] | None:
    """Return what an object (pydantic model, dataclass) holds, or None for one that doesn't tell.

    Raises
    ------
    ValueError
        Its `model_dump` fails or returns no dict.
    """
    dump: Callable[[], Any] | None = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            fields = dump()
        except Exception as error:
            raise ValueError(f"model_dump of a {type(value).__name__} failed: {error}") from error
        if not isinstance(fields, dict):
            raise ValueError(f"model_dump of a {type(value).__name__} returned no dict")
        return fields
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


_short = reprlib.Repr()
_short.maxlevel = 2
_short.maxstring = _short.maxother = 120


def short(value: Any) -> str:
    """Return a value as text for an error, cut where it is long or nests."""
    return _short.repr(value)
