"""The sequences of a context, handed to one request after the other."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence as _Sequence
from llamacy.core.stream import TokenStream
from llamacy.errors import ClosedError, ConcurrentUseError, ContextLengthError, InUseError, MemoryOperationError
from llamacy.generate.constraint import grammar_sampler

if TYPE_CHECKING:
    from array import array

    from llamacy.core.context import Context
    from llamacy.core.sampler import SamplerChain
    from llamacy.generate.adapters import Applied
    from llamacy.generate.cancellation import Cancellation
    from llamacy.generate.job import Job


class Slots:
    """Hands the sequences of a context to one request at a time.

    A sequence keeps what it holds when its request has ended, so that the next one computes only what is new. A request
    that was left in the middle (a stream that nobody reads on) gives way to the next one of the same thread, and to any
    once it is closed or garbage. While another thread still reads it, a new request is refused.

    Parameters
    ----------
    context
        Where the requests run.
    capacity
        Tokens that prompt and completion may have together.
    """

    def __init__(self, context: Context, capacity: int) -> None:
        self.scheduler = Scheduler(context)
        self.lock = threading.RLock()
        self._context = context
        self._vocab = context.model.vocab
        self._sequences = [_Sequence(seq_id, capacity) for seq_id in range(context.n_seq_max)]
        self._streams: list[TokenStream] = []
        self._in_use: list[_Sequence] = []
        self._cancellation: Cancellation | None = None
        self._shared = context.params.values["kv_unified"] or context.n_seq_max == 1

    @property
    def capacity(self) -> int:
        """Tokens that prompt and completion may have together."""
        return self._sequences[0].capacity

    @property
    def in_use(self) -> bool:
        """Whether a request has sequences, be it that it waits for its stream to be read."""
        return bool(self._in_use)

    def n_fitting(self, jobs: Sequence[Job]) -> int:
        """Return how many of these jobs, from the first on, can run at once; it is at least one."""
        n_most = min(len(jobs), len(self._sequences), _n_alike(jobs))
        if not self._shared:
            return n_most
        n_tokens, prompts = 0, set()
        for n, job in enumerate(jobs[:n_most]):
            n_tokens += job.max_tokens + (0 if id(job.prompt) in prompts else len(job.prompt))
            prompts.add(id(job.prompt))
            if n and (n_tokens > self.capacity or job.n_keep is not None):
                return n
        return n_most

    def check_lengths(self, jobs: Sequence[Job]) -> None:
        """Raise `ContextLengthError` when a prompt does not fit."""
        for job in jobs:
            if len(job.prompt) > self.capacity:
                raise ContextLengthError(
                    f"the prompt has {len(job.prompt)} tokens, but the context has room for {self.capacity}; "
                    "shorten it, let it be shortened (truncate_prompt=True), or use a larger n_ctx",
                    n_prompt=len(job.prompt),
                    n_ctx=self.capacity,
                )

    def begin(
        self,
        jobs: Sequence[Job],
        *,
        timeout_s: float | None = None,
        after: Sequence[TokenStream] = (),
        cancellation: Cancellation | None = None,
    ) -> list[TokenStream]:
        """Start a request of one or more jobs that run at once; a stream for each.

        Parameters
        ----------
        jobs
            What is generated.
        timeout_s
            Seconds after which it is aborted.
        after
            Streams of the same request that have come to their end.
        cancellation
            May end it.

        Raises
        ------
        ConcurrentUseError
            Another thread reads a stream, or this is called from a callback of a request.
        InUseError
            Another request has taken the place of `after`.
        ContextLengthError
            A prompt does not fit; the request before is still in place.
        GrammarError
            llama.cpp can't use a grammar; the same holds.
        DecodeAbortedError, DecodeError
            Several jobs share a prompt, and it could not be computed.
        """
        with self.lock:
            self._check(jobs)
            if after and after[0] not in self._streams:
                raise InUseError("a later request took over; a stream must be read before the next one begins")
            samplers = [
                None if job.grammar is None else grammar_sampler(job.grammar, self._vocab, spelled=job.spelled)
                for job in jobs
            ]
            chains = [self._chain(job) for job in jobs]
            self._retire()
            sequences = self._chosen(jobs)
            self._free_room(jobs, [sequence for sequence in self._sequences if sequence not in sequences])
            self._in_use = sequences
            try:
                if cancellation is not None:
                    self._cancellation = cancellation
                    cancellation.slots = self
                self.scheduler.set_timeout(timeout_s)
                self._hold_prompts(jobs, sequences)
                for job, sequence, chain, grammar in zip(jobs, sequences, chains, samplers, strict=True):
                    sequence.sampler = chain
                    sequence.grammar = grammar
                    sequence.grammar_first = job.grammar_first
                    sequence.processors = job.processors
                    sequence.criteria = job.criteria
                    sequence.logprobs = job.logprobs
                    sequence.prompt_logprobs = job.prompt_logprobs if job.scores_prompt else None
                    sequence.n_keep = job.n_keep
                    self.scheduler.add(sequence)
                    self._streams.append(
                        TokenStream(self.scheduler, sequence, self._vocab, job.max_tokens, lock=self.lock)
                    )
                self._heed_cancellation()
                return list(self._streams)
            except BaseException:
                self._retire()
                raise

    def end(self, streams: Sequence[TokenStream]) -> None:
        """End a request; nothing happens when it has ended or another one took its place."""
        # the garbage collector may call this in any thread, which must not wait for what another one computes
        held = False
        try:
            held = self.lock.acquire(blocking=False)
            if not held:
                for stream in streams:
                    stream.detach()
            elif streams and streams[0] in self._streams:
                self._retire()
        finally:
            if held:
                self.lock.release()

    def abort(self, cancellation: Cancellation) -> bool:
        """Abort the request that has this cancellation; return whether it runs."""
        if self._cancellation is not cancellation:
            return False
        self.scheduler.abort()
        return True

    def reset(self) -> None:
        """Forget what the sequences hold.

        Raises
        ------
        ConcurrentUseError
            Another thread reads a stream.
        """
        with self.lock:
            self._check(())
            self._retire()
            for sequence in self._sequences:
                self.scheduler.reset(sequence)

    def close(self) -> None:
        """Free the batch; the context stays open."""
        self.scheduler.close()

    def _retire(self) -> None:
        for stream in self._streams:
            stream.detach()
        for sequence in self._in_use:
            self.scheduler.remove(sequence)
            self.scheduler.settle(sequence)
            sequence.sampler = sequence.grammar = None
            sequence.processors = sequence.criteria = ()
            sequence.logprobs = sequence.prompt_logprobs = sequence.n_keep = None
        self.scheduler.set_timeout(None)
        self._streams, self._in_use, self._cancellation = [], [], None

    def _heed_cancellation(self) -> None:
        """Abort what has begun when it was cancelled before that."""
        if self._cancellation is not None and self._cancellation.cancelled:
            self.scheduler.abort()

    def _check(self, jobs: Sequence[Job]) -> None:
        here = threading.get_ident()
        if self.scheduler.running:
            raise ConcurrentUseError(
                "a logits processor or stopping criterion can't use the Llama that calls it; give it one of its own "
                "(they can share one Model)"
            )
        if any(not stream.detached and stream.thread != here and _is_alive(stream.thread) for stream in self._streams):
            raise ConcurrentUseError(
                "another thread reads a stream of this model; read it to its end or close() it, or give each "
                "thread a Llama of its own (models can share one Model)"
            )
        if self._context.closed:
            raise ClosedError("this Llama is closed")
        self.check_lengths(jobs)

    def _chain(self, job: Job) -> SamplerChain | None:
        return job.options.chain(self._vocab, job.prompt, n_ctx=self.capacity) if job.max_tokens > 0 else None

    def _chosen(self, jobs: Sequence[Job]) -> list[_Sequence]:
        """Return a sequence for each job; the first job of a prompt gets the one that holds most of it."""
        if len(self._sequences) == 1:
            return list(self._sequences)
        free, chosen, prompts = list(self._sequences), [], set()
        for job in jobs:
            leads = id(job.prompt) not in prompts
            prompts.add(id(job.prompt))
            sequence = max(free, key=lambda sequence: _n_common(sequence, job.prompt)) if leads else free[-1]
            free.remove(sequence)
            chosen.append(sequence)
        return chosen

    def _free_room(self, jobs: Sequence[Job], idle: list[_Sequence]) -> None:
        """Empty sequences that share the memory with the jobs where these need it."""
        if not self._shared:
            return
        prompts = {id(job.prompt): len(job.prompt) for job in jobs}
        needed = sum(prompts.values()) + sum(job.max_tokens for job in jobs)
        room = self._context.n_ctx - sum(sequence.n_past for sequence in idle)
        for sequence in idle:
            if room >= needed:
                break
            room += sequence.n_past
            self.scheduler.reset(sequence)

    def _hold_prompts(self, jobs: Sequence[Job], sequences: list[_Sequence]) -> None:
        """Let each sequence hold the prompt of its job; a prompt of several jobs is computed once."""
        scheduler = self.scheduler
        applied = jobs[0].applied
        if applied is not None and applied.n_before:
            self._hold_before(jobs[0], sequences[0], applied)
            return
        if applied is not None:
            scheduler.set_adapters(applied.pairs)
        groups: dict[int, list[tuple[Job, _Sequence]]] = {}
        for job, sequence in zip(jobs, sequences, strict=True):
            groups.setdefault(id(job.prompt), []).append((job, sequence))
        # all sequences let go of what isn't wanted before anything is computed: they may share the room
        for (job, leader), *others in groups.values():
            if not job.cache_prompt or job.scores_prompt:
                scheduler.reset(leader)
            for _, sequence in others:
                scheduler.reset(sequence)
            # where it is shared, the last token stays out: each sequence needs its row for itself
            job.n_cached = scheduler.resume(leader, job.prompt[:-1] if others else job.prompt)
        shared = [group for group in groups.values() if len(group) > 1]
        for group in shared:
            self._share(group)
        for group in shared:
            for job, sequence in group:
                sequence.extend(job.prompt[-1:])

    def _hold_before(self, job: Job, sequence: _Sequence, applied: Applied) -> None:
        """Let a sequence hold a prompt whose beginning is computed with fewer adapters than the rest."""
        scheduler, n = self.scheduler, applied.n_before
        scheduler.set_adapters(applied.before)
        if not job.cache_prompt or job.scores_prompt:
            scheduler.reset(sequence)
        job.n_cached = scheduler.resume(sequence, job.prompt[:n])
        if job.scores_prompt:
            sequence.prompt_logprobs = job.prompt_logprobs
        self._compute(sequence)
        if job.scores_prompt and job.prompt_logprobs is not None:
            job.prompt_logprobs.append(self._context.outputs.logits(), job.prompt[n])
        scheduler.set_adapters(applied.pairs, [sequence])
        sequence.extend(job.prompt[n:])

    def _share(self, group: list[tuple[Job, _Sequence]]) -> None:
        """Compute the prompt that the first sequence holds, and let the others hold it too."""
        (job, leader), *others = group
        if job.scores_prompt:
            leader.prompt_logprobs = job.prompt_logprobs
        self._compute(leader)
        if job.scores_prompt and job.prompt_logprobs is not None:
            job.prompt_logprobs.append(self._context.outputs.logits(), job.prompt[-1])
        for other, sequence in others:
            try:
                self.scheduler.copy(leader, sequence)
                other.n_cached = len(leader)
            except MemoryOperationError:
                other.n_cached = self.scheduler.resume(sequence, leader.tokens)
                self._compute(sequence)

    def _compute(self, sequence: _Sequence) -> None:
        """Let the memory hold all tokens of a sequence."""
        self.scheduler.add(sequence)
        self._heed_cancellation()
        self.scheduler.prefill(sequence)


def _n_common(sequence: _Sequence, prompt: array[int]) -> int:
    """Return how many tokens a sequence and a prompt have in common at the beginning."""
    import numpy as np

    n = min(sequence.n_past, len(prompt))
    unequal = np.flatnonzero(np.asarray(sequence)[:n] != np.asarray(prompt)[:n])
    return int(unequal[0]) if len(unequal) else n


def _n_alike(jobs: Sequence[Job]) -> int:
    """Return how many jobs, from the first on, may share decodes: those that are computed with the same adapters."""
    first = jobs[0].applied
    if first is not None and first.n_before:
        return 1
    return next((n for n, job in enumerate(jobs) if job.applied != first), len(jobs))


def _is_alive(thread: int) -> bool:
    return any(other.ident == thread for other in threading.enumerate())
