"""What was computed before and need not be computed again: in the memory, as checkpoints, and in a store."""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llamacy import checkpoint
from llamacy._imports import import_whole
from llamacy.checkpoint.memory_kind import can_cut
from llamacy.errors import CheckpointError, ClosedError
from llamacy.generate.arguments import checked_count, checked_flag

if TYPE_CHECKING:
    from llamacy.checkpoint import Registry, Snapshot, Store, StoreStats
    from llamacy.core.scheduler import Scheduler
    from llamacy.core.sequence import Sequence
    from llamacy.types import StrPath

    Cache = Store[Any] | StrPath | int | bool | None

_logger = logging.getLogger("llamacy")

# bytes of host memory that all checkpoints of a context take at most
_CHECKPOINT_BYTES = 1 << 30
# tokens from one checkpoint to the next: a decode of fewer costs as much as one of these
_LEAST_APART = 16


@dataclass
class CacheStats:
    """What needn't be computed so far, and where it was instead."""

    #: Tokens of prompts.
    n_prompt: int = 0
    #: Of these, tokens that the memory had.
    n_from_context: int = 0
    #: Tokens that a checkpoint brought back.
    n_from_checkpoints: int = 0
    #: Tokens that the store brought back.
    n_from_store: int = 0
    #: Checkpoints and snapshots that could not be taken, stored or restored; the log says why.
    n_failed: int = 0
    #: Seconds spent with looking for something to restore and restoring it, and with taking and storing.
    restore_s: float = 0.0
    store_s: float = 0.0
    #: Seconds spent with reading blocks of the model file, to tell it from others: once, before the first of these.
    identify_s: float = 0.0
    #: Checkpoints that there are now, and their bytes in host memory.
    n_checkpoints: int = 0
    checkpoint_bytes: int = 0
    #: Counts of the store, or None where there is none.
    store: StoreStats | None = None

    @property
    def n_saved(self) -> int:
        """Tokens of prompts that needn't be computed."""
        return self.n_from_context + self.n_from_checkpoints + self.n_from_store


@dataclass(frozen=True)
class CheckpointOptions:
    """Which checkpoints a memory gets that can't be cut.

    Parameters
    ----------
    n_most
        Checkpoints that a sequence has at most; 0 for none.
    interval
        Tokens after which one is taken in a long prompt; 0 for none but those at the ends of messages.
    on_device
        Leave them on the device, one for each sequence.
    """

    n_most: int = 16
    interval: int = 4096
    on_device: bool = False

    def __post_init__(self) -> None:
        checked_count("ctx_checkpoints", self.n_most, least=0)
        checked_count("checkpoint_interval", self.interval, least=0)
        checked_flag("checkpoint_on_device", self.on_device)


class PromptCache:
    """Finds, for each prompt, the source that saves most of its computation.

    Parameters
    ----------
    scheduler
        What carries the sequences of the context forward.
    options
        Which checkpoints are taken.

    Raises
    ------
    CheckpointError
        Checkpoints of this memory can't be kept on the device.
    """

    def __init__(self, scheduler: Scheduler, options: CheckpointOptions) -> None:
        self.store: Store[Any] | None = None
        self._scheduler = scheduler
        self._context = context = scheduler.context
        self._is_end = context.model.vocab.is_eog
        self._interval = options.interval
        self._n_most = options.n_most
        self._stats = CacheStats()
        self._registry: Registry | None = None
        if options.n_most and context.memory is not None and not can_cut(context):
            self._registry = checkpoint.Registry(
                context, n_most=options.n_most, n_bytes_most=_CHECKPOINT_BYTES, on_device=options.on_device
            )

    @property
    def stats(self) -> CacheStats:
        """Counts so far; a copy."""
        registry = self._registry
        return replace(
            self._stats,
            n_checkpoints=0 if registry is None else len(registry),
            checkpoint_bytes=0 if registry is None else registry.n_bytes,
            store=None if self.store is None else self.store.stats,
        )

    def hold(self, sequence: Sequence, prompt: array[int], *, fresh: bool = False) -> int:
        """Let a sequence hold the beginning of a prompt that needn't be computed, and nothing else.

        At least the last token is left to be computed, as its row is needed.

        Parameters
        ----------
        sequence
            Which one.
        prompt
            Its tokens.
        fresh
            Hold nothing.

        Returns
        -------
        int
            How many tokens it holds.
        """
        self._stats.n_prompt += len(prompt)
        if fresh:
            self._scheduler.reset(sequence)
            return 0
        n = self._live(sequence, prompt)
        found = self._from_store(sequence, prompt, n)
        if found:
            return found
        n = self._live(sequence, prompt)
        if n and self._scheduler.cut(sequence, n):
            self._stats.n_from_context += n
            return n
        return self._from_checkpoint(sequence, prompt, n)

    def places(self, prompt: array[int], n_held: int) -> list[int]:
        """Return after how many tokens of a prompt checkpoints are to be taken."""
        if self._registry is None:
            return []
        borders = [n for n, token in enumerate(prompt[n_held:], n_held + 1) if self._is_end(token)]
        chosen: list[int] = []
        for place in reversed(
            checkpoint.pauses(checkpoint.Prefix(prompt), n_held, interval=self._interval, borders=borders)
        ):
            if not chosen or chosen[-1] - place >= _LEAST_APART:
                chosen.append(place)
        return chosen[self._n_most - 1 :: -1]

    def capture(self, sequence: Sequence) -> None:
        """Take a checkpoint of a sequence that has nothing pending."""
        if self._registry is not None:
            with self._noting("store_s", "no checkpoint was taken"):
                self._registry.capture(sequence.seq_id, sequence.tokens)

    def keep(self, sequence: Sequence) -> None:
        """Store what a sequence holds, which has nothing pending."""
        if self.store is not None and self._is_sound(sequence):
            with self._noting("store_s", "the state was not stored"):
                self.store.put(self.snapshot(sequence), can_cut=can_cut(self._context))

    def snapshot(self, sequence: Sequence) -> Snapshot:
        """Return what a sequence holds, which has nothing pending.

        Raises
        ------
        CheckpointError
            As for `check_savable`; or llama.cpp can't save it now.
        """
        self.check_savable(sequence)
        return checkpoint.Snapshot.take(self._context, sequence.tokens, seq_id=sequence.seq_id)

    def check_savable(self, sequence: Sequence) -> None:
        """Raise `CheckpointError` when what a sequence holds is nothing, or not what its tokens say."""
        if not sequence.n_past:
            raise CheckpointError("there is nothing to save: the sequence is empty")
        if not self._is_sound(sequence):
            raise CheckpointError(
                "the sequence can't be saved: it was shifted, or somebody else has used the context since, or other "
                "adapters were set"
            )

    def restore(self, sequence: Sequence, snapshot: Snapshot, n_tokens: int | None = None) -> None:
        """Let a sequence hold a snapshot, or the beginning of it.

        Raises
        ------
        CheckpointError
            It can't be restored; the sequence is as it was, or empty.
        """

        def restored() -> array[int]:
            n = snapshot.restore(self._context, seq_id=sequence.seq_id, n_elements=n_tokens).n_elements
            return snapshot.prefix.tokens[:n]

        self._scheduler.replace(sequence, restored)

    def copy(self, source: Sequence, target: Sequence) -> None:
        """Let a sequence hold what another one holds.

        Raises
        ------
        MemoryOperationError
            The memory can't copy the sequence as it is now.
        """
        # where sequences lie apart, llama.cpp copies in the next decode; until then nothing can be saved or restored
        if not self._context.params.values["kv_unified"] and self._is_sound(source):
            with suppress(CheckpointError):  # what can't be saved now is copied as llama.cpp does it
                self.restore(target, self.snapshot(source))
                return
        self._scheduler.copy(source, target)

    def _is_sound(self, sequence: Sequence) -> bool:
        """Return whether the memory holds what the tokens of a sequence say, as it would be computed now."""
        return 0 < self._scheduler.common(sequence, sequence.tokens) == sequence.n_past

    def _live(self, sequence: Sequence, prompt: array[int]) -> int:
        """Return how many tokens of a prompt the memory has, if it can be cut there."""
        return min(self._scheduler.common(sequence, prompt), len(prompt) - 1)

    def _from_store(self, sequence: Sequence, prompt: array[int], n_least: int) -> int:
        """Let the store bring back more tokens than some; return how many, 0 when it can't."""
        n = 0
        if self.store is not None and n_least < len(prompt) - 1:
            with self._noting("restore_s", "a stored state was not used"):
                n = self._restore_stored(self.store, sequence, prompt, n_least)
        self._stats.n_from_store += n
        return n

    def _restore_stored(self, store: Store[Any], sequence: Sequence, prompt: array[int], n_least: int) -> int:
        hit = store.find(self._context, checkpoint.Prefix(prompt), n_least=n_least)
        if hit is None:
            return 0
        n = hit.n_elements
        if n == len(prompt):  # it has the row of the last token, which a request computes for itself
            if not can_cut(self._context):
                return 0
            n -= 1
        try:
            self.restore(sequence, hit.snapshot, n)
        except CheckpointError:
            store.remove(hit.snapshot)
            raise
        return n

    def _from_checkpoint(self, sequence: Sequence, prompt: array[int], n_live: int) -> int:
        """Go back to a checkpoint, or to what the store has when that is more; return how many tokens are held."""
        registry = self._registry
        latest = None if registry is None or not n_live else registry.find(sequence.seq_id, prompt)
        n = 0 if latest is None else latest.n_positions
        found = self._from_store(sequence, prompt, n) if n_live else 0
        if found:
            return found
        back = 0
        if registry is not None and latest is not None and latest.valid:
            with self._noting("restore_s", "a checkpoint was not used"):
                self._scheduler.replace(sequence, lambda: prompt[: registry.restore(latest).n_elements])
                back = n
        if not back:
            self._scheduler.reset(sequence)
        self._stats.n_from_checkpoints += back
        return back

    @contextmanager
    def _noting(self, name: str, consequence: str) -> Iterator[None]:
        """Count the time; a failure is no reason for a request to fail, so it is counted and said."""
        begin = time.perf_counter()
        with suppress(CheckpointError, ClosedError):  # the block meets it again
            # remembered from then on; on a slow disk it takes longer than all that is counted otherwise
            checkpoint.context_fingerprint(self._context)
        start = time.perf_counter()
        self._stats.identify_s += start - begin
        try:
            yield
        except (CheckpointError, ClosedError) as error:
            self._stats.n_failed += 1
            _logger.warning("%s: %s", consequence, str(error))  # not the error, which holds all that led to it
        finally:
            setattr(self._stats, name, getattr(self._stats, name) + time.perf_counter() - start)


def as_snapshot(state: Snapshot | StrPath | bytes) -> Snapshot:
    """Return a saved state as the object that it was.

    Raises
    ------
    CorruptCheckpointError, IncompatibleCheckpointError
        It is damaged, can't be read, or is of another version.
    FileNotFoundError
        There is no such file.
    TypeError
        It is none of these.
    """
    if isinstance(state, checkpoint.Snapshot):
        return state
    if isinstance(state, bytes | bytearray | memoryview):
        return checkpoint.Snapshot.from_bytes(bytes(state))
    if isinstance(state, str | os.PathLike):
        return checkpoint.Snapshot.load(state)
    raise TypeError(
        f"a state is what save_state() returned, its bytes, or the path of a file, not {type(state).__name__}"
    )


def as_store(cache: Cache) -> Store[Any] | None:
    """Return the store that an argument stands for.

    Raises
    ------
    CheckpointError
        A directory can't be used.
    TypeError, ValueError
        It is no cache, or has no room.
    """
    if cache is None or (isinstance(cache, int) and cache == 0):
        return None
    # beginnings of prompts are looked up with NumPy: loaded here, its 0.1 s are none of the first request's
    import_whole("numpy")

    if cache is True:
        return checkpoint.RamStore()
    if isinstance(cache, checkpoint.Store):
        return cache
    if isinstance(cache, int):
        return checkpoint.RamStore(cache)
    if isinstance(cache, str | os.PathLike):
        return checkpoint.DiskStore(cache)
    raise TypeError(
        "cache must be a number of bytes, the path of a directory, True, or a store of llamacy.checkpoint, not "
        f"{type(cache).__name__}"
    )
