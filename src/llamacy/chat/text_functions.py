"""Methods of plain values that a template may call, and how much text they may make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter
from markupsafe import EscapeFormatter, Markup

from llamacy.chat.budget import MAX_INT_BITS, MAX_WIDTH, current
from llamacy.errors import ChatTemplateLimitError

_LINEAR = (
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower "
    "isnumeric isprintable isspace istitle isupper lower lstrip partition removeprefix removesuffix rfind rindex "
    "rpartition rsplit rstrip split splitlines startswith strip swapcase title upper"
)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        [*_LINEAR.split(), "center", "encode", "expandtabs", "join", "ljust", "replace", "rjust", "zfill"],
    ),
    # the lists are copies, so templates may change them; some that ship with llama.cpp do
    list: frozenset(["append", "copy", "count", "index", "pop"]),
    # the last two are of what `groupby` makes
    tuple: frozenset(["count", "index", "grouper", "list"]),
    dict: frozenset(["copy", "get", "items", "keys", "values"]),
    range: frozenset(["count", "index"]),
    int: frozenset(["bit_length", "conjugate", "is_integer"]),
    bool: frozenset(["bit_length", "conjugate", "is_integer"]),
    float: frozenset(["conjugate", "is_integer"]),
    bytes: frozenset(["decode", "hex"]),
}
# what is constant work, whatever the object holds; a key is looked at all the same
_CONSTANT = frozenset(["get", "items", "keys", "values"])
_ENCODINGS = frozenset(["utf-8", "utf8", "ascii", "latin-1"])
_DIGITS = re.compile(r"\d+")
_SEARCHES = frozenset(
    ["count", "find", "index", "partition", "replace", "rfind", "rindex", "rpartition", "rsplit", "split"]
)
_WIDER = frozenset(["center", "ljust", "rjust", "zfill"])


def check_width(value: Any, what: str) -> None:
    """Raise when a number asks for more text than is sensible."""
    if isinstance(value, (int, float)) and abs(value) > MAX_WIDTH:
        raise ChatTemplateLimitError(f"the chat template asks for {what} {value:.0f}; at most {MAX_WIDTH} is allowed")


def check_int(value: Any) -> None:
    """Raise when an integer is too long to compute with."""
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise ChatTemplateLimitError(f"the chat template makes an integer of more than {MAX_INT_BITS} bits")


def replaced_size(text: str, old: Any, new: Any, count: Any = -1) -> int:
    """Return about how many bytes a replacement makes at most."""
    if not isinstance(old, str) or not isinstance(new, str):
        return 0
    n = text.count(old)
    if isinstance(count, int) and count >= 0:
        n = min(n, count)
    return text.__sizeof__() + n * max(0, new.__sizeof__() - old.__sizeof__() + 1)


def check_printf(text: str, args: Any) -> None:
    """Raise when `text % args` asks for more text than allowed; all numbers in the text may be widths."""
    if "%" not in text:
        return
    budget = current()
    n = sum(int(digits) if len(digits) < 12 else MAX_WIDTH**3 for digits in _DIGITS.findall(text))
    if "*" in text:
        values = args if isinstance(args, tuple) else (args,)
        n += text.count("*") * max([abs(value) for value in values if isinstance(value, int)], default=0)
    # one value may be printed once for each conversion when it is found by its name
    times = text.count("%") if isinstance(args, Mapping) else 1
    budget.allocate(text.__sizeof__() + n + times * budget.weigh(args))


class Formatter(SandboxedFormatter):
    """`str.format` as the sandbox of jinja2 allows it, with bounded widths."""

    def vformat(self, format_string: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Format, and take what the result costs."""
        current().read(format_string)
        return super().vformat(format_string, args, kwargs)

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Format one value."""
        widths = [int(digits[:12]) for digits in _DIGITS.findall(format_spec)]
        for width in widths:
            check_width(width, "a width of")
        budget = current()
        budget.allocate(budget.weigh(value) + sum(widths))
        return super().format_field(value, format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Convert one value to text."""
        current().read(value)
        return super().convert_field(value, conversion)


class EscapingFormatter(Formatter, EscapeFormatter):
    """The same for `Markup`, which escapes what it takes in."""


def format_function(environment: SandboxedEnvironment, method: Callable[..., str]) -> Callable[..., str]:
    """Return what a template gets for `text.format` or `text.format_map`."""
    text: str = method.__self__  # type: ignore[attr-defined]
    by_map = method.__name__ == "format_map"
    if isinstance(text, Markup):
        vformat = EscapingFormatter(environment, escape=text.escape).vformat
    else:
        vformat = Formatter(environment).vformat

    def formatted(*args: Any, **kwargs: Any) -> str:
        if by_map:
            if kwargs or len(args) != 1:
                raise TypeError("format_map() takes exactly one argument and no keyword arguments")
            return type(text)(vformat(text, (), args[0]))
        return type(text)(vformat(text, args, kwargs))

    formatted.__name__ = method.__name__
    return formatted


def is_allowed(owner: Any, name: str) -> bool:
    """Return whether a template may read the attribute `name` of a plain value."""
    for kind in type(owner).__mro__:
        if kind in _METHODS:
            return name in _METHODS[kind]
    return True


def call_method(owner: Any, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a plain value, and take from the budget what it costs."""
    name = method.__name__
    if not is_allowed(owner, name):
        raise SecurityError(f"the method {name!r} of a {type(owner).__name__!r} object is not for templates")
    budget = current()
    if name in _CONSTANT:
        budget.step(2)
        for value in args:
            if type(value) is not str:
                budget.read(value)
        return method(*args, **kwargs)
    if name in ("append", "pop"):
        budget.changed(owner)
        return method(*args, **kwargs)
    args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
    for value in (owner, *args, *kwargs.values()):
        budget.read(value)
    if isinstance(owner, str):
        _check_text_method(owner, name, args, kwargs)
    result = method(*args, **kwargs)
    budget.allocate(budget.weigh(result))
    return result


def _check_text_method(owner: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise when a method of a text would make too much, before it does."""
    budget = current()
    if name in _WIDER:
        for value in args:
            check_width(value, "a width of")
    elif name == "expandtabs":
        tab = (*args, *kwargs.values(), 8)[0]
        check_width(tab, "a tab of")
        budget.allocate(owner.count("\t") * (tab if isinstance(tab, int) else 8))
    elif name in _SEARCHES and args and isinstance(args[0], str):
        budget.search(len(owner), len(args[0]))
    elif name in ("strip", "lstrip", "rstrip") and args and isinstance(args[0], str):
        # each character at an end is looked for among all those of the argument
        budget.touch(len(owner) * len(args[0]))
    if name == "replace":
        budget.allocate(replaced_size(owner, *args[:2], *args[2:3], *kwargs.values()) if len(args) > 1 else 0)
    elif name == "join" and args:
        n = len(args[0]) if hasattr(args[0], "__len__") else 0
        budget.allocate(owner.__sizeof__() * n + budget.weigh(args[0]))
    elif name == "encode" and str((*args, *kwargs.values(), "utf-8")[0]).lower() not in _ENCODINGS:
        raise SecurityError("templates encode as utf-8, ascii or latin-1 only")
