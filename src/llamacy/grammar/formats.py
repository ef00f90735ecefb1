"""Languages of the `format` keyword of JSON Schema.

==========================  ===========================================================================================
``date``                    RFC 3339, with the lengths of months and leap years; without the year 0000
``time``, ``date-time``     RFC 3339, lower-case ``t`` and ``z`` too; leap seconds only if asked for
``duration``                exact: RFC 3339, appendix A
``uuid``                    exact: RFC 4122, both cases
``ipv4``, ``ipv6``          exact: RFC 2673 dotted quads, RFC 4291
``hostname``                RFC 1123; the first label of up to 63 octets, up to six more of up to 30
``idn-hostname``            RFC 5890; lengths as above, small letters of Latin-1, Greek, Cyrillic, kana, Han, Hangul
``email``                   RFC 5321; the first label of up to 63 octets, up to four more of up to 30, none in Punycode
``idn-email``               RFC 6531; lengths as in ``email``, letters as in ``idn-hostname``
``uri``, ``uri-reference``  exact: RFC 3986
``iri``, ``iri-reference``  exact: RFC 3987, without its advice on direction
``uri-template``            RFC 6570; no reserved operators ``= , ! @ |``, prefixes up to 999
``json-pointer``            exact: RFC 6901
``relative-json-pointer``   the draft that JSON Schema 7 and 2019-09 name; without the index arithmetic of 2020-12
``regex``                   ECMA-262; groups nested up to three deep, without look-around and back-references
==========================  ===========================================================================================

Where a language isn't exact it is narrower: what it holds is valid, but some valid texts are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llamacy.grammar import addresses, hosts, times
from llamacy.grammar.automaton import Dfa
from llamacy.grammar.expressions import expression_pattern
from llamacy.grammar.regex import pattern_language
from llamacy.grammar.work import kept

_POINTER = "(?:/(?:[^/~]|~[01])*)*"
_PATTERNS = {
    "date": times.DATE,
    "time": times.TIME,
    "date-time": f"{times.DATE}[Tt]{times.TIME}",
    "duration": times.DURATION,
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "ipv4": addresses.IPV4,
    "ipv6": addresses.IPV6,
    "uri": addresses.URI,
    "uri-reference": addresses.URI_REFERENCE,
    "iri": addresses.IRI,
    "iri-reference": addresses.IRI_REFERENCE,
    "uri-template": addresses.URI_TEMPLATE,
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
}
_MACHINES: dict[str, Callable[[], Dfa]] = {
    "hostname": hosts.host_name,
    "idn-hostname": partial(hosts.host_name, reserved=False, international=True),
    "email": hosts.email,
    "idn-email": partial(hosts.email, international=True),
    "regex": lambda: _matched(expression_pattern()),
}
_LIMITS = {
    "date": "the year 0000",
    "time": "leap seconds",
    "date-time": "leap seconds and the year 0000",
    "hostname": "names of many or very long labels",
    "idn-hostname": "capitals, labels in Punycode, names of many or long labels, and most scripts",
    "email": "domains of many or very long labels or in Punycode, and an empty quoted name",
    "idn-email": "domains of many or long labels, in capitals or Punycode, empty quoted names, most scripts",
    "uri-template": "reserved operators, names that begin with a percent sign, and prefixes above 999",
    "relative-json-pointer": "index arithmetic",
    "regex": "look-around, back-references, named groups, odd ranges, and groups nested more than three deep",
}

FORMATS = (*_PATTERNS, *_MACHINES)
"""The names of all formats that have a language."""


def format_language(name: str, *, leap_seconds: bool = False) -> Dfa | None:
    """Give the texts that a format allows.

    Parameters
    ----------
    name
        The value of the `format` keyword.
    leap_seconds
        Let the times of `time` and `date-time` end in 23:59:60 UTC, in zones that differ from UTC by whole and half
        hours. Few programs read such times, and the automata become ten times as large.

    Returns
    -------
    Dfa or None
        Texts that are all valid in this format, as they read without quotes and escapes. None when JSON Schema doesn't
        define the format: it is an annotation then.
    """
    if name not in FORMATS:
        return None
    return _leaping(name) if leap_seconds and name in ("time", "date-time") else _language(name)


def format_limits(name: str) -> str:
    """Say which valid texts a format's language lacks; nothing when it is exact.

    Parameters
    ----------
    name
        One of `FORMATS`.

    Raises
    ------
    KeyError
        The format has no language.
    """
    if name not in FORMATS:
        raise KeyError(f"the format {name!r} has no language; those that have one are {', '.join(sorted(FORMATS))}")
    return _LIMITS.get(name, "")


@kept(len(FORMATS))
def _language(name: str) -> Dfa:
    machine = _MACHINES.get(name)
    return _matched(_PATTERNS[name]) if machine is None else machine()


@kept(2)
def _leaping(name: str) -> Dfa:
    time = _language("time") | times.leap_seconds()
    return time if name == "time" else _matched(f"{times.DATE}[Tt]").concat(time)


def _matched(pattern: str) -> Dfa:
    return pattern_language(pattern, search=False)
