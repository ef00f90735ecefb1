"""Checkpoints inside a live context: states of memories that can't be cut, to go back to."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from llamacy.checkpoint.fingerprint import Fingerprint, context_fingerprint
from llamacy.checkpoint.memory_kind import checked_memory
from llamacy.checkpoint.prefix import MEDIA_ELEMENTS, Prefix
from llamacy.checkpoint.snapshot import Restored, checked_positions, checked_seq, last_positions
from llamacy.checkpoint.trie import Trie
from llamacy.errors import CheckpointError, ClosedError, MemoryOperationError, StaleCheckpointError, StateError
from llamacy.types import StateFlags

if TYPE_CHECKING:
    from typing_extensions import Self

    from llamacy.core.context import Context
    from llamacy.core.memory import Memory
    from llamacy.types import AnyBuffer


class Checkpoint:
    """The part of a sequence that can't be cut, as it was after some tokens; comes from `Registry.capture`."""

    __slots__ = ("_data", "fingerprint", "prefix", "seq_id", "valid")

    seq_id: int
    prefix: Prefix
    fingerprint: Fingerprint
    #: Whether what it relies on is still in the memory, as far as that was told.
    valid: bool

    def __init__(self, seq_id: int, prefix: Prefix, fingerprint: Fingerprint, data: bytes) -> None:
        self.seq_id = seq_id
        self.prefix = prefix
        self.fingerprint = fingerprint
        self.valid = True
        self._data = data

    def __repr__(self) -> str:
        state = "" if self.valid else "stale "
        return f"<{state}Checkpoint of sequence {self.seq_id} at {self.n_positions}, {self.n_bytes} bytes>"

    @property
    def n_positions(self) -> int:
        """Positions that the sequence had."""
        return self.prefix.n_positions

    @property
    def n_bytes(self) -> int:
        """Bytes in host memory: state, tokens, keys of media."""
        return len(self._data) + self.prefix.n_bytes


class Registry:
    """Checkpoints of the sequences of one context.

    Recurrent state, and a sliding window, can't be cut back to an earlier position as attention can: going back needs a
    copy of how they were. A checkpoint is just that; all else must still be in the memory. So each change of the memory
    (`Memory.observe`) makes those checkpoints invalid that rely on what was changed. Ctrl-C in the middle of that costs
    all of them.

    Parameters
    ----------
    context
        Whose sequences they are; not kept alive.
    n_most
        Checkpoints that a sequence has at most; the least recently used ones go. None are taken when it is 0.
    n_bytes_most
        Bytes that all of them take at most in host memory; any number by default.
    on_device
        Leave the tensor data on the device, where each sequence has one place: a new checkpoint takes that of the one
        before, also of those of another registry. For recurrent state only, also that of hybrid models.

    Raises
    ------
    CheckpointError
        The model has no memory, or it can't be kept on the device.
    ValueError
        A limit is negative.

    Lifetime: closing the context closes it.
    Thread safety: as the context.
    """

    def __init__(
        self, context: Context, *, n_most: int = 16, n_bytes_most: int | None = None, on_device: bool = False
    ) -> None:
        if n_most < 0 or (n_bytes_most is not None and n_bytes_most < 0):
            raise ValueError(f"limits must not be negative: n_most={n_most}, n_bytes_most={n_bytes_most}")
        memory = checked_memory(context)
        self._needed = memory.kind in ("recurrent", "hybrid") or (
            memory.kind == "swa" and not context.params.values["swa_full"]
        )
        if on_device and memory.kind not in ("recurrent", "hybrid"):
            # the destructor of llama_io_write_device (src/llama-context.cpp) puts a save into the buffer of the one
            # before when it has as many bytes, and aborts when these are in more pieces, as cells of attention may be
            raise CheckpointError(f"checkpoints of a {memory.kind} memory can't be kept on the device")
        self._context = weakref.ref(context)
        self._n_most = min(n_most, 1) if on_device else n_most
        self._n_bytes_most = n_bytes_most
        self._on_device = on_device
        self._flags = StateFlags.PARTIAL_ONLY | (StateFlags.ON_DEVICE if on_device else StateFlags.NONE)
        self._tries: dict[int, Trie[Checkpoint]] = {}
        # the least recently used one first
        self._used: OrderedDict[Checkpoint, None] = OrderedDict()
        self._torn = False
        self._closed = False
        memory.observe(self)

    def __repr__(self) -> str:
        if self._closed:
            return "<Registry closed>"
        if not self._needed:
            return "<Registry of a memory that needs no checkpoints>"
        return f"<Registry of {len(self)} checkpoints, {self.n_bytes} bytes>"

    def __len__(self) -> int:
        """Return the number of valid checkpoints."""
        return len(self._used)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def needed(self) -> bool:
        """Whether the memory can't be cut, so that checkpoints are of use; where not, none are taken."""
        return self._needed

    @property
    def n_bytes(self) -> int:
        """Bytes that the checkpoints take in host memory; copies of a sequence share the state."""
        held = list(self._used)  # another thread may ask while checkpoints come and go
        states = {id(checkpoint._data): len(checkpoint._data) for checkpoint in held}
        return sum(states.values()) + sum(checkpoint.prefix.n_bytes for checkpoint in held)

    @property
    def closed(self) -> bool:
        """Whether the registry is closed."""
        return self._closed

    def close(self) -> None:
        """Let go of all checkpoints; those that somebody has are stale."""
        self._closed = True
        self.invalidate(None)

    def checkpoints(self, seq_id: int) -> list[Checkpoint]:
        """Return the valid checkpoints of a sequence, by their positions."""
        found = [checkpoint for checkpoint in self._used if checkpoint.seq_id == seq_id]
        return sorted(found, key=lambda checkpoint: checkpoint.n_positions)

    def capture(self, seq_id: int, tokens: Prefix | AnyBuffer | Iterable[int]) -> Checkpoint | None:
        """Take a checkpoint of a sequence as it is now.

        Parameters
        ----------
        seq_id
            The sequence.
        tokens
            All that it holds.

        Returns
        -------
        Checkpoint or None
            None where there is no need for one, none are to be taken, or the sequence is empty.

        Raises
        ------
        CheckpointError
            The sequence holds something else than these tokens, as far as positions tell; or it can't be saved.
        ClosedError
            The registry or the context is closed.
        """
        context = self._open()
        memory = checked_memory(context)
        prefix = tokens if isinstance(tokens, Prefix) else Prefix(tokens)
        if not self._needed or not self._n_most or not len(prefix):
            return None
        fingerprint = context_fingerprint(context)
        checked_seq(memory, seq_id)
        checked_positions(memory, seq_id, prefix)
        known = self._tries[seq_id].get(prefix.elements) if seq_id in self._tries else None
        if known is not None and known.fingerprint == fingerprint:
            self._used.move_to_end(known)
            return known
        try:
            data = context.state.seq_get(seq_id, self._flags)
        except StateError as error:
            raise CheckpointError(str(error.args[0]), log=error.log) from error
        checkpoint = Checkpoint(seq_id, prefix, fingerprint, data)
        self._add(checkpoint)
        return checkpoint if checkpoint.valid else None

    def find(self, seq_id: int, tokens: Prefix | AnyBuffer | Iterable[int]) -> Checkpoint | None:
        """Return the latest checkpoint of a sequence from which a prompt can go on.

        It holds a beginning of the prompt, and at least one token is left to decode: a checkpoint has no logits.

        Raises
        ------
        CheckpointError, ClosedError
            As for `context_fingerprint`; or the registry is closed.
        """
        fingerprint = context_fingerprint(self._open())
        prefix = tokens if isinstance(tokens, Prefix) else Prefix(tokens)
        trie = self._tries.get(seq_id)
        for match in reversed(trie.prefixes(prefix.elements) if trie is not None else []):
            # what was computed with other adapters is of use again when these are back
            if match.value.fingerprint == fingerprint:
                return match.value
        return None

    def restore(self, checkpoint: Checkpoint) -> Restored:
        """Let a sequence go back to a checkpoint: what can't be cut is restored, all else is cut.

        Checkpoints of later positions are dropped.

        Returns
        -------
        Restored
            Where to go on; there are no logits.

        Raises
        ------
        StaleCheckpointError
            What it relies on is not in the memory any more, it isn't of this registry, or adapters were changed;
            nothing was changed.
        CheckpointError
            Nothing was changed, or the sequence is empty and all its checkpoints are invalid: the message says which.
        ClosedError
            The registry or the context is closed.
        """
        context = self._open()
        memory = checked_memory(context)
        self._check_fresh(context, checkpoint)
        seq_id, n_positions = checkpoint.seq_id, checkpoint.n_positions
        before = memory.seq_pos_max(seq_id)
        try:
            context.state.seq_set(seq_id, checkpoint._data, self._flags)
        except StateError as error:
            if memory.seq_pos_max(seq_id) == before:  # refused by its checks
                if not self._on_device:
                    raise CheckpointError(str(error.args[0]), log=error.log) from error
                self._drop(checkpoint)
                raise StaleCheckpointError(str(error.args[0]), log=error.log) from error
            raise self._failed(memory, seq_id, error) from error
        except BaseException as error:
            self._failed(memory, seq_id, StateError(repr(error)))
            raise
        try:
            memory.seq_rm(seq_id, n_positions, -1)
            last = memory.seq_pos_max(seq_id)
            if last not in last_positions(checkpoint.prefix):
                raise StateError(f"it holds positions up to {last} instead of {n_positions - 1} then")
        except (MemoryOperationError, StateError) as error:
            raise self._failed(memory, seq_id, error) from error
        except BaseException as error:
            # stopped between the two
            self._failed(memory, seq_id, StateError(repr(error)))
            raise
        self._used.move_to_end(checkpoint)
        return Restored(len(checkpoint.prefix), n_positions, None)

    def invalidate(self, seq_id: int | None, from_pos: int = 0) -> None:
        """Drop what relies on positions of a sequence, or of each of them, from one on."""
        self._mend()
        for checkpoint in list(self._used):
            if seq_id in (None, checkpoint.seq_id) and checkpoint.n_positions > from_pos:
                self._drop(checkpoint)

    def inherit(self, seq_id_src: int, seq_id_dst: int) -> None:
        """Give a copy of a sequence its checkpoints, without copying their states."""
        if self._on_device:
            return  # a place on the device belongs to one sequence
        for checkpoint in list(self._used):
            if checkpoint.seq_id == seq_id_src and checkpoint.valid:
                self._add(Checkpoint(seq_id_dst, checkpoint.prefix, checkpoint.fingerprint, checkpoint._data))

    def invalidate_device(self, seq_id: int) -> None:
        """Drop what was kept of a sequence on the device."""
        if self._on_device:
            self.invalidate(seq_id)

    def _open(self) -> Context:
        context = self._context()
        if self._closed:
            raise ClosedError("the registry is closed")
        if context is None or context.closed:
            self.close()
            raise ClosedError("the context is closed, and with it the registry of its checkpoints")
        self._mend()
        return context

    def _check_fresh(self, context: Context, checkpoint: Checkpoint) -> None:
        if checkpoint not in self._used:
            raise StaleCheckpointError(
                f"{checkpoint!r} can't be restored: what it relies on is not in the memory any more, or it was dropped "
                "to make room; nothing was changed"
            )
        fingerprint = context_fingerprint(context)
        if checkpoint.fingerprint != fingerprint:
            difference = fingerprint.difference(checkpoint.fingerprint)
            raise StaleCheckpointError(f"{checkpoint!r} is of another setting: {difference}; nothing was changed")

    def _failed(self, memory: Memory, seq_id: int, error: StateError | MemoryOperationError) -> CheckpointError:
        """Empty a sequence of which nobody knows what it holds; return what to raise."""
        memory.seq_rm(seq_id)
        return CheckpointError(
            f"the checkpoint could not be restored: {error.args[0]}; sequence {seq_id} is empty now", log=error.log
        )

    def _add(self, checkpoint: Checkpoint) -> None:
        self._torn = True
        trie = self._tries.setdefault(checkpoint.seq_id, Trie())
        before = trie.insert(checkpoint.prefix.elements, checkpoint)
        if before is not None:
            before.valid = False
            del self._used[before]
        self._used[checkpoint] = None
        self._torn = False
        while len(trie) > self._n_most:
            self._drop(next(known for known in self._used if known.seq_id == checkpoint.seq_id))
        while self._n_bytes_most is not None and self._used and self.n_bytes > self._n_bytes_most:
            self._drop(next(iter(self._used)))

    def _drop(self, checkpoint: Checkpoint) -> None:
        self._torn = True
        checkpoint.valid = False
        del self._used[checkpoint]
        trie = self._tries[checkpoint.seq_id]
        trie.remove(checkpoint.prefix.elements)
        if not len(trie):
            del self._tries[checkpoint.seq_id]
        self._torn = False

    def _mend(self) -> None:
        """Drop everything when Ctrl-C left a change of it half done."""
        if self._torn:
            for checkpoint in self._used:
                checkpoint.valid = False
            self._used.clear()
            self._tries.clear()
            self._torn = False


def pauses(prefix: Prefix, n_held: int, *, interval: int = 0, borders: Iterable[int] = ()) -> list[int]:
    """Return where to pause the decoding of a prompt, to take a checkpoint: numbers of elements, in order.

    Parameters
    ----------
    prefix
        The prompt.
    n_held
        Elements that the sequence holds already.
    interval
        Pause at multiples of it; 0 for none.
    borders
        Where messages end.

    Returns
    -------
    list of int
        The borders, those before and after media, the multiples, and the last place that leaves something to decode
        when the same prompt comes again.
    """
    n = len(prefix)
    places = set(borders)
    places.add(prefix.whole(max(n - 1, 0)))
    for number, medium in enumerate(prefix.media):
        start = medium.at + number * MEDIA_ELEMENTS
        places |= {start, start + MEDIA_ELEMENTS}
    if interval > 0:
        places |= {prefix.whole(place) for place in range(interval, n, interval)}
    return sorted(place for place in places if max(n_held, 0) < place < n and prefix.whole(place) == place)
