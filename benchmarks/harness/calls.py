"""Calls of the API that people use, as a process that is measured gets them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """One call, or several of the same.

    Parameters
    ----------
    kind
        ``"text"`` for a completion, ``"chat"`` for a chat completion, or ``"loop"``: llamacy's `TextStream`, which both
        lie on, for the same prompt.
    prompt, messages
        Token ids, or what was said. A loop with messages has the prompt that a chat makes of them.
    max_tokens
        Tokens to generate.
    temperature, seed
        As in the API.
    stream
        As chunks, or as a whole.
    logprobs
        Tell the log-probabilities, and so many alternatives of each token.
    tools
        Tools of a chat.
    keep
        What the context holds of the prompt may be used.
    times
        How often it is made; above 1, once more before, to warm up.
    marks
        Numbers of chunks at which the time is noted; the end is always noted too.
    """

    kind: str
    max_tokens: int
    prompt: Sequence[int] = ()
    messages: Sequence[dict[str, Any]] = ()
    temperature: float = 0.8
    seed: int = 7
    stream: bool = True
    logprobs: int | None = None
    tools: Sequence[dict[str, Any]] | None = None
    keep: bool = False
    times: int = 1
    marks: Sequence[int] = (1,)

    def line(self) -> str:
        """Return the call as the protocol writes it."""
        return f"call {json.dumps(asdict(self))}"
