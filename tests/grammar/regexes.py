"""Random regular expressions, and what they match by the definition.

An expression is a small tree that knows how it is spelled and at which positions of a text it can end: sets of
positions and nothing else, so that it has no code in common with an automaton.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hypothesis import strategies as st

LETTERS = "ab-"
# What a class means among these letters, here and in Python's `re`.
CLASSES = {
    "[ab]": "ab", "[^a]": "b-", ".": "ab-", r"\w": "ab", r"\W": "-", "[]": "", "[^]": "ab-", r"[a\-]": "a-",
    r"\x61": "a", r"\u0062": "b", r"\u{2D}": "-", r"\S": "ab-", r"[^\w]": "-", r"\p{Ll}": "ab", r"[\P{L}b]": "b-",
}  # fmt: skip
PYTHON_CLASSES = {"[]": "(?!)", "[^]": r"[\s\S]", r"\u{2D}": "-", r"\p{Ll}": "[a-z]", r"[\P{L}b]": "(?:[^A-Za-z]|b)"}


@dataclass(frozen=True)
class Expression:
    """A regular expression as a tree.

    Attributes
    ----------
    kind
        ``"class"``, ``"condition"``, ``"sequence"``, ``"choice"``, ``"loop"`` or ``"look"``.
    text
        The class, condition, quantifier or opening parenthesis.
    parts
        What it is made of.
    bounds
        How often a loop goes round.
    """

    kind: str
    text: str
    parts: tuple[Expression, ...] = ()
    bounds: tuple[int, int | None] = (1, 1)

    def spell(self, *, python: bool = False) -> str:
        """Return it as ECMA-262 or Python has it."""
        inside = [part.spell(python=python) for part in self.parts]
        if self.kind == "class":
            return PYTHON_CLASSES.get(self.text, self.text) if python else self.text
        if self.kind == "condition":
            return {"$": r"\Z"}.get(self.text, self.text) if python else self.text
        if self.kind == "sequence":
            return f"(?:{''.join(inside)})"
        if self.kind == "choice":
            return f"({'|'.join(inside)})"
        if self.kind == "loop":
            return f"(?:{inside[0]}){self.text}"
        return f"{self.text}{inside[0]})"

    @cached_property
    def looks_behind(self) -> bool:
        """Whether there is a look-behind in it, which Python only does at a fixed width."""
        return self.text.startswith("(?<") or any(part.looks_behind for part in self.parts)

    def ends(self, text: str, start: int) -> frozenset[int]:
        """Return the positions where it can end when it begins at one."""
        if self.kind == "class":
            return frozenset({start + 1} if text[start : start + 1] and text[start] in CLASSES[self.text] else ())
        if self.kind == "condition":
            return frozenset({start} if self._holds(text, start) else ())
        if self.kind == "look":
            if self.text.startswith("(?<"):
                found = any(start in self.parts[0].ends(text, begin) for begin in range(start + 1))
            else:
                found = bool(self.parts[0].ends(text, start))
            return frozenset({start} if found == self.text.endswith("=") else ())
        if self.kind == "choice":
            return frozenset().union(*(part.ends(text, start) for part in self.parts))
        if self.kind == "sequence":
            reached = frozenset({start})
            for part in self.parts:
                reached = frozenset().union(*(part.ends(text, position) for position in reached))
            return reached
        minimum, maximum = self.bounds
        # Beyond the minimum, a round that reads nothing adds nothing: one for each character is all that can matter.
        rounds = minimum + len(text) if maximum is None else maximum
        reached, found = frozenset({start}), frozenset({start} if minimum == 0 else ())
        for count in range(1, rounds + 1):
            reached = frozenset().union(*(self.parts[0].ends(text, position) for position in reached))
            if count >= minimum:
                found |= reached
        return found

    def _holds(self, text: str, position: int) -> bool:
        if self.text == "^":
            return position == 0
        if self.text == "$":
            return position == len(text)
        is_border = (text[max(position - 1, 0) : position] in ("a", "b")) != (
            text[position : position + 1] in ("a", "b")
        )
        return is_border == (self.text == r"\b")

    def is_found(self, text: str) -> bool:
        """Say whether it is found anywhere in a text."""
        return any(self.ends(text, start) for start in range(len(text) + 1))

    def matches(self, text: str) -> bool:
        """Say whether it matches the whole of a text."""
        return len(text) in self.ends(text, 0)


_QUANTIFIERS = [
    ("*", 0, None), ("+", 1, None), ("?", 0, 1), ("*?", 0, None), ("+?", 1, None), ("??", 0, 1), ("{2}", 2, 2),
    ("{0,2}", 0, 2), ("{1,3}", 1, 3), ("{2,}", 2, None), ("{0}", 0, 0), ("{1,2}?", 1, 2),
]  # fmt: skip


def expressions(*, looks: bool) -> st.SearchStrategy[Expression]:
    """Return a strategy of expressions, with conditions of all kinds or ``^`` and ``$`` only."""
    conditions = ["^", "$", r"\b", r"\B"] if looks else ["^", "$"]
    leaves = st.one_of(
        st.sampled_from(["[ab]", "[^a]", ".", *CLASSES]).map(lambda text: Expression("class", text)),
        st.sampled_from(conditions).map(lambda text: Expression("condition", text)),
    )

    def extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        several = st.lists(inner, max_size=4).map(tuple)
        kinds = [
            several.map(lambda parts: Expression("sequence", "", parts)),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: Expression("choice", "", tuple(parts))),
            st.builds(
                lambda part, loop: Expression("loop", loop[0], (part,), (loop[1], loop[2])),
                inner,
                st.sampled_from(_QUANTIFIERS),
            ),
        ]
        if looks:
            openings = st.sampled_from(["(?=", "(?!", "(?<=", "(?<!"])
            kinds.append(st.builds(lambda opening, part: Expression("look", opening, (part,)), openings, inner))
        return st.one_of(*kinds)

    return st.recursive(leaves, extend, max_leaves=10)
