"""Turns that are several messages, each of which says in its header what it is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from llamacy.chat.output.grammar import Rules, anything_but, literal
from llamacy.chat.output.layout import Layout, Thinking
from llamacy.chat.output.sinks import Calls
from llamacy.chat.output.source import NotACall, Steps, markers_of
from llamacy.chat.output.syntax import Syntax
from llamacy.chat.output.turn import Turn
from llamacy.chat.output.values import JSON, scan_value
from llamacy.types import ReasoningTags

_MAX_HEADER = 400
_FUNCTION = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_HEADS = '(" " | "<|channel|>commentary ")'
_REST = '("<|channel|>commentary json" | "<|channel|>commentary"? " <|constrain|>" " "? "json")'


@dataclass(frozen=True)
class HarmonyCalls(Syntax):
    """Calls as messages to a function: the header has its name, and the message is the arguments.

    Attributes
    ----------
    several
        There may be several in a turn; else the end of a call ends it.
    """

    several: bool = False

    @property
    def openers(self) -> tuple[str, ...]:
        """Words with which calls begin."""
        return ()

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are not text."""
        return ()

    @property
    def triggers(self) -> tuple[str, ...]:
        """Openers with which a text of the grammar begins."""
        return ("to=functions.",)

    def read(self, calls: Calls, opener: str) -> Steps[None]:
        """Read calls, see `Syntax.read`."""
        name = _FUNCTION.search(opener)
        if name is None or not calls.tools.knows(name[1]) or (yield from calls.source.skip_space()) != "{":
            raise NotACall
        calls.start(name[1])
        yield from scan_value(calls.source, JSON, calls.write)
        calls.end()

    def example(self, name: str, key: str, value: str) -> str:
        """Return a call, see `Syntax.example`."""
        arguments = json.dumps({key: value}, ensure_ascii=False)
        return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"

    def grammar(self, rules: Rules, parallel: bool) -> str:
        """Add rules for calls, see `Syntax.grammar`."""
        parts = (
            f"{literal(name)} {_REST} {literal('<|message|>')} {rules.arguments(index)}"
            for index, (name, _) in enumerate(rules.functions)
        )
        rules.add("call", " | ".join(parts))
        first = f"{literal('to=functions.')} call"
        if not (parallel and self.several):
            return first
        return f"{first} ({literal('<|end|><|start|>assistant')} {_HEADS} {first})*"


@dataclass(frozen=True)
class MessageLayout(Layout):
    """Messages with headers.

    Attributes
    ----------
    start
        What stands before the header of the turn's messages.
    message
        What ends a header.
    thinks, answers, thought_end
        Headers with which the grammar begins thinking and the answer, and what it ends thinking with.
    ends
        What ends a message.
    heads
        With what a header may begin.
    thought
        A pattern for the header of thinking.
    function
        A pattern for the header of a message that is the arguments of a call, if there are any.
    """

    start: str = "<|start|>assistant"
    message: str = "<|message|>"
    thinks: str = ""
    answers: str = "<|message|>"
    thought_end: str = ""
    ends: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    thought: re.Pattern[str] = re.compile("(?!)")
    function: re.Pattern[str] | None = None

    @property
    def thinking(self) -> Thinking | None:
        """What thinking stands between, if that is all that tells it apart."""
        return None

    def answer(self, rules: Rules, answer: str, prompt_suffix: str) -> str:
        """Add rules for an answer, see `Layout.answer`."""
        given = self._given(prompt_suffix)
        if given.endswith(self.message) and not self.is_thinking(given):
            return answer
        return f"{self._thoughts(rules, prompt_suffix)} {literal(self.answers)} {answer}"

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are not text."""
        specials = (head for head in self.heads if head.startswith("<|"))
        return (self.start.removesuffix("assistant"), self.message, *self.ends, *specials)

    def reasoning(self, prompt_suffix: str) -> ReasoningTags | None:
        """Return what thinking stands between, see `Layout.reasoning`."""
        given = self._given(prompt_suffix)
        is_open = given.endswith(self.message) and self.is_thinking(given)
        return ReasoningTags(self.thinks.strip(), (*self.ends, self.start), is_open=is_open, anywhere=True)

    def is_thinking(self, header: str) -> bool:
        """Tell whether a message is thinking."""
        return self.thought.search(header) is not None

    def is_call(self, header: str) -> bool:
        """Tell whether a message is the arguments of a call."""
        return self.function is not None and self.function.search(header) is not None

    def read(self, turn: Turn, prompt_suffix: str) -> Steps[None]:
        """Read a turn, see `Layout.read`."""
        source, content = turn.source, turn.content
        source.feed(self._given(prompt_suffix))
        openers = turn.syntax.openers if turn.syntax is not None else ()
        channel = tuple(head for head in self.heads if head == "<|channel|>")
        ends = markers_of(*self.ends, self.start)
        words = markers_of(*self.ends, self.start, *channel, *openers)
        word: str | None = ""
        while word is not None:
            header = yield from self._header(turn, word if word in channel else "")
            if header and self.is_thinking(header):
                word = yield from turn.think(header, ends)
                if word is not None and not turn.parse_reasoning:
                    content.write(word)
                continue
            if header and self.is_call(header):
                if turn.syntax is None:
                    content.write(header)
                yield from turn.call(header)
            while (word := (yield from source.until(words, content.write))) in openers and word is not None:
                yield from turn.call(word)
            if word is not None:
                # the next message is on a line of its own
                content.write("\n")
                content.cut()
        content.end()

    def _given(self, prompt_suffix: str) -> str:
        """Return the header that the prompt began."""
        _, found, given = prompt_suffix.rpartition(self.start)
        if not found or any(end in given for end in self.ends):
            return ""
        before, end, _ = given.partition(self.message)
        return before + end

    def _header(self, turn: Turn, begun: str) -> Steps[str]:
        """Read a header with what ends it; nothing where there is none, and then what was read is content."""
        source = turn.source
        heads = markers_of(*self.heads, self.message)
        starts = markers_of(self.start, self.start.removesuffix("assistant"))
        if not begun:
            while (yield from source.match(starts)) is not None:
                pass
            word = yield from source.match(heads)
            if word is None:
                return ""
            begun = word
        source.keep(begun)
        try:
            if begun != self.message:
                end = yield from source.until(markers_of(self.message), _drop, _MAX_HEADER)
                if end is None:
                    raise NotACall
        except NotACall:
            turn.content.write(source.release())
            return ""
        return source.release()

    def _thoughts(self, rules: Rules, prompt_suffix: str) -> str:
        """Return an expression for thinking that may come first, up to the next header."""
        given = self._given(prompt_suffix)
        rules.pattern("thoughts", anything_but(self.thought_end))
        rest = f"thoughts {literal(self.thought_end + self.start)}"
        if given.endswith(self.message) and self.is_thinking(given):
            return rest
        return f"({literal(self.thinks)} {rest})?"


@dataclass(frozen=True)
class HarmonyLayout(MessageLayout):
    """Channels, and messages to functions (gpt-oss)."""

    thinks: str = "<|channel|>analysis<|message|>"
    answers: str = "<|channel|>final<|message|>"
    thought_end: str = "<|end|>"
    ends: tuple[str, ...] = ("<|end|>", "<|return|>", "<|call|>")
    heads: tuple[str, ...] = ("<|channel|>", " to=", "to=", "<|constrain|>")

    thought: re.Pattern[str] = re.compile(r"\A(?!.*\bto=).*<\|channel\|>\s*analysis\b", re.DOTALL)
    function: re.Pattern[str] | None = _FUNCTION

    def grammar(self, rules: Rules, syntax: Syntax, parallel: bool, required: bool, prompt_suffix: str) -> str:
        """Add rules for calls, see `Layout.grammar`."""
        calls = syntax.grammar(rules, parallel)
        if not required:
            return calls
        thoughts = self._thoughts(rules, prompt_suffix)
        return f"{thoughts} {_HEADS} {calls}"


@dataclass(frozen=True)
class RecipientLayout(MessageLayout):
    """Messages to the user, to oneself, which is thinking, and to tools, whose calls stand in the text."""

    thinks: str = " to=self<|message|>"
    thought_end: str = "<|eom|>"
    ends: tuple[str, ...] = ("<|eom|>", "<|eot|>")
    heads: tuple[str, ...] = (" to=", "to=")

    thought: re.Pattern[str] = re.compile(r"\A\s*to=self\b")

    def grammar(self, rules: Rules, syntax: Syntax, parallel: bool, required: bool, prompt_suffix: str) -> str:
        """Add rules for calls, see `Layout.grammar`."""
        calls = syntax.grammar(rules, parallel)
        if parallel or required:
            rules.add("recipient", " | ".join(literal(name) for name, _ in rules.functions))
        header = f'" to=" recipient {literal(self.message)}'
        if parallel:
            rules.add("calls", calls)
            calls = f"calls ({literal(self.thought_end + self.start)} {header} calls)*"
        if not required:
            return calls
        return f"{self._thoughts(rules, prompt_suffix)} {header} {calls}"


def _drop(text: str) -> None:
    """Take text that is kept already."""
