"""Languages of numbers against exact arithmetic on their spellings."""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.errors import AutomatonSizeError
from llamacy.grammar.automaton import Dfa
from llamacy.grammar.numbers import at_least, at_most, equal_to, exact, integers, multiple_of, plain, unfractioned

SPELLING = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


def is_plain(text: str) -> bool:
    """Say by the definition whether a text spells a number plainly."""
    return bool(SPELLING.fullmatch(text)) and not (text.startswith("-") and Fraction(text) == 0)


TEXTS = ["".join(chars) for size in range(6) for chars in itertools.product("-.0157", repeat=size)]
PLAIN = [text for text in TEXTS if is_plain(text)]
BOUNDS = ["0", "1", "5", "-1", "10", "-10", "0.5", "-0.5", "1.05", "0.001", "-7.15", "51", "-100", "5.5", "1001", "0.0"]
STEPS = ["1", "2", "3", "5", "7", "10", "15", "50", "8", "0.1", "0.5", "0.25", "0.05", "1.5", "0.7", "0.001", "2.5"]

decimals = st.decimals(allow_nan=False, allow_infinity=False, places=None).filter(lambda d: abs(d.adjusted()) < 60)
spelled = st.from_regex(re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,12})?"), fullmatch=True).filter(is_plain)


def test_plain_holds_exactly_the_plain_spellings() -> None:
    assert [text for text in TEXTS if plain().accepts(text)] == PLAIN


def test_integers_holds_exactly_integral_values() -> None:
    expected = [text for text in PLAIN if Fraction(text).denominator == 1]
    assert [text for text in TEXTS if integers().accepts(text)] == expected


def test_unfractioned_holds_exactly_spellings_without_a_point() -> None:
    expected = [text for text in PLAIN if "." not in text]
    assert [text for text in TEXTS if unfractioned().accepts(text)] == expected


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_hold_exactly_the_values_on_their_side(bound: str) -> None:
    value, number = Fraction(bound), Decimal(bound)
    for language, expected in (
        (at_least(number), [text for text in PLAIN if Fraction(text) >= value]),
        (at_least(number, exclusive=True), [text for text in PLAIN if Fraction(text) > value]),
        (at_most(number), [text for text in PLAIN if Fraction(text) <= value]),
        (at_most(number, exclusive=True), [text for text in PLAIN if Fraction(text) < value]),
        (equal_to(number), [text for text in PLAIN if Fraction(text) == value]),
    ):
        assert [text for text in TEXTS if language.accepts(text)] == expected


@pytest.mark.parametrize("step", STEPS)
def test_multiple_of_holds_exactly_the_integral_multiples(step: str) -> None:
    value = Fraction(step)
    expected = [text for text in PLAIN if (Fraction(text) / value).denominator == 1]
    assert [text for text in TEXTS if multiple_of(Decimal(step)).accepts(text)] == expected


@given(decimals, spelled)
@settings(deadline=None)
def test_bounds_of_any_width_agree_with_exact_comparison(bound: Decimal, text: str) -> None:
    value = Fraction(text)
    assert at_least(bound).accepts(text) == (value >= Fraction(bound))
    assert at_most(bound).accepts(text) == (value <= Fraction(bound))
    assert equal_to(bound).accepts(text) == (value == Fraction(bound))
    # The language of "less" is what "at least" leaves of all numbers.
    assert plain() - at_least(bound) == at_most(bound, exclusive=True)
    assert plain() - at_most(bound) == at_least(bound, exclusive=True)
    assert at_least(bound) & at_most(bound) == equal_to(bound)


@given(st.integers(1, 400), st.integers(0, 4), spelled)
@settings(deadline=None, max_examples=60)
def test_multiple_of_agrees_with_exact_division(numerator: int, places: int, text: str) -> None:
    step = Decimal(numerator).scaleb(-places)
    assert multiple_of(step).accepts(text) == ((Fraction(text) / Fraction(step)).denominator == 1)
    assert multiple_of(step).accepts(format(Decimal(text[:9].rstrip(".-") or 0) * step, "f")) or "." in text[:9]


@given(decimals)
@settings(deadline=None)
def test_a_bound_belongs_to_its_own_side_however_it_is_spelled(bound: Decimal) -> None:
    text = format(bound, "f")
    if not is_plain(text):
        text = text.lstrip("-")
    for spelling in (text, text + "0" if "." in text else text + ".00"):
        assert at_least(bound).accepts(spelling)
        assert at_most(bound).accepts(spelling)
        assert not at_least(bound, exclusive=True).accepts(spelling)


def test_range_of_nineteen_digits_lists_its_values() -> None:
    low, high = 9223372036854775800, 9223372036854775807
    language = at_least(low) & at_most(high) & unfractioned()
    assert language.words(20) == [str(value) for value in range(low, high + 1)]


def test_range_through_zero_lists_its_values_once() -> None:
    language = at_least(-12) & at_most(3) & unfractioned()
    assert sorted(language.words(100), key=int) == [str(value) for value in range(-12, 4)]
    assert language.count() == 16


def test_multiples_within_bounds_are_counted() -> None:
    language = multiple_of(7) & at_least(0) & at_most(50) & unfractioned()
    assert sorted(language.words(100), key=int) == ["0", "7", "14", "21", "28", "35", "42", "49"]


@pytest.mark.parametrize(("first", "second"), [("1000", "1e3"), ("0.5", "0.500"), ("-0", "0"), ("20", "2e1")])
def test_equal_numbers_give_equal_languages(first: str, second: str) -> None:
    assert at_least(Decimal(first)) == at_least(Decimal(second))
    assert equal_to(Decimal(first)) == equal_to(Decimal(second))


@pytest.mark.parametrize("language", [at_least(Decimal("-3.25")), at_most(10**40), multiple_of(12), equal_to(0)])
def test_languages_lie_within_plain(language: Dfa) -> None:
    assert language & plain() == language


@pytest.mark.parametrize("step", ["1e12", "1e-12", "1024", "4e20", "125e-6"])
def test_steps_of_twos_and_fives_stay_small(step: str) -> None:
    assert multiple_of(Decimal(step)).size < 200


def test_multiple_of_a_step_with_too_many_remainders_is_refused() -> None:
    with pytest.raises(AutomatonSizeError, match=r"123456789.*20000"):
        multiple_of(123456789)


@pytest.mark.parametrize("value", ["1e30000", "-1e-30000", "1e999999", "1e-999999"])
def test_numbers_too_wide_to_tabulate_are_refused(value: str) -> None:
    with pytest.raises(AutomatonSizeError, match="20000 digits"):
        at_least(Decimal(value))
    with pytest.raises(AutomatonSizeError, match="20000 digits"):
        multiple_of(Decimal(value).copy_abs())


@pytest.mark.parametrize("value", [10**64, 3**200, Decimal("1e-64"), Decimal("3.7e5000")])
def test_multiple_of_a_step_of_many_digits_is_refused(value: Decimal | int) -> None:
    with pytest.raises(AutomatonSizeError, match="64 digits"):
        multiple_of(value)


def test_bounds_of_many_digits_are_exact() -> None:
    bound = 7 * 10**4500 + 1
    digits = "7" + "0" * 4499
    assert at_least(bound).accepts(f"{digits}1")
    assert not at_least(bound).accepts(f"{digits}0.9")
    assert at_most(-bound).accepts(f"-{digits}1.0")
    assert not at_most(-bound).accepts(f"-{digits}0")


@pytest.mark.parametrize("step", [0, -1, Decimal("-0.5"), Decimal(0), Decimal("-1e5000")])
def test_multiple_of_a_step_not_above_zero_is_refused(step: Decimal | int) -> None:
    with pytest.raises(ValueError, match="above zero"):
        multiple_of(step)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.1, "0.1"), (1e22, "1e22"), (10**30, "1" + "0" * 30), (Decimal("1.50"), "1.50"), (-2.5e-7, "-0.00000025")],
)
def test_exact_reads_a_number_as_it_is_spelled(value: float | Decimal, expected: str) -> None:
    assert exact(value) == Decimal(expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("-Infinity"), Decimal("NaN")])
def test_exact_of_a_number_without_digits_is_refused(value: float | Decimal) -> None:
    with pytest.raises(ValueError, match="finite"):
        exact(value)


@pytest.mark.parametrize("value", [True, "1", None])
def test_exact_of_something_else_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="number"):
        exact(value)  # type: ignore[arg-type]
