"""A loaded model, and what its context has computed: kept, saved, copied, brought back, forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llamacy.generate.cache import as_snapshot, as_store
from llamacy.generate.loaded import LoadedModel

if TYPE_CHECKING:
    from llamacy.checkpoint.snapshot import Snapshot
    from llamacy.checkpoint.store import Store
    from llamacy.generate.cache import Cache, CacheStats
    from llamacy.generate.engine import Engine
    from llamacy.types import StrPath


class StatefulModel(LoadedModel):
    """The part of `llamacy.Llama` that works with what was computed."""

    _engine: Engine

    def reset(self) -> None:
        """Forget the tokens that the context holds, so that the next request computes its prompt afresh.

        Raises
        ------
        ConcurrentUseError
            Another thread reads a stream.
        """
        self._engine.slots.reset()

    @property
    def cache(self) -> Store[Any] | None:
        """The store that keeps what was computed, or None."""
        return self._engine.slots.cache.store

    def set_cache(self, cache: Cache) -> None:
        """Keep what is computed elsewhere from now on; a store that this object made itself is closed.

        Parameters
        ----------
        cache
            As for `Llama`; None for nowhere.

        Raises
        ------
        CheckpointError
            The directory can't be used.
        ConcurrentUseError
            A request runs.
        """
        store = as_store(cache)
        with self._engine.slots.lock:
            self._engine.slots.set_store(store, owned=store is not cache)

    @property
    def stats(self) -> CacheStats:
        """What needn't be computed so far, and where it came from; a copy."""
        return self._engine.slots.cache.stats

    def save_state(self) -> Snapshot:
        """Return what the context holds of the conversation that was used last; nothing is changed.

        ``save_state().save(path)`` writes it to a file, ``bytes(save_state())`` is the same as bytes.

        Raises
        ------
        CheckpointError
            It holds nothing; or it can't be saved, for instance after a shift.
        ConcurrentUseError
            Another thread reads a stream.
        """
        return self._engine.slots.snapshot()

    def load_state(self, state: Snapshot | StrPath | bytes, *, lora: Mapping[str, float] | None = None) -> None:
        """Let the context hold what was saved; a request that begins with the same tokens goes on from there.

        It takes the place of what was used least recently. How tokens were picked (seeds, penalties, grammars) is not
        part of a state.

        Parameters
        ----------
        state
            What `save_state` returned; or the path of a file, or the bytes, that were made of it.
        lora
            The LoRA adapters that the conversation was computed with, as the requests had them.

        Raises
        ------
        AdapterError
            There is no adapter of a name, or it is an activated LoRA.
        IncompatibleCheckpointError
            It is of another model, context or build, or other adapters; nothing was changed.
        CorruptCheckpointError, CheckpointError
            It is damaged, or can't be restored; nothing was changed, or the message says what was.
        FileNotFoundError
            There is no such file.
        ConcurrentUseError
            Another thread reads a stream.
        """
        self._engine.slots.restore(as_snapshot(state), self._adapters.of_state(lora))

    def save_session(self, path: StrPath) -> None:
        """Write what the context holds of the conversation that was used last, as llama.cpp writes it.

        Such a file has nothing that tells the model or how its context was set up; `save_state` has.

        Parameters
        ----------
        path
            The file; replaced as a whole once everything is written.

        Raises
        ------
        StateError
            It holds nothing; or it can't be saved, or written.
        ConcurrentUseError
            Another thread reads a stream.

        Source: ``llama_state_seq_save_file``.
        """
        self._engine.slots.save_session(path)

    def load_session(self, path: StrPath, *, lora: Mapping[str, float] | None = None) -> int:
        """Let the context hold what `save_session`, or the slots of llama.cpp's server, wrote.

        It is for the user to see that the model and its adapters are the same: only sizes are checked.

        Parameters
        ----------
        path
            The file.
        lora
            The LoRA adapters that it was computed with, as for `load_state`.

        Returns
        -------
        int
            How many tokens it brought back.

        Raises
        ------
        AdapterError
            There is no adapter of a name, or it is an activated LoRA.
        StateError
            It is no such file, or not of such a context; nothing was changed, or the message says what was.
        FileNotFoundError
            There is no such file.
        ConcurrentUseError
            Another thread reads a stream.

        Source: ``llama_state_seq_load_file``.
        """
        return self._engine.slots.load_session(path, self._adapters.of_state(lora))

    def fork(self) -> int:
        """Let another sequence hold what the one holds that was used last, so that two continuations can be kept.

        Costs nothing where sequences share the memory, as they do by default. Needs ``n_seq_max=2`` or more.

        Returns
        -------
        int
            How many tokens both hold.

        Raises
        ------
        MemoryOperationError
            There is no other sequence, or the memory can't copy this one now.
        ConcurrentUseError
            Another thread reads a stream.
        """
        return self._engine.slots.fork()
