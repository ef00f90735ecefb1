"""The filters and tests of a template: those of jinja2, with what they cost counted, and Hugging Face's `tojson`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from jinja2.filters import FILTERS
from jinja2.runtime import LoopContext, Undefined
from jinja2.tests import TESTS

from llamacy.chat import guards
from llamacy.chat.budget import counted, current
from llamacy.chat.text_functions import check_printf, check_width, replaced_size
from llamacy.errors import ChatTemplateLimitError

# work grows with the square of the text, or can
_QUADRATIC = frozenset(["pprint", "striptags", "urlize", "wordwrap", "xmlattr"])
# numbers that say how long or how many
_WIDTHS = {
    "batch": (1,),
    "center": (1,),
    "indent": (1,),
    "round": (1,),
    "slice": (1,),
    "urlize": (1,),
    "wordwrap": (1,),
}
# these look at nothing but the type, or hand on what they were given
_CHEAP = frozenset(["count", "d", "default", "first", "items", "last", "length", "random", "safe", "attr"])
_CHEAP_TESTS = frozenset(
    "boolean callable defined escaped false filter float integer iterable mapping none number sameas sequence string "
    "test true undefined".split()
)
_MAX_DIGITS = 300
_MAX_INDENT = 16


def _pass_arg_count(function: Callable[..., Any]) -> int:
    return 1 if hasattr(function, "jinja_pass_arg") else 0


def _listed(value: Any) -> Any:
    """Return a list for an iterator, so that its items can be weighed."""
    return list(value) if isinstance(value, Iterator) and not isinstance(value, LoopContext) else value


def _counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that takes from the budget what it costs."""
    first = _pass_arg_count(function)
    widths = _WIDTHS.get(name, ())
    check = _CHECKS.get(name)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        budget = current()
        given = args[first:]
        if name in _CHEAP:
            budget.step(2)
            for value in given[1:]:
                budget.read(value)
            return function(*args, **kwargs)
        given = tuple(map(_listed, given))
        weight = 0
        for value in (*given, *kwargs.values()):
            weight += budget.weigh(value)
        budget.touch(weight)
        if name in _QUADRATIC:
            budget.touch(weight * weight // 32)
        for index in widths:
            check_width(given[index] if index < len(given) else None, f"a number in {name}:")
        for value in kwargs.values() if widths else ():
            check_width(value, f"a number in {name}:")
        if check is not None:
            check(*given, **kwargs)
        result = function(*args[:first], *given, **kwargs)
        if isinstance(result, Iterator):
            return counted(result)
        budget.made(result)
        return result

    return wrapped


def _check_join(value: Any, d: Any = "", attribute: Any = None) -> None:
    n = len(value) if hasattr(value, "__len__") else 0
    # markup may become up to six times as long
    current().allocate(2 * current().weigh(value) + n * current().weigh(d))


def _check_replace(s: Any, old: Any = "", new: Any = "", count: Any = None) -> None:
    current().allocate(replaced_size(str(s), str(old), str(new), -1 if count is None else count))


def _check_format(value: Any, *args: Any, **kwargs: Any) -> None:
    check_printf(str(value), kwargs or args)


def _check_indent(s: Any, width: Any = 4, first: Any = False, blank: Any = False) -> None:
    size = width if isinstance(width, int) else len(str(width))
    current().allocate((str(s).count("\n") + 1) * max(0, size))


def _check_round(value: Any, precision: Any = 0, method: Any = "common") -> None:
    if isinstance(precision, int) and abs(precision) > _MAX_DIGITS:
        raise ChatTemplateLimitError(f"the chat template rounds to {precision} digits; at most {_MAX_DIGITS} is allowed")


def _check_number(value: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(value, str) and len(value) > 4 * _MAX_DIGITS:
        raise ChatTemplateLimitError("the chat template reads a number of more than 1200 digits")


def _check_batch(value: Any, linecount: Any = 1, fill_with: Any = None) -> None:
    current().allocate(8 * linecount if isinstance(linecount, int) and linecount > 0 else 0)


def _check_wordwrap(
    s: Any, width: Any = 79, break_long_words: Any = True, wrapstring: Any = None, break_on_hyphens: Any = True
) -> None:
    current().allocate((len(str(s)) + 1) * max(1, current().weigh(wrapstring)))


def _check_truncate(s: Any, length: Any = 255, killwords: Any = False, end: Any = "...", leeway: Any = None) -> None:
    current().allocate(current().weigh(end))


def _check_sum(iterable: Any, attribute: Any = None, start: Any = 0) -> None:
    if not isinstance(start, (int, float)):
        # lists are copied again and again
        weight = current().weigh(iterable)
        current().touch(weight * weight // 32)


_CHECKS: dict[str, Callable[..., None]] = {
    "join": _check_join,
    "replace": _check_replace,
    "format": _check_format,
    "indent": _check_indent,
    "round": _check_round,
    "int": _check_number,
    "float": _check_number,
    "filesizeformat": _check_number,
    "batch": _check_batch,
    "wordwrap": _check_wordwrap,
    "truncate": _check_truncate,
    "sum": _check_sum,
}


def _tojson(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return a value as JSON, without the escapes for HTML that jinja2's own filter makes."""
    for text in (indent, *(separators if isinstance(separators, (list, tuple)) else ())):
        if (len(text) if isinstance(text, str) else text if isinstance(text, int) else 0) > _MAX_INDENT:
            raise ChatTemplateLimitError(f"tojson takes indents and separators of at most {_MAX_INDENT} characters")
    budget = current()
    # brackets, quotes, and at the worst six characters for one
    budget.allocate(2 * budget.weigh(x))
    options: Any = {"ensure_ascii": ensure_ascii, "separators": separators, "sort_keys": sort_keys}
    if indent is None:
        return json.dumps(x, **options)
    chunks = []
    for chunk in json.JSONEncoder(indent=indent, **options).iterencode(x):
        budget.allocate(len(chunk))
        chunks.append(chunk)
    return "".join(chunks)


def _from_json(text: str) -> Any:
    """Return what a JSON text says; templates that ship with llama.cpp use it for the arguments of calls."""
    # small values take several times the memory of their text
    current().allocate(32 * len(text))
    return json.loads(text)


def _counting_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_listed, args))
        for value in args:
            current().read(value)
        return function(*args, **kwargs)

    return wrapped


def _arithmetic_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapped(value: Any, *args: Any) -> Any:
        # a text would be a format here, with any width
        if isinstance(value, str):
            raise TypeError(f"a number is needed to test whether it can be divided, not {type(value).__name__!r}")
        return function(value, *args)

    return wrapped


def _step(n: int) -> None:
    current().step(n)


def _test(value: Any) -> Any:
    current().step(4)
    return value


def _concat(items: list[Any]) -> str:
    budget = current()
    texts = []
    for item in items:
        if type(item) is not str:
            budget.read(item)
            item = str(item)
        texts.append(item)
    budget.allocate(sum(map(len, texts)))
    return "".join(texts)


def _deep(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, Undefined)):
        return value
    value = _listed(value)
    current().read(value)
    return value


def _haystack(value: Any) -> Any:
    return value if isinstance(value, dict) else _deep(value)


def _sliced(value: Any) -> Any:
    if hasattr(value, "__len__"):
        current().allocate(8 * len(value))
    return value


def filters() -> dict[str, Callable[..., Any]]:
    """Return all filters by name."""
    made = {name: _counting(name, function) for name, function in FILTERS.items()}
    made["tojson"] = _counting("tojson", _tojson)
    made["from_json"] = _counting("from_json", _from_json)
    made |= {
        guards.STEP: _step,
        guards.TEST: _test,
        guards.CONCAT: _concat,
        guards.DEEP: _deep,
        guards.IN: _haystack,
        guards.SLICE: _sliced,
    }
    return made


def tests() -> dict[str, Callable[..., Any]]:
    """Return all tests by name."""
    arithmetic = ("odd", "even", "divisibleby")
    return {
        name: function
        if name in _CHEAP_TESTS
        else _arithmetic_test(function)
        if name in arithmetic
        else _counting_test(function)
        for name, function in TESTS.items()
    }
