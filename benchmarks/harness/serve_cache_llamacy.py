"""Chats with llamacy, as a user has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from serve_cache import Turn, serve

from llamacy import Llama

_RAM_BYTES = 2 << 30
# a chat of tokens generates this one again and again, so that the next prompt has what the memory has
_ONLY = 261


class LlamacyCache:
    """llamacy as the protocol wants it."""

    def __init__(self) -> None:
        self._llama: Llama | None = None

    def open(self, model: str, n_ctx: int, cache: str, folder: str) -> None:
        """Create an object."""
        if self._llama is not None:
            self._llama.close()
        # each sequence has a buffer of its own
        sequences: dict[str, Any] = {"n_seq_max": 2, "kv_unified": False} if cache == "sequences" else {}
        kept: Any = {"ram": _RAM_BYTES, "disk": folder}.get(cache)
        self._llama = Llama(model, n_ctx=n_ctx, n_threads=1, n_threads_batch=1, cache=kept, **sequences)

    def ask(self, prompt: list[Any], max_tokens: int) -> Turn:
        """Answer a chat."""
        llama, turn, usage = self._opened, Turn(), dict[str, Any]()
        options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0.0, "stream": True}
        made: Any
        if isinstance(prompt[0], dict):
            made = llama.create_chat_completion(prompt, **options)
        else:
            made = llama.create_completion(prompt, logit_bias={_ONLY: 1000.0}, **options)

        def texts() -> Iterator[str]:
            for chunk in made:
                usage.update(chunk.get("usage") or {})
                choice = chunk["choices"][0]
                yield (choice["delta"].get("content") or "") if "delta" in choice else choice["text"]

        turn.consume(texts())
        turn.n_prompt, turn.n_generated = usage["prompt_tokens"], usage["completion_tokens"]
        turn.n_cached = usage["prompt_tokens_details"]["cached_tokens"]
        store = llama.stats.store
        turn.n_stored = 0 if store is None else store.n_bytes
        return turn

    def state_calls(self) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        """Return its calls for the state."""
        return self._opened.save_state, self._opened.load_state

    @property
    def _opened(self) -> Llama:
        assert self._llama is not None
        return self._llama


if __name__ == "__main__":
    serve(LlamacyCache())
