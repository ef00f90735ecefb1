"""Text completions in the shape of OpenAI's API, whole or as a stream."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from llamacy.generate.report import costs, head

if TYPE_CHECKING:
    from llamacy.generate import responses
    from llamacy.generate.choice import Choice
    from llamacy.generate.logprobs import LogprobWriter
    from llamacy.generate.run import Run


class CompletionWriter:
    """Write what a run generates as a text completion.

    Parameters
    ----------
    run
        What generates.
    model_name
        Name that the response shows.
    echoes
        For each choice, the text that comes before what is generated.
    logprobs
        For each choice, what writes its log-probabilities, or None.
    n_truncated
        Tokens that were left out of the prompts.
    """

    def __init__(
        self,
        run: Run,
        model_name: str,
        *,
        echoes: Sequence[bytes],
        logprobs: Sequence[LogprobWriter | None],
        n_truncated: int = 0,
    ) -> None:
        self._run = run
        self._choices = choices = run.choices
        self._echoes = echoes
        self._logprobs = logprobs
        self._open = set(range(len(choices)))  # nothing of them was written yet
        self._n_truncated = n_truncated
        self._head = head(run, "text_completion", "cmpl", model_name)

    def result(self, *, n_best: int = 0) -> responses.Completion:
        """Generate to the end and return the whole; with `n_best` the likeliest choices of each prompt only."""
        texts: list[list[str]] = [[] for _ in self._choices]
        entries: list[responses.CompletionLogprobs | None] = [
            None if writer is None else writer.empty() for writer in self._logprobs
        ]
        for choice, text, numbers in self._run.all_events():
            index = choice.index
            if index in self._open:
                echo, opening = self._opening(choice)
                texts[index].append(echo)
                entries[index] = _extended(entries[index], opening)
            if text:
                texts[index].append(text)
            if numbers:
                entries[index] = _extended(entries[index], self._entries(choice, numbers))
        made = [
            self._choice(choice, "".join(texts[choice.index]), entries[choice.index], ended=True)
            for choice in self._choices
        ]
        if n_best:
            made = self._best(made, n_best)
        return {**self._head, "choices": made, **self._costs()}  # type: ignore[typeddict-item]

    def chunks(self, *, usage_apart: bool = False) -> Generator[responses.Completion, None, None]:
        """Generate and yield the text as it comes.

        The last chunk of each choice has its finish reason. The last one of all has the usage; with `usage_apart` it
        has no choice.
        """
        begins = self._head
        n_open = len(self._choices)
        for choice, text, numbers in self._run.events():
            if self._open and choice.index in self._open:
                echo, entries = self._opening(choice)
                if echo or entries:
                    yield self._chunk(self._choice(choice, echo, entries))
            if text is None:
                n_open -= 1
                last = self._chunk(self._choice(choice, "", None, ended=True))
                if n_open == 0 and not usage_apart:
                    last.update(self._costs())  # type: ignore[typeddict-item]
                yield last
            elif numbers:
                yield self._chunk(self._choice(choice, text, self._entries(choice, numbers)))
            elif text:
                item = {"text": text, "index": choice.index, "logprobs": None, "finish_reason": None}
                yield {**begins, "choices": [item]}  # type: ignore[typeddict-item]
        if usage_apart:
            yield {**begins, "choices": [], **self._costs()}  # type: ignore[typeddict-item]

    def _opening(self, choice: Choice) -> tuple[str, responses.CompletionLogprobs | None]:
        """Return what comes before the generated text: the echo, and the log-probabilities of the prompt."""
        self._open.discard(choice.index)
        writer, record = self._logprobs[choice.index], choice.job.prompt_logprobs
        echo = self._echoes[choice.index]
        entries = None if writer is None or record is None else writer.prompt(choice.job.prompt, record, echo)
        return echo.decode("utf-8", "replace"), entries

    def _chunk(self, choice: responses.CompletionChoice) -> responses.Completion:
        return {**self._head, "choices": [choice]}  # type: ignore[typeddict-item]

    def _choice(
        self, choice: Choice, text: str, entries: responses.CompletionLogprobs | None, *, ended: bool = False
    ) -> responses.CompletionChoice:
        made: dict[str, Any] = {"text": text, "index": choice.index, "logprobs": entries, "finish_reason": None}
        if ended:
            made.update(finish_reason=choice.finish_reason, stop_reason=choice.stop)
        return made  # type: ignore[return-value]

    def _entries(self, choice: Choice, numbers: range) -> responses.CompletionLogprobs | None:
        writer = self._logprobs[choice.index]
        if writer is None or choice.job.logprobs is None:
            return None
        return writer.completion(choice.job.logprobs, numbers)

    def _best(self, made: list[responses.CompletionChoice], n: int) -> list[responses.CompletionChoice]:
        """Return the `n` choices of each prompt whose tokens are the likeliest on average."""
        groups: dict[int, list[tuple[float, int]]] = {}
        for choice in self._choices:
            record = choice.job.logprobs
            assert record is not None
            mean = record.sum / len(record) if len(record) else 0.0
            groups.setdefault(id(choice.job.prompt), []).append((-mean, choice.index))
        best = [made[index] for group in groups.values() for _, index in sorted(group)[:n]]
        return [{**choice, "index": index} for index, choice in enumerate(best)]

    def _costs(self) -> dict[str, Any]:
        return costs(self._run, self._n_truncated)


def _extended(
    entries: responses.CompletionLogprobs | None, more: responses.CompletionLogprobs | None
) -> responses.CompletionLogprobs | None:
    if entries is None or more is None:
        return entries or more
    for name, items in entries.items():
        items.extend(more[name])  # type: ignore[attr-defined, literal-required]
    return entries
