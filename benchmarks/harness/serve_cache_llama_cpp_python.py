"""Chats with llama-cpp-python, as a user has it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp
from serve_cache import Turn, serve


class LlamaCppPythonCache:
    """llama-cpp-python as the protocol wants it."""

    def __init__(self) -> None:
        self._llama: Any = None
        self._evaluated: list[tuple[int, int]] = []

    def open(self, model: str, n_ctx: int, cache: str, folder: str) -> None:
        """Create an object."""
        self._llama = llama_cpp.Llama(model, n_ctx=n_ctx, n_threads=1, n_threads_batch=1, verbose=False)
        if cache == "ram":
            self._llama.set_cache(llama_cpp.LlamaRAMCache())
        elif cache == "disk":
            self._llama.set_cache(llama_cpp.LlamaDiskCache(folder))
        evaluate = self._llama.eval

        # it tells nowhere what it computed
        def eval_and_note(tokens: Any) -> None:
            evaluate(tokens)
            self._evaluated.append((len(tokens), self._llama.n_tokens))

        self._llama.eval = eval_and_note

    def ask(self, prompt: list[Any], max_tokens: int) -> Turn:
        """Answer a chat."""
        turn, llama = Turn(), self._llama
        self._evaluated.clear()
        options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0.0, "repeat_penalty": 1.0, "stream": True}

        def texts() -> Iterator[str]:
            for chunk in llama.create_chat_completion(prompt, **options):
                text = chunk["choices"][0]["delta"].get("content") or ""
                turn.n_generated += bool(text)
                yield text

        # its disk cache writes to standard error
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
            turn.consume(texts())
        n_evaluated, n_held = self._evaluated[0]
        turn.n_prompt, turn.n_cached = n_held, n_held - n_evaluated
        turn.n_stored = llama.cache.cache_size if llama.cache is not None else 0
        return turn

    def state_calls(self) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        """Return its calls for the state."""
        return self._llama.save_state, self._llama.load_state


if __name__ == "__main__":
    serve(LlamaCppPythonCache())
