"""`Llama`: the class that most people use."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence as _Sequence
from llamacy.core.text import TextAssembler
from llamacy.generate.completion import Chunk, Completion
from llamacy.generate.constraint import grammar_sampler
from llamacy.generate.options import SamplingOptions
from llamacy.generate.request import Slot
from llamacy.types import StrPath

if TYPE_CHECKING:
    from llamacy.core.stream import TokenStream
    from llamacy.grammar import Grammar

__all__ = ["Llama"]

_Item = TypeVar("_Item")

# positions that a context gets when the caller doesn't say: enough for most, and little memory
_DEFAULT_N_CTX = 4096

_MODEL_PARAMS = frozenset(
    (
        "n_gpu_layers", "cpu_moe", "n_cpu_moe", "devices", "tensor_buft_overrides", "split_mode", "main_gpu",
        "tensor_split", "load_mode", "lazy_mode", "kv_overrides", "check_tensors", "use_extra_bufts", "no_host",
        "load_mtp", "progress_callback",
    )
)  # fmt: skip


class Llama:
    """A model that is ready to generate text.

    Parameters
    ----------
    model_path
        A GGUF file, or a `Model` that is already loaded (it is shared and not closed with this object).
    n_ctx
        Tokens that prompt and completion may have together. By default what the model was trained with, but at most
        4,096; 0 takes what it was trained with.
    n_batch
        Most tokens of a prompt in one decode.
    n_ubatch
        Most tokens that are computed at once; an abort or Ctrl-C is answered after at most one such micro-batch.
    n_threads, n_threads_batch
        Threads for one token and for a prompt; half of the CPUs at hand, and all of them.
    seed
        Seed for requests that give none; drawn anew for each request by default.
    verbose
        Show llama.cpp's log on standard error, unless `logging` is set up to do something else with it.
    **params
        Further parameters of `ModelParams` and `ContextParams`, by name.

    Raises
    ------
    ModelNotFoundError, ModelFormatError, ModelLoadError
        The model can't be loaded.
    ContextCreateError
        The context can't be created, in most cases for want of memory.
    TypeError, ValueError
        A parameter is wrong or does not exist.

    Thread safety: calls of several threads take turns; `abort` stops the one that runs. A stream belongs to the thread
    that reads it, and other threads get `ConcurrentUseError` until it is read or closed.
    """

    def __init__(
        self,
        model_path: StrPath | Model,
        *,
        n_ctx: int | None = None,
        n_batch: int = 2048,
        n_ubatch: int = 512,
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        seed: int | None = None,
        verbose: bool = False,
        **params: Any,
    ) -> None:
        if verbose:
            _log_to_stderr()
        model_params = {name: params.pop(name) for name in list(params) if name in _MODEL_PARAMS}
        if isinstance(model_path, Model):
            if model_params:
                raise TypeError(f"the model is loaded already, so {', '.join(model_params)} can't be given")
            self._model, self._owns_model = model_path, False
        else:
            self._model, self._owns_model = Model(model_path, **model_params), True
        try:
            n_ctx_train = self._model.n_ctx_train
            n_ctx = min(n_ctx_train, _DEFAULT_N_CTX) if n_ctx is None else n_ctx or n_ctx_train
            self._context = Context(
                self._model,
                n_ctx=n_ctx,
                n_batch=n_batch,
                n_ubatch=n_ubatch,
                n_threads=n_threads,
                n_threads_batch=n_threads_batch,
                **params,
            )
        except BaseException:
            self._close_model()
            raise
        self._n_ctx = min(n_ctx, self._context.n_ctx_seq)
        self._seed = seed
        self._vocab = self._model.vocab
        self._slot = Slot(Scheduler(self._context), _Sequence(0, self._n_ctx), self._vocab)

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str,
        *,
        revision: str | None = None,
        local_dir: StrPath | None = None,
        cache_dir: StrPath | None = None,
        **kwargs: Any,
    ) -> Llama:
        """Download a model from the Hugging Face Hub, once, and load it.

        Parameters
        ----------
        repo_id
            Repository, for instance ``"org/model-GGUF"``.
        filename
            File in it, or a pattern such as ``"*q4_k_m.gguf"`` that one file matches. All parts of a split model are
            fetched when its first part is named.
        revision
            Branch, tag or commit.
        local_dir, cache_dir
            Where to put the file; the Hub's own cache by default.
        **kwargs
            As for `Llama`.

        Raises
        ------
        ImportError
            The package huggingface_hub is not installed.
        ValueError
            No file, or more than one, matches.
        """
        from llamacy.generate.hub import fetch

        return cls(fetch(repo_id, filename, revision=revision, local_dir=local_dir, cache_dir=cache_dir), **kwargs)

    # what it is made of

    @property
    def model(self) -> Model:
        """The `Model`."""
        return self._model

    @property
    def context(self) -> Context:
        """The `Context`; using it directly while a request runs raises `ConcurrentUseError`."""
        return self._context

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the model file."""
        return dict(self._model.metadata)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._context.closed

    def n_ctx(self) -> int:
        """Return how many tokens prompt and completion may have together."""
        return self._n_ctx

    def n_vocab(self) -> int:
        """Return the number of tokens in the vocabulary."""
        return self._model.n_vocab

    def __repr__(self) -> str:
        if self.closed:
            return "<Llama closed>"
        return f"<Llama {self._model.description!r} n_ctx={self._n_ctx}>"

    # text and tokens

    def tokenize(self, text: str | bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Convert text into tokens.

        Parameters
        ----------
        text
            The text; bytes are taken as they are.
        add_bos
            Add the tokens that the model wants around a text.
        special
            Recognise the spelling of special tokens in the text.

        Raises
        ------
        TokenizeError
            The text can't be converted.
        """
        return self._vocab.tokenize(text, add_special=add_bos, parse_special=special).tolist()

    def detokenize(self, tokens: Sequence[int], special: bool = False) -> bytes:
        """Convert tokens into text, which may end in the middle of a character.

        Parameters
        ----------
        tokens
            Token ids.
        special
            Spell special tokens out; otherwise they are left out.

        Raises
        ------
        TokenizeError
            An id is not in the vocabulary.
        """
        return self._vocab.detokenize(tokens, unparse_special=special)

    # generating

    def generate(
        self,
        tokens: Sequence[int],
        *,
        max_tokens: int | None = None,
        grammar: Grammar | None = None,
        grammar_first: bool = False,
        **sampling: Any,
    ) -> Generator[int, None, None]:
        """Generate tokens one by one.

        Parameters
        ----------
        tokens
            The prompt.
        max_tokens
            Most tokens to generate; up to the end of the context by default.
        grammar, grammar_first
            As for `create_completion`. When the grammar lets nothing follow, no token that ends the generation comes.
        **sampling
            Options of `SamplingOptions`: temperature, top_k, top_p, min_p, seed.

        Yields
        ------
        int
            Token ids; a token that ends the generation is the last one.

        Raises
        ------
        ContextLengthError
            The prompt does not fit the context.
        GrammarError
            llama.cpp can't use the grammar; or, later, no token that it allows is left.
        ValueError
            The prompt is empty.
        """
        options = self._options(sampling)
        stream = self._begin(self._checked(tokens), max_tokens, options, grammar, grammar_first)
        return self._ending(stream, stream)

    @overload
    def create_completion(
        self, prompt: str | Sequence[int], max_tokens: int | None = 16, temperature: float = 0.8, top_k: int = 40,
        top_p: float = 0.95, min_p: float = 0.05, seed: int | None = None, stop: str | Sequence[str] | None = None,
        stream: Literal[False] = False, *, grammar: Grammar | None = None, grammar_first: bool = False,
    ) -> Chunk: ...  # fmt: skip

    @overload
    def create_completion(
        self, prompt: str | Sequence[int], max_tokens: int | None = 16, temperature: float = 0.8, top_k: int = 40,
        top_p: float = 0.95, min_p: float = 0.05, seed: int | None = None, stop: str | Sequence[str] | None = None,
        *, stream: Literal[True], grammar: Grammar | None = None, grammar_first: bool = False,
    ) -> Iterator[Chunk]: ...  # fmt: skip

    def create_completion(
        self,
        prompt: str | Sequence[int],
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
        *,
        grammar: Grammar | None = None,
        grammar_first: bool = False,
    ) -> Chunk | Iterator[Chunk]:
        """Continue a text.

        Parameters
        ----------
        prompt
            The text, or its tokens.
        max_tokens
            Most tokens to generate; None or -1 for up to the end of the context.
        temperature, top_k, top_p, min_p, seed
            As for `SamplingOptions`.
        stop
            The text ends before the first of these strings.
        stream
            Return an iterator of chunks instead of the whole.
        grammar
            A `llamacy.grammar.Grammar` that the text obeys: it is the beginning of a text of the grammar, and a whole
            one when the finish reason is ``"stop"`` and no stop string cut it. Cut off by `max_tokens`, it may end in
            U+FFFD, for a character of which only some bytes came. A lazy grammar holds from its trigger.
        grammar_first
            Choose among the tokens that the grammar allows at once. By default it is asked about the token that was
            chosen, and only when it refuses that one the choice is made again among those that it allows.

        Returns
        -------
        dict, or iterator of dict
            In the shape of OpenAI's text completion, with the ``"seed"`` that was used. The finish reason is ``"stop"``
            (the model ended, the grammar lets nothing follow, or a stop string), ``"length"`` (`max_tokens`, or the
            context is full) or ``"abort"``.

        Raises
        ------
        ContextLengthError
            The prompt does not fit the context.
        ConcurrentUseError
            Another thread reads a stream.
        GrammarError
            llama.cpp can't use the grammar, or no token that it allows is left: samplers rule them out, or the model
            has none.
        TypeError, ValueError
            An option is wrong.
        """
        options = self._options(
            {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
        )
        stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
        tokens = self._prompt_tokens(prompt)
        name = self._model.name or Path(self._model.path or "").name
        assembler = TextAssembler(self._vocab, stops)
        if stream:
            generated = self._begin(tokens, max_tokens, options, grammar, grammar_first)
            completion = Completion(generated, assembler, len(tokens), options.drawn_seed, name)
            return self._ending(completion.chunks(), generated)
        with self._slot.lock:
            generated = self._begin(tokens, max_tokens, options, grammar, grammar_first)
            try:
                return Completion(generated, assembler, len(tokens), options.drawn_seed, name).result()
            finally:
                self._slot.end(generated)

    __call__ = create_completion

    def abort(self) -> None:
        """Stop the request that runs, from any thread; it ends with the finish reason ``"abort"``."""
        self._slot.scheduler.abort()

    # lifetime

    def close(self) -> None:
        """Free the context, and the model unless it was handed in.

        Raises
        ------
        InUseError
            Another thread generates; `abort` it first.
        """
        self._context.close()
        self._slot.scheduler.close()
        self._close_model()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _close_model(self) -> None:
        if self._owns_model:
            self._model.close()

    def _options(self, arguments: dict[str, Any]) -> SamplingOptions:
        if arguments.get("seed") is None:
            arguments = {**arguments, "seed": self._seed}
        return SamplingOptions.from_arguments(arguments)

    def _prompt_tokens(self, prompt: str | Sequence[int]) -> array[int]:
        if not isinstance(prompt, (str, bytes)):
            return self._checked(prompt)
        tokens = self._vocab.tokenize(prompt, parse_special=True)
        if not tokens:
            first = self._vocab.bos if self._vocab.bos is not None else self._vocab.eos
            if first is None:
                raise ValueError("the prompt is empty, and the model has no token to begin with")
            tokens.append(first)
        return tokens

    def _checked(self, tokens: Sequence[int]) -> array[int]:
        if isinstance(tokens, (bytes, bytearray)):
            raise TypeError("tokens must be ids; convert text with tokenize() first")
        ids = array("i", tokens)
        if not ids:
            raise ValueError("the prompt has no tokens")
        return ids

    def _begin(
        self,
        tokens: array[int],
        max_tokens: int | None,
        options: SamplingOptions,
        grammar: Grammar | None,
        grammar_first: bool,
    ) -> TokenStream:
        if grammar_first and grammar is None:
            raise ValueError("grammar_first says how a grammar is applied, but there is no grammar")
        room = self._n_ctx - len(tokens)
        if max_tokens is None or max_tokens == -1:
            max_tokens = room
        elif isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
            raise ValueError(f"max_tokens must be an int from 0, or -1 or None for no limit, not {max_tokens!r}")
        constraint = None if grammar is None else grammar_sampler(grammar, self._vocab)
        return self._slot.begin(tokens, max(min(max_tokens, room), 0), options, constraint, grammar_first=grammar_first)

    def _ending(self, items: Iterator[_Item], stream: TokenStream) -> Generator[_Item, None, None]:
        """Return a generator of the items that ends the request however it ends, also when dropped before it began."""

        def run() -> Generator[Any, None, None]:
            try:
                yield None
                yield from items
            finally:
                self._slot.end(stream)

        generator = run()
        next(generator)  # from here on, closing it runs the `finally`
        return generator


def _log_to_stderr() -> None:
    logger = logging.getLogger("llamacy")
    if not logger.handlers and not logging.getLogger().handlers:
        logger.addHandler(logging.StreamHandler())
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
