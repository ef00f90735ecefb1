"""Calls written as tags: one for the call, and one for each parameter."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llamacy.chat.output.grammar import Rules, literal
from llamacy.chat.output.json_calls import read_object
from llamacy.chat.output.nested import nested_value
from llamacy.chat.output.sinks import Calls
from llamacy.chat.output.source import Markers, NotACall, Steps
from llamacy.chat.output.syntax import Syntax, one_or_more
from llamacy.chat.output.tools import Schema, types_of
from llamacy.chat.output.values import JSON, PYTHON, convert, quote

_MAX_TAG = 400
_BARE_NAME = re.compile(r"[^\s<>{}\[\]\"']+")
_CDATA = Markers(["<![CDATA["])


@dataclass(frozen=True)
class TaggedCalls(Syntax):
    """Calls as tags.

    Attributes
    ----------
    open
        What stands before the name of a function.
    name_end
        What stands after it; empty when white space or another tag does.
    close
        What stands after the parameters.
    key_open, key_end
        What stands before and after the name of a parameter.
    value_open
        What stands before the value, apart from white space.
    value_close
        What stands after the value; ``{key}`` in it is the name.
    tag_end
        What ends the tags of function and parameter after other attributes; empty when they have none.
    section
        What stands around calls, if anything does.
    is_shared
        All calls stand in one section.
    lines
        A line feed stands before and after a value and isn't part of it.
    attribute
        A pattern for the attributes of a parameter that tell its type; for a string, the group `string` is in it.
    cdata
        Strings may stand in a section of character data.
    nested
        What stands before each tag within a value; arrays and objects are written as tags.
    gaps
        What the grammar writes: after the section's opener, after the name, between the parts of a parameter,
        after a parameter, after a call, and between sections.
    attributes
        What the grammar writes as attributes of a function, with ``{number}`` in it, of a parameter that is a string,
        and of another one, with its ``{type}``.
    """

    open: str
    name_end: str
    close: str
    key_open: str
    key_end: str
    value_close: str
    value_open: str = ""
    tag_end: str = ""
    section: tuple[str, str] | None = None
    is_shared: bool = False
    lines: bool = False
    attribute: re.Pattern[str] | None = None
    cdata: bool = False
    nested: str = ""
    gaps: tuple[str, str, str, str, str, str] = ("", "", "", "", "", "\n")
    attributes: tuple[str, str, str] = ("", "", "")

    @property
    def openers(self) -> tuple[str, ...]:
        """Words with which calls begin."""
        return (self.section[0], self.open) if self.section else (self.open,)

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are not text."""
        parts = (*self.openers, self.name_end, self.close, self.key_open, self.key_end, self.value_open)
        others = (self.value_close, self.tag_end, self.section[1] if self.section else "")
        return tuple(word for word in (*parts, *others) if len(word) > 2 and "{" not in word)

    # reading

    def read(self, calls: Calls, opener: str) -> Steps[None]:
        """Read calls, see `Syntax.read`."""
        source = calls.source
        count = calls.count
        openers = Markers([self.open])
        if opener == self.open and not (self.section and self.section[0] == self.open):
            yield from self._call(calls)
        elif (yield from source.skip_space()) == "{":
            yield from read_object(calls, strict=True)
        while True:
            yield from source.skip_space()
            if (yield from source.match(openers)) is None:
                break
            if calls.count > count:
                source.keep(self.open)  # what came before is of calls that are told
            yield from self._call(calls)
        if self.section:
            yield from source.closer(Markers([self.section[1]]))

    def _call(self, calls: Calls) -> Steps[None]:
        source = calls.source
        if not self.name_end and (yield from source.skip_space()) == "{":
            # some models fall back on what they learnt earlier
            yield from read_object(calls, strict=True)
            yield from source.closer(Markers([self.close]))
            return
        if self.name_end:
            name = yield from self._name(calls, self.name_end)
            yield from self._attributes(calls)
        else:
            name = yield from source.word(_BARE_NAME, _MAX_TAG)
        if not calls.tools.knows(name):
            raise NotACall
        parts = Markers([self.key_open, self.close])
        yield from source.skip_space()
        word = yield from source.expect(parts)
        calls.start(name)
        calls.write("{")
        is_first = True
        while word == self.key_open:
            key = yield from self._name(calls, self.key_end)
            attributes = yield from self._attributes(calls)
            calls.write(("" if is_first else ", ") + f'"{quote(key)}": ')
            is_first = False
            yield from self._value(calls, name, key, attributes)
            yield from source.skip_space()
            word = yield from source.expect(parts)
        calls.write("}")
        calls.end()

    def _name(self, calls: Calls, end: str) -> Steps[str]:
        """Read a name and what stands after it."""
        pieces: list[str] = []
        if (yield from calls.source.until(Markers([end]), pieces.append, _MAX_TAG)) is None:
            raise NotACall
        return "".join(pieces).strip()

    def _attributes(self, calls: Calls) -> Steps[str]:
        """Read the rest of a tag."""
        return (yield from self._name(calls, self.tag_end)) if self.tag_end else ""

    def _value(self, calls: Calls, name: str, key: str, attributes: str) -> Steps[None]:
        source = calls.source
        if self.value_open:
            yield from source.skip_space()
            yield from source.expect(Markers([self.value_open]))
        close = self.value_close.format(key=key)
        types = calls.tools.types(name, key)
        found = self.attribute.search(attributes) if self.attribute is not None else None
        is_marked = found is not None and found["string"] is not None
        is_string = types == {"string"} or (is_marked and (not types or "string" in types))
        if self.lines:
            yield from source.match(Markers(["\n"]))
        ends = Markers(("\n" + close, close) if self.lines else (close,))
        if self.cdata:
            begun = yield from source.match(_CDATA)
            if begun is not None:
                ends = Markers(["]]>" + close])
                is_string = True
            elif source.ended and _CDATA.begins(source.data[source.at :]):
                raise NotACall
        if is_string:
            calls.write('"')
            if (yield from source.until(ends, lambda text: calls.write(quote(text)), is_whole=True)) is None:
                raise NotACall
            calls.write('"')
            return
        pieces: list[str] = []
        if (yield from source.until(ends, pieces.append)) is None:
            raise NotACall
        is_other = found is not None and found["string"] is None
        text = "".join(pieces)
        value = nested_value(text, self.nested) if self.nested else None
        calls.write(json_value(text, types, is_other) if value is None else value)

    # writing

    def example(self, name: str, key: str, value: str) -> str:
        """Return a call, see `Syntax.example`."""
        after_section, after_name, between, after_value, after_call, _ = self.gaps
        line = "\n" if self.lines else ""
        before, after = self.section or ("", "")
        return (
            f"{before}{after_section}{self.open}{name}{self.name_end}{self.attributes[0]}{self.tag_end}{after_name}"
            f"{self.key_open}{key}{self.key_end}{self.attributes[1]}{self.tag_end}{between}{self.value_open}"
            f"{line}{value}{line}{self.value_close.format(key=key)}{after_value}{self.close}{after_call}{after}"
        ).replace("{number}", "1")

    def grammar(self, rules: Rules, parallel: bool) -> str:
        """Add rules for calls, see `Syntax.grammar`."""
        after_section, _, _, _, after_call, between = self.gaps
        rules.add("call", " | ".join(self._call_rule(rules, index) for index in range(len(rules.functions))))
        if self.section is None:
            return one_or_more("call", between if parallel else None)
        before = literal(self.section[0] + after_section)
        after = literal(self.section[1])
        if self.is_shared:
            return f"{before} {one_or_more(f'call {literal(after_call)}', '' if parallel else None)} {after}"
        return one_or_more(f"{before} call {literal(after_call)} {after}", between if parallel else None)

    def _call_rule(self, rules: Rules, index: int) -> str:
        name, schema = rules.functions[index]
        start = self.open + name + self.name_end + self.attributes[0] + self.tag_end + self.gaps[1]
        before = " [0-9] [0-9]? ".join(map(literal, start.split("{number}")))
        parts = [
            self._parameter_rule(rules, rule, key, declared, schema) for rule, key, declared in rules.parameters(index)
        ]
        return f"{before} {rules.in_order(index, parts, '')} {literal(self.close)}"

    def _parameter_rule(self, rules: Rules, rule: str, key: str, declared: object, schema: Schema) -> str:
        close = self.value_close.format(key=key)
        value = rules.value(rule, declared, schema, close)
        line = "\n" if self.lines else ""
        attributes = self.attributes[1]
        if rule in rules.schemas:
            attributes = self.attributes[2].format(type=_attribute_type(types_of(declared, rules.schemas[rule])))
        before = self.key_open + key + self.key_end + attributes + self.tag_end + self.gaps[2] + self.value_open + line
        return f"{literal(before)} {value} {literal(line + close + self.gaps[3])}"


def _attribute_type(types: frozenset[str]) -> str:
    """Return the one word for types that the models write."""
    return "number" if types <= {"number", "integer"} else min(types)


def json_value(text: str, types: frozenset[str], is_other: bool = False) -> str:
    """Return the JSON text for a value that is written without quotes.

    Parameters
    ----------
    text
        What was written.
    types
        JSON types that it may have; none when that isn't known.
    is_other
        It is said to be no string.
    """
    if types == {"string"}:
        return f'"{quote(text)}"'
    stripped = text.strip()
    value = convert(stripped, JSON)
    if value is None and (stripped[:1] in {"{", "[", "("} or stripped in {"True", "False", "None"}):
        value = convert(stripped, PYTHON)
    if value is None:
        return f'"{quote(text)}"'
    kind = _kind(value)
    if types and "string" in types and not is_other and not kind & types:
        return f'"{quote(text)}"'
    return value


def _kind(value: str) -> set[str]:
    """Return the types that a schema may call a JSON text."""
    match value[0]:
        case "{":
            return {"object"}
        case "[":
            return {"array"}
        case '"':
            return {"string"}
        case "t" | "f":
            return {"boolean"}
        case "n":
            return {"null"}
    return {"number"} if set(value) & {".", "e", "E"} else {"number", "integer"}
