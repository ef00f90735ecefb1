"""Dates, times and durations of RFC 3339."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from llamacy.grammar.automaton import Dfa
from llamacy.grammar.charset import CharSet
from llamacy.grammar.machine import tabulate
from llamacy.grammar.work import kept

# The year 0000 is left out: most calendars, Python's among them, begin with 0001.
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"
DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{{2}}{_FOURTH}|{_FOURTH}00)-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-]{_CLOCK})"

_HOURS = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAYS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
DURATION = f"P(?:{_DAYS}(?:{_HOURS})?|{_HOURS}|[0-9]+W)"

_DAY = 24 * 60
_SECONDS = len("23:59:60")


@kept(1)
def leap_seconds() -> Dfa:
    """Give times with a leap second, 23:59:60 in UTC, in the zones that differ from it by whole and half hours."""
    following: defaultdict[str, set[str]] = defaultdict(set)
    for zone in range(0, _DAY, 30):
        for sign, offset in (("+", zone), ("-", -zone)):
            local = _clock((_DAY - 1 + offset) % _DAY) + ":60"
            for text in (f"{local}{sign}{_clock(zone)}", *((f"{local}Z", f"{local}z") if not zone else ())):
                for position, char in enumerate(text):
                    following[text[:position]].add(char)
    digit, point = CharSet.of(("0", "9")), CharSet.of(".")

    # A state is the text without the fraction, and how many characters of that were read: 0, 1 or more.
    def step(state: tuple[str, int]) -> Iterator[tuple[CharSet, tuple[str, int]]]:
        text, fraction = state
        if len(text) == _SECONDS:
            yield (digit, (text, 2)) if fraction else (point, (text, 1))
        if fraction != 1:
            for char in following.get(text, ()):
                yield CharSet.of(char), (text + char, 0)

    return tabulate(("", 0), step, lambda state: state[0] not in following)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
