"""Host names and e-mail addresses.

What makes them hard is length: a label has at most 63 octets and a whole name 253, and counting both takes tens of
thousands of states. So a name is held to what fits for certain: the first label may be long, those after it are
shorter, and there are only so many.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from llamacy.grammar.addresses import ADDRESS_LITERAL
from llamacy.grammar.automaton import Dfa
from llamacy.grammar.charset import CharSet
from llamacy.grammar.machine import tabulate
from llamacy.grammar.regex import pattern_language
from llamacy.grammar.work import kept

_FIRST, _OTHERS = 63, 30  # octets of a label
_LABELS = 7  # 63 + 6 * (1 + 30) = 249 octets, of 253
_MAIL_LABELS = 5  # 64 before the @ and 63 + 4 * (1 + 30) after it are 252 octets, of 254
# What Punycode takes at most, for the letters below: `xn--` and a hyphen, and so many octets for each.
_PREFIX, _ENCODED = 5, 6


@kept(4)
def host_name(*, labels: int = _LABELS, reserved: bool = True, international: bool = False) -> Dfa:
    """Give host names (RFC 1123, 2.1), or internationalised ones (RFC 5890).

    Parameters
    ----------
    labels
        How many labels there are at most.
    reserved
        Let labels have hyphens in third and fourth place. Those in `xn--` are only right in software that decodes them
        when the rest is Punycode.
    international
        Let labels have letters of Latin-1, Greek, Cyrillic, kana, Han and Hangul too, but no capitals, which IDNA
        excludes.
    """
    letters = CharSet.of(("a", "z"), ("0", "9")) if international else CharSet.of(("A", "Z"), ("a", "z"), ("0", "9"))
    foreign, hyphen, dot = _letters(), CharSet.of("-"), CharSet.of(".")

    # A state is how many labels are complete, the octets of this one, and whether a hyphen and foreign letters are in.
    def step(state: tuple[int, int, bool, bool]) -> Iterator[tuple[CharSet, tuple[int, int, bool, bool]]]:
        number, octets, hyphened, encoded = state
        limit = _OTHERS if number else _FIRST
        if octets and not hyphened and number + 1 < labels:
            yield dot, (number + 1, 0, False, False)
        if octets < limit:
            yield letters, (number, octets + 1, False, encoded)
            # In an encoded label octets aren't places, so there no two hyphens stand together anywhere.
            if octets and not (hyphened and (encoded or (octets == 3 and not reserved))):
                yield hyphen, (number, octets + 1, True, encoded)
        if international:
            cost = _ENCODED if encoded else _PREFIX + _ENCODED
            if octets + cost <= limit:
                yield foreign, (number, octets + cost, False, True)

    def accepts(state: tuple[int, int, bool, bool]) -> bool:
        _, octets, hyphened, _ = state
        return octets > 0 and not hyphened

    return tabulate((0, 0, False, False), step, accepts)


@kept(2)
def email(*, international: bool = False) -> Dfa:
    """Give mailboxes of RFC 5321, 4.1.2, or internationalised ones (RFC 6531).

    Parameters
    ----------
    international
        Let both parts have the letters that international host names have.
    """
    dotted, quoted = _dotted(international), _quoted(international)
    domain = host_name(labels=_MAIL_LABELS, reserved=False, international=international)
    address = pattern_language(ADDRESS_LITERAL, search=False)
    parts = (dotted, quoted, domain, address)
    at_sign = CharSet.of("@")
    local: tuple[tuple[int, int], ...] = ((0, 0), (1, 0))
    remote = ((2, 0), (3, 0))

    # A state is where the text may be: part and state there. The first character of a part tells the two kinds apart.
    def step(state: tuple[tuple[int, int], ...]) -> Iterator[tuple[CharSet, tuple[tuple[int, int], ...]]]:
        for part, number in state:
            for characters, target in parts[part].edges[number]:
                yield characters, ((part, target),)
            if part < 2 and number in parts[part].accepting:
                yield at_sign, remote

    def accepts(state: tuple[tuple[int, int], ...]) -> bool:
        return any(part >= 2 and number in parts[part].accepting for part, number in state)

    return tabulate(local, step, accepts)


_LOCAL = 64  # octets before the @


def _dotted(international: bool) -> Dfa:
    """Give words with dots between them, of at most 64 octets as UTF-8."""
    word = CharSet.of("!#$%&'*+-/=?^_`{|}~", ("0", "9"), ("A", "Z"), ("a", "z"))
    dot = CharSet.of(".")

    def step(state: tuple[int, bool]) -> Iterator[tuple[CharSet, tuple[int, bool]]]:
        octets, dotted = state
        if octets and not dotted and octets + 1 < _LOCAL:
            yield dot, (octets + 1, True)
        for characters, size in _by_octets(word, international):
            if octets + size <= _LOCAL:
                yield characters, (octets + size, False)

    return tabulate((0, True), step, lambda state: not state[1])


_OPENING, _INSIDE, _ESCAPED, _CLOSED = range(4)


def _quoted(international: bool) -> Dfa:
    """Give texts in quotes, not empty, of at most 64 octets as UTF-8 with the quotes."""
    quote, backslash, printable = CharSet.of('"'), CharSet.of("\\"), CharSet.of((" ", "~"))
    text = printable - quote - backslash

    def step(state: tuple[int, int]) -> Iterator[tuple[CharSet, tuple[int, int]]]:
        octets, place = state
        if place == _OPENING:
            yield quote, (1, _INSIDE)
        elif place == _INSIDE:
            if octets > 1:
                yield quote, (0, _CLOSED)
            if octets + 2 < _LOCAL:
                yield backslash, (octets + 1, _ESCAPED)
            for characters, size in _by_octets(text, international):
                if octets + size < _LOCAL:
                    yield characters, (octets + size, _INSIDE)
        elif place == _ESCAPED:
            yield printable, (octets + 1, _INSIDE)

    return tabulate((0, _OPENING), step, lambda state: state[1] == _CLOSED)


def _by_octets(ascii_characters: CharSet, international: bool) -> Iterator[tuple[CharSet, int]]:
    """Group characters by how long they are as UTF-8."""
    yield ascii_characters, 1
    if international:
        # RFC 6531 takes any character; mail software refuses controls, spaces and what isn't normalised.
        yield _letters() & CharSet.of((0x80, 0x7FF)), 2
        yield _letters() & CharSet.of((0x800, 0xFFFF)), 3


@lru_cache(maxsize=1)
def _letters() -> CharSet:
    """Give letters that IDNA 2008 allows anywhere in a label, that are written from left to right and never compose."""
    return CharSet.of(
        ("ß", "ö"), ("ø", "ÿ"), ("α", "ω"), ("а", "џ"), ("ぁ", "ゖ"), ("ァ", "ヺ"), ("一", 0x9FEF), ("가", "힣")
    )  # fmt: skip
