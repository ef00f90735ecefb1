"""Chat completions in the shape of OpenAI's API, whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llamacy.generate.report import costs, head

if TYPE_CHECKING:
    from llamacy.chat.output.events import Event, ParsedMessage
    from llamacy.chat.output.parser import OutputParser
    from llamacy.generate import responses
    from llamacy.generate.choice import Choice
    from llamacy.generate.logprobs import LogprobWriter
    from llamacy.generate.run import Run


class ChatWriter:
    """Write what a run generates as a chat completion.

    Parameters
    ----------
    run
        What generates.
    model_name
        Name that the response shows.
    parsers
        For each choice, what tells content, reasoning and calls apart, or None: all is content.
    one_call
        The first call is told, and no other.
    logprobs
        Writes log-probabilities, or None.
    legacy
        The request had functions, not tools: the first call is told as a function call, too.
    n_truncated
        Tokens that were left out of the prompt.
    """

    def __init__(
        self,
        run: Run,
        model_name: str,
        *,
        parsers: Sequence[OutputParser | None],
        one_call: bool,
        logprobs: LogprobWriter | None,
        legacy: bool,
        n_truncated: int = 0,
    ) -> None:
        self._run = run
        self._parsers = parsers
        self._one_call = one_call
        self._logprobs = logprobs
        self._legacy = legacy
        self._n_truncated = n_truncated
        self._head = head(run, "chat.completion", "chatcmpl", model_name)

    def result(self) -> responses.ChatCompletion:
        """Generate to the end and return the whole."""
        texts: list[list[str]] = [[] for _ in self._parsers]
        entries: list[Any] = [[] for _ in self._parsers]
        for choice, text, numbers in self._run.all_events():
            if text:
                texts[choice.index].append(text)
            if numbers:
                entries[choice.index] += self._entries(choice, numbers)
        made = []
        for choice, pieces, content in zip(self._run.choices, texts, entries, strict=True):
            message, ends_with_call = self._message(choice, "".join(pieces))
            made.append(
                {
                    "index": choice.index,
                    "message": message,
                    "logprobs": None if self._logprobs is None else {"content": content, "refusal": None},
                    "finish_reason": self._finish_reason(choice, ends_with_call=ends_with_call),
                    "stop_reason": choice.stop,
                }
            )
        return {**self._head, "choices": made, **self._costs()}  # type: ignore[typeddict-item]

    def chunks(self, *, usage_apart: bool = False) -> Generator[responses.ChatCompletionChunk, None, None]:
        """Generate and yield the answer as it comes.

        The first chunk of each choice has the role, the last one its finish reason. The last one of all has the usage;
        with `usage_apart` it has no choice.
        """
        streams = [
            _Stream(choice.index, parser, one_call=self._one_call, legacy=self._legacy)
            for choice, parser in zip(self._run.choices, self._parsers, strict=True)
        ]
        begins = {**self._head, "object": "chat.completion.chunk"}
        n_open = len(streams)
        for choice, text, numbers in self._run.events():
            stream = streams[choice.index]
            if numbers:
                stream.entries += self._entries(choice, numbers)
            if text and stream.begun:
                # what most pieces are, without all that the others need
                name = "content"
                passed = stream.content_of(text)
                if passed is None:
                    name = "reasoning_content"
                    passed = stream.reasoning_of(text)
            else:
                passed = None
            if passed is not None:
                if not passed:
                    continue
                delta = {name: passed}
                if self._logprobs is None:
                    item = {"index": stream.index, "delta": delta, "logprobs": None, "finish_reason": None}
                else:
                    item = self._chunk(stream, delta)
                yield {**begins, "choices": [item]}  # type: ignore[typeddict-item]
                continue
            for delta in stream.deltas(text):
                yield {**begins, "choices": [self._chunk(stream, delta)]}  # type: ignore[typeddict-item]
            if text is None:
                n_open -= 1
                last = self._chunk(stream, {})
                last["finish_reason"] = self._finish_reason(choice, ends_with_call=stream.ends_with_call)
                last["stop_reason"] = choice.stop
                chunk = {**begins, "choices": [last]}
                if n_open == 0 and not usage_apart:
                    chunk.update(self._costs())
                yield chunk  # type: ignore[misc]
        if usage_apart:
            yield {**begins, "choices": [], **self._costs()}  # type: ignore[typeddict-item]

    def _chunk(self, stream: _Stream, delta: dict[str, Any]) -> dict[str, Any]:
        logprobs = None
        if self._logprobs is not None:
            logprobs = {"content": stream.entries, "refusal": None}
            stream.entries = []
        return {"index": stream.index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

    def _entries(self, choice: Choice, numbers: range) -> list[responses.ChatTokenLogprob]:
        record = choice.job.logprobs
        if self._logprobs is None or record is None:
            return []
        return self._logprobs.chat(record, numbers)["content"] or []

    def _message(self, choice: Choice, text: str) -> tuple[dict[str, Any], bool]:
        """Return the message of a text, and whether it calls tools, the last one not cut off."""
        parser = self._parsers[choice.index]
        if parser is None:
            return {"role": "assistant", "content": text}, False
        from llamacy.chat.output.events import ParsedMessage

        parsed = ParsedMessage.of([*parser.feed(text), *parser.finish()])
        if self._one_call:
            parsed = replace(parsed, tool_calls=parsed.tool_calls[:1])
        calls = parsed.tool_calls
        return _message(parsed, legacy=self._legacy), bool(calls) and calls[-1].complete

    def _finish_reason(self, choice: Choice, *, ends_with_call: bool) -> str | None:
        if not ends_with_call or choice.finish_reason != "stop":
            return choice.finish_reason
        return "function_call" if self._legacy else "tool_calls"

    def _costs(self) -> dict[str, Any]:
        return costs(self._run, self._n_truncated)


class _Stream:
    """The deltas of one choice.

    Attributes
    ----------
    begun
        The delta with the role has gone out.
    ends_with_call
        There are calls, and the last one is not cut off.
    content_of, reasoning_of
        Return the content, or thinking, that a piece of text brings where it is nothing else; otherwise None, and
        `deltas` is to be asked.
    """

    def __init__(self, index: int, parser: OutputParser | None, *, one_call: bool, legacy: bool) -> None:
        self.index = index
        self.ends_with_call = False
        self.entries: list[responses.ChatTokenLogprob] = []
        self.begun = False
        self.content_of: Callable[[str], str | None] = str if parser is None else parser.content_of
        self.reasoning_of: Callable[[str], str | None] = str if parser is None else parser.reasoning_of
        self._parser = parser
        self._one_call = one_call
        self._legacy = legacy

    def deltas(self, text: str | None) -> Generator[dict[str, Any], None, None]:
        """Yield what a piece of text brings; None is the end."""
        if not self.begun:
            self.begun = True
            yield {"role": "assistant", "content": ""}
        if self._parser is None:
            if text:
                yield {"content": text}
            return
        for event in self._parser.finish() if text is None else self._parser.feed(text):
            yield from self._event_deltas(event)

    def _event_deltas(self, event: Event) -> Generator[dict[str, Any], None, None]:
        from llamacy.chat.output import events

        if isinstance(event, events.ContentDelta):
            yield {"content": event.text}
        elif isinstance(event, events.ReasoningDelta):
            yield {"reasoning_content": event.text}
        elif self._one_call and event.index:
            return
        elif isinstance(event, events.ToolCallStart):
            self.ends_with_call = False
            function = {"name": event.name, "arguments": ""}
            yield self._call(event.index, function, {"id": event.id, "type": "function"})
        elif isinstance(event, events.ToolArgumentsDelta):
            yield self._call(event.index, {"arguments": event.text}, {})
        elif isinstance(event, events.ToolCallEnd):
            self.ends_with_call = True

    def _call(self, index: int, function: dict[str, str], what: dict[str, str]) -> dict[str, Any]:
        delta: dict[str, Any] = {"tool_calls": [{"index": index, **what, "function": function}]}
        if self._legacy and index == 0:
            delta["function_call"] = function
        return delta


def _message(parsed: ParsedMessage, *, legacy: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": parsed.content}
    if parsed.reasoning_content:
        message["reasoning_content"] = parsed.reasoning_content
    if parsed.tool_calls:
        message["content"] = parsed.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in parsed.tool_calls
        ]
        if legacy:
            message["function_call"] = dict(message["tool_calls"][0]["function"])
    return message
