"""What a parser tells while a model writes, and what it has told at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More text of the thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins; its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """More JSON text of the arguments of call `index`; all of it together is one JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """Call `index` has all its arguments. It is missing for a call that was cut off."""

    index: int


Event = ContentDelta | ReasoningDelta | ToolCallStart | ToolArgumentsDelta | ToolCallEnd


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model wrote.

    Attributes
    ----------
    id
        What the model wrote where its format has one, else a made one.
    name
        Name of the function.
    arguments
        JSON text of an object; of its beginning when the call is not complete.
    complete
        False when the text ended, or stopped being a call, within the arguments.
    """

    id: str
    name: str
    arguments: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """What a whole text says."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCall, ...] = field(default=())

    @staticmethod
    def of(events: Iterable[Event]) -> ParsedMessage:
        """Put events together.

        Parameters
        ----------
        events
            All events of one text, in order.
        """
        content: list[str] = []
        reasoning: list[str] = []
        starts: list[ToolCallStart] = []
        arguments: list[list[str]] = []
        ended: set[int] = set()
        for event in events:
            match event:
                case ContentDelta(text):
                    content.append(text)
                case ReasoningDelta(text):
                    reasoning.append(text)
                case ToolCallStart():
                    starts.append(event)
                    arguments.append([])
                case ToolArgumentsDelta(index, text):
                    arguments[index].append(text)
                case ToolCallEnd(index):
                    ended.add(index)
        calls = (
            ToolCall(start.id, start.name, "".join(pieces), start.index in ended)
            for start, pieces in zip(starts, arguments, strict=True)
        )
        return ParsedMessage("".join(content), "".join(reasoning), tuple(calls))
