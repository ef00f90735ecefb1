"""Completions in the shape of OpenAI's API, whole or as a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from llamacy.core.text import TextAssembler

if TYPE_CHECKING:
    from llamacy.core.vocab import Vocab
    from llamacy.generate.options import SamplingOptions
    from llamacy.generate.request import Request

Chunk = dict[str, Any]


class Completion:
    """One completion in progress.

    Parameters
    ----------
    request
        The request, begun.
    vocab
        Vocabulary of the model.
    options
        How tokens are picked.
    max_tokens
        Most tokens to generate.
    stop
        Strings that end the text.
    model_name
        Name that the result shows.
    """

    def __init__(
        self,
        request: Request,
        vocab: Vocab,
        options: SamplingOptions,
        max_tokens: int,
        stop: tuple[str, ...],
        model_name: str,
    ) -> None:
        self._request = request
        self._vocab = vocab
        self._max_tokens = max_tokens
        self._assembler = TextAssembler(vocab, stop)
        self._n_generated = 0
        self._head: Chunk = {
            "id": f"cmpl-{uuid.uuid4()}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model_name,
            "seed": options.drawn_seed,
        }

    def result(self) -> Chunk:
        """Generate to the end and return the whole completion."""
        text = "".join(self._pieces())
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": self._request.finish_reason}
        return {**self._head, "choices": [choice], "usage": self._usage()}

    def chunks(self) -> Generator[Chunk, None, None]:
        """Generate and yield the text as it comes; the last chunk has the finish reason and the usage."""
        head = self._head
        for text in self._pieces():
            yield {**head, "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": None}]}
        choice = {"text": "", "index": 0, "logprobs": None, "finish_reason": self._request.finish_reason}
        yield {**head, "choices": [choice], "usage": self._usage()}

    def _pieces(self) -> Iterator[str]:
        """Yield pieces of text that are not empty, and end the request however this ends."""
        request, assembler = self._request, self._assembler
        feed_token = assembler.feed_token
        try:
            if self._max_tokens == 0:
                request.prefill()
            for token in request.tokens(self._max_tokens, self._vocab):
                self._n_generated += 1
                if request.finish_reason is not None:
                    break
                text = feed_token(token)
                if text:
                    yield text
                if assembler.stopped:
                    request.finish_reason = "stop"
                    break
            text = assembler.finish()
            if text:
                yield text
        finally:
            request.end()

    def _usage(self) -> dict[str, int]:
        n_prompt, n_generated = self._request.n_prompt, self._n_generated
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_generated,
            "total_tokens": n_prompt + n_generated,
        }
