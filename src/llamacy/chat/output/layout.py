"""How thinking, answer and calls follow each other in a turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from llamacy.chat.output.grammar import Rules, anything_but, escape, literal
from llamacy.chat.output.source import Steps, markers_of
from llamacy.chat.output.syntax import Syntax
from llamacy.chat.output.turn import Turn
from llamacy.types import ReasoningTags


@dataclass(frozen=True)
class Thinking:
    """What thinking stands between.

    Attributes
    ----------
    start, end
        The tags.
    has_calls
        The opener of a call ends the thinking as well.
    """

    start: str
    end: str
    has_calls: bool = False

    def is_open(self, prompt_suffix: str) -> bool:
        """Tell whether the prompt ends where thinking begins."""
        return prompt_suffix.rstrip().endswith(self.start.rstrip())


_LINES = r'(" " | "\n" "\n"?)?'
_UNDECLARED = Thinking("<think>", "</think>")


class Layout(ABC):
    """How a turn is laid out."""

    @property
    @abstractmethod
    def thinking(self) -> Thinking | None:
        """What thinking stands between, if that is all that tells it apart."""

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """All words that are not text: special tokens of the model may be among them."""

    @abstractmethod
    def reasoning(self, prompt_suffix: str) -> ReasoningTags | None:
        """Return what thinking stands between, for a grammar whose triggers mean nothing there; None where they do."""

    @abstractmethod
    def read(self, turn: Turn, prompt_suffix: str) -> Steps[None]:
        """Read a turn.

        Parameters
        ----------
        turn
            The text, and where its parts go.
        prompt_suffix
            The end of the prompt.
        """

    @abstractmethod
    def grammar(self, rules: Rules, syntax: Syntax, parallel: bool, required: bool, prompt_suffix: str) -> str:
        """Add rules for calls, and return the expression for what the model writes."""

    @abstractmethod
    def answer(self, rules: Rules, answer: str, prompt_suffix: str) -> str:
        """Add rules for what stands around an answer, and return the expression for what the model writes.

        Parameters
        ----------
        rules
            Where they are added.
        answer
            Name of the rule for the answer itself.
        prompt_suffix
            The end of the prompt.
        """


@dataclass(frozen=True)
class TagLayout(Layout):
    """Thinking between tags, then the answer, with calls in it.

    Attributes
    ----------
    tags
        What thinking stands between; None when the template doesn't say: then ``<think>`` is understood, and never
        asked for.
    dropped
        Words around the answer that are not part of it.
    between, after
        What the grammar lets the model write between thinking and calls, and after them.
    """

    tags: Thinking | None = None
    dropped: tuple[str, ...] = ()
    between: str = ""
    after: str = ""

    @property
    def thinking(self) -> Thinking | None:
        """What thinking stands between, if that is all that tells it apart."""
        return self.tags

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are not text."""
        tags = self.tags or _UNDECLARED
        return (tags.start, tags.end, *self.dropped)

    def reasoning(self, prompt_suffix: str) -> ReasoningTags | None:
        """Return what thinking stands between, see `Layout.reasoning`."""
        tags = self.tags or _UNDECLARED
        if tags.has_calls:
            return None
        return ReasoningTags(tags.start, tags.end, is_open=tags.is_open(prompt_suffix))

    def read(self, turn: Turn, prompt_suffix: str) -> Steps[None]:
        """Read a turn, see `Layout.read`."""
        source, content, syntax, thinking = turn.source, turn.content, turn.syntax, self.tags or _UNDECLARED
        openers = syntax.openers if syntax is not None else ()
        words = markers_of(*openers, *self.dropped)
        begins = markers_of(thinking.start, thinking.end)
        ends = markers_of(thinking.end, *(openers if thinking.has_calls else ()))
        is_start = True
        word = None
        begun = next((opener for opener in openers if prompt_suffix.endswith(opener)), "")
        source.feed(begun)
        content.given = len(begun)
        if thinking.is_open(prompt_suffix):
            turn.is_thinking = True
            # some write the tag again
            yield from source.skip_space(None if turn.parse_reasoning else content.write)
            again = yield from source.match(markers_of(thinking.start))
            word = yield from turn.think(again or "", ends)
            _close(turn, word, thinking)
        elif prompt_suffix.rstrip().endswith(thinking.end):
            content.cut()
        while True:
            if word in openers and word is not None:
                count = turn.calls.count
                yield from turn.call(word)
                is_start = turn.calls.count > count
            if is_start:
                is_start = False
                character = yield from source.skip_space(content.write)
                if (word := (yield from source.match(begins))) is not None:
                    if word == thinking.start:
                        word = yield from turn.think(word, ends)
                    _close(turn, word, thinking)
                    is_start = True
                    continue
                if syntax is not None and character and character in syntax.bare:
                    count = turn.calls.count
                    yield from turn.call("")
                    is_start = turn.calls.count > count
                    word = None
                    continue
            word = yield from source.until(words, content.write)
            if word is None:
                break
            if word in self.dropped:
                content.cut()
                is_start = True
        content.end()

    def grammar(self, rules: Rules, syntax: Syntax, parallel: bool, required: bool, prompt_suffix: str) -> str:
        """Add rules for calls, see `Layout.grammar`."""
        calls = syntax.grammar(rules, parallel)
        if self.after:
            calls = f"{calls} {literal(self.after)}?"
        if not required:
            return calls
        tags, suffix = self.tags, prompt_suffix.rstrip()
        if self.between:
            calls = f"{literal(self.between)}? {calls}"
        if tags is None or suffix.endswith(tags.end):
            return calls if rules.begun else f"{_LINES} {calls}"
        end = f"{literal(tags.end)} {_LINES}"
        if tags.has_calls:
            # the calls themselves may end it
            words = "|".join(map(escape, (tags.end, *syntax.triggers)))
            rules.pattern("thoughts", rf"(?:(?!{words})[\s\S])*")
            end = f"({end})?"
        else:
            rules.pattern("thoughts", anything_but(tags.end))
        if tags.is_open(prompt_suffix):
            return f"thoughts {end} {calls}"
        # some say with the end tag alone that they don't think
        return f"{_LINES} ({literal(tags.start)} thoughts {end} | {literal(tags.end)} {_LINES})? {calls}"

    def answer(self, rules: Rules, answer: str, prompt_suffix: str) -> str:
        """Add rules for an answer, see `Layout.answer`."""
        around = " | ".join(literal(word.removeprefix(rules.begun)) for word in self.dropped)
        form = f"({around}){{0,4}} {answer} ({around}){{0,4}}" if around else answer
        tags = self.tags
        if tags is None or prompt_suffix.rstrip().endswith(tags.end):
            return form
        rules.pattern("thoughts-before", anything_but(tags.end))
        end = f"{literal(tags.end)} {_LINES}"
        if tags.is_open(prompt_suffix):
            return f"thoughts-before {end} {form}"
        return f"({_LINES} ({literal(tags.start)} thoughts-before)? {end})? {form}"


def _close(turn: Turn, word: str | None, thinking: Thinking) -> None:
    """End thinking; its end tag is content when thinking is."""
    if turn.parse_reasoning:
        turn.content.cut()
    elif word == thinking.end:
        turn.content.write(word)
