"""Computes the vectors of texts on contexts of its own, which grow with the longest text."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamacy._imports import import_whole
from llamacy.core._architectures import LEARNED_POSITIONS
from llamacy.core.attempt import Attempt
from llamacy.core.context import Context
from llamacy.core.embedder import Embedder
from llamacy.core.packing import plan_packs
from llamacy.errors import ClosedError, DecodeAbortedError, InUseError
from llamacy.generate.arguments import checked_count
from llamacy.generate.cancellation import current
from llamacy.generate.embed.cost import best_tokens, on_gpu
from llamacy.generate.embed.heads import check_pooling
from llamacy.generate.embed.repeats import Repeats
from llamacy.types import PoolingType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from llamacy.core.adapter import LoraAdapter
    from llamacy.core.control_vector import ControlVector
    from llamacy.core.model import Model
    from llamacy.core.threadpool import ThreadPool
    from llamacy.generate.cancellation import Cancellation

    Vectors = NDArray[np.float32]
    Lora = Mapping[str, float] | None

# what is put in order of length, and computed, before anything is handed on: enough that batches are even
_WINDOW_TEXTS = 2048
_WINDOW_TOKENS = 1 << 18
# what is computed at once as long as no text is longer
_CPU_TOKENS = 512
_GPU_TOKENS = 2048
# a batch of more texts gains nothing; a GPU takes what llama.cpp allows
_CPU_TEXTS = 64
_GPU_TEXTS = 256


class EmbeddingEngine:
    """Computes texts, many in a batch, and hands their vectors back in the order of the texts.

    Parameters
    ----------
    model
        What computes them.
    n_ctx
        Most tokens of a text; by default, and with 0, what the model was trained with.
    params
        Of `ContextParams`; `n_batch` and `n_ubatch` are how much is computed at once, but for longer texts.

    Attributes
    ----------
    context
        Where it computes now; a longer text than any before makes a larger one take its place.
    n_most
        Most tokens of a text.
    width
        Numbers in a vector.
    pooling
        `PoolingType` in effect.
    adapters
        Tells which LoRA adapters to apply, and how strongly, given the option `lora` of a request.
    control_vector
        Tells which control vector to add.
    replaced
        Called with the new context when it has taken the place of the one before.
    threadpools
        What the context computes on, to be kept for the next one.

    Raises
    ------
    ContextCreateError, PoolingError, TypeError, ValueError
        A parameter is wrong, or the model can't do it.

    Thread safety: calls of several threads take turns; `abort` stops the one that runs.
    """

    def __init__(self, model: Model, n_ctx: int | None, params: dict[str, Any]) -> None:
        self.model = model
        self.lock = threading.RLock()
        self.adapters: Callable[[Lora], Sequence[tuple[LoraAdapter, float]]] = _no_adapters
        self.control_vector: Callable[[], ControlVector | None] = _none
        self.replaced: Callable[[Context], None] = _ignored
        self.threadpools: tuple[ThreadPool, ThreadPool | None] | None = None
        self._params = _checked(params)
        self.n_most = n_ctx or model.n_ctx_train
        if model.architecture in LEARNED_POSITIONS:
            self.n_most = min(self.n_most, model.n_ctx_train)
        self._n_texts = self._params.pop("n_seq_max", None) or (_GPU_TEXTS if on_gpu(model) else _CPU_TEXTS)
        if model.is_recurrent or model.is_hybrid:
            self._n_texts = 1  # llama.cpp computes their sequences one after the other, and each takes much memory
        wanted = [self._params.pop(name, None) for name in ("n_batch", "n_ubatch")]
        self._n_wanted = min((n for n in wanted if n), default=None)
        self._aborted = False
        self._running = False
        self._cancellation: Cancellation | None = None
        self.context = self._make_context(1, whole=True)
        self.pooling = self.context.pooling_type
        try:
            check_pooling(model, self.pooling)
            self._embedder = Embedder(self.context)
        except BaseException:
            self.context.close()
            raise
        # the last token is pooled right wherever micro-batches are cut; all else needs a text in one of them
        self._whole = not self.context.causal_attn or self.pooling not in (PoolingType.NONE, PoolingType.LAST)
        self.width = self._embedder.width
        self.pooled = self._embedder.pooled

    # computing

    def windows(
        self,
        texts: Iterable[Any],
        tokens: Callable[[Any, int], array[int]],
        *,
        done: Callable[[int], object] | None = None,
        lora: Lora = None,
    ) -> Iterator[tuple[int, array[int], Any]]:
        """Compute texts window by window, in constant memory.

        Parameters
        ----------
        texts
            Any number of them.
        tokens
            Makes the tokens of a text, given its index.
        done, lora
            As for `run`.

        Yields
        ------
        start
            Index of the first text of the window.
        lengths
            Numbers of tokens.
        vectors
            As from `run`.
        """
        start = 0
        window: list[array[int]] = []
        n_tokens = 0
        for index, text in enumerate(texts):
            window.append(tokens(text, index))
            n_tokens += len(window[-1])
            if len(window) == _WINDOW_TEXTS or n_tokens >= _WINDOW_TOKENS:
                yield start, array("i", map(len, window)), self.run(window, start, done, lora)
                start, window, n_tokens = index + 1, [], 0
        if window:
            yield start, array("i", map(len, window)), self.run(window, start, done, lora)

    def run(
        self,
        texts: Sequence[array[int]],
        first: int = 0,
        done: Callable[[int], object] | None = None,
        lora: Lora = None,
    ) -> Any:
        """Compute texts.

        Parameters
        ----------
        texts
            Tokens of each; none is empty or longer than `n_most`.
        first
            Index of the first of them, for errors.
        done
            Called with the number of texts that were computed, after each batch.
        lora
            Which adapters the request wants.

        Returns
        -------
        numpy.ndarray, or list of numpy.ndarray
            Float32, owned: (n, width), or without pooling one of (n_tokens, width) for each text.

        Raises
        ------
        AdapterError
            There is no adapter that the request wants; nothing was computed.
        DecodeAbortedError
            `abort` was called.
        DecodeError, EncodeError, OutputError
            llama.cpp failed.
        """
        import_whole("numpy")
        import numpy as np

        if not texts:
            return np.empty((0, self.width), np.float32) if self.pooled else []
        repeats = Repeats(texts)
        lengths = array("i", map(len, texts))
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        tokens = array("i")
        for text in texts:
            tokens.extend(text)
        with self.lock:
            self._begin()
            try:
                self._prepare(max(lengths), self.adapters(lora))
                order, ends = self._plan(lengths, repeats.distinct)
                vectors: Any = np.empty((len(texts), self.width), np.float32) if self.pooled else [None] * len(texts)
                begin = 0
                for end in ends:
                    if self._aborted or (self._cancellation is not None and self._cancellation.cancelled):
                        raise DecodeAbortedError("the texts were not computed: abort() was called", status=2)
                    self._compute(tokens, offsets, order[begin:end], vectors, first)
                    if done is not None:
                        done(end - begin)
                    begin = end
                repeats.fill(vectors)
                if done is not None and repeats.n_repeated:
                    done(repeats.n_repeated)
                return vectors
            finally:
                self._end()

    def abort(self, cancellation: Cancellation | None = None) -> bool:
        """Stop what is computed, from any thread, if it has this cancellation; return whether it runs."""
        if not self._running or (cancellation is not None and self._cancellation is not cancellation):
            return False
        self._aborted = True
        self.context.abort()
        return True

    # lifetime

    def close(self) -> None:
        """Free the context.

        Raises
        ------
        InUseError
            Another thread computes.
        BufferError
            A view of the context's output is alive.
        """
        with Attempt(self.lock) as taken:
            if not taken or self._running:
                raise InUseError("texts are being computed; abort() first")
            self.context.close()
            self._embedder.close()

    @property
    def running(self) -> bool:
        """Whether it computes now."""
        return self._running

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.context.closed

    def _begin(self) -> None:
        if self.context.closed:
            raise ClosedError("this model is closed")
        if self._running:
            raise InUseError("texts are being computed; what shows the progress can't compute others meanwhile")
        self._running, self._aborted = True, False
        self._cancellation = current.get()
        if self._cancellation is not None:
            self._cancellation.slots = self

    def _end(self) -> None:
        self._running, self._cancellation = False, None

    def _plan(self, lengths: array[int], chosen: array[int]) -> tuple[array[int], array[int]]:
        """Return the chosen texts in the order in which they are computed, and where in it each batch ends."""
        order, ends = plan_packs(
            array("i", map(lengths.__getitem__, chosen)),
            # not what a context takes that an earlier call made larger: equal calls share texts out alike
            max_tokens=self._n_wanted or self._batch_size(max(lengths)),
            max_texts=self._n_texts,
            best_tokens=best_tokens(
                self.model, self.context.n_threads_batch, self.context.params.values["flash_attn_type"]
            ),
        )
        return array("i", map(chosen.__getitem__, order)), ends

    def _compute(self, tokens: array[int], offsets: Any, chosen: array[int], vectors: Any, first: int) -> None:
        import numpy as np

        if self.pooled:
            self._embedder.run(tokens, offsets, chosen, vectors, first)
            return
        lengths = [int(offsets[text + 1] - offsets[text]) for text in chosen]
        rows = np.empty((sum(lengths), self.width), np.float32)
        self._embedder.run(tokens, offsets, chosen, rows, first)
        begin = 0
        for text, n in zip(chosen, lengths, strict=True):
            # memory of its own, so that a text that is kept does not keep the others
            vectors[text] = rows[begin : begin + n].copy()
            begin += n

    # the context

    def _prepare(self, n_tokens: int, adapters: Sequence[tuple[LoraAdapter, float]]) -> None:
        """Make the context one that takes a text of so many tokens, with what it is to compute with."""
        if n_tokens > self.context.n_batch:
            fresh = self._make_context(n_tokens, whole=self._whole)
            try:
                fresh.set_n_threads(self.context.n_threads, self.context.n_threads_batch)
                if self.threadpools is not None:
                    fresh.attach_threadpool(*self.threadpools)
                self.context.close()
            except BaseException:
                fresh.close()
                raise
            self._embedder.close()
            self.context, self._embedder = fresh, Embedder(fresh)
            self.replaced(fresh)
        if tuple(adapters) != self.context.adapters_lora:
            self.context.set_adapters_lora(adapters)
        vector = self.control_vector()
        if vector is not self.context.adapter_cvec:
            self.context.set_adapter_cvec(vector)

    def _make_context(self, n_tokens: int, *, whole: bool) -> Context:
        """Make a context for batches of the usual size and a text of so many tokens; in one micro-batch on request."""
        n_batch, n_least = self._batch_size(n_tokens), self._batch_size(1)
        return Context(
            self.model,
            n_ctx=n_batch,
            n_batch=n_batch,
            n_ubatch=n_batch if whole else n_least,
            n_seq_max=self._n_texts,
            kv_unified=True,
            embeddings=True,
            **self._params,
        )

    def _batch_size(self, n_tokens: int) -> int:
        """Return the most tokens of a batch when a text has so many: the usual number, doubled until it fits."""
        n_least = n_batch = self._n_wanted or (_GPU_TOKENS if on_gpu(self.model) else _CPU_TOKENS)
        while n_batch < n_tokens:
            n_batch *= 2
        n_batch = max(n_least, min(n_batch, self.n_most))
        # llama.cpp plans its memory for batches that all sequences have an equal part of
        return -(-n_batch // self._n_texts) * self._n_texts


def _checked(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of a context without those that are not for the caller to choose here.

    Raises
    ------
    ValueError
        One of these says something else.
    """
    params = dict(params)
    for name in ("embeddings", "kv_unified"):
        if not params.pop(name, True):
            raise ValueError(
                f"{name}=False is not possible: texts to embed share a context that puts out their vectors"
            )
    for name in ("n_batch", "n_ubatch", "n_seq_max"):
        if params.get(name) is not None:
            checked_count(name, params[name])
    return params


def _no_adapters(_lora: Lora) -> tuple[()]:
    return ()


def _none() -> None:
    return None


def _ignored(_context: Context) -> None:
    pass
