"""Calls written as JSON objects that hold name and arguments, one by one or in arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llamacy.chat.output.grammar import Rules, escape, literal
from llamacy.chat.output.sinks import Calls
from llamacy.chat.output.source import Markers, NotACall, Steps
from llamacy.chat.output.syntax import Syntax, one_or_more
from llamacy.chat.output.values import JSON, convert, quote, scan_value

_NAMES = frozenset({"name", "tool_name"})
_ARGUMENTS = frozenset({"arguments", "parameters"})
_WRAPPERS = frozenset({"function", "tool_call", "tool_calls", "function_call"})
_MAX_WRAPPERS = 3
_FENCES = Markers(["```json", "```"])
_FENCE_END = Markers(["```"])
_CODE_TOOLS = ("python", "ipython", "code_interpreter")


@dataclass(frozen=True)
class JsonCalls(Syntax):
    """Calls as JSON objects.

    Attributes
    ----------
    opens, closes
        What stands before and after; each of what stands after may be missing.
    before, after
        What the grammar writes between opener and JSON, and between JSON and the closers.
    array
        What the grammar writes before, between and after the elements, when the calls are elements of an array; in
        what is read, they may always be.
    keys
        What the grammar calls name and arguments; None: the name is the only key, and the arguments are its value.
    first
        What the grammar writes in the object before the name, with ``{id}`` for a number.
    together
        Several objects stand between one opener and one closer.
    join
        What stands between two calls.
    is_bare
        The calls may have no opener.
    code
        An opener after which, if no JSON follows, code for the interpreter comes.
    """

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    array: tuple[str, str, str] | None = None
    keys: tuple[str, str] | None = ("name", "arguments")
    first: str = ""
    together: bool = False
    join: str = "\n"
    is_bare: bool = False
    code: str = ""
    _closers: tuple[Markers, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_closers", tuple(Markers([word]) for word in self.closes))

    @property
    def openers(self) -> tuple[str, ...]:
        """Words with which calls begin."""
        return (*self.opens, self.code) if self.code else self.opens

    @property
    def bare(self) -> str:
        """Characters with which calls without an opener begin."""
        return "{[`" if self.is_bare else ""

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are not text."""
        return (*self.openers, *self.closes)

    # reading

    def read(self, calls: Calls, opener: str) -> Steps[None]:
        """Read calls, see `Syntax.read`."""
        source = calls.source
        character = yield from source.skip_space()
        is_fenced = not opener and (yield from source.match(_FENCES)) is not None
        if is_fenced:
            character = yield from source.skip_space()
        if opener and opener == self.code and character != "{":
            yield from _read_code(calls)
            return
        if character == "[":
            source.take(source.at + 1)
            yield from read_array(calls, is_keyed=self.keys is None)
        else:
            while True:
                yield from read_object(calls, strict=not opener, is_keyed=self.keys is None)
                character = yield from source.skip_space()
                if character == ";":
                    source.take(source.at + 1)
                    character = yield from source.skip_space()
                if character != "{":
                    break
        if is_fenced:
            yield from source.closer(_FENCE_END)
        elif opener:
            for closer in self._closers:
                yield from source.closer(closer)

    # writing

    @property
    def triggers(self) -> tuple[str, ...]:
        """Openers with which a text of the grammar begins."""
        return () if self.is_bare else self.opens[:1]

    @property
    def trigger_patterns(self) -> tuple[str, ...]:
        """Patterns for calls without an opener."""
        if not self.is_bare:
            return ()
        key = self.keys[0] if self.keys else ""
        return (r"^\s*(" + (escape(self.array[0]) if self.array else "") + r'\{"' + key + '": ")',)

    def example(self, name: str, key: str, value: str) -> str:
        """Return a call, see `Syntax.example`."""
        before, after = self._around
        arguments = json.dumps({key: value}, ensure_ascii=False)
        return f"{before}{self._head(name)}{arguments}}}{after}".replace("{id}", "0")

    def text_of(self, calls: Sequence[tuple[str, str]]) -> str:
        """Return calls as text, see `Syntax.text_of`."""
        before, after = self._around
        objects = [
            f"{self._head(name)}{arguments}}}".replace("{id}", str(at)) for at, (name, arguments) in enumerate(calls)
        ]
        if self.array or self.together:
            return before + (self.array[1] if self.array else self.join).join(objects) + after
        return self.join.join(before + one + after for one in objects)

    def grammar(self, rules: Rules, parallel: bool) -> str:
        """Add rules for calls, see `Syntax.grammar`."""
        rules.add("call", " | ".join(self._call(rules, index) for index in range(len(rules.functions))))
        between = self.array[1] if self.array else self.join
        before, after = map(literal, self._around)
        if self.array or self.together:
            return f"{before} {one_or_more('call', between if parallel else None)} {after}"
        return one_or_more(f"{before} call {after}", between if parallel else None)

    @property
    def _around(self) -> tuple[str, str]:
        """What stands before the first object and after the last."""
        opener = "" if self.is_bare or not self.opens else self.opens[0]
        start, _, end = self.array or ("", "", "")
        return opener + self.before + start, end + self.after + "".join(self.closes if opener else ())

    def _head(self, name: str) -> str:
        """Return an object up to its arguments."""
        quoted = json.dumps(name, ensure_ascii=False)
        if self.keys is None:
            return f"{{{quoted}: "
        return f'{{{self.first}"{self.keys[0]}": {quoted}, "{self.keys[1]}": '

    def _call(self, rules: Rules, index: int) -> str:
        before = " [0-9] [0-9]? ".join(map(literal, self._head(rules.functions[index][0]).split("{id}")))
        return f"{before} {rules.arguments(index)} {literal('}')}"


def read_array(calls: Calls, *, is_keyed: bool = False, depth: int = 0) -> Steps[None]:
    """Read calls after the bracket that opens their array, and its end.

    Parameters
    ----------
    calls
        The text, and where the calls go.
    is_keyed, depth
        See `read_object`.
    """
    source = calls.source
    while (yield from source.skip_space()) != "]":
        yield from read_object(calls, strict=True, is_keyed=is_keyed, depth=depth)
        if (yield from source.skip_space()) == ",":
            source.take(source.at + 1)
        elif (yield from source.peek()) != "]":
            raise NotACall
        source.keep()  # what came before is of calls that are told
    source.take(source.at + 1)


def read_object(calls: Calls, *, strict: bool, is_keyed: bool = False, depth: int = 0) -> Steps[None]:
    """Read a call.

    Parameters
    ----------
    calls
        The text, and where the call goes.
    strict
        What has other keys than those of calls is none.
    is_keyed
        The key is the name, and its value the arguments.
    depth
        How many objects it stands in that only say that it is a call.
    """
    source = calls.source
    name: str | None = None
    call_id: str | None = None
    arguments: str | None = None
    is_done = False
    if (yield from source.skip_space()) != "{":
        raise NotACall
    source.take(source.at + 1)
    while (character := (yield from source.skip_space())) != "}":
        if character != '"':
            raise NotACall
        key = yield from _text(calls)
        if (yield from source.skip_space()) != ":":
            raise NotACall
        source.take(source.at + 1)
        character = yield from source.skip_space()
        if is_keyed and not is_done and character == "{":
            calls.start(key)
            yield from scan_value(source, JSON, calls.write)
            calls.end()
            is_done = True
        elif key in _NAMES and character == '"' and name is None:
            name = yield from _text(calls)
            if not calls.tools.knows(name):
                raise NotACall
        elif key in _ARGUMENTS and arguments is None and not is_done:
            if character == "{" and name is not None:
                calls.start(name, call_id)
                yield from scan_value(source, JSON, calls.write)
                calls.end()
                is_done = True
            else:
                arguments = yield from _held_arguments(calls)
        elif key in _WRAPPERS and character == "{" and name is None and depth < _MAX_WRAPPERS:
            yield from read_object(calls, strict=strict, depth=depth + 1)
            is_done = True
        elif key in _WRAPPERS and character == "[" and name is None and depth < _MAX_WRAPPERS:
            source.take(source.at + 1)
            yield from read_array(calls, depth=depth + 1)
            is_done = True
        elif key == "id" and character == '"':
            call_id = yield from _text(calls)
        elif strict and key not in {"type", "id", "tool_call_id", "index"}:
            raise NotACall
        else:
            yield from scan_value(source, JSON, _drop)
        if (yield from source.skip_space()) == ",":
            source.take(source.at + 1)
        elif (yield from source.peek()) != "}":
            raise NotACall
    if name is None and not is_done:
        raise NotACall
    source.take(source.at + 1)
    if not is_done and name is not None:
        calls.whole(name, arguments or "{}", call_id)


def _drop(text: str) -> None:
    """Take text that nobody needs."""


def _text(calls: Calls) -> Steps[str]:
    """Read a string."""
    pieces: list[str] = []
    yield from scan_value(calls.source, JSON, pieces.append)
    return _loaded("".join(pieces))


def _held_arguments(calls: Calls) -> Steps[str]:
    """Read arguments that can't be told yet, since the name is missing, or since they are JSON text in a string."""
    pieces: list[str] = []
    yield from scan_value(calls.source, JSON, pieces.append)
    text = "".join(pieces)
    if text.startswith("{"):
        return text
    if text == "null":
        return "{}"
    if text.startswith('"'):
        found = convert(_loaded(text).strip() or "{}", JSON)
        if found is not None and found.startswith("{"):
            return found
    raise NotACall


def _loaded(text: str) -> str:
    """Return the text of a string of JSON, in which half characters are U+FFFD."""
    return str(json.loads(text)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_code(calls: Calls) -> Steps[None]:
    """Read code to the end of the text: a call of the interpreter, when there is one."""
    known: Callable[[str], bool] = calls.tools.knows
    name = next(filter(known, _CODE_TOOLS), None)
    character = yield from calls.source.peek()
    if name is None or not character:
        raise NotACall
    calls.start(name)
    calls.write('{"code": "')
    yield from calls.source.until(Markers(()), lambda text: calls.write(quote(text)))
    calls.write('"}')
    calls.end()
