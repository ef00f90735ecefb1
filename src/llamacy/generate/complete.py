"""Requests for text completions: from what a caller gives to a run and what writes its response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamacy.core.text import TextAssembler
from llamacy.generate.arguments import (
    RequestOptions,
    checked_choices,
    checked_count,
    checked_flag,
    checked_name,
    checked_stop,
)
from llamacy.generate.completion import CompletionWriter
from llamacy.generate.infill import infill_tokens
from llamacy.generate.logprobs import LogprobWriter
from llamacy.generate.prompts import prompt_tokens, several_prompts

if TYPE_CHECKING:
    from array import array

    from llamacy.generate.engine import Engine
    from llamacy.generate.job import Job
    from llamacy.generate.options import SamplingOptions
    from llamacy.generate.run import Run

# most alternatives whose log-probabilities are told
MAX_LOGPROBS = 1024


class TextRequest:
    """A request for text completions.

    Parameters
    ----------
    engine
        What it runs on.
    prompt
        A text, token ids, or several of these.
    suffix
        Text that comes after what is generated; the prompt is what comes before.
    max_tokens
        Most tokens to generate; None or -1 for up to the end of the context.
    stop
        Strings that end the text.
    echo
        Let the text begin with the prompt.
    logprobs
        So many likeliest tokens are told at each place, with their log-probabilities; None tells nothing.
    n, best_of
        Choices for each prompt, and from how many of them these are taken, the likeliest.
    model_name
        Name that the response shows.
    request, options
        The rest.

    Raises
    ------
    TypeError, ValueError
        Something of this is wrong.
    """

    def __init__(
        self,
        engine: Engine,
        prompt: Any,
        *,
        suffix: str | None,
        max_tokens: int | None,
        stop: str | Sequence[str] | None,
        echo: bool,
        logprobs: int | None,
        n: int,
        best_of: int | None,
        model_name: str | None,
        suffix_first: bool,
        request: RequestOptions,
        options: SamplingOptions,
    ) -> None:
        echo = checked_flag("echo", echo)
        model_name = checked_name("model", model_name)
        n = checked_choices("n", n)
        n_made = n if best_of is None else checked_choices("best_of", best_of)
        if n_made < n:
            raise ValueError(f"best_of ({best_of}) must be at least n ({n})")
        if logprobs is not None:
            logprobs = checked_logprobs("logprobs", logprobs)
        self._engine = engine
        self._n, self._n_made = n, n_made
        stops = checked_stop(stop)
        vocab = engine.vocab
        jobs: list[Job] = []
        echoes: list[bytes] = []
        n_truncated = 0
        for item in several_prompts(prompt):
            if suffix is None:
                tokens = prompt_tokens(engine.tokenizer, item)
            else:
                tokens = self._infill(item, suffix, suffix_first)
            kept = engine.prompt(tokens, max_tokens, request)
            n_truncated += len(tokens) - len(kept)
            recorded = logprobs if logprobs is not None else 0 if n_made > n else None
            jobs += engine.jobs(
                kept, n_made, max_tokens, request, options, recorded, score_prompt=echo and logprobs is not None
            )
            whole = isinstance(item, (str, bytes)) and len(kept) == len(tokens)
            echoes += [self._text(item if whole else kept) if echo else b""] * n_made
        matched = engine.tokens_of(stops)
        self.run: Run = engine.run(jobs, lambda: TextAssembler(vocab, stops, matched=matched), request.timeout_s)
        self.writer = CompletionWriter(
            self.run,
            model_name or engine.model_name,
            echoes=echoes,
            logprobs=[None if logprobs is None else LogprobWriter(vocab) for _ in jobs],
            n_truncated=n_truncated,
        )

    def result(self) -> Any:
        """Generate to the end and return the response."""
        return self.writer.result(n_best=self._n if self._n_made > self._n else 0)

    def check_stream(self) -> None:
        """Refuse what can't be streamed.

        Raises
        ------
        ValueError
            The best of several is known at the end only.
        """
        if self._n_made > self._n:
            raise ValueError("with best_of above n the choices are known at the end only; leave stream=True out")

    def _infill(self, prefix: Any, suffix: str, suffix_first: bool) -> array[int]:
        if not isinstance(prefix, (str, bytes)):
            raise TypeError("with a suffix, the prompt must be text")
        return infill_tokens(self._engine.vocab, prefix, suffix, suffix_first=suffix_first)

    def _text(self, prompt: str | bytes | array[int]) -> bytes:
        if isinstance(prompt, str):
            return prompt.encode()
        return prompt if isinstance(prompt, bytes) else self._engine.vocab.detokenize(prompt, unparse_special=True)


def checked_logprobs(name: str, value: Any) -> int:
    """Return a number of alternatives.

    Raises
    ------
    TypeError, ValueError
        It is no int, or out of range.
    """
    if checked_count(name, value, least=0) > MAX_LOGPROBS:
        raise ValueError(f"{name} must be at most {MAX_LOGPROBS}, not {value}")
    return int(value)


def usage_apart(stream_options: Any, *, stream: Any) -> bool:
    """Return whether OpenAI's `stream_options` ask for a last chunk with nothing but the usage.

    Raises
    ------
    TypeError
        There is something else in them, or `stream` is no bool.
    ValueError
        Nothing is streamed.
    """
    checked_flag("stream", stream)
    if stream_options is None:
        return False
    if not isinstance(stream_options, Mapping):
        raise TypeError(f"stream_options must be a dict such as {{'include_usage': True}}, not {stream_options!r:.80}")
    options = dict(stream_options)
    wanted = bool(options.pop("include_usage", False))
    if options:
        raise TypeError(f"stream_options has include_usage only, not {', '.join(map(repr, options))}")
    if not stream:
        raise ValueError("stream_options are for a stream; leave them out, or give stream=True")
    return wanted
