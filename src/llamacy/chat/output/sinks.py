"""Where what was read goes: text, thinking and calls become events."""

from __future__ import annotations

from collections.abc import Callable

from llamacy.chat.output.events import (
    ContentDelta,
    Event,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from llamacy.chat.output.source import NotACall, Source
from llamacy.chat.output.tools import Tools


class Events:
    """Events that nobody has taken; neighbours of one kind become one."""

    __slots__ = ("_kind", "_list", "_pieces")

    def __init__(self) -> None:
        self._list: list[Event] = []
        self._kind: Callable[[str], Event] | int | None = None
        self._pieces: list[str] = []

    def take(self) -> list[Event]:
        """Return the events since the last time."""
        self._settle(None)
        events, self._list = self._list, []
        return events

    def add(self, event: Event) -> None:
        """Add an event."""
        self._settle(None)
        self._list.append(event)

    def content(self, text: str) -> None:
        """Add text of the answer."""
        self._settle(ContentDelta)
        self._pieces.append(text)

    def reasoning(self, text: str) -> None:
        """Add text of the thinking."""
        self._settle(ReasoningDelta)
        self._pieces.append(text)

    def arguments(self, index: int, text: str) -> None:
        """Add text of a call's arguments."""
        self._settle(index)
        self._pieces.append(text)

    def _settle(self, kind: Callable[[str], Event] | int | None) -> None:
        """Make an event of the pieces before something of another kind comes."""
        if kind == self._kind:
            return
        text = "".join(self._pieces)
        if text and self._kind is not None:
            made = ToolArgumentsDelta(self._kind, text) if isinstance(self._kind, int) else self._kind(text)
            self._list.append(made)
        self._kind = kind
        self._pieces = []


class Prose:
    """Text, of which white space beside a cut is left out.

    Parameters
    ----------
    write
        Takes the text.
    trimmed
        The text begins at a cut.

    Attributes
    ----------
    given
        How many characters the prompt had, and not the model.
    steady
        A text goes out as it is now, but for white space at its end.
    """

    __slots__ = ("_cut", "_empty", "_space", "_write", "given", "steady")

    def __init__(self, write: Callable[[str], None], *, trimmed: bool = False) -> None:
        self._write = write
        self.given = 0
        self.steady = False
        self._empty = True
        self._cut = trimmed
        self._space: list[str] = []

    def write(self, text: str) -> None:
        """Write text; white space at its end waits for what follows."""
        if self.given:
            text, self.given = text[self.given :], max(0, self.given - len(text))
        body = text.rstrip()
        if not body:
            self.steady = False
            self._space.append(text)
            return
        space = "".join(self._space)
        self.steady = len(body) == len(text)
        self._space = [] if self.steady else [text[len(body) :]]
        if self._cut and self._empty:
            body = body.lstrip()
        else:
            body = space + body
        self._cut = False
        self._empty = False
        self._write(body)

    def passed(self, text: str) -> str | None:
        """Return what `write` would write of a text, which counts as written; None where it has to be asked."""
        if self._cut or self.given or not text:
            return None
        body = text.rstrip()
        if not body:
            self.steady = False
            self._space.append(text)
            return ""
        space = "".join(self._space)
        self.steady = len(body) == len(text)
        self._space = [] if self.steady else [text[len(body) :]]
        self._empty = False
        return space + body

    def cut(self) -> None:
        """Say that something was taken out of the text here."""
        self._cut = True
        self.steady = False
        self.given = 0

    def end(self) -> None:
        """Write white space that ends the text, unless it is at a cut."""
        if not self._cut:
            self._write("".join(self._space))
        self._space = []


class Calls:
    """Calls, of which nothing can be taken back once they have begun.

    Parameters
    ----------
    source
        The text; what was read of it since `begin` comes back as content when it turns out to be no call.
    events
        Where the calls go.
    content
        Where everything else goes.
    tools
        What may be called.
    make_id
        Makes the id of a call that has none.
    """

    __slots__ = ("_ids", "_index", "_make_id", "content", "events", "source", "tools")

    def __init__(
        self, source: Source, events: Events, content: Prose, tools: Tools, make_id: Callable[[], str]
    ) -> None:
        self.source = source
        self.events = events
        self.content = content
        self.tools = tools
        self._make_id = make_id
        self._index = -1
        self._ids: set[str] = set()

    @property
    def count(self) -> int:
        """How many calls have begun."""
        return self._index + 1

    def start(self, name: str, call_id: str | None = None) -> None:
        """Begin a call.

        Raises
        ------
        NotACall
            There is no such function.
        """
        if not self.tools.knows(name):
            raise NotACall
        self.source.release()
        self.content.cut()
        self._index += 1
        if not call_id or call_id in self._ids:
            call_id = self._make_id()
        self._ids.add(call_id)
        self.events.add(ToolCallStart(self._index, call_id, name))

    def write(self, text: str) -> None:
        """Add JSON text to the arguments of the call."""
        self.events.arguments(self._index, text)

    def end(self) -> None:
        """End the call; what follows is kept again."""
        self.events.add(ToolCallEnd(self._index))
        self.source.keep()

    def whole(self, name: str, arguments: str, call_id: str | None = None) -> None:
        """Write a call at once."""
        self.start(name, call_id)
        self.write(arguments)
        self.end()
