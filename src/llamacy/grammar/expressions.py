"""Regular expressions as texts: the pattern of the `regex` format.

Groups nest without end in ECMA-262, which no automaton can follow, so they are held to a depth. Left out besides is
what needs memory or what engines read differently: back-references and named groups, look-around, rare escapes.
"""

from __future__ import annotations

_DEPTH = 3
_HEX = "x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}"
_SYNTAX = r"\^$\\.*+?()\[\]{}|"  # as it stands in a class
# Ranges that are surely in order. To hold each pair of ends to its order would take a state for each first end.
_RANGES = "0-[0-9]|1-[1-9]|[2-4]-[5-9]|[5-9]-9|" + "|".join(
    f"{a}-[{a}-{z}]|[{b}-{f}]-[{g}-{z}]|[{g}-{m}]-[{n}-{z}]|[{n}-{w}]-[{x}-{z}]|[{x}-{z}]-{z}"
    for a, b, f, g, m, n, w, x, z in ("abfgmnwxz", "ABFGMNWXZ")
)


def expression_pattern() -> str:
    """Write the pattern of texts that are valid under ECMA-262 with the `u` flag, and in most other engines."""
    member = rf"(?:[^\^\[\]\\\-]|\\(?:[dDwWsStnrfvb/\-{_SYNTAX}]|{_HEX})|{_RANGES})"
    # A caret that comes first negates the class, and none of these may be empty.
    single = rf"[^{_SYNTAX}]|\.|\\(?:[dDwWsStnrfv/{_SYNTAX}]|{_HEX})|\[\^?(?:{member}\^*)+\]"
    rest = rf"(?:{_quantifier()})?|\\[bB]|[\^$|]"
    pattern = f"(?:(?:{single}){rest})*"
    for _ in range(_DEPTH):
        pattern = rf"(?:(?:{single}|\((?:\?:)?{pattern}\)){rest})*"
    return pattern


def _quantifier() -> str:
    """Write quantifiers; the second count is surely not below the first, having more digits or one that is as large."""
    counts = ["(?:0|[1-9][0-9]{0,2}),?", "[0-9],[1-9][0-9]{1,2}", "[1-9][0-9],[1-9][0-9]{2}"]
    counts.extend(f"{low},[{low}-9]" for low in range(10))
    return rf"(?:[*+?]|\{{(?:{'|'.join(counts)})\}})\??"
