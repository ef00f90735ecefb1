"""One turn of a model while it is read: what its layout has in common with all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llamacy.chat.output.sinks import Calls, Events, Prose
from llamacy.chat.output.source import Markers, NotACall, Source, Steps, Write
from llamacy.chat.output.tools import Tools

if TYPE_CHECKING:
    from llamacy.chat.output.format import OutputFormat

_PAIRED = '`"'


def _refuse(_: str) -> None:
    """Take nothing."""


class Turn:
    """The text of a turn, and where its parts go.

    Parameters
    ----------
    output_format
        How the model writes.
    tools
        What may be called.
    parse_tools
        Calls are told apart from the answer.
    parse_reasoning
        Thinking is told apart from the answer.
    make_id
        Makes the ids of calls.
    """

    def __init__(
        self,
        output_format: OutputFormat,
        tools: Tools,
        parse_tools: bool,
        parse_reasoning: bool,
        make_id: Callable[[], str],
    ) -> None:
        self.source = Source()
        self.events = Events()
        self.content = Prose(self.events.content)
        self.source.answer = self.content.write
        self.calls = Calls(self.source, self.events, self.content, tools, make_id)
        self.syntax = output_format.syntax if parse_tools else None
        self.parse_reasoning = parse_reasoning
        self.is_thinking = False
        self._has_thoughts = False
        #: Takes a piece of thinking in which nothing ends it, and returns what goes out; None where it has to be read.
        self.passed_thought: Callable[[str], str | None] = _refuse

    def think(self, start: str, ends: Markers) -> Steps[str | None]:
        """Read thinking to its end.

        A word in quotes, or between backticks, is spoken of and doesn't end it: the same mark stands right before and
        after it, and, but for the apostrophe, isn't the second of a pair on its line.

        Parameters
        ----------
        start
            What was read of its beginning.
        ends
            What may end it.

        Returns
        -------
        str or None
            The word that ended it; None at the end of the text.
        """
        self.is_thinking = True
        last = ""
        counts = dict.fromkeys(_PAIRED, 0)  # on the line so far
        write: Write
        prose = self.reasoning() if self.parse_reasoning else None
        if prose is not None:
            self.content.cut()
            write = prose.write
        else:
            write = self.content.write
            write(start)

        def follow(text: str) -> None:
            nonlocal last
            last = text[-1:] or last
            _, feed, end = text.rpartition("\n")
            for mark in _PAIRED:
                counts[mark] = end.count(mark) + (0 if feed else counts[mark])
            write(text)

        def passed(text: str) -> str | None:
            nonlocal last
            if prose is None or '"' in text or "`" in text:
                return None
            out = prose.passed(text)
            if out is not None:
                last = text[-1]
                if "\n" in text:
                    counts.update(dict.fromkeys(_PAIRED, 0))
            return out

        self.source.thoughts, self.passed_thought = follow, passed
        while True:
            word = yield from self.source.until(ends, follow)
            is_open = last == "'" or counts.get(last, 0) % 2 == 1
            if word is None or not is_open or (yield from self.source.peek()) != last:
                self.is_thinking = False
                return word
            follow(word)

    def reasoning(self) -> Prose:
        """Return where the next part of the thinking goes; parts are lines of their own."""
        has_begun = False

        def write(text: str) -> None:
            nonlocal has_begun
            if text and self._has_thoughts and not has_begun:
                text = "\n" + text
            has_begun = self._has_thoughts = True
            self.events.reasoning(text)

        return Prose(write, trimmed=True)

    def call(self, opener: str) -> Steps[None]:
        """Read calls after their opener; what is none becomes content."""
        if self.syntax is None:
            return
        count = self.calls.count
        self.source.keep(opener)
        try:
            yield from self.syntax.read(self.calls, opener)
            is_call = self.calls.count > count  # a list may be empty
        except NotACall:
            is_call = False
        rest = self.source.release()
        if not is_call:
            self.content.write(rest)
