"""Languages of formats: what the standards say, value by value, and the JSON Schema Test Suite."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import re
import uuid

import pytest
from hypothesis import example, given, provisional, settings
from hypothesis import strategies as st

from llamacy.grammar.automaton import Dfa
from llamacy.grammar.formats import FORMATS, format_language, format_limits
from tests.grammar.suite import DRAFTS, SuiteNotFound, archive, groups

# Valid internationalised names of the test suite that are left out, by their descriptions there.
MISSING = {
    "valid Chinese Punycode", "Exceptions that are PVALID, left-to-right chars",
    "Exceptions that are PVALID, right-to-left chars", "MIDDLE DOT with surrounding 'l's",
    "Greek KERAIA followed by Greek", "Hebrew GERESH preceded by Hebrew", "Hebrew GERSHAYIM preceded by Hebrew",
    "KATAKANA MIDDLE DOT with Hiragana", "KATAKANA MIDDLE DOT with Katakana", "KATAKANA MIDDLE DOT with Han",
    "Arabic-Indic digits not mixed with Extended Arabic-Indic digits",
    "Extended Arabic-Indic digits not mixed with Arabic-Indic digits", "ZERO WIDTH JOINER preceded by Virama",
    "ZERO WIDTH NON-JOINER preceded by Virama", "ZERO WIDTH NON-JOINER not preceded by Virama but matches regexp",
    "ideographic full stop as label separator", "fullwidth full stop as label separator",
    "halfwidth ideographic full stop as label separator",
}  # fmt: skip


def language(name: str) -> Dfa:
    found = format_language(name)
    assert found is not None
    return found


@pytest.mark.parametrize("draft", DRAFTS)
def test_formats_of_the_test_suite_are_decided_as_it_says(draft: str) -> None:
    try:
        archive()
    except SuiteNotFound as error:
        pytest.skip(f"the JSON Schema Test Suite is not here: {error}")
    wrong = []
    missing = set()
    n_decided = 0
    for _, found in groups(draft, "format"):
        for group in found:
            accepted = format_language(group.schema["format"], leap_seconds=True)
            for description, value, valid in group.cases if accepted else ():
                if isinstance(value, str):
                    n_decided += 1
                    if accepted.accepts(value) and not valid:
                        wrong.append(f"{group.name}: {description}")
                    elif valid and not accepted.accepts(value):
                        missing.add(description)
    assert n_decided > 60
    assert not wrong
    assert missing == (set() if draft == "4" else MISSING)


@pytest.mark.parametrize("name", ["", "DATE", "color", "ip-address", "x-made-up", "string"])
def test_unknown_formats_have_no_language(name: str) -> None:
    assert format_language(name) is None
    with pytest.raises(KeyError, match=r"has no language.*date-time"):
        format_limits(name)


def test_limits_of_exact_formats_are_empty() -> None:
    exact = {name for name in FORMATS if not format_limits(name)}
    assert exact == {
        "duration", "uuid", "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "json-pointer"
    }  # fmt: skip


# dates and times


@given(st.from_regex(re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]"), fullmatch=True))
@example("1900-02-29")
@example("2000-02-29")
@example("2023-02-29")
@example("2024-02-29")
@example("0000-01-01")
@example("9999-12-31")
@settings(deadline=None)
def test_date_holds_what_the_calendar_has(text: str) -> None:
    day = None
    with contextlib.suppress(ValueError):
        day = datetime.date.fromisoformat(text)
    assert language("date").accepts(text) == (day is not None)


def test_date_holds_the_leap_days_of_all_years() -> None:
    dates = language("date")
    for year in range(10000):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) and year > 0
        assert dates.accepts(f"{year:04}-02-29") == leap


@given(st.dates())
@settings(deadline=None)
def test_date_holds_every_date(day: datetime.date) -> None:
    assert language("date").accepts(day.isoformat())


OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(
    lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes))
)


@given(st.datetimes(timezones=OFFSETS))
@settings(deadline=None)
def test_date_time_holds_every_moment(moment: datetime.datetime) -> None:
    text = moment.isoformat()
    assert language("date-time").accepts(text)
    assert language("date-time").accepts(text.replace("T", "t").removesuffix("+00:00") + "z") == ("+00:00" in text)
    assert language("time").accepts(text.partition("T")[2])
    assert not language("date-time").accepts(text[:19])


@given(
    st.from_regex(
        re.compile(r"([0-2][0-9]):([0-6][0-9]):([0-6][0-9])(\.[0-9]{1,9})?([+-])([0-2][0-9]):([0-6][0-9])"),
        fullmatch=True,
    )
)
@settings(deadline=None)
def test_time_holds_what_the_clock_has(text: str) -> None:
    hour, minute, second = map(int, text[:8].split(":"))
    zone_hour, zone_minute = map(int, text[-5:].split(":"))
    valid = hour < 24 and minute < 60 and second < 60 and zone_hour < 24 and zone_minute < 60
    assert language("time").accepts(text) == valid


@pytest.mark.parametrize("fraction", ["", ".0", ".123456789"])
def test_leap_seconds_end_the_day_in_utc(fraction: str) -> None:
    times = format_language("time", leap_seconds=True)
    moments = format_language("date-time", leap_seconds=True)
    assert times is not None
    assert moments is not None
    for local in sorted({*range(29, 24 * 60, 30), *range(30, 24 * 60, 90), 0, 1438}):
        for zone in range(0, 24 * 60, 30):
            for sign in (1, -1):
                text = f"{local // 60:02}:{local % 60:02}:60{fraction}{'+' if sign > 0 else '-'}"
                text += f"{zone // 60:02}:{zone % 60:02}"
                assert times.accepts(text) == ((local - sign * zone) % (24 * 60) == 24 * 60 - 1)
        text = f"{local // 60:02}:{local % 60:02}:60{fraction}z"
        assert times.accepts(text) == (local == 24 * 60 - 1)
        assert not language("time").accepts(text)
    assert moments.accepts(f"2016-12-31T23:59:60{fraction}Z")
    assert moments.accepts(f"2016-12-31T23:59:59{fraction}Z")
    assert not language("date-time").accepts(f"2016-12-31T23:59:60{fraction}Z")


@pytest.mark.parametrize("name", ["time", "date-time"])
def test_leap_seconds_only_add(name: str) -> None:
    wide = format_language(name, leap_seconds=True)
    assert wide is not None
    assert (language(name) - wide).is_empty
    added = wide - language(name)
    assert all(":60" in text for text in added.words(500))


def test_leap_seconds_change_nothing_else() -> None:
    for name in FORMATS:
        if name not in ("time", "date-time"):
            assert format_language(name, leap_seconds=True) is format_language(name)


@given(st.permutations("YMD"), st.permutations("HMS"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 99))
@settings(deadline=None)
def test_duration_holds_runs_of_neighbouring_units(
    days: list[str], hours: list[str], n_days: int, n_hours: int, number: int
) -> None:
    units_of_days, units_of_hours = "".join(days[:n_days]), "".join(hours[:n_hours])
    text = "P" + "".join(f"{number}{unit}" for unit in units_of_days)
    if units_of_hours:
        text += "T" + "".join(f"{number}{unit}" for unit in units_of_hours)
    # RFC 3339, appendix A: each unit may only be followed by the next smaller one.
    valid = units_of_days in "YMD" and units_of_hours in "HMS" and bool(n_days + n_hours)
    assert language("duration").accepts(text) == valid


# identifiers


@given(st.uuids(), st.integers(0, 40), st.sampled_from("0aF-g{ "))
@settings(deadline=None)
def test_uuid_holds_its_canonical_spellings(value: uuid.UUID, position: int, char: str) -> None:
    text = str(value)
    assert language("uuid").accepts(text)
    assert language("uuid").accepts(text.upper())
    changed = text[:position] + char + text[position + 1 :]
    again = ""
    with contextlib.suppress(ValueError):
        again = str(uuid.UUID(changed))
    assert language("uuid").accepts(changed) == (again == changed.lower())


@given(st.lists(st.text(max_size=5), max_size=4), st.integers(0, 10**9))
@settings(deadline=None)
def test_pointers_hold_every_path(parts: list[str], levels: int) -> None:
    parts = [part.encode("utf-8", "ignore").decode() for part in parts]
    text = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
    assert language("json-pointer").accepts(text)
    assert language("relative-json-pointer").accepts(f"{levels}{text}")
    assert language("relative-json-pointer").accepts(f"{levels}#")
    assert not language("relative-json-pointer").accepts(f"0{levels}{text}")
    assert not language("json-pointer").accepts(f"{text}~")
    assert not language("json-pointer").accepts(f"{text}/~2")


# addresses


def is_address(text: str, kind: type[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> bool:
    if "%" in text:  # a zone is no part of an address
        return False
    try:
        kind(text)
    except ValueError:
        return False
    return True


PIECES = st.sampled_from(
    ["", "0", "7", "10", "255", "256", "00", "ab", "FFFF", "0001", "12345", "g", "1.2.3.4", "1.2.3"]
)


@given(st.one_of(st.ip_addresses(v=4).map(str), st.lists(PIECES, max_size=5).map(".".join)))
@settings(deadline=None)
def test_ipv4_holds_what_ipaddress_takes(text: str) -> None:
    assert language("ipv4").accepts(text) == is_address(text, ipaddress.IPv4Address)


@given(
    st.one_of(
        st.ip_addresses(v=6).map(str),
        st.ip_addresses(v=6).map(lambda address: address.exploded.upper()),
        st.lists(PIECES, max_size=9).map(":".join),
        st.text("01f:.", max_size=20),
        st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from(["", ":1.2.3.4"])).map(
            lambda parts: ":".join("1" * parts[0]) + "::" + ":".join("2" * parts[1]) + parts[2]
        ),
    )
)
@settings(deadline=None, max_examples=400)
def test_ipv6_holds_what_ipaddress_takes(text: str) -> None:
    assert language("ipv6").accepts(text) == is_address(text, ipaddress.IPv6Address)


def fits(domain: str, labels: int) -> bool:
    return domain.count(".") < labels and all(len(label) <= 30 for label in domain.split("."))


@given(provisional.domains(max_length=100).filter(lambda domain: fits(domain, 7)))
@settings(deadline=None)
def test_hostname_holds_domains_within_its_limits(domain: str) -> None:
    assert language("hostname").accepts(domain)
    assert not language("hostname").accepts(domain + ".")
    assert not language("hostname").accepts("-" + domain)


@given(st.emails(domains=provisional.domains(max_length=60).filter(lambda domain: fits(domain, 5))))
@settings(deadline=None)
def test_email_holds_mailboxes_within_its_limits(text: str) -> None:
    punycode = re.search(r"[@.]..--", text.lower()) is not None
    assert language("email").accepts(text) != punycode
    assert not language("email").accepts(text.replace("@", ""))


@pytest.mark.parametrize(("name", "size"), [("hostname", 253), ("idn-hostname", 253), ("email", 254)])
def test_names_are_no_longer_than_the_standard_allows(name: str, size: int) -> None:
    longest = language(name).max_length
    assert longest is not None
    assert 200 < longest <= size


@given(provisional.urls())
@settings(deadline=None)
def test_resource_identifiers_hold_urls(url: str) -> None:
    for name in ("uri", "uri-reference", "iri", "iri-reference"):
        assert language(name).accepts(url)
    assert language("uri-reference").accepts(url.partition(":")[2])
    assert not language("uri").accepts(url.partition(":")[2])


@pytest.mark.parametrize("name", ["uri", "uri-reference"])
def test_iris_hold_all_uris_and_little_else_in_ascii(name: str) -> None:
    wide = language(name.replace("uri", "iri"))
    assert (language(name) - wide).is_empty
    assert not language(name).accepts("http://例え.テスト/")
    assert wide.accepts("http://例え.テスト/ü?\ue000#é")
    assert not wide.accepts("http://例え.テスト/\ue000")


@given(st.text('ab{}+#?&;/.,*:19=|! "<>%4é', max_size=12))
@settings(deadline=None)
@example("{+a.b,c*,d:999}")
@example("{a:1000}")
@example("{a,}")
@example("a{b")
def test_uri_template_holds_what_rfc_6570_defines(text: str) -> None:
    literal = r"""(?:[^\x00-\x20"'%<>\\^`{|}\x7f]|%[0-9A-Fa-f]{2})"""
    variable = r"(?:[A-Za-z0-9_](?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(?:\*|:[1-9][0-9]{0,2})?)"
    expected = re.fullmatch(rf"(?:{literal}|\{{[+#./;?&]?{variable}(?:,{variable})*\}})*", text)
    assert language("uri-template").accepts(text) == (expected is not None)


# regular expressions


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "^[a-z]{1,20}$", r"\d{3}-\d{4}", "(a|b)*c?", "(?:x+?)", r"[\w.\-]+@[^\s]+", r"\u00e9\x41",
        "((a)(b(c)))", "[A-F0-9]{2,}",
    ],
)  # fmt: skip
def test_regex_holds_common_expressions(text: str) -> None:
    assert language("regex").accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "(", ")", "[", "[z-a]", "a**", "*a", "{1}", "a{2,1}", "a{1", r"\a", r"\Z", "^(abc]", "a)(", "[]", r"\x4",
        "((((a))))",
    ],
)  # fmt: skip
def test_regex_leaves_out_what_is_no_expression_or_too_deep(text: str) -> None:
    assert not language("regex").accepts(text)
