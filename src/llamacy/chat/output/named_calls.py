"""Calls written as a name and the arguments as JSON after it, each in its place between words."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from llamacy.chat.output.grammar import Rules, literal
from llamacy.chat.output.json_calls import read_array
from llamacy.chat.output.sinks import Calls
from llamacy.chat.output.source import Markers, NotACall, Steps
from llamacy.chat.output.syntax import Syntax, one_or_more
from llamacy.chat.output.values import JSON, Dialect, scan_value

_MAX_HEADER = 400
_NAME = re.compile(r"[^\s{}\[\]<>()\"']+")


@dataclass(frozen=True)
class NamedCalls(Syntax):
    """Calls as a header with the name, and arguments.

    Attributes
    ----------
    open
        What stands before the header of each call.
    arguments
        What stands between header and arguments; empty when nothing does.
    closes
        What stands after the arguments; each of it may be missing.
    section
        What stands around all calls, if anything does.
    header
        A pattern with the groups `name` and, if the model writes one, `id`.
    written
        What the grammar writes as the header, with ``{name}`` in it.
    id_rule
        An expression for ``{id}`` in that.
    gaps
        What the grammar writes before and after the arguments.
    join
        What stands between two calls.
    dialect
        How arguments are written.
    """

    open: str
    arguments: str
    closes: tuple[str, ...] = ()
    section: tuple[str, str] | None = None
    header: re.Pattern[str] = re.compile(r"\s*(?P<name>\S+)\s*")
    written: str = "{name}"
    id_rule: str = ""
    gaps: tuple[str, str] = ("", "")
    join: str = ""
    dialect: Dialect = JSON
    _marks: dict[str, Markers] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        words = {word: Markers([word]) for word in (self.open, *self.closes)}
        words["header"] = Markers([self.arguments] if self.arguments else [])
        if self.section:
            words["section"] = Markers([self.section[1]])
        object.__setattr__(self, "_marks", words)

    @property
    def openers(self) -> tuple[str, ...]:
        """Words with which calls begin."""
        return (self.section[0], self.open) if self.section else (self.open,)

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are not text."""
        inner = re.split(r"\{\w+\}", self.written)
        quotes = self.dialect.quotes if self.dialect.bare_keys else ()
        parts = (*(self.section or ()), self.open, *inner, self.arguments, *self.closes, *quotes)
        return tuple(part for part in parts if len(part.strip()) > 1)

    def read(self, calls: Calls, opener: str) -> Steps[None]:
        """Read calls, see `Syntax.read`."""
        source = calls.source
        count = calls.count
        if opener == self.open and (yield from source.skip_space()) == "[":
            # what models of the family wrote earlier
            source.take(source.at + 1)
            yield from read_array(calls)
        elif opener == self.open:
            yield from self._call(calls)
        while True:
            yield from source.skip_space()
            if (yield from source.match(self._marks[self.open])) is None:
                break
            if calls.count > count:
                source.keep(self.open)  # what came before is of calls that are told
            yield from self._call(calls)
        if self.section:
            yield from source.closer(self._marks["section"])

    def _call(self, calls: Calls) -> Steps[None]:
        source = calls.source
        if self.arguments:
            pieces: list[str] = []
            if (yield from source.until(self._marks["header"], pieces.append, _MAX_HEADER)) is None:
                raise NotACall
            header = "".join(pieces)
        else:
            header = yield from source.word(_NAME, _MAX_HEADER)
        found = self.header.fullmatch(header)
        if found is None or not calls.tools.knows(found["name"]):
            raise NotACall
        groups = found.groupdict()
        closer = self._marks[self.closes[0]] if self.closes else None
        if (yield from source.skip_space()) == "{":
            calls.start(groups["name"], groups.get("id"))
            yield from scan_value(source, self.dialect, calls.write)
            calls.end()
        elif closer is not None and self.arguments and (yield from source.match(closer)) is not None:
            calls.whole(groups["name"], "{}", groups.get("id"))
            closer = None
        else:
            raise NotACall
        for word in self.closes if closer is not None else self.closes[1:]:
            yield from source.closer(self._marks[word])

    # writing

    def example(self, name: str, key: str, value: str) -> str:
        """Return a call, see `Syntax.example`."""
        before, after = self.section or ("", "")
        header = self.written.replace("{name}", name).replace("{id}", "0")
        if self.dialect.bare_keys:
            arguments = f"{{{key}:{self.dialect.quotes[0]}{value}{self.dialect.quotes[0]}}}"
        else:
            arguments = json.dumps({key: value}, ensure_ascii=False)
        closes = "".join(self.closes)
        return f"{before}{self.open}{header}{self.arguments}{self.gaps[0]}{arguments}{self.gaps[1]}{closes}{after}"

    def grammar(self, rules: Rules, parallel: bool) -> str:
        """Add rules for calls, see `Syntax.grammar`."""
        count = len(rules.functions)
        rules.add("call", " | ".join(self._call_rule(rules, index) for index in range(count)))
        calls = one_or_more("call", self.join if parallel else None)
        if self.section is not None:
            return f"{literal(self.section[0])} {calls} {literal(self.section[1])}"
        if rules.begun != self.open:
            return calls
        rules.add("begun-call", " | ".join(self._call_rule(rules, index, "") for index in range(count)))
        return f"begun-call ({literal(self.join)} call)*" if parallel else "begun-call"

    def _call_rule(self, rules: Rules, index: int, start: str | None = None) -> str:
        name, schema = rules.functions[index]
        header = ((self.open if start is None else start) + self.written + self.arguments + self.gaps[0]).replace(
            "{name}", name
        )
        before = f" {self.id_rule} ".join(map(literal, header.split("{id}")))
        after = literal(self.gaps[1] + "".join(self.closes))
        if not self.dialect.bare_keys:
            return f"{before} {rules.arguments(index)} {after}"
        mark = self.dialect.quotes[0]
        parts = [
            f"{literal(key + ':')} {rules.value(rule, declared, schema, mark, mark)}"
            for rule, key, declared in rules.parameters(index)
        ]
        return f"{before} {literal('{')} {rules.in_order(index, parts, ',')} {literal('}')} {after}"
