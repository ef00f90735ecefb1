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
from llamacy.chat.filter_costs import charge_filter, is_charged
from llamacy.errors import ChatTemplateLimitError

_EAGER = frozenset([str, int, float, bool, type(None), list, dict, tuple, range])
_FILTER_STEPS = 8
# these look at nothing but the type, or hand on what they were given
_CHEAP = frozenset(["count", "d", "default", "first", "items", "last", "length", "random", "safe", "attr"])
_CHEAP_TESTS = frozenset(
    [
        *("boolean", "callable", "defined", "escaped", "false", "filter", "float", "integer", "iterable", "mapping"),
        *("none", "number", "sameas", "sequence", "string", "test", "true", "undefined"),
    ]
)
_ARITHMETIC_TESTS = frozenset(["divisibleby", "even", "odd"])
_MAX_INDENT = 16


def _is_lazy(value: Any) -> bool:
    """Return whether a value makes its items one by one."""
    # asking for the type of most values is faster than asking an abstract class
    return type(value) not in _EAGER and isinstance(value, Iterator) and not isinstance(value, LoopContext)


def _listed(value: Any) -> Any:
    """Return a list for an iterator, so that its items can be weighed."""
    return list(value) if _is_lazy(value) else value


def _counting(name: str, function: Any) -> Callable[..., Any]:
    """Return a filter that takes from the budget what it costs."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0
    charged = is_charged(name)
    # with nothing but a text they make about as much as they are given
    is_simple = not first and (not charged or name == "trim")

    @wraps(function)
    def cheap(*args: Any, **kwargs: Any) -> Any:
        budget = current()
        budget.step(2)
        for value in args[first + 1 :]:
            budget.read(value)
        return function(*args, **kwargs)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        budget = current()
        if is_simple and len(args) == 1 and not kwargs and type(args[0]) is str:
            result = function(args[0])
            budget.allocate(result.__sizeof__() if type(result) is str else args[0].__sizeof__())
            return result
        given = tuple(map(_listed, args[first:]))
        weight = 0
        for value in (*given, *kwargs.values()):
            weight += budget.weigh(value)
        budget.step(_FILTER_STEPS)
        budget.touch(weight)
        if charged:
            charge_filter(name, given, kwargs)
        result = function(*args[:first], *given, **kwargs)
        if _is_lazy(result):
            return counted(result)
        budget.made(result)
        return result

    return cheap if name in _CHEAP else wrapped


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


def _counting_test(function: Any) -> Callable[..., Any]:
    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_listed, args))
        for value in args:
            current().read(value)
        return function(*args, **kwargs)

    return wrapped


def _arithmetic_test(function: Any) -> Callable[..., Any]:
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


def _contains(needle: Any, haystack: Any) -> bool:
    haystack = _listed(haystack)
    budget = current()
    if isinstance(haystack, str) and isinstance(needle, str):
        budget.search(len(haystack), len(needle))
    else:
        budget.read(needle)
        if not isinstance(haystack, dict):
            budget.read(haystack)
    return needle in haystack


def _haystack(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        current().search(len(value), len(value))
    return _deep(value)


def _sliced(value: Any) -> Any:
    if isinstance(value, str):
        current().made(value)
    elif hasattr(value, "__len__"):
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
        guards.CONTAINS: _contains,
        guards.IN: _haystack,
        guards.SLICE: _sliced,
    }
    return made


def tests() -> dict[str, Callable[..., Any]]:
    """Return all tests by name."""
    made: dict[str, Callable[..., Any]] = {}
    function: Any
    for name, function in TESTS.items():
        if name in _ARITHMETIC_TESTS:
            made[name] = _arithmetic_test(function)
        else:
            made[name] = function if name in _CHEAP_TESTS else _counting_test(function)
    made["in"] = _contains
    return made
