"""Every text of a format's language is valid to those who validate that format."""

from __future__ import annotations

import datetime
import ipaddress
import re
import uuid
import warnings
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.grammar.formats import FORMATS, format_language
from tests.grammar.walks import walks

Validator = Callable[[str], bool]


def need(module: str) -> Any:
    """Import a validator, or skip the test."""
    try:
        return import_module(module)
    except ImportError:
        pytest.skip(f"{module} is not installed")


def date() -> Validator:
    return lambda text: datetime.date.fromisoformat(text).isoformat() == text


def time() -> Validator:
    validate = need("rfc3339_validator").validate_rfc3339
    return lambda text: validate(f"2000-01-01T{text.upper()}")


def date_time() -> Validator:
    validate = need("rfc3339_validator").validate_rfc3339
    return lambda text: validate(text.upper())


def duration() -> Validator:
    parse = need("isoduration").parse_duration
    return lambda text: parse(text) is not None and text[-1] in "YMWDHS"


def hostname() -> Validator:
    fqdn = need("fqdn").FQDN
    return lambda text: fqdn(text, min_labels=1).is_valid


def idn_hostname() -> Validator:
    encode = need("idna").encode
    return lambda text: len(encode(text)) <= 253


def email() -> Validator:
    validate = need("email_validator").validate_email
    return lambda text: bool(
        validate(
            text, check_deliverability=False, allow_quoted_local=True, allow_domain_literal=True,
            test_environment=True, globally_deliverable=False,
        )
    )  # fmt: skip


def uri(rule: str = "URI") -> Validator:
    validate = need("rfc3986_validator").validate_rfc3986
    # The grammar's "v" of addresses of the future is of either case (RFC 5234, 2.3); the validator's is small.
    return lambda text: bool(validate(text.replace("[V", "[v"), rule=rule))


def iri(rule: str = "URI") -> Validator:
    validate = uri(rule)

    def encoded(text: str) -> bool:
        # RFC 3987, 3.1: written in percent signs, an IRI is a URI.
        query = text.partition("#")[0].partition("?")[2]
        for char in text:
            point = ord(char)
            private = 0xE000 <= point <= 0xF8FF or point >= 0xF0000
            noncharacter = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF
            control = 0x80 <= point < 0xA0 or 0xE0000 <= point < 0xE1000 or 0xFFF0 <= point < 0x10000
            if noncharacter or control or (private and char not in query):
                return False
        return validate("".join(char if char.isascii() else quote(char) for char in text))

    return encoded


def uri_template() -> Validator:
    validator: Validator = need("uri_template").validate
    return validator


def json_pointer() -> Validator:
    pointer = need("jsonpointer").JsonPointer
    return lambda text: pointer(text).path == text


def relative_json_pointer() -> Validator:
    pointer = need("jsonpointer").JsonPointer

    def validate(text: str) -> bool:
        found = re.fullmatch(r"(?:0|[1-9][0-9]*)(.*)", text, re.DOTALL)
        return found is not None and (found[1] == "#" or pointer(found[1]).path == found[1])

    return validate


def regex() -> Validator:
    def validate(text: str) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about sets of sets, which Python may have one day
            re.compile(text)
        return True

    return validate


VALIDATORS: dict[str, Callable[[], Validator]] = {
    "date": date,
    "time": time,
    "date-time": date_time,
    "duration": duration,
    "uuid": lambda: lambda text: str(uuid.UUID(text)) == text.lower(),
    "ipv4": lambda: lambda text: bool(ipaddress.IPv4Address(text)),
    "ipv6": lambda: lambda text: ipaddress.IPv6Address(text).scope_id is None,
    "uri": uri,
    "uri-reference": lambda: uri("URI_reference"),
    "iri": iri,
    "iri-reference": lambda: iri("URI_reference"),
    "uri-template": uri_template,
    "json-pointer": json_pointer,
    "relative-json-pointer": relative_json_pointer,
    "hostname": hostname,
    "idn-hostname": idn_hostname,
    "email": email,
    "idn-email": email,
    "regex": regex,
}


def test_every_format_has_a_validator() -> None:
    assert set(VALIDATORS) == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_edge_of_a_format_leads_to_valid_texts(name: str) -> None:
    language = format_language(name)
    validate = VALIDATORS[name]()
    assert language is not None
    refused = []
    for text in walks(language, Random(name)):
        try:
            valid = validate(text)
        except ValueError:
            valid = False
        except Exception as error:
            # Some validators have exceptions of their own, which have no common base.
            valid = False
            refused.append(f"{error}")
        if not valid:
            refused.append(ascii(text))
    assert not refused, refused[:10]


@pytest.mark.parametrize(("rule", "name"), [("URI", "uri"), ("URI_reference", "uri-reference")])
@given(text=st.text("aZ9:/?#[]@!%2F.-~v <é", max_size=16))
@settings(deadline=None, max_examples=400)
def test_resource_identifiers_are_decided_as_the_validator_does(rule: str, name: str, text: str) -> None:
    language = format_language(name)
    assert language is not None
    assert language.accepts(text) == uri(rule)(text)


@given(st.text("rfc0987[]{}()|?*+^$.,-\\dbwu1", max_size=8))
@settings(deadline=None, max_examples=400)
def test_expressions_that_are_held_compile_in_an_engine_of_ecmascript(text: str) -> None:
    engine = need("regress")
    language = format_language("regex")
    assert language is not None
    if language.accepts(text):
        engine.Regex(text, "u")
