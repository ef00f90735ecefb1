"""What the requests of one `Llama` run on, and how a request becomes jobs."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from llamacy.core.logprobs import LogprobRecord
from llamacy.errors import MemoryOperationError, TokenizeError
from llamacy.generate.arguments import checked_count, checked_flag, checked_max_tokens
from llamacy.generate.callbacks import criteria, processors
from llamacy.generate.choice import Choice
from llamacy.generate.job import Job
from llamacy.generate.prompts import truncated
from llamacy.generate.run import Run
from llamacy.generate.slots import Slots
from llamacy.generate.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llamacy.core.context import Context
    from llamacy.core.text import TextAssembler
    from llamacy.generate.adapters import Adapters
    from llamacy.generate.arguments import RequestOptions
    from llamacy.generate.cache import CheckpointOptions
    from llamacy.generate.options import SamplingOptions

_Item = TypeVar("_Item")

# sets of words whose tokens are remembered; formats have a few each
_MAX_WORDS = 64


class Engine:
    """Makes requests run on a context.

    Parameters
    ----------
    context
        Where they run.
    capacity
        Tokens that prompt and completion may have together.
    context_shift
        Go on when the context is full, by dropping the older half of what it holds.
    n_keep
        Tokens at the beginning that stay then; -1 for the whole prompt.
    checkpoints
        Which ones are taken of a memory that can't be cut.
    adapters
        LoRA adapters that requests may ask for.

    Raises
    ------
    MemoryOperationError
        The memory of the model can't be shifted.
    CheckpointError
        Checkpoints of it can't be kept on the device.
    """

    def __init__(
        self,
        context: Context,
        capacity: int,
        *,
        context_shift: bool,
        n_keep: int,
        checkpoints: CheckpointOptions,
        adapters: Adapters,
    ) -> None:
        n_keep = checked_count("n_keep", n_keep, least=-1)
        context_shift = checked_flag("context_shift", context_shift)
        if context_shift and capacity < 2:
            raise ValueError(f"context_shift needs an n_ctx of at least 2, not {capacity}")
        if context_shift and not (context.memory is not None and context.memory.can_shift):
            raise MemoryOperationError("the memory of this model can't be shifted; leave context_shift out")
        self.context = context
        self.vocab = context.model.vocab
        self.tokenizer = Tokenizer(self.vocab)
        self.model_name = context.model.name or Path(context.model.path or "").name
        self.slots = Slots(context, capacity, checkpoints)
        self._adapters = adapters
        self._context_shift = context_shift
        self._model_length = context.model.n_ctx_train
        self._n_keep = n_keep
        self._tokens_of: dict[tuple[str, ...], frozenset[int]] = {}

    def tokens_of(self, words: tuple[str, ...]) -> frozenset[int]:
        """Return the special tokens in some words; found out once for each tuple of them."""
        if not words:
            return frozenset()
        known = self._tokens_of.get(words)
        if known is None:
            if len(self._tokens_of) >= _MAX_WORDS:
                self._tokens_of.clear()
            special: set[int] = set()
            for word in words:
                # a vocabulary that can't spell a word has no token for it either
                with contextlib.suppress(TokenizeError):
                    ids = self.vocab.tokenize(word, add_special=False, parse_special=True)
                    special.update(token for token in ids if self.vocab.is_control(token))
            known = self._tokens_of[words] = frozenset(special)
        return known

    def prompt(self, tokens: array[int], max_tokens: int | None, request: RequestOptions) -> array[int]:
        """Return a prompt as it is, or without its middle when it is too long and that was asked for."""
        if not request.truncate_prompt:
            return tokens
        return truncated(
            tokens, self.slots.capacity, checked_max_tokens(max_tokens), max(self._n_keep, 0) + self._n_bos(tokens)
        )

    def jobs(
        self,
        prompt: array[int],
        n: int,
        max_tokens: int | None,
        request: RequestOptions,
        options: SamplingOptions,
        n_logprobs: int | None = None,
        *,
        score_prompt: bool = False,
        spelled: frozenset[int] = frozenset(),
    ) -> list[Job]:
        """Return the jobs of `n` choices for one prompt; each has a seed of its own, counted up from the first.

        With `n_logprobs` they take log-probabilities of the tokens and of so many likeliest ones at their places, also
        of the prompt with `score_prompt`.

        Raises
        ------
        TypeError, ValueError
            `max_tokens` is no count, a callback can't be called, or there are fewer tokens than `n_logprobs`.
        AdapterError
            The request asks for an adapter that it can't have.
        """
        if n_logprobs is not None and n_logprobs > self.vocab.n_tokens:
            raise ValueError(f"{n_logprobs} tokens can't be told at each place: the model has {self.vocab.n_tokens}")
        room = self.slots.capacity - len(prompt)
        n_most = checked_max_tokens(max_tokens)
        if n_most is None:
            # a model that doesn't end would go on forever
            n_most = max(room, self._model_length) if self._context_shift else room
        if not self._context_shift:
            n_most = max(min(n_most, room), 0)
        scores = LogprobRecord(n_logprobs or 0) if score_prompt else None
        applied = self._adapters.applied(request.lora, prompt)
        callbacks = processors(request.logits_processor), criteria(request.stopping_criteria)
        return [
            Job(
                prompt,
                min(n_most, 2**31 - 1),
                options if index == 0 else replace(options, seed=(options.drawn_seed + index) % (2**32 - 1)),
                request.grammar,
                request.grammar_first,
                spelled,
                *callbacks,
                logprobs=None if n_logprobs is None else LogprobRecord(n_logprobs),
                prompt_logprobs=scores,
                cache_prompt=request.cache_prompt,
                n_keep=self._kept(prompt) if self._context_shift else None,
                applied=applied,
            )
            for index in range(n)
        ]

    def run(self, jobs: Sequence[Job], assembler: Callable[[], TextAssembler], timeout_s: float | None) -> Run:
        """Return the jobs as a run that has not begun; `assembler` makes one for each."""
        return Run(self.slots, [Choice(index, job, assembler()) for index, job in enumerate(jobs)], timeout_s)

    def whole(self, run: Run, result: Callable[[], _Item]) -> _Item:
        """Return the result of a run; other threads wait for it."""
        with self.slots.lock:
            try:
                run.begin()
                return result()
            finally:
                try:
                    run.end()
                except KeyboardInterrupt:  # it must not keep the sequences from being given back
                    run.end()
                    raise

    def stream(self, run: Run, chunks: Callable[[], Iterator[_Item]]) -> Generator[_Item, None, None]:
        """Begin a run and return its chunks; it ends however the generator ends, also when dropped before it began."""
        try:
            run.begin()
            return ending(chunks(), run.end)
        except BaseException:
            run.end()
            raise

    def _kept(self, prompt: array[int]) -> int:
        n_keep = len(prompt) if self._n_keep < 0 else self._n_keep + self._n_bos(prompt)
        return min(n_keep, len(prompt), max(self.slots.capacity - 4, 0))

    def _n_bos(self, prompt: array[int]) -> int:
        """Return how many tokens of a prompt stay in any case: the one that begins every text, as in llama.cpp."""
        return int(len(prompt) > 0 and prompt[0] == self.vocab.bos)


def ending(items: Iterator[_Item], end: Callable[[], Any]) -> Generator[_Item, None, None]:
    """Return a generator of the items that calls `end` however it ends, also when it is dropped before it began."""

    def run() -> Generator[Any, None, None]:
        try:
            yield None
            yield from items
        finally:
            try:
                end()
            except KeyboardInterrupt:
                end()
                raise

    generator = run()
    next(generator)  # from here on, closing it runs the `finally`
    return generator
