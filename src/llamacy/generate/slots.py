"""The sequences of a context, handed to one request after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llamacy.checkpoint.memory_kind import can_cut
from llamacy.core.attempt import Attempt
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence as _Sequence
from llamacy.core.stream import TokenStream
from llamacy.errors import (
    ClosedError,
    ConcurrentUseError,
    ContextLengthError,
    InUseError,
    InvalidBatchError,
    MemoryOperationError,
)
from llamacy.generate.cache import PromptCache
from llamacy.generate.constraint import GrammarSamplers
from llamacy.generate.purpose import no_text_message

if TYPE_CHECKING:
    from array import array

    from llamacy.checkpoint.snapshot import Snapshot
    from llamacy.checkpoint.store import Store
    from llamacy.core.context import Context
    from llamacy.core.sampler import SamplerChain
    from llamacy.generate.adapters import Applied, Pairs
    from llamacy.generate.cache import CheckpointOptions
    from llamacy.generate.cancellation import Cancellation
    from llamacy.generate.job import Job
    from llamacy.types import StrPath


class Slots:
    """Hands the sequences of a context to one request at a time.

    A sequence keeps what it holds when its request has ended, so that the next one computes only what is new; where
    several share the memory, until another one needs the room. A request that was left in the middle (a stream that
    nobody reads on) gives way to the next one of the same thread, and to any once it is closed or garbage. While
    another thread still reads it, a new request is refused.

    Parameters
    ----------
    context
        Where the requests run.
    capacity
        Tokens that prompt and completion may have together.
    checkpoints
        Which ones are taken of a memory that can't be cut.

    Raises
    ------
    CheckpointError
        They can't be kept on the device.
    """

    def __init__(self, context: Context, capacity: int, checkpoints: CheckpointOptions) -> None:
        self.scheduler = Scheduler(context)
        self.cache = PromptCache(self.scheduler, checkpoints)
        self.lock = threading.RLock()
        self._context = context
        self._vocab = context.model.vocab
        self._grammars = GrammarSamplers(self._vocab)
        # the one that was used last is the last one
        self._sequences = [_Sequence(seq_id, capacity) for seq_id in range(context.n_seq_max)]
        self._streams: list[TokenStream] = []
        self._in_use: list[_Sequence] = []
        self._cancellation: Cancellation | None = None
        self._jobs: Sequence[Job] = ()
        self._owns_store = False
        self._shared = context.params.values["kv_unified"] or context.n_seq_max == 1
        self._cuttable = context.memory is not None and can_cut(context)
        self._makes_no_text = no_text_message(context)

    @property
    def capacity(self) -> int:
        """Tokens that prompt and completion may have together."""
        return self._sequences[0].capacity

    @property
    def n_sequences(self) -> int:
        """Most jobs that can run at once."""
        return len(self._sequences)

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
                None if job.grammar is None else self._grammars.sampler(job.grammar, job.spelled) for job in jobs
            ]
            chains = [self._chain(job) for job in jobs]
            self._retire()
            applied = jobs[0].applied
            if applied is not None:
                self.scheduler.set_adapters(applied.before if applied.n_before else applied.pairs)
            sequences = self._chosen(jobs)
            self._sequences = [sequence for sequence in self._sequences if sequence not in sequences] + sequences
            self.scheduler.set_idle(self._sequences[: -len(sequences)] if self._shared else ())
            self._in_use = sequences
            self._jobs = jobs
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
        with Attempt(self.lock) as taken:
            if not taken:
                for stream in streams:
                    stream.detach()
            elif streams and streams[0] in self._streams:
                self._retire()

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

    def set_store(self, store: Store[Any] | None, *, owned: bool) -> None:
        """Keep what is computed in a store from now on; one that is owned is closed when another one comes."""
        with self.lock:
            self._check(())
            self._retire()
            self._close_store()
            self.cache.store, self._owns_store = store, owned

    def snapshot(self) -> Snapshot:
        """Return what the sequence holds that was used last.

        Raises
        ------
        CheckpointError
            It holds nothing, or can't be saved.
        ConcurrentUseError
            Another thread reads a stream.
        """
        with self._last_used() as sequence:
            return self.cache.snapshot(sequence)

    def restore(self, snapshot: Snapshot, adapters: Pairs | None) -> None:
        """Let the sequence that was used least recently hold a snapshot that was computed with these adapters.

        None stands for those that the context applies.

        Raises
        ------
        CheckpointError
            It can't be restored here.
        ConcurrentUseError
            Another thread reads a stream.
        """
        with self._least_used() as sequence:
            if adapters is not None:
                self.scheduler.set_adapters(adapters)
            self.cache.restore(sequence, snapshot)

    def save_session(self, path: StrPath) -> None:
        """Write what the sequence holds that was used last, in llama.cpp's own format.

        Raises
        ------
        StateError
            It holds nothing, can't be saved, or the file can't be written.
        ConcurrentUseError
            Another thread reads a stream.
        """
        with self._last_used() as sequence:
            self.cache.check_savable(sequence)
            self._context.state.seq_save_file(path, sequence.seq_id, sequence.tokens)

    def load_session(self, path: StrPath, adapters: Pairs | None) -> int:
        """Let the sequence that was used least recently hold what is in a file of llama.cpp; return how many tokens.

        It was computed with these adapters; None stands for those that the context applies.

        Raises
        ------
        StateError
            It can't be read, or is not of such a context.
        FileNotFoundError
            There is no such file.
        ConcurrentUseError
            Another thread reads a stream.
        """
        state, memory = self._context.state, self._context.memory
        with self._least_used() as sequence:

            def restored() -> array[int]:
                tokens = state.seq_load_file(path, sequence.seq_id, sequence.capacity)
                return tokens if memory is None else tokens[: memory.seq_pos_max(sequence.seq_id) + 1]

            if adapters is not None:
                self.scheduler.set_adapters(adapters)
            self.scheduler.replace(sequence, restored)
            return len(sequence)

    def fork(self) -> int:
        """Let another sequence hold what the one holds that was used last; return how many tokens.

        Raises
        ------
        MemoryOperationError
            There is no other sequence, or the memory can't copy this one now.
        ConcurrentUseError
            Another thread reads a stream.
        """
        with self._least_used() as target:
            if len(self._sequences) == 1:
                raise MemoryOperationError("there is no sequence to copy to: create the Llama with n_seq_max=2 or more")
            source = self._sequences[-1]
            if source is not target:  # or it is the only empty one, as after a request that was interrupted
                self.cache.copy(source, target)
            return len(target)

    def close(self) -> None:
        """Free the batch and forget the request; the context stays open, or is closed already."""
        for sequence in self._in_use:
            # who reads the stream, or what was raised there, may hold the sequence
            sequence.sampler = sequence.grammar = None
        self._streams, self._in_use, self._jobs = [], [], ()
        self.scheduler.close()
        self._grammars.close()
        self._close_store()

    def _close_store(self) -> None:
        if self.cache.store is not None and self._owns_store:
            self.cache.store.close()

    @contextmanager
    def _last_used(self) -> Iterator[_Sequence]:
        """Give the sequence that was used last to somebody, between two requests."""
        with self.lock:
            self._check(())
            self._retire()
            yield self._sequences[-1]

    @contextmanager
    def _least_used(self) -> Iterator[_Sequence]:
        """Give the sequence that can be spared most to somebody who fills it: an empty one, or the oldest one."""
        with self.lock:
            self._check(())
            self._retire()
            sequence = next((sequence for sequence in self._sequences if not sequence.n_past), self._sequences[0])
            yield sequence
            self._sequences = [*(other for other in self._sequences if other is not sequence), sequence]

    def _retire(self) -> None:
        streams, sequences = self._streams, self._in_use
        for stream in streams:
            stream.detach()
        for sequence in sequences:
            self.scheduler.remove(sequence)
            self.scheduler.settle(sequence)
            sequence.sampler = sequence.grammar = None
            sequence.processors = sequence.criteria = ()
            sequence.logprobs = sequence.prompt_logprobs = sequence.n_keep = None
        self.scheduler.set_timeout(None)
        self._streams, self._in_use, self._cancellation = [], [], None
        kept: set[int] = set()
        for stream, sequence, job in zip(streams, sequences, self._jobs, strict=False):
            # what was aborted, failed or left in the middle is not stored; of the choices of a prompt, one is
            ended = stream.finish_reason in ("stop", "length")
            if ended and job.cache_prompt and id(job.prompt) not in kept:
                kept.add(id(job.prompt))
                self.cache.keep(sequence)
        self._jobs = ()

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
        if jobs and self._makes_no_text:
            raise InvalidBatchError(self._makes_no_text)
        self.check_lengths(jobs)

    def _chain(self, job: Job) -> SamplerChain | None:
        return job.options.chain(self._vocab, job.prompt, n_ctx=self.capacity) if job.max_tokens > 0 else None

    def _chosen(self, jobs: Sequence[Job]) -> list[_Sequence]:
        """Return a sequence for each job; the first job of a prompt gets one that holds the beginning of it."""
        if len(self._sequences) == 1:
            return list(self._sequences)
        free = [sequence for sequence in self._sequences if not sequence.n_past]
        free += [sequence for sequence in self._sequences if sequence.n_past]
        chosen: dict[int, _Sequence] = {}
        prompts: set[int] = set()
        for index, job in enumerate(jobs):
            if id(job.prompt) not in prompts:
                prompts.add(id(job.prompt))
                chosen[index] = self._closest(job.prompt, free)
                free.remove(chosen[index])
        return [chosen[index] if index in chosen else free.pop(0) for index in range(len(jobs))]

    def _closest(self, prompt: array[int], free: list[_Sequence]) -> _Sequence:
        """Return the sequence for a prompt: the one that has most of it, unless it would lose more than that.

        Then it is one that can be spared; it gets a copy of what they have in common where that costs nothing.
        """
        common = {sequence: self.scheduler.common(sequence, prompt) for sequence in free}
        best = max(free, key=lambda sequence: (common[sequence], -sequence.n_past))
        if 2 * common[best] >= best.n_past or len(free) == 1:
            return best
        spared = next(sequence for sequence in free if sequence is not best)
        if self._shared and self._cuttable and common[best]:
            self.scheduler.copy(best, spared)
        return spared

    def _hold_prompts(self, jobs: Sequence[Job], sequences: list[_Sequence]) -> None:
        """Let each sequence hold the prompt of its job; a prompt of several jobs is computed once."""
        scheduler = self.scheduler
        applied = jobs[0].applied
        if applied is not None and applied.n_before:
            self._hold_before(jobs[0], sequences[0], applied)
            return
        groups: dict[int, list[tuple[Job, _Sequence]]] = {}
        for job, sequence in zip(jobs, sequences, strict=True):
            groups.setdefault(id(job.prompt), []).append((job, sequence))
        # all sequences let go of what isn't wanted before anything is computed: they may share the room
        for (job, leader), *others in groups.values():
            for _, sequence in others:
                scheduler.reset(sequence)
            job.n_cached = self.cache.hold(leader, job.prompt, fresh=not job.cache_prompt or job.scores_prompt)
        for (job, leader), *_ in groups.values():
            if job.cache_prompt and not job.scores_prompt:
                self._take_checkpoints(job, leader)
        for group in groups.values():
            if len(group) > 1:
                self._share(group)
        for job, sequence in zip(jobs, sequences, strict=True):
            sequence.extend(job.prompt[len(sequence) :])

    def _take_checkpoints(self, job: Job, sequence: _Sequence) -> None:
        """Compute the beginning of a prompt, and take the checkpoints in it."""
        for place in self.cache.places(job.prompt, job.n_cached):
            sequence.extend(job.prompt[len(sequence) : place])
            self._compute(sequence)
            self.cache.capture(sequence)

    def _hold_before(self, job: Job, sequence: _Sequence, applied: Applied) -> None:
        """Let a sequence hold a prompt whose beginning is computed with fewer adapters than the rest."""
        scheduler, n = self.scheduler, applied.n_before
        job.n_cached = self.cache.hold(sequence, job.prompt[:n], fresh=not job.cache_prompt or job.scores_prompt)
        sequence.extend(job.prompt[job.n_cached : n])
        if job.scores_prompt:
            sequence.prompt_logprobs = job.prompt_logprobs
        self._compute(sequence)
        if job.scores_prompt and job.prompt_logprobs is not None:
            job.prompt_logprobs.append(self._context.outputs.logits(), job.prompt[n])
        scheduler.set_adapters(applied.pairs, [sequence])
        sequence.extend(job.prompt[n:])

    def _share(self, group: list[tuple[Job, _Sequence]]) -> None:
        """Compute a prompt in the first sequence, and let the others hold it too.

        The last token stays out: each sequence needs its row for itself.
        """
        (job, leader), *others = group
        leader.extend(job.prompt[len(leader) : -1])
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


def _n_alike(jobs: Sequence[Job]) -> int:
    """Return how many jobs, from the first on, may share decodes: those that are computed with the same adapters."""
    first = jobs[0].applied
    if first is not None and first.n_before:
        return 1
    return next((n for n, job in enumerate(jobs) if job.applied != first), len(jobs))


def _is_alive(thread: int) -> bool:
    return any(other.ident == thread for other in threading.enumerate())
