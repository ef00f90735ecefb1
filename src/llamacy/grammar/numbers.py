"""Languages of JSON numbers: all those within bounds, all multiples of a step, all that equal a value.

A number is written plainly: `-?(0|[1-9][0-9]*)(\\.[0-9]+)?`, without exponent and without a negative zero. Of every
value in it a language holds all plain spellings (7, 7.0, 7.00), so that intersections and complements within `plain()`
speak about values. Bounds are read digit by digit and never rounded, whether they have two digits or forty.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from math import gcd
from typing import Protocol, TypeVar

from llamacy.errors import AutomatonSizeError
from llamacy.grammar.automaton import Dfa, from_edges
from llamacy.grammar.charset import CharSet
from llamacy.grammar.machine import tabulate
from llamacy.grammar.table import MAX_STATES
from llamacy.grammar.work import kept, uncounted

_LOWER, _EQUAL, _HIGHER = -1, 0, 1
# Digits of a step, those of 1000 with its zeros: telling remainders apart costs time that grows faster than they do.
_STEP_DIGITS = 64


def exact(value: int | float | Decimal) -> Decimal:
    """Give the decimal that a number's shortest spelling names.

    Parameters
    ----------
    value
        A finite number. A float counts as what `repr` writes for it, so 0.1 is a tenth.

    Raises
    ------
    TypeError
        The value is no number; a bool is none.
    ValueError
        The value is infinite or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError(f"a number is wanted, not {value!r}; pass an int, a float or a Decimal")
    number = Decimal(float.__repr__(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{value!r} has no decimal digits; pass a finite number")
    return number


@lru_cache(maxsize=1)
@uncounted
def plain() -> Dfa:
    """Give all numbers in plain spelling."""
    return _spelled(_Comparison(Decimal(0), frozenset((_LOWER, _EQUAL, _HIGHER))))


@lru_cache(maxsize=1)
@uncounted
def integers() -> Dfa:
    """Give all numbers of integral value: 7, 7.0 and 7.00, not 7.5."""
    return multiple_of(1)


@lru_cache(maxsize=1)
@uncounted
def unfractioned() -> Dfa:
    """Give all numbers that are written without a point."""
    zero, leading, digit, minus = CharSet.of("0"), CharSet.of(("1", "9")), CharSet.of(("0", "9")), CharSet.of("-")
    return from_edges([[(minus, 1), (zero, 2), (leading, 3)], [(leading, 3)], [], [(digit, 3)]], [2, 3])


@kept(512)
def at_least(value: Decimal | int, *, exclusive: bool = False) -> Dfa:
    """Give all numbers from a lower bound on.

    Parameters
    ----------
    value
        The bound.
    exclusive
        Leave the bound itself out.
    """
    return _compared(value, (_HIGHER,) if exclusive else (_EQUAL, _HIGHER))


@kept(512)
def at_most(value: Decimal | int, *, exclusive: bool = False) -> Dfa:
    """Give all numbers up to an upper bound.

    Parameters
    ----------
    value
        The bound.
    exclusive
        Leave the bound itself out.
    """
    return _compared(value, (_LOWER,) if exclusive else (_LOWER, _EQUAL))


@kept(512)
def equal_to(value: Decimal | int) -> Dfa:
    """Give the plain spellings of one number: 0.5, 0.50 and so on."""
    return _compared(value, (_EQUAL,))


@kept(128)
def multiple_of(value: Decimal | int) -> Dfa:
    """Give all integral multiples of a step.

    Parameters
    ----------
    value
        The step, more than zero. A step p/10^k in lowest terms needs about p states, fewer where p has factors 2 and 5.

    Raises
    ------
    ValueError
        The step is zero or negative.
    AutomatonSizeError
        The step has more than 64 digits, or its remainders are too many to be tabulated.
    """
    step = exact(value)
    if step <= 0:
        raise ValueError(f"a multiple needs a step above zero, not {step!s:.80}")
    return _spelled(_Division(step))


@lru_cache(maxsize=1024)
def _digits(*digits: int) -> CharSet:
    return CharSet.of("".join(map(str, digits)))


def _compared(value: Decimal | int, wanted: tuple[int, ...]) -> Dfa:
    return _spelled(_Comparison(exact(value), frozenset(wanted)))


def _parts(value: Decimal) -> tuple[str, str]:
    """Split a decimal's magnitude into the digits before and after the point, without idle zeros."""
    if value.is_zero():
        return "0", ""
    # Written out, the digits become states: what can't be tabulated needn't be written out.
    if max(value.adjusted() + 1, 1) + max(-int(value.as_tuple().exponent), 0) > MAX_STATES:
        raise AutomatonSizeError(f"{value:.6e} written out has more than {MAX_STATES} digits; use a nearer number")
    whole, _, part = format(value.copy_abs(), "f").partition(".")
    return whole.lstrip("0") or "0", part.rstrip("0")


Reading = TypeVar("Reading", bound=tuple[int, ...])


class _Machine(Protocol[Reading]):
    """What is made of a number's digits, one by one; None where no further text can be right."""

    def begin(self, minus: bool, /) -> Reading: ...
    def whole(self, reading: Reading, digit: int) -> Reading | None: ...
    def point(self, reading: Reading) -> Reading | None: ...
    def part(self, reading: Reading, digit: int) -> Reading | None: ...
    def accepts(self, reading: Reading) -> bool: ...


_START, _MINUS, _ZERO, _WHOLE, _POINT, _PART = range(6)


def _spelled(machine: _Machine[Reading]) -> Dfa:
    """Give the plain numbers that a machine accepts.

    A state is the place in the spelling, whether a minus still owes a digit above zero, and the machine's reading.
    """
    point, minus = CharSet.of("."), CharSet.of("-")

    def step(spot: tuple[int, bool, Reading]) -> Iterator[tuple[CharSet, tuple[int, bool, Reading]]]:
        place, owing, reading = spot
        if place == _START:
            yield minus, (_MINUS, True, machine.begin(True))
        if place in (_ZERO, _WHOLE):
            after = machine.point(reading)
            if after is not None:
                yield point, (_POINT, owing, after)
        fractional = place in (_POINT, _PART)
        read = machine.part if fractional else machine.whole
        targets: dict[tuple[int, bool, Reading], list[int]] = {}
        for digit in () if place == _ZERO else range(10):
            after = read(reading, digit)
            if after is None:
                continue
            if fractional:
                target = _PART, owing and not digit, after
            elif digit or place == _WHOLE:
                target = _WHOLE, False, after
            else:
                target = _ZERO, owing, after
            targets.setdefault(target, []).append(digit)
        for target, digits in targets.items():
            yield _digits(*digits), target

    def accepts(spot: tuple[int, bool, Reading]) -> bool:
        place, owing, reading = spot
        if owing or place in (_START, _MINUS, _POINT):
            return False
        final = reading if place == _PART else machine.point(reading)
        return final is not None and machine.accepts(final)

    return tabulate((_START, False, machine.begin(False)), step, accepts)


class _Comparison:
    """Compares what is read with a bound; a reading is (minus, digits read, order of the magnitudes so far)."""

    def __init__(self, bound: Decimal, wanted: frozenset[int]) -> None:
        self._negative = bound < 0
        self._wanted = wanted
        # A number of the other sign is told apart by its sign alone, so its magnitude is held against zero.
        own, other = _parts(bound), ("0", "")
        self._bounds = (other, own) if self._negative else (own, other)

    def begin(self, minus: bool) -> tuple[int, int, int]:
        return int(minus), 0, _EQUAL

    def whole(self, reading: tuple[int, int, int], digit: int) -> tuple[int, int, int]:
        minus, index, order = reading
        digits = self._bounds[minus][0]
        if index >= len(digits):
            return minus, len(digits) + 1, _HIGHER
        return minus, index + 1, order or _order(digit, int(digits[index]))

    def point(self, reading: tuple[int, int, int]) -> tuple[int, int, int]:
        minus, index, order = reading
        return minus, 0, _LOWER if index < len(self._bounds[minus][0]) else order

    def part(self, reading: tuple[int, int, int], digit: int) -> tuple[int, int, int]:
        minus, index, order = reading
        digits = self._bounds[minus][1]
        if order or index >= len(digits):
            return minus, len(digits), order or _order(digit, 0)
        return minus, index + 1, _order(digit, int(digits[index]))

    def accepts(self, reading: tuple[int, int, int]) -> bool:
        minus, index, order = reading
        if order == _EQUAL and index < len(self._bounds[minus][1]):
            order = _LOWER
        if bool(minus) != self._negative:
            return (_LOWER if minus else _HIGHER) in self._wanted
        return (-order if minus else order) in self._wanted


def _order(left: int, right: int) -> int:
    return (left > right) - (left < right)


class _Division:
    """Divides what is read by a step p/10^k; a reading is (decimal places to come, remainder of 10^k times it by p)."""

    def __init__(self, step: Decimal) -> None:
        whole, part = _parts(step)
        if len(whole + part) > _STEP_DIGITS:
            raise AutomatonSizeError(f"the step {step:.6e} has more than {_STEP_DIGITS} digits; use a shorter one")
        self._places = len(part)
        self._step = int(whole + part)
        self._depth, count = self._plan()
        if count > MAX_STATES:
            raise AutomatonSizeError(
                f"multiples of {step} leave {count} remainders, more than the {MAX_STATES} states of an automaton; "
                "use a step of fewer digits"
            )
        self._settled: dict[tuple[int, ...], int] = {}

    def begin(self, _minus: bool) -> tuple[int, int]:
        return self._places, 0

    def whole(self, reading: tuple[int, int], digit: int) -> tuple[int, int]:
        return self._places, self._settle((10 * reading[1] + digit * 10**self._places) % self._step)

    def point(self, reading: tuple[int, int]) -> tuple[int, int] | None:
        places, remainder = reading
        return reading if self._missing(remainder, 0) < 10**places else None

    def part(self, reading: tuple[int, int], digit: int) -> tuple[int, int] | None:
        places, remainder = reading
        if places == 0:
            return None if digit else reading
        return self.point((places - 1, (remainder + digit * 10 ** (places - 1)) % self._step))

    def accepts(self, reading: tuple[int, int]) -> bool:
        return reading[1] == 0

    def _missing(self, remainder: int, digits: int) -> int:
        """Say what the next digits before the point and all those behind it must spell, at least."""
        shift: int = 10**digits
        return -remainder * shift % self._step

    def _settle(self, remainder: int) -> int:
        """Give one remainder for all those that can't be told apart by what may follow.

        They are alike when they miss the same after 0, 1, … more digits (or more than so many digits can say), and are
        the same remainder after `_depth` digits. So multiples of a million are told by counting zeros.
        """
        key = [
            missing if (missing := self._missing(remainder, digits)) < 10 ** (digits + self._places) else -1
            for digits in range(self._depth)
        ]
        key.append(self._missing(remainder, self._depth))
        return self._settled.setdefault(tuple(key), remainder)

    def _plan(self) -> tuple[int, int]:
        """Choose how many digits to look ahead, and say how many remainders that leaves at most."""
        best = 0, self._step // gcd(self._step, 10**self._places)
        told = 0
        for depth in range(1, self._step.bit_length() + 1):
            reach = 10 ** (depth - 1 + self._places)
            told += reach // gcd(self._step, reach)
            if told >= best[1]:
                break
            best = min(best, (depth, told + self._step // gcd(self._step, 10 * reach)), key=lambda plan: plan[1])
        return best
