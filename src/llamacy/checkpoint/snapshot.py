"""Snapshots: all that a sequence holds, as owned bytes, with what tells where they may be restored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from llamacy.checkpoint.fingerprint import Fingerprint, context_fingerprint
from llamacy.checkpoint.memory_kind import can_cut, checked_memory
from llamacy.checkpoint.prefix import Media, Prefix
from llamacy.errors import (
    CheckpointError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    MemoryOperationError,
    StateError,
)

if TYPE_CHECKING:
    from llamacy.core.candidates import Candidates
    from llamacy.core.context import Context
    from llamacy.core.memory import Memory
    from llamacy.types import AnyBuffer, StrPath

_FLOAT = 4


class Restored(NamedTuple):
    """What a sequence holds after a restore."""

    #: Elements of the prefix that it holds.
    n_elements: int
    #: Positions that they take: where to decode next.
    n_positions: int
    #: Logits of the last token, as float32; None when there are none, or it isn't the last token of the snapshot.
    logits: memoryview[float] | None

    def candidates(self) -> Candidates:
        """Return the candidates for the next token, to sample from without a decode.

        Raises
        ------
        CheckpointError
            There are no logits of the last token: decode one token first.
        """
        from llamacy.core.candidates import Candidates

        if self.logits is None:
            raise CheckpointError(
                "the snapshot has no output of the last token that was restored: decode a token before you sample"
            )
        return Candidates(self.logits)


class Snapshot:
    """All that a sequence holds, and the logits of its last token; owns its bytes.

    Not in it: the state of samplers (random numbers, penalties, grammars) and of drafting models. It fits the build of
    llama.cpp that made it, and no other.

    Parameters
    ----------
    fingerprint : Fingerprint
        Where the state was computed.
    prefix : Prefix
        Tokens and media that led to it.
    state : bytes
        What `State.seq_get` returned.
    logits : buffer of float32, optional
        Row of the last token; copied.

    Raises
    ------
    CheckpointError
        The parts don't fit each other.

    Thread safety: immutable.
    """

    __slots__ = ("_logits", "fingerprint", "n_bytes", "prefix", "state")

    fingerprint: Fingerprint
    prefix: Prefix
    state: bytes
    #: Bytes that it owns: state, logits, tokens, keys of media.
    n_bytes: int

    def __init__(self, fingerprint: Fingerprint, prefix: Prefix, state: bytes, logits: AnyBuffer | None = None) -> None:
        n_vocab = fingerprint.get("n_vocab")
        self._logits = None if logits is None else _row(logits)
        if self._logits is not None and len(self._logits) // _FLOAT != n_vocab:
            raise CheckpointError(f"{len(self._logits) // _FLOAT} logits don't fit a vocabulary of {n_vocab} tokens")
        if not len(prefix):
            raise CheckpointError("there is nothing to keep: the sequence is empty")
        if not isinstance(n_vocab, int) or prefix.largest >= n_vocab:
            raise CheckpointError(
                f"tokens don't fit a vocabulary of {n_vocab}: {prefix.tokens.tolist()[-3:]} are the last"
            )
        self.fingerprint = fingerprint
        self.prefix = prefix
        self.state = state
        self.n_bytes = len(state) + prefix.n_bytes + (0 if self._logits is None else len(self._logits))

    def __repr__(self) -> str:
        return f"<Snapshot of {self.prefix!r}, {self.n_bytes} bytes>"

    @property
    def logits(self) -> memoryview[float] | None:
        """Logits of the last token, read-only float32, or None."""
        return None if self._logits is None else memoryview(self._logits).cast("f")

    @classmethod
    def take(
        cls,
        context: Context,
        tokens: AnyBuffer | Iterable[int] | Prefix,
        *,
        media: Sequence[Media] = (),
        seq_id: int = 0,
        logits: AnyBuffer | None = None,
    ) -> Snapshot:
        """Return a snapshot of a sequence; nothing is changed.

        Parameters
        ----------
        context
            Where the sequence is.
        tokens
            Tokens that were decoded, from position 0 on; or a `Prefix`.
        media
            Media among them.
        seq_id
            The sequence.
        logits
            The row of the last token (`Context.logits`), to sample right after a restore.

        Raises
        ------
        CheckpointError
            The sequence holds something else than these tokens, as far as positions tell; or it can't be saved.
        ClosedError
            The context is closed.
        """
        memory = checked_memory(context)
        prefix = tokens if isinstance(tokens, Prefix) else Prefix(tokens, media)
        fingerprint = context_fingerprint(context)
        checked_seq(memory, seq_id)
        checked_positions(memory, seq_id, prefix)
        try:
            state = context.state.seq_get(seq_id)
        except StateError as error:
            raise CheckpointError(str(error.args[0]), log=error.log) from error
        return cls(fingerprint, prefix, state, logits)

    def __bytes__(self) -> bytes:
        """Return it as bytes, for `from_bytes`."""
        from llamacy.checkpoint.format import snapshot_to_bytes

        return snapshot_to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """Return the snapshot that was made into these bytes.

        Raises
        ------
        CorruptCheckpointError, IncompatibleCheckpointError
            They are damaged, or of another version of the format.
        """
        from llamacy.checkpoint.format import snapshot_from_bytes

        return snapshot_from_bytes(data)

    def save(self, path: StrPath) -> None:
        """Write it to a file, which appears whole or not at all.

        Raises
        ------
        CheckpointError
            It can't be written.
        """
        from llamacy.checkpoint.directory import save_file

        save_file(path, self)

    @classmethod
    def load(cls, path: StrPath) -> Snapshot:
        """Return the snapshot in a file.

        Raises
        ------
        CorruptCheckpointError
            It is damaged or foreign, or can't be read.
        IncompatibleCheckpointError
            It is of another version of the format.
        FileNotFoundError
            There is no such file.
        """
        from llamacy.checkpoint.directory import load_file

        return load_file(path)

    def restore(self, context: Context, *, seq_id: int = 0, n_elements: int | None = None) -> Restored:
        """Replace a sequence by the snapshot, or by the beginning of it.

        Parameters
        ----------
        context
            Where to restore it.
        seq_id
            The sequence to replace.
        n_elements
            How much of the prefix to restore, in elements of it (tokens, where there are no media); all by default.
            Less is possible where `can_cut` says so.

        Returns
        -------
        Restored
            Where to go on, and the logits if all was restored.

        Raises
        ------
        IncompatibleCheckpointError
            It belongs to another model, context or build; nothing was changed.
        CheckpointError
            It can't be restored. Nothing was changed, or the sequence is empty: the message says which.
        CorruptCheckpointError
            The state is not that of the tokens; the sequence is empty.
        ClosedError
            The context is closed.
        """
        memory = checked_memory(context)
        n = self._check_restore(context, memory, seq_id, n_elements)
        n_positions = self.prefix.positions(n)
        try:
            context.state.seq_set(seq_id, self.state)
        except StateError as error:
            raise CheckpointError(str(error.args[0]), log=error.log) from error
        try:
            if memory.seq_pos_max(seq_id) not in last_positions(self.prefix):
                raise CorruptCheckpointError(
                    f"the state ends at position {memory.seq_pos_max(seq_id)}, the tokens of the snapshot at "
                    f"{self.prefix.n_positions - 1}; sequence {seq_id} is empty now"
                )
            if n < len(self.prefix):
                memory.seq_rm(seq_id, n_positions, -1)
        except MemoryOperationError as error:
            memory.seq_rm(seq_id)
            raise CheckpointError(f"{error.args[0]}; sequence {seq_id} is empty now", log=error.log) from error
        except BaseException:
            memory.seq_rm(seq_id)
            raise
        return Restored(n, n_positions, self.logits if n == len(self.prefix) else None)

    def _check_restore(self, context: Context, memory: Memory, seq_id: int, n_elements: int | None) -> int:
        """Return the number of elements to restore, when nothing speaks against it."""
        here = context_fingerprint(context)
        if self.fingerprint != here:
            raise IncompatibleCheckpointError(
                f"the snapshot is not of this context: {here.difference(self.fingerprint)}; nothing was changed"
            )
        checked_seq(memory, seq_id)
        n = len(self.prefix) if n_elements is None else n_elements
        if not 0 < n <= len(self.prefix) or self.prefix.whole(n) != n:
            raise CheckpointError(
                f"{n} of {len(self.prefix)} elements can't be restored: give a number from 1 on that doesn't end "
                "within a medium; nothing was changed"
            )
        if n < len(self.prefix) and not can_cut(context):
            raise CheckpointError(
                f"{n} of {len(self.prefix)} elements can't be restored: a {memory.kind} memory can't be cut; "
                "nothing was changed"
            )
        n_cells = self.prefix.cells(len(self.prefix))
        if n_cells > context.n_ctx_seq:
            raise CheckpointError(
                f"the snapshot takes {n_cells} cells, and a sequence of this context has {context.n_ctx_seq}; "
                "create the context with a larger n_ctx; nothing was changed"
            )
        return n


def checked_seq(memory: Memory, seq_id: int) -> None:
    """Raise `CheckpointError` when there is no such sequence."""
    if not 0 <= seq_id < memory.n_seq_max:
        raise CheckpointError(
            f"sequence {seq_id} is not in this context: ids are from 0 to {memory.n_seq_max - 1}; nothing was changed"
        )


def checked_positions(memory: Memory, seq_id: int, prefix: Prefix) -> None:
    """Raise `CheckpointError` when a sequence doesn't hold the positions that a prefix takes."""
    if not len(prefix):
        raise CheckpointError("there is nothing to keep: the sequence is empty")
    last = memory.seq_pos_max(seq_id)
    if last not in last_positions(prefix):
        raise CheckpointError(
            f"sequence {seq_id} holds positions up to {last}, and the tokens given take {prefix.n_positions}: "
            "give those that were decoded"
        )
    if memory.kind == "attention" and memory.seq_pos_min(seq_id) != 0:
        raise CheckpointError(
            f"sequence {seq_id} begins at position {memory.seq_pos_min(seq_id)}: only one that holds all from 0 on "
            "can be found by its tokens"
        )


def last_positions(prefix: Prefix) -> range:
    """Return where the last cell may be: a medium with positions of several dimensions may end before its last one."""
    n = prefix.n_positions
    return range(n - prefix.last_length(len(prefix)), n)


def _row(logits: AnyBuffer) -> bytes:
    view = memoryview(logits)  # type: ignore[arg-type]
    if view.format != "f":
        raise CheckpointError(f"logits must be float32, not of format {view.format!r}")
    return view.tobytes()
