"""The sets of characters that ECMA-262 regular expressions have names for."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from itertools import groupby

from llamacy.grammar.charset import ANY, MAX_CHARACTER, CharSet

DIGIT = CharSet.of(("0", "9"))
WORD = CharSet.of(("a", "z"), ("A", "Z"), ("0", "9"), "_")
_LINE_ENDS = CharSet.of("\n\r\u2028\u2029")
_SPACE = CharSet.of("\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff", (0x2000, 0x200A))

# What \d, \D, … and the dot mean, without the flags i and s.
DOT = ~_LINE_ENDS
ESCAPES = {"d": DIGIT, "D": ~DIGIT, "w": WORD, "W": ~WORD, "s": _SPACE, "S": ~_SPACE}

# Long names of PropertyValueAliases.txt, after "General_Category" and "gc".
_CATEGORIES = """
    C=Other Cc=Control=cntrl Cf=Format Cn=Unassigned Co=Private_Use Cs=Surrogate
    L=Letter LC=Cased_Letter Ll=Lowercase_Letter Lm=Modifier_Letter Lo=Other_Letter Lt=Titlecase_Letter
    Lu=Uppercase_Letter M=Mark=Combining_Mark Mc=Spacing_Mark Me=Enclosing_Mark Mn=Nonspacing_Mark
    N=Number Nd=Decimal_Number=digit Nl=Letter_Number No=Other_Number
    P=Punctuation=punct Pc=Connector_Punctuation Pd=Dash_Punctuation Pe=Close_Punctuation Pf=Final_Punctuation
    Pi=Initial_Punctuation Po=Other_Punctuation Ps=Open_Punctuation
    S=Symbol Sc=Currency_Symbol Sk=Modifier_Symbol Sm=Math_Symbol So=Other_Symbol
    Z=Separator Zl=Line_Separator Zp=Paragraph_Separator Zs=Space_Separator
"""


def unicode_property(name: str) -> CharSet | None:
    r"""Give the characters of a Unicode property, as ``\p{…}`` names them.

    Parameters
    ----------
    name
        What stands between the braces: a general category, by its short or long name, alone or after
        ``General_Category=`` or ``gc=``; or ``Any``, ``Assigned``, ``ASCII``, ``ASCII_Hex_Digit``, ``White_Space``.

    Returns
    -------
    CharSet or None
        By the Unicode version of the running Python; None when the name isn't one of these.
    """
    key, equals, value = name.partition("=")
    if equals:
        return _category(value) if key in ("General_Category", "gc") else None
    if name == "Any":
        return ANY
    if name == "Assigned":
        return ~_category_ranges().get("Cn", CharSet())
    if name == "ASCII":
        return CharSet.of((0, 0x7F))
    if name in ("ASCII_Hex_Digit", "AHex"):
        return CharSet.of(("0", "9"), ("a", "f"), ("A", "F"))
    if name in ("White_Space", "space"):
        return (_SPACE | CharSet.of("\x85")) - CharSet.of("\ufeff")
    return _category(name)


@lru_cache(maxsize=64)
def _category(name: str) -> CharSet | None:
    for entry in _CATEGORIES.split():
        names = entry.split("=")
        if name in names:
            short = names[0]
            break
    else:
        return None
    ranges = _category_ranges()
    if short == "LC":
        return CharSet.union(ranges[part] for part in ("Lu", "Ll", "Lt"))
    return CharSet.union(charset for part, charset in ranges.items() if part.startswith(short))


@lru_cache(maxsize=1)
def _category_ranges() -> dict[str, CharSet]:
    """Read the general categories of all characters; takes some tens of milliseconds, once."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    low = 0
    for category, group in groupby(map(unicodedata.category, map(chr, range(MAX_CHARACTER + 1)))):
        high = low + sum(1 for _ in group) - 1
        ranges.setdefault(category, []).append((low, high))
        low = high + 1
    return {category: CharSet(found) for category, found in ranges.items()}
