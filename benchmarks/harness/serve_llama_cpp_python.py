"""llama-cpp-python, as a user has it."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

import llama_cpp
from serve import Run, serve


class LlamaCppPythonEngine:
    """llama-cpp-python as the protocol wants it."""

    def __init__(self, model: str, n_ctx: int, n_batch: int, n_ubatch: int) -> None:
        self._llama = llama_cpp.Llama(
            model,
            n_ctx=n_ctx,
            n_batch=n_batch,
            n_ubatch=n_ubatch,
            n_threads=1,
            n_threads_batch=1,
            verbose=False,
        )

    def run(self, run: Run) -> tuple[list[int], str, int]:
        """Carry out a request."""
        # no part of the request before may be used again: the others compute the whole prompt too
        self._llama.reset()
        options: dict[str, Any] = {
            "temp" if not run.text else "temperature": 0.0 if run.sampler == "greedy" else 0.8,
            "repeat_penalty": 1.0,
            "top_k": 40,
            "top_p": 0.95,
            "min_p": 0.05,
        }
        if not run.text:
            self._llama.set_seed(run.seed)
            tokens: list[int] = []
            run.consume(islice(self._llama.generate(run.prompt, **options), run.n_generate), tokens)
            return tokens, "", len(tokens)
        chunks: deque[dict[str, Any]] = deque()
        stream = self._llama.create_completion(
            list(run.prompt), max_tokens=run.n_generate, seed=run.seed, stream=True, **options
        )
        run.consume(stream, chunks)
        return [], "".join(chunk["choices"][0]["text"] for chunk in chunks), run.n_generate


if __name__ == "__main__":
    serve(LlamaCppPythonEngine)
