"""Completions in the shape of OpenAI's API, whole or as a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from llamacy.core.stream import TextStream

if TYPE_CHECKING:
    from llamacy.core.stream import TokenStream
    from llamacy.core.text import TextAssembler

Chunk = dict[str, Any]


class Completion:
    """One completion in progress.

    Parameters
    ----------
    tokens
        What the model generates.
    assembler
        Makes text of it, and ends it at a stop string.
    n_prompt
        Tokens in the prompt.
    seed
        Seed that the tokens are picked with.
    model_name
        Name that the result shows.
    """

    def __init__(
        self, tokens: TokenStream, assembler: TextAssembler, n_prompt: int, seed: int, model_name: str
    ) -> None:
        self._tokens = tokens
        self._text = TextStream(tokens, assembler)
        self._n_prompt = n_prompt
        self._head: Chunk = {
            "id": f"cmpl-{os.urandom(16).hex()}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model_name,
            "seed": seed,
        }

    def result(self) -> Chunk:
        """Generate to the end and return the whole completion."""
        return self._last("".join(self._text))

    def chunks(self) -> Generator[Chunk, None, None]:
        """Generate and yield the text as it comes; the last chunk has the finish reason and the usage."""
        head = self._head
        for text in self._text:
            yield {**head, "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": None}]}
        yield self._last("")

    def _last(self, text: str) -> Chunk:
        n_prompt, n_generated = self._n_prompt, self._tokens.n_generated
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": self._tokens.finish_reason}
        usage = {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_generated,
            "total_tokens": n_prompt + n_generated,
        }
        return {**self._head, "choices": [choice], "usage": usage}
