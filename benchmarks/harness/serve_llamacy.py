"""llamacy, as a user has it: `Llama.generate` for tokens, a streamed `create_completion` for text."""

from __future__ import annotations

from collections import deque
from typing import Any

from serve import Run, serve

from llamacy import Llama


class LlamacyEngine:
    """llamacy as the protocol wants it."""

    def __init__(self, model: str, n_ctx: int, n_batch: int, n_ubatch: int) -> None:
        self._llama = Llama(model, n_ctx=n_ctx, n_batch=n_batch, n_ubatch=n_ubatch, n_threads=1, n_threads_batch=1)

    def run(self, run: Run) -> tuple[list[int], str, int]:
        """Carry out a request."""
        temperature = 0.0 if run.sampler == "greedy" else 0.8
        if not run.text:
            tokens: list[int] = []
            generated = self._llama.generate(
                run.prompt, max_tokens=run.n_generate, temperature=temperature, seed=run.seed
            )
            run.consume(generated, tokens)
            return tokens, "", len(tokens)
        chunks: deque[dict[str, Any]] = deque()
        stream = self._llama.create_completion(
            run.prompt, max_tokens=run.n_generate, temperature=temperature, seed=run.seed, stream=True
        )
        run.consume(stream, chunks)
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        return [], text, chunks[-1]["usage"]["completion_tokens"]


if __name__ == "__main__":
    serve(LlamacyEngine)
