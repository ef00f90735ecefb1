"""Patterns of network addresses and identifiers: IP addresses, URIs, IRIs, URI templates.

Each is the grammar of its RFC rewritten as a regular expression. Nothing is checked beyond syntax: which schemes exist
and how a scheme reads its path is not part of the grammar.
"""

from __future__ import annotations

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
# RFC 2673, 3.2 "dotted-quad": no leading zeros, which some readers take for octal.
IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"


def _ipv6(least_gap: int) -> str:
    """Write the addresses of RFC 4291, 2.2, whose `::` stands for at least so many groups."""
    group = "[0-9A-Fa-f]{1,4}"
    last = f"(?:{group}:{group}|{IPV4})"
    forms = [f"(?:{group}:){{6}}{last}"]
    for before in range(9 - least_gap):
        head = f"{group}(?::{group}){{{before - 1}}}::" if before else "::"
        after = 8 - least_gap - before  # groups that may follow the gap
        if after >= 2:
            forms.append(f"{head}(?:{group}:){{0,{after - 2}}}{last}")
        forms.append(f"{head}(?:{group})?" if after else head)
    return f"(?:{'|'.join(forms)})"


IPV6 = _ipv6(1)
# RFC 5321, 4.1.3 wants at least two groups in the gap, unlike RFC 4291.
ADDRESS_LITERAL = rf"\[(?:{IPV4}|[Ii][Pp][Vv]6:{_ipv6(2)})\]"

_PERCENT = "%[0-9A-Fa-f]{2}"
_UNRESERVED = r"A-Za-z0-9\-._~"
_DELIMITERS = "!$&'()*+,;="
_SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]*"
# RFC 3987, 2.2 "ucschar" and "iprivate".
_FOREIGN = r"\u{A0}-\u{D7FF}\u{F900}-\u{FDCF}\u{FDF0}-\u{FFEF}" + "".join(
    rf"\u{{{plane:X}{'1000' if plane == 0xE else '0000'}}}-\u{{{plane:X}FFFD}}" for plane in range(1, 0xF)
)
_PRIVATE = r"\u{E000}-\u{F8FF}\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD}"


def _resource(foreign: str = "", private: str = "") -> tuple[str, str]:
    """Write the identifiers of RFC 3986 (3987, with the characters it adds), and references to them."""
    plain = f"{_UNRESERVED}{foreign}{_DELIMITERS}"
    character = f"(?:[{plain}:@]|{_PERCENT})"
    rest = f"(?:/{character}*)*"
    # A registered name may look like an IPv4 address, which therefore needs no alternative of its own.
    host = rf"(?:\[(?:{IPV6}|[Vv][0-9A-Fa-f]+\.[{_UNRESERVED}{_DELIMITERS}:]+)\]|(?:[{plain}]|{_PERCENT})*)"
    network = f"//(?:(?:[{plain}:]|{_PERCENT})*@)?{host}(?::[0-9]*)?{rest}"
    absolute = f"/(?:{character}+{rest})?"
    tail = rf"(?:\?(?:[{plain}:@/?{private}]|{_PERCENT})*)?(?:#(?:[{plain}:@/?]|{_PERCENT})*)?"
    rootless = f"{character}+{rest}"
    identifier = f"{_SCHEME}:(?:{network}|{absolute}|{rootless})?{tail}"
    # Without a scheme the first segment has no colon, or what is before it would be one.
    relative = f"(?:[{plain}@]|{_PERCENT})+{rest}"
    return identifier, f"(?:(?:{_SCHEME}:)?(?:{network}|{absolute})?|{_SCHEME}:{rootless}|{relative}){tail}"


URI, URI_REFERENCE = _resource()
IRI, IRI_REFERENCE = _resource(_FOREIGN, _PRIVATE)


def _template() -> str:
    """Write the templates of RFC 6570, 2.

    Left out is what implementations don't take: operators that are reserved, names that begin with a percent sign,
    prefixes of a thousand characters and more.
    """
    literal = rf"(?:[!#$&(-;=?-\[\]_a-z~{_FOREIGN}{_PRIVATE}]|{_PERCENT})"
    variable = rf"[A-Za-z0-9_](?:\.?(?:[A-Za-z0-9_]|{_PERCENT}))*(?:\*|:[1-9][0-9]{{0,2}})?"
    return rf"(?:{literal}|\{{[+#./;?&]?{variable}(?:,{variable})*\}})*"


URI_TEMPLATE = _template()
