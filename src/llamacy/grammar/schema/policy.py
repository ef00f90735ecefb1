"""What is written where a JSON Schema leaves a choice."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args

from llamacy.grammar.schema.dialect import DIALECTS

Whitespace = Literal["compact", "single", "pretty"]
_MAX_DIGITS = 400

PropertyOrder = Literal["declared", "required_first", "any"]


@dataclass(frozen=True)
class Policy:
    """Which of the texts that satisfy a schema are offered.

    Whatever is chosen here, a text of the grammar satisfies the schema; only `strict=False` gives that up, and says so.

    Parameters
    ----------
    whitespace
        ``"compact"``: none; ``"single"``: an optional blank after ``,`` and ``:``; ``"pretty"``: also line breaks with
        up to 64 blanks of indentation after ``{``, ``[`` and ``,`` and before ``}`` and ``]``.
    property_order
        ``"declared"``: as in the schema, names that only `required` mentions after them; ``"required_first"``: the same
        with required properties first; ``"any"``: any order in objects of up to six named properties, as declared in
        larger ones. Keys that no one named come last.
    extra_keys
        True: offer every key that the schema allows. False: where an object has `properties` and says nothing of other
        keys, only those; where it says something, or asks for more properties than it names, that.
    formats
        Enforce `format`; False takes it for a comment, as the standard does unless told otherwise.
    max_string_length
        Longest string, in characters, where the schema leaves it open; None for no limit.
    max_array_length
        Longest array where the schema leaves it open; None for no limit.
    max_digits
        Most digits before and after the point of a number where the schema leaves it open; bounds with more digits
        raise it for the whole grammar. Never without limit, since a weak model may go on with digits for ever.
    strict
        True: refuse a schema that can't be enforced. False: leave the keywords that can't be enforced out, with a
        `SchemaRelaxedWarning` for each.
    dialect
        What a schema without ``$schema`` is written in: ``"2020-12"``, ``"2019-09"``, ``"7"``, ``"6"`` or ``"4"``; None
        for 2020-12 with the spellings of older drafts that it gave no other meaning.

    Raises
    ------
    TypeError, ValueError
        A value is not one of these.
    """

    whitespace: Whitespace = "single"
    property_order: PropertyOrder = "declared"
    extra_keys: bool = False
    formats: bool = True
    max_string_length: int | None = None
    max_array_length: int | None = None
    max_digits: int = 24
    strict: bool = True
    dialect: str | None = None

    def __post_init__(self) -> None:
        _check_choice("whitespace", self.whitespace, get_args(Whitespace))
        _check_choice("property_order", self.property_order, get_args(PropertyOrder))
        if self.dialect is not None:
            _check_choice("dialect", self.dialect, tuple(DIALECTS))
        for name in ("extra_keys", "formats", "strict"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False, not {value!r}")
        for name, least, most in (
            ("max_string_length", 0, None),
            ("max_array_length", 0, None),
            ("max_digits", 1, _MAX_DIGITS),
        ):
            value = getattr(self, name)
            if value is None and most is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an int{'' if most else ' or None'}, not {value!r}")
            if value < least or (most is not None and value > most):
                raise ValueError(
                    f"{name} must be at least {least}{f' and at most {most}' if most else ''}, not {value}"
                )

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any]) -> Policy:
        """Return the policy for keyword arguments.

        Raises
        ------
        TypeError
            There is no such option.
        """
        if not arguments:
            return DEFAULT
        known = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"options are {', '.join(known)}"
                raise TypeError(f"a schema has no option {name!r}; {hint}")
        return cls(**arguments)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


DEFAULT = Policy()
