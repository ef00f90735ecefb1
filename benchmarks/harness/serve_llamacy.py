"""llamacy, as a user has it: `Llama.generate` for tokens, a streamed `create_completion` for text."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

from serve import Call, Items, Run, serve

from llamacy import Llama
from llamacy.core.logprobs import LogprobRecord
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.core.stream import TextStream, TokenStream
from llamacy.core.text import TextAssembler
from llamacy.generate.options import SamplingOptions


class LlamacyEngine:
    """llamacy as the protocol wants it."""

    def __init__(self, model: str, n_ctx: int, n_batch: int, n_ubatch: int, **params: Any) -> None:
        sizes: dict[str, Any] = {"n_ctx": n_ctx, "n_batch": n_batch, "n_ubatch": n_ubatch}
        self._llama = Llama(model, **sizes, n_threads=1, n_threads_batch=1, **params)
        self._scheduler = Scheduler(self._llama.context)
        self._sequence = Sequence(0, n_ctx)

    def run(self, run: Run) -> tuple[list[int], str, int]:
        """Carry out a request."""
        # no part of the request before may be used again: the others compute the whole prompt too
        self._llama.reset()
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

    def prepare(self, call: Call) -> Callable[[], Items]:
        """Prepare a call of the API, or the loop that lies below it."""
        llama = self._llama
        if call.kind == "loop":
            return self._loop(call)
        if not call.keep:
            llama.reset()
        options: dict[str, Any] = {
            "max_tokens": call.max_tokens, "temperature": call.temperature, "seed": call.seed, "stream": call.stream,
        }  # fmt: skip
        prompt = array("i", call.prompt)

        def begin() -> Items:
            made: Any
            if call.kind == "text":
                made = llama.create_completion(prompt, logprobs=call.logprobs, **options)
            else:
                made = llama.create_chat_completion(
                    call.messages,
                    tools=call.tools,
                    logprobs=call.logprobs is not None,
                    top_logprobs=call.logprobs,
                    **options,
                )
            return call.texts(made if call.stream else [made])

        return begin

    def _loop(self, call: Call) -> Callable[[], Items]:
        """Return what begins a `TextStream` on the same context, with as little around it as there can be."""
        llama, scheduler, sequence = self._llama, self._scheduler, self._sequence
        vocab = llama.model.vocab
        if call.messages:
            prompt = vocab.tokenize(llama.chat_prompt(call.messages, tools=call.tools), parse_special=True)
        else:
            prompt = array("i", call.prompt)
        options = SamplingOptions(temperature=call.temperature, seed=call.seed)
        chains = [options.chain(vocab, prompt, n_ctx=llama.n_ctx()) for _ in range(call.times + 1)]
        lock = threading.RLock()

        def begin() -> Items:
            scheduler.resume(sequence, prompt)
            sequence.sampler = chains.pop()
            sequence.logprobs = None if call.logprobs is None else LogprobRecord(call.logprobs)
            scheduler.add(sequence)
            tokens = TokenStream(scheduler, sequence, vocab, call.max_tokens, lock=lock)
            return TextStream(tokens, TextAssembler(vocab))

        return begin


if __name__ == "__main__":
    serve(LlamacyEngine)
