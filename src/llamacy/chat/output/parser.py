"""The parser of one text that a model writes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from llamacy.chat.output.events import Event
from llamacy.chat.output.tools import Tools
from llamacy.chat.output.turn import Turn

if TYPE_CHECKING:
    from llamacy.chat.output.format import OutputFormat


def make_call_id() -> str:
    """Return an id for a call that the model gave none."""
    return "call_" + uuid.uuid4().hex[:24]


class OutputParser:
    """Tells content, thinking and calls apart in a text that comes in pieces.

    How the text is cut into pieces makes no difference to what all events say together. Time and memory grow with the
    length of the text. No text raises.

    Parameters
    ----------
    output_format
        How the model writes.
    tools
        What may be called; None when any name may be. Calls of other functions are content.
    parse_tools
        False: calls are content.
    reasoning
        ``"auto"``: thinking is told apart. ``"none"``: it is content, with its tags.
    prompt_suffix
        The end of the prompt, which tells whether the model is thinking already.
    make_id
        Makes the ids of calls that have none.

    Thread safety: one thread at a time.
    """

    def __init__(
        self,
        output_format: OutputFormat,
        tools: Iterable[Mapping[str, Any]] | None = None,
        *,
        parse_tools: bool = True,
        reasoning: str = "auto",
        prompt_suffix: str = "",
        make_id: Callable[[], str] = make_call_id,
    ) -> None:
        if reasoning not in ("auto", "none"):
            raise ValueError(f'reasoning must be "auto" or "none", not {reasoning!r:.50}')
        self._turn = Turn(output_format, Tools(tools), parse_tools, reasoning == "auto", make_id)
        self._is_finished = False
        self._source = self._turn.source
        self._content = self._turn.content
        self._steps = output_format.layout.read(self._turn, prompt_suffix)
        next(self._steps, None)

    @property
    def is_thinking(self) -> bool:
        """The text so far ends within thinking: a word that begins a call elsewhere means nothing there."""
        return self._turn.is_thinking

    def feed(self, text: str) -> list[Event]:
        """Take the next piece of the text.

        Raises
        ------
        ValueError
            `finish` was called.
        """
        if self._is_finished:
            raise ValueError("the text is finished; make a parser for each text")
        self._source.feed(text)
        next(self._steps, None)
        return self._turn.events.take()

    def content_of(self, text: str) -> str | None:
        """Take the next piece of the text where it is content and nothing else, and return that content.

        This is what `feed` would say of it, at a fraction of the cost; white space at its end waits for what follows.
        Otherwise nothing is taken, and None returned.
        """
        awaited = self._source.awaited
        if awaited is None or (awaited.first in text if awaited.first else awaited.may_begin_in(text)):
            return None
        prose = self._content
        return text if prose.steady and not text[-1:].isspace() else prose.passed(text)

    def reasoning_of(self, text: str) -> str | None:
        """Take the next piece of the text where it is thinking and nothing else, as `content_of` does."""
        awaited = self._source.awaited_thoughts
        if awaited is None or (awaited.first in text if awaited.first else awaited.may_begin_in(text)):
            return None
        return self._turn.passed_thought(text)

    def finish(self) -> list[Event]:
        """End the text; what was held back comes now. A second call returns nothing."""
        if not self._is_finished:
            self._is_finished = True
            if self._source.awaited is None or not self._content.steady:
                self._source.ended = True
                next(self._steps, None)
        return self._turn.events.take()
