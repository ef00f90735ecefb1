"""What a model must write when its calls are constrained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llamacy.chat.output.tools import Schema, parameters_of, resolved, types_of
from llamacy.types import ReasoningTags


@dataclass(frozen=True)
class CallGrammar:
    """The fixed parts of the calls in GBNF, and what goes into the rules that it leaves open.

    Attributes
    ----------
    text
        The rules, beginning at `root`.
    schemas
        Rules to be added: the JSON texts that a schema allows.
    patterns
        Rules to be added: the texts that a regular expression (ECMA-262) matches as a whole.
    triggers
        Words with which the calls begin, for a lazy grammar; none when calls are required.
    trigger_patterns
        The same where a word alone would be too rash: regular expressions whose group is the beginning.
    reasoning
        What thinking stands between, in which no trigger counts.
    any_order
        The properties of an object may come in any order (up to `MAX_UNORDERED` of them), in `schemas` as well.
    """

    text: str
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    patterns: Mapping[str, str] = field(default_factory=dict)
    triggers: tuple[str, ...] = ()
    trigger_patterns: tuple[str, ...] = ()
    reasoning: ReasoningTags | None = None
    any_order: bool = False


MAX_UNORDERED = 6
"""Most properties that may come in any order: there is a rule for each set of them."""

# sets of properties for which a grammar has rules; so many take llama.cpp about half a millisecond for each request
_MAX_ORDERS = 128
_MAX_VISITED = 10_000


def _n_orders(schema: object) -> int:
    """Return how many sets of properties there are in schemas, or a number above `_MAX_ORDERS`."""
    n_orders = n_visited = 0
    left = [schema]
    while left:
        part = left.pop()
        n_visited += 1
        if n_visited > _MAX_VISITED or n_orders > _MAX_ORDERS:
            return _MAX_ORDERS + 1
        if isinstance(part, Mapping):
            properties = part.get("properties")
            n = len(properties) if isinstance(properties, Mapping) else 0
            n_orders += 1 << n if 1 < n <= MAX_UNORDERED else 0
            left += part.values()
        elif isinstance(part, list):
            left += part
    return n_orders


def literal(text: str) -> str:
    """Return an expression for a text."""
    if not text:
        return '""'
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def anything_but(end: str) -> str:
    """Return a regular expression for all texts in which a word doesn't occur."""
    return rf"(?:(?!{escape(end)})[\s\S])*"


def string_pattern(schema: Schema, end: str) -> str:
    """Return a regular expression for the strings that a schema allows, and in which a word doesn't occur."""
    least, most = schema.get("minLength"), schema.get("maxLength")
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        return rf"(?![\s\S]*{escape(end)})(?=[\s\S]*?(?:{pattern}))[\s\S]*"
    if least is None and most is None:
        return anything_but(end)
    return rf"(?:(?!{escape(end)})[\s\S]){{{least or 0},{'' if most is None else most}}}"


def escape(text: str) -> str:
    """Return a regular expression (ECMA-262, flag u) for a text."""
    return "".join("\\" + character if character in r"\^$.*+?()[]{}|/" else character for character in text)


class Rules:
    """Rules under construction.

    Parameters
    ----------
    tools
        What may be called.
    begun
        An opener with which the prompt ends.
    free
        Let properties come in any order where that costs little.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], begun: str = "", *, free: bool = False) -> None:
        self.begun = begun
        functions = [tool.get("function", tool) for tool in tools]
        self.functions = [(str(function["name"]), parameters_of(function)) for function in functions]
        self.any_order = free and _n_orders([schema for _, schema in self.functions]) <= _MAX_ORDERS
        self.schemas: dict[str, Mapping[str, Any]] = {}
        self.patterns: dict[str, str] = {}
        self._lines: dict[str, str] = {}

    def add(self, name: str, body: str) -> str:
        """Add a rule and return its name."""
        self._lines[name] = body
        return name

    def pattern(self, name: str, pattern: str) -> str:
        """Add a rule for what a regular expression matches, and return its name."""
        self.patterns[name] = pattern
        return name

    def arguments(self, index: int) -> str:
        """Add the rule for the arguments of a function as JSON, and return its name."""
        name = f"args-{index}"
        self.schemas[name] = self.functions[index][1]
        return name

    # one rule a parameter

    def parameters(self, index: int) -> list[tuple[str, str, object]]:
        """Return rule name, name and schema of each parameter of a function."""
        schema = self.functions[index][1]
        properties, required = schema.get("properties"), schema.get("required")
        items = {**properties} if isinstance(properties, Mapping) else {}
        for key in required if isinstance(required, list) else ():
            items.setdefault(key, {})
        return [(f"arg-{index}-{number}", str(key), declared) for number, (key, declared) in enumerate(items.items())]

    def in_order(self, index: int, parts: Sequence[str], join: str) -> str:
        """Return an expression for all required parameters and any of the others, in order or in `any_order`.

        Parameters
        ----------
        index
            Of the function.
        parts
            Expressions for its parameters, in order.
        join
            What stands between two.
        """
        declared = self.functions[index][1].get("required")
        names = [key for _, key, _ in self.parameters(index)]
        is_required = [isinstance(declared, list) and key in declared for key in names]
        if self.any_order and 1 < len(parts) <= MAX_UNORDERED:
            return self._in_any_order(index, parts, is_required, literal(join) if join else "")
        if not join:
            return (
                " ".join(part if must else f"({part})?" for part, must in zip(parts, is_required, strict=True)) or '""'
            )
        # those that must come stand first, so that each of the others has a separator before it
        required = [part for part, must in zip(parts, is_required, strict=True) if must]
        others = [part for part, must in zip(parts, is_required, strict=True) if not must]
        comma = literal(join)
        tails = ["".join(f" ({comma} {other})?" for other in others[count:]) for count in range(len(others) + 1)]
        if required:
            return f" {comma} ".join(required) + tails[0]
        options = [part + tails[number + 1] for number, part in enumerate(others)]
        return f"({' | '.join(options)})?" if options else '""'

    def _in_any_order(self, index: int, parts: Sequence[str], is_required: Sequence[bool], comma: str) -> str:
        """Return the name of the rule for parameters in any order; there is one for each set of those that came."""
        names = [self.add(f"part-{index}-{number}", part) for number, part in enumerate(parts)]
        everything = (1 << len(parts)) - 1
        needed = sum(1 << number for number, must in enumerate(is_required) if must)
        for came in range(everything):
            options = [
                " ".join(
                    word
                    for word in (
                        comma if came else "",
                        name,
                        "" if came | 1 << number == everything else f"set-{index}-{came | 1 << number}",
                    )
                    if word
                )
                for number, name in enumerate(names)
                if not came >> number & 1
            ]
            self.add(f"set-{index}-{came}", " | ".join([*options, *(['""'] if came & needed == needed else [])]))
        return f"set-{index}-0"

    def json_rule(self, name: str, schema: object, root: Schema) -> str:
        """Add the rule for a value as JSON, and return its name."""
        definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
        self.schemas[name] = {**definitions, **schema} if isinstance(schema, Mapping) else {}
        return name

    def value(self, name: str, schema: object, root: Schema, end: str, mark: str = "") -> str:
        """Add the rule for a value, and return an expression for it: JSON, or a string that is written as it is.

        Parameters
        ----------
        name
            Name of the rule.
        schema
            What the value may be.
        root
            The schema of all arguments, in which definitions stand.
        end
            What follows the value, and so can't be in it.
        mark
            What stands before and after strings.
        """
        types = types_of(schema, root)
        if types and "string" not in types:
            return self.json_rule(name, schema, root)
        schema = resolved(schema, root)
        if isinstance(schema, Mapping):
            values = [schema["const"]] if "const" in schema else schema.get("enum")
            if isinstance(values, list):
                written = [f"{mark}{value}{mark}" if isinstance(value, str) else json.dumps(value) for value in values]
                possible = [literal(text) for text in written if end not in text.removesuffix(mark).removeprefix(mark)]
                if possible:
                    return self.add(name, " | ".join(possible))
            options = schema.get("anyOf", schema.get("oneOf"))
            if types and isinstance(options, list):
                parts = [
                    self.value(f"{name}-{number}", option, root, end, mark) for number, option in enumerate(options)
                ]
                return self.add(name, " | ".join(parts))
        pattern = string_pattern(schema, end) if isinstance(schema, Mapping) and types == {"string"} else None
        self.pattern(name, pattern or anything_but(end))
        return f"{literal(mark)} {name} {literal(mark)}" if mark else name

    def text(self, root: str) -> str:
        """Return all rules as GBNF."""
        lines = {"root": root, **self._lines}
        return "".join(f"{name} ::= {body}\n" for name, body in lines.items())
