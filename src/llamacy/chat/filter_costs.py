"""What filters make at most, worked out from their arguments before they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llamacy.chat.budget import current
from llamacy.chat.text_functions import check_printf, check_width, replaced_size
from llamacy.errors import ChatTemplateLimitError

#: Digits that `round` takes.
MAX_DIGITS = 300
#: Digits of a number that is read out of a text.
MAX_NUMBER = 1200

Given = Sequence[Any]
Named = Mapping[str, Any]


def charge_filter(name: str, given: Given, named: Named) -> None:
    """Take from the budget what a filter makes beyond its input, or raise where that is too much.

    Parameters
    ----------
    name
        The filter.
    given, named
        Its arguments; the first is what is filtered.
    """
    for index, argument in _WIDTHS.get(name, ()):
        check_width(_argument(given, named, index, argument, None), f"a number in {name}:")
    charge = _CHARGES.get(name)
    if charge is not None:
        charge(given, named)


def is_charged(name: str) -> bool:
    """Return whether a filter can make more than it is given, or takes longer."""
    return name in _WIDTHS or name in _CHARGES


def _argument(given: Given, named: Named, index: int, name: str, default: Any) -> Any:
    return given[index] if index < len(given) else named.get(name, default)


def _join(given: Given, named: Named) -> None:
    budget = current()
    n = len(given[0]) if hasattr(given[0], "__len__") else 0
    # markup may become up to six times as long
    budget.allocate(2 * budget.weigh(given[0]) + n * budget.weigh(_argument(given, named, 1, "d", "")))


def _replace(given: Given, named: Named) -> None:
    text = str(given[0])
    old, new = str(_argument(given, named, 1, "old", "")), str(_argument(given, named, 2, "new", ""))
    count = _argument(given, named, 3, "count", None)
    current().search(len(text), len(old))
    current().allocate(replaced_size(text, old, new, -1 if count is None else count))


def _format(given: Given, named: Named) -> None:
    check_printf(str(given[0]), named or tuple(given[1:]))


def _indent(given: Given, named: Named) -> None:
    width = _argument(given, named, 1, "width", 4)
    size = width if isinstance(width, int) else len(str(width))
    current().allocate((str(given[0]).count("\n") + 1) * max(0, size))


def _round(given: Given, named: Named) -> None:
    digits = _argument(given, named, 1, "precision", 0)
    if isinstance(digits, int) and abs(digits) > MAX_DIGITS:
        raise ChatTemplateLimitError(f"the chat template rounds to {digits} digits; at most {MAX_DIGITS} are allowed")


def _number(given: Given, named: Named) -> None:  # noqa: ARG001
    if isinstance(given[0], str) and len(given[0]) > MAX_NUMBER:
        raise ChatTemplateLimitError(f"the chat template reads a number of more than {MAX_NUMBER} digits")


def _batch(given: Given, named: Named) -> None:
    n = _argument(given, named, 1, "linecount", 1)
    current().allocate(8 * n if isinstance(n, int) and n > 0 else 0)


def _wordwrap(given: Given, named: Named) -> None:
    end = current().weigh(_argument(given, named, 3, "wrapstring", None))
    current().allocate((len(str(given[0])) + 1) * end)
    _square(given, named)


def _truncate(given: Given, named: Named) -> None:
    current().allocate(current().weigh(_argument(given, named, 3, "end", "...")))


def _sum(given: Given, named: Named) -> None:
    # lists are copied again and again
    if not isinstance(_argument(given, named, 2, "start", 0), (int, float)):
        _square(given, named)


def _square(given: Given, named: Named) -> None:  # noqa: ARG001
    # the work grows with the square of the text, or can
    weight = current().weigh(given[0])
    current().touch(weight * weight // 32)


def _sorted(given: Given, named: Named) -> None:  # noqa: ARG001
    # about the logarithm of 100,000 comparisons for each item
    current().touch(16 * current().weigh(given[0]))


def _unique(given: Given, named: Named) -> None:  # noqa: ARG001
    current().hash_keys(given[0] if hasattr(given[0], "__len__") else ())


def _trim(given: Given, named: Named) -> None:
    characters = _argument(given, named, 1, "chars", None)
    if isinstance(characters, str):
        current().touch(len(str(given[0])) * len(characters))


def _urlencode(given: Given, named: Named) -> None:  # noqa: ARG001
    # character by character, in Python
    current().touch(32 * current().weigh(given[0]))


_WIDTHS = {
    "batch": [(1, "linecount")],
    "center": [(1, "width")],
    "indent": [(1, "width")],
    "slice": [(1, "slices")],
    "urlize": [(1, "trim_url_limit")],
    "wordwrap": [(1, "width")],
}
_CHARGES: dict[str, Callable[[Given, Named], None]] = {
    "batch": _batch,
    "dictsort": _sorted,
    "filesizeformat": _number,
    "float": _number,
    "format": _format,
    "groupby": _sorted,
    "indent": _indent,
    "int": _number,
    "join": _join,
    "pprint": _square,
    "replace": _replace,
    "round": _round,
    "sort": _sorted,
    "striptags": _square,
    "sum": _sum,
    "trim": _trim,
    "truncate": _truncate,
    "unique": _unique,
    "urlencode": _urlencode,
    "urlize": _square,
    "wordwrap": _wordwrap,
    "xmlattr": _square,
}
