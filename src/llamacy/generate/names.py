"""What is said of a name that there isn't."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., Any])


def raise_unknown(name: str, known: Iterable[str]) -> NoReturn:
    """Say that there is no such option, and which one may have been meant.

    Raises
    ------
    TypeError
        Always.
    """
    from difflib import get_close_matches

    from llamacy._elsewhere import option_hint

    known = sorted(known)
    close = get_close_matches(name, known, n=1)
    nearest = f"; did you mean {close[0]!r}?" if close else f"; options are {', '.join(known)}"
    hint = option_hint(name, known) or nearest
    raise TypeError(f"there is no option {name!r}{hint}")


def hinting(method: _Method) -> _Method:
    """Return a method that says of an option that it has not which one may have been meant."""
    code = cast(Any, method).__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    known = frozenset(names)

    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        if not options.keys() <= known:
            raise_unknown(next(name for name in options if name not in known), names)
        return method(*arguments, **options)

    return cast(_Method, call)
