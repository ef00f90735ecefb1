"""What a model writes, told apart: answer, thinking and tool calls, while it comes.

`detect` finds the format from the model's template; `OutputFormat.parser` reads one text in it, and
`OutputFormat.call_grammar` describes what the model must write when its calls are constrained.
"""

from llamacy.chat.output.detect import detect, format_names, named_format
from llamacy.chat.output.events import (
    ContentDelta,
    Event,
    ParsedMessage,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCall,
    ToolCallEnd,
    ToolCallStart,
)
from llamacy.chat.output.format import OutputFormat
from llamacy.chat.output.grammar import CallGrammar
from llamacy.chat.output.layout import Thinking
from llamacy.chat.output.parser import OutputParser

__all__ = [
    "CallGrammar",
    "ContentDelta",
    "Event",
    "OutputFormat",
    "OutputParser",
    "ParsedMessage",
    "ReasoningDelta",
    "Thinking",
    "ToolArgumentsDelta",
    "ToolCall",
    "ToolCallEnd",
    "ToolCallStart",
    "detect",
    "format_names",
    "named_format",
]
