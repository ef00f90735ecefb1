"""xllamacpp, as a user has it: its server without HTTP, whose answers are streamed to a callback."""

from __future__ import annotations

import json
from typing import Any

import xllamacpp
from serve import Run, serve


class XllamacppEngine:
    """xllamacpp as the protocol wants it."""

    def __init__(self, model: str, n_ctx: int, n_batch: int, n_ubatch: int) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = model
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, n_batch, n_ubatch
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.warmup = False
        params.verbosity = 0
        self._server = xllamacpp.Server(params)

    def run(self, run: Run) -> tuple[list[int], str, int]:
        """Carry out a request."""
        pieces: list[str] = []
        marks = iter(run.marks)
        mark = next(marks, None)

        def take(data: Any) -> None:
            nonlocal mark
            event = json.loads(data) if isinstance(data, (str, bytes)) else data
            for part in event if isinstance(event, list) else [event]:
                pieces.append(part["choices"][0]["text"] if "choices" in part else part["content"])
                if len(pieces) == mark:
                    run.note()
                    mark = next(marks, None)

        request = {
            "prompt": list(run.prompt),
            "max_tokens": run.n_generate,
            "stream": True,
            "seed": run.seed,
            "cache_prompt": False,
            "temperature": 0.0 if run.sampler == "greedy" else 0.8,
            "top_k": 40,
            "top_p": 0.95,
            "min_p": 0.05,
            "samplers": ["top_k", "top_p", "min_p", "temperature"],
        }
        self._server.handle_completions(json.dumps(request), take)
        return [], "".join(pieces), run.n_generate


if __name__ == "__main__":
    serve(XllamacppEngine)
