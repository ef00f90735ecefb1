"""Calls written as Python writes them: a list of calls with keyword arguments."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from llamacy.chat.output.grammar import Rules, literal
from llamacy.chat.output.json_calls import read_object
from llamacy.chat.output.sinks import Calls
from llamacy.chat.output.source import Markers, NotACall, Steps
from llamacy.chat.output.syntax import Syntax, one_or_more
from llamacy.chat.output.values import PYTHON, quote, scan_value

_NAME = re.compile(r"[\w.\-]+")
_MAX_NAME = 200


@dataclass(frozen=True)
class PythonCalls(Syntax):
    """Calls as a list of Python calls.

    Attributes
    ----------
    tags
        What stands around the list; None when the list begins the answer.
    """

    tags: tuple[str, str] | None = None

    @property
    def openers(self) -> tuple[str, ...]:
        """Words with which calls begin."""
        return self.tags[:1] if self.tags else ()

    @property
    def bare(self) -> str:
        """Characters with which calls without an opener begin."""
        return "" if self.tags else "["

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are not text."""
        return self.tags or ()

    def read(self, calls: Calls, opener: str) -> Steps[None]:
        """Read calls, see `Syntax.read`."""
        source = calls.source
        if (yield from source.skip_space()) != "[":
            if not opener:
                raise NotACall
            yield from self._call(calls)
        else:
            source.take(source.at + 1)
            while (character := (yield from source.skip_space())) != "]":
                if character == "{" and opener:
                    yield from read_object(calls, strict=True)
                else:
                    yield from self._call(calls)
                if (yield from source.skip_space()) == ",":
                    source.take(source.at + 1)
                elif (yield from source.peek()) != "]":
                    raise NotACall
            source.take(source.at + 1)
        if self.tags:
            yield from source.closer(Markers([self.tags[1]]))

    def _call(self, calls: Calls) -> Steps[None]:
        source = calls.source
        name = yield from source.word(_NAME, _MAX_NAME)
        if not calls.tools.knows(name) or (yield from source.skip_space()) != "(":
            raise NotACall
        source.take(source.at + 1)
        character = yield from source.skip_space()
        has_started = False
        while character != ")":
            key = yield from source.word(_NAME, _MAX_NAME)
            if not key or (yield from source.skip_space()) != "=":
                raise NotACall
            source.take(source.at + 1)
            if has_started:
                calls.write(", ")
            else:
                calls.start(name)
                calls.write("{")
                has_started = True
            calls.write(f'"{quote(key)}": ')
            yield from scan_value(source, PYTHON, calls.write)
            if (character := (yield from source.skip_space())) == ",":
                source.take(source.at + 1)
                character = yield from source.skip_space()
            elif character != ")":
                raise NotACall
        source.take(source.at + 1)
        if has_started:
            calls.write("}")
            calls.end()
        else:
            calls.whole(name, "{}")

    # writing

    def example(self, name: str, key: str, value: str) -> str:
        """Return a call, see `Syntax.example`."""
        before, after = self.tags or ("", "")
        return f"{before}[{name}({key}={json.dumps(value, ensure_ascii=False)})]{after}"

    @property
    def trigger_patterns(self) -> tuple[str, ...]:
        """Patterns for calls without an opener."""
        return () if self.tags else (r"^\s*(\[[A-Za-z_][A-Za-z0-9_.\-]*\()",)

    def grammar(self, rules: Rules, parallel: bool) -> str:
        """Add rules for calls, see `Syntax.grammar`."""
        rules.add("call", " | ".join(self._call_rule(rules, index) for index in range(len(rules.functions))))
        before, after = self.tags or ("", "")
        calls = one_or_more("call", ", " if parallel else None)
        return f"{literal(before + '[')} {calls} {literal(']' + after)}"

    def _call_rule(self, rules: Rules, index: int) -> str:
        name, schema = rules.functions[index]
        parts = [
            f"{literal(key + '=')} {rules.json_rule(rule, declared, schema)}"
            for rule, key, declared in rules.parameters(index)
        ]
        return f"{literal(name + '(')} {rules.in_order(index, parts, ', ')} {literal(')')}"
