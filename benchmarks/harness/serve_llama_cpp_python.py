"""llama-cpp-python, as a user has it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import llama_cpp
from serve import Call, Items, Run, serve


class LlamaCppPythonEngine:
    """llama-cpp-python as the protocol wants it."""

    def __init__(self, model: str, n_ctx: int, n_batch: int, n_ubatch: int, **params: Any) -> None:
        self._model = model
        self._sizes: dict[str, Any] = {
            "n_ctx": n_ctx, "n_batch": n_batch, "n_ubatch": n_ubatch, "n_threads": 1, "n_threads_batch": 1,
            "verbose": False, **params,
        }  # fmt: skip
        self._llama = llama_cpp.Llama(model, **self._sizes)
        self._with_rows: Any = None

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

    def prepare(self, call: Call) -> Callable[[], Items]:
        """Prepare a call of the API."""
        llama = self._llama if call.logprobs is None else self._keeping_rows()
        if not call.keep:
            llama.reset()
        options: dict[str, Any] = {
            "max_tokens": call.max_tokens, "temperature": call.temperature, "seed": call.seed, "stream": call.stream,
            "repeat_penalty": 1.0, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
        }  # fmt: skip

        def begin() -> Items:
            if call.kind == "text":
                made = llama.create_completion(list(call.prompt), logprobs=call.logprobs, **options)
            else:
                made = llama.create_chat_completion(
                    call.messages,
                    tools=call.tools,
                    logprobs=None if call.logprobs is None else True,
                    top_logprobs=call.logprobs,
                    **options,
                )
            return call.texts(made if call.stream else [made])

        return begin

    def _keeping_rows(self) -> Any:
        """Return one that can tell log-probabilities: it keeps all rows of logits, so it is not made before."""
        if self._with_rows is None:
            self._with_rows = llama_cpp.Llama(self._model, **{**self._sizes, "n_ctx": 512}, logits_all=True)
        return self._with_rows


if __name__ == "__main__":
    serve(LlamaCppPythonEngine)
