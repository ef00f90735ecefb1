"""How much work one grammar may take.

Automata, and schemas that can be satisfied in many ways, can take minutes without any of them being large. So whatever
takes long counts its steps, over all that belongs to one grammar. A step takes about a microsecond, but it is steps
that are counted: what is refused on one machine is refused on each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from llamacy.errors import AutomatonSizeError

MAX_STEPS = 450_000

_Made = TypeVar("_Made")
_Arguments = ParamSpec("_Arguments")


class _Account:
    """Steps that are left, what was paid for (things that are kept are, once in a grammar), and steps in vain."""

    __slots__ = ("in_vain", "left", "paid")

    def __init__(self, left: int) -> None:
        self.left = left
        self.paid: frozenset[Hashable] = frozenset()
        self.in_vain = 0


_account: ContextVar[_Account | None] = ContextVar("_account", default=None)


def limited(function: Callable[_Arguments, _Made]) -> Callable[_Arguments, _Made]:
    """Give a function that makes a grammar its number of steps; one that it calls uses up the same ones."""

    @functools.wraps(function)
    def run(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Made:
        if _account.get() is not None:
            return function(*arguments, **options)
        token = _account.set(_Account(MAX_STEPS))
        try:
            return function(*arguments, **options)
        finally:
            _account.reset(token)

    return run


def attempt(function: Callable[[], _Made]) -> _Made:
    """Call a function of which the steps count only if it succeeds, so that something else can be tried then."""
    outer = _account.get()
    if outer is None:
        return function()
    inner = _Account(outer.left)
    inner.paid = outer.paid
    token = _account.set(inner)
    try:
        made = function()
    except BaseException:
        outer.in_vain += outer.left - inner.left
        raise
    finally:
        _account.reset(token)
    outer.left, outer.paid = inner.left, inner.paid
    return made


def may_try_again() -> bool:
    """Return whether failed attempts took few enough steps; one that took all that there are is."""
    account = _account.get()
    return account is None or account.in_vain <= 1.5 * MAX_STEPS


def steps_left() -> int:
    """Return how many steps are left."""
    account = _account.get()
    return MAX_STEPS if account is None else account.left


def spend(n_steps: int) -> None:
    """Count some steps.

    Raises
    ------
    AutomatonSizeError
        They are more than are left.
    """
    account = _account.get()
    if account is not None:
        account.left -= n_steps
        if account.left < 0:
            raise too_much()
    elif n_steps > MAX_STEPS:
        raise too_much()


def too_much() -> AutomatonSizeError:
    """Make the error for a grammar that takes too many steps."""
    return AutomatonSizeError(
        f"the grammar takes more than {MAX_STEPS} steps to work out; use smaller repeat counts, fewer conditions on "
        "one value, or fewer alternatives that overlap"
    )


def uncounted(function: Callable[_Arguments, _Made]) -> Callable[_Arguments, _Made]:
    """Let a function whose results are few, small and kept for good work without being counted."""

    @functools.wraps(function)
    def run(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Made:
        token = _account.set(None)
        try:
            return function(*arguments, **options)
        finally:
            _account.reset(token)

    return run


def kept(maxsize: int) -> Callable[[Callable[_Arguments, _Made]], Callable[_Arguments, _Made]]:
    """Keep what a function made lately, and count its steps in each grammar that uses it, once.

    So whether a grammar is refused doesn't depend on what was made before.
    """

    def decorate(function: Callable[_Arguments, _Made]) -> Callable[_Arguments, _Made]:
        @functools.lru_cache(maxsize)
        def made(*arguments: Any, **options: Any) -> tuple[_Made, int]:
            outer, left = _account.get(), steps_left()
            inner = _Account(left)
            token = _account.set(inner)
            try:
                return function(*arguments, **options), left - inner.left
            except BaseException:
                if outer is not None:
                    outer.left = inner.left
                raise
            finally:
                _account.reset(token)

        @functools.wraps(function)
        def run(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Made:
            found, n_steps = made(*arguments, **options)  # type: ignore[arg-type]  # that they can be hashed
            account = _account.get()
            if account is not None and n_steps:
                key = (function, arguments, *options.items())
                if key not in account.paid:
                    account.paid |= {key}
                    spend(n_steps)
            return found

        return run

    return decorate
