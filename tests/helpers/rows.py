"""The row of logits that a request of a `Llama` chose from first."""

from __future__ import annotations

from typing import Any


class Row:
    """A logits processor that keeps a copy of the row that came first."""

    def __init__(self) -> None:
        self.logits: Any = None

    def __call__(self, _: Any, scores: Any) -> None:
        if self.logits is None:
            self.logits = scores.copy()


def row_of(llama: Any, prompt: Any, **options: Any) -> tuple[Any, int]:
    """Return the logits after a prompt, and how many of its tokens were not computed."""
    row = Row()
    result = llama(prompt, **{"max_tokens": 1, "temperature": 0, **options}, logits_processor=row)
    return row.logits, result["usage"]["prompt_tokens_details"]["cached_tokens"]
