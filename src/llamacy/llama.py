"""`Llama`: the class that most people use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from llamacy.core.attempt import Attempt
from llamacy.errors import InUseError
from llamacy.generate.arguments import CHAT_SPELLINGS, check_second, checked_flag, renamed, split_arguments
from llamacy.generate.cache import CheckpointOptions
from llamacy.generate.chat import ChatArguments, ChatRequest
from llamacy.generate.complete import TextRequest, usage_apart
from llamacy.generate.embed.beside import EmbeddingBeside
from llamacy.generate.engine import Engine, ending
from llamacy.generate.native_log import log_to_stderr
from llamacy.generate.openai_types import as_openai, check_openai
from llamacy.generate.prompts import checked_tokens
from llamacy.generate.purpose import no_text_message
from llamacy.generate.stateful import StatefulModel
from llamacy.generate.templates import Templates

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from llamacy.chat.template import ChatTemplate
    from llamacy.core.model import Model
    from llamacy.generate import responses
    from llamacy.generate.aio import Worker
    from llamacy.generate.arguments import ChatOptions, RequestArguments, TokenArguments
    from llamacy.generate.cache import Cache
    from llamacy.types import StrPath

    Prompt = str | bytes | Sequence[int]

__all__ = ["Llama"]


class Llama(StatefulModel, EmbeddingBeside):
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
    context_shift
        Go on when the context is full, by dropping the older half of what it holds; without it the generation ends
        there with the finish reason ``"length"``. A request without `max_tokens` ends after as many tokens as the model
        was trained with.
    n_keep
        Tokens at the beginning of the prompt that a shift, or `truncate_prompt`, leaves in place; -1 for all of it.
    chat_format
        Name of the chat format, for a model that has no template (`llamacy.chat.classic.chat_format_names` lists them).
    chat_template
        A chat template in place of the model's: its Jinja source, or the path of a file that has it.
    chat_template_name
        Which of the model's named templates to use.
    spm_infill
        With a suffix, give the model the suffix first.
    lora_path, lora_scale
        A LoRA adapter for requests that don't say which ones they want, and its scale; or several paths, or pairs of a
        path and a scale. `load_lora` loads further ones.
    cache
        Where to keep what the context computed, so that no beginning of a prompt is computed twice: bytes of memory
        that it may take, the path of a directory, True (an eighth of the memory, at most 2 GiB), or a store of
        `llamacy.checkpoint`, which others may share; None or 0 for nowhere. What the context itself still has is used
        in any case.
    ctx_checkpoints
        Models with recurrent layers or a sliding window can't go back to an earlier place of a prompt but to
        checkpoints, which are taken at the end of prompts and messages: so many for each sequence, in at most 1 GiB of
        memory for all. 0 for none.
    checkpoint_interval
        Tokens after which a further one is taken in a long prompt; 0 for none.
    checkpoint_on_device
        Keep the last one of each sequence in the memory of the device; for recurrent layers.
    verbose
        Show llama.cpp's log on standard error, unless `logging` is set up to do something else with it.
    **params
        Further parameters of `ModelParams` and `ContextParams`, by name, also as llama-cpp-python spells them
        (`embedding`, `flash_attn`, `use_mmap`, `use_mlock`, …). `pooling_type` is for `embed`, and ``embedding=True``
        makes what that needs at once. With `n_seq_max`, so many choices of a request are generated at once; they share
        the context unless `kv_unified` is False.

    Raises
    ------
    ModelNotFoundError, ModelFormatError, ModelLoadError
        The model can't be loaded.
    ContextCreateError
        The context can't be created, in most cases for want of memory.
    MemoryOperationError
        The memory of the model can't be shifted, but `context_shift` asks for it.
    CheckpointError
        The directory of the cache can't be used; or checkpoints of this model can't be kept on the device.
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
        context_shift: bool = False,
        n_keep: int = 0,
        chat_format: str | None = None,
        chat_template: StrPath | None = None,
        chat_template_name: str | None = None,
        spm_infill: bool = False,
        lora_path: StrPath | Sequence[StrPath | tuple[StrPath, float]] | None = None,
        lora_scale: float = 1.0,
        cache: Cache = None,
        ctx_checkpoints: int = 16,
        checkpoint_interval: int = 4096,
        checkpoint_on_device: bool = False,
        verbose: bool = False,
        **params: Any,
    ) -> None:
        self._arguments = {
            "n_ctx": n_ctx, "n_batch": n_batch, "n_ubatch": n_ubatch, "n_threads": n_threads,
            "n_threads_batch": n_threads_batch, "seed": seed, "context_shift": context_shift, "n_keep": n_keep,
            "chat_format": chat_format, "chat_template": chat_template, "chat_template_name": chat_template_name,
            "spm_infill": spm_infill, "lora_path": lora_path, "lora_scale": lora_scale, "cache": cache,
            "ctx_checkpoints": ctx_checkpoints, "checkpoint_interval": checkpoint_interval,
            "checkpoint_on_device": checkpoint_on_device, "verbose": verbose, **params,
        }  # fmt: skip
        checked_flag("spm_infill", spm_infill)
        checkpoints = CheckpointOptions(ctx_checkpoints, checkpoint_interval, checkpoint_on_device)
        if verbose:
            log_to_stderr()
        params.update(n_batch=n_batch, n_ubatch=n_ubatch, n_threads=n_threads, n_threads_batch=n_threads_batch)
        super().__init__(model_path, n_ctx=n_ctx, lora_path=lora_path, lora_scale=lora_scale, params=params)
        try:
            self._templates = Templates(
                self._model,
                chat_format=chat_format,
                chat_template=chat_template,
                name=chat_template_name,
                no_text=no_text_message(self._context),
            )
            self._engine = Engine(
                self._context,
                self._n_ctx,
                context_shift=context_shift,
                n_keep=n_keep,
                checkpoints=checkpoints,
                adapters=self._adapters,
            )
            self.set_cache(cache)
        except BaseException:
            self._close_embeddings()
            self._context.close()
            self._adapters.close()
            self._close_model()
            raise
        self._seed = seed
        self._spm_infill = spm_infill
        self._worker: Worker | None = None

    # generating

    def generate(
        self, tokens: Sequence[int], *, max_tokens: int | None = None, **options: Unpack[TokenArguments]
    ) -> Generator[int, None, None]:
        """Generate tokens one by one.

        Parameters
        ----------
        tokens
            The prompt.
        max_tokens
            Most tokens to generate; up to the end of the context by default.
        **options
            Of `RequestOptions` and `SamplingOptions`. When a grammar lets nothing follow, no token that ends the
            generation comes.

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
        request, sampling = split_arguments(self._seeded(options), ("max_tokens",))
        prompt = self._engine.prompt(checked_tokens(self._vocab, tokens), max_tokens, request)
        slots = self._engine.slots
        streams = slots.begin(self._engine.jobs(prompt, 1, max_tokens, request, sampling), timeout_s=request.timeout_s)
        return ending(streams[0], lambda: slots.end(streams))

    @overload
    def create_completion(
        self, prompt: Prompt | Sequence[Prompt], max_tokens: int | None = 16, *, temperature: float | None = None,
        top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, seed: int | None = None,
        stop: str | Sequence[str] | None = None, stream: Literal[False] = False, suffix: str | None = None,
        echo: bool = False, logprobs: int | None = None, n: int = 1, best_of: int | None = None,
        model: str | None = None, stream_options: Mapping[str, Any] | None = None, **options: Unpack[RequestArguments],
    ) -> responses.Completion: ...  # fmt: skip

    @overload
    def create_completion(
        self, prompt: Prompt | Sequence[Prompt], max_tokens: int | None = 16, *, temperature: float | None = None,
        top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, seed: int | None = None,
        stop: str | Sequence[str] | None = None, stream: Literal[True], suffix: str | None = None,
        echo: bool = False, logprobs: int | None = None, n: int = 1, best_of: int | None = None,
        model: str | None = None, stream_options: Mapping[str, Any] | None = None, **options: Unpack[RequestArguments],
    ) -> Iterator[responses.Completion]: ...  # fmt: skip

    def create_completion(
        self,
        prompt: Prompt | Sequence[Prompt],
        max_tokens: int | None = 16,
        *,
        temperature: float | None = None,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
        suffix: str | None = None,
        echo: bool = False,
        logprobs: int | None = None,
        n: int = 1,
        best_of: int | None = None,
        model: str | None = None,
        stream_options: Mapping[str, Any] | None = None,
        **options: Unpack[RequestArguments],
    ) -> responses.Completion | Iterator[responses.Completion]:
        """Continue a text.

        Parameters
        ----------
        prompt
            The text, or its tokens; or several, each of which gets its choices.
        max_tokens
            Most tokens to generate, 16 by default; None or -1 for up to the end of the context.
        temperature, top_k, top_p, min_p, seed
            As for `SamplingOptions`; the temperature is 0.8 by default.
        stop
            The text ends before the first of these strings.
        stream
            Return an iterator of chunks instead of the whole.
        suffix
            Text that comes after what is generated, for models that were trained to fill in.
        echo
            Let the text begin with the prompt.
        logprobs
            Tell the log-probability of each token, and so many of the likeliest ones at its place; with `echo` for the
            prompt as well. A token that ends the generation is told, though it leaves no text; those that a stop string
            cut off are not. `text_offset` counts characters of the text as it is returned.
        n, best_of
            Choices for each prompt; the likeliest ones (by the mean log-probability of their tokens) of `best_of`. The
            i-th has `seed` + i.
        model
            Name that the response shows; the model's own by default.
        stream_options
            ``{"include_usage": True}`` puts the usage into a chunk of its own, as OpenAI does; by default the last
            chunk has it.
        **options
            Of `RequestOptions` (grammar, logits_processor, stopping_criteria, timeout_s, cache_prompt, …), and further
            ones of `SamplingOptions`.

        Returns
        -------
        dict, or iterator of dict
            In the shape of OpenAI's text completion, with the `seed` and `max_tokens` that were used. The finish reason
            is ``"stop"`` (the model ended, the grammar lets nothing follow, a criterion, or a stop string, which
            `stop_reason` then tells), ``"length"`` (`max_tokens`, or the context is full) or ``"abort"`` (`abort`,
            Ctrl-C, or `timeout_s`; the text is what there was).

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
            An option is wrong, or there is none of that name.
        """
        check_second(max_tokens)
        apart = usage_apart(stream_options, stream=stream)
        arguments: dict[str, Any] = {
            "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed, **options,
        }  # fmt: skip
        known = (
            "max_tokens", "stop", "stream", "suffix", "echo", "logprobs", "n", "best_of", "model", "stream_options",
        )  # fmt: skip
        request, sampling = split_arguments(self._seeded(arguments), known)
        text = TextRequest(
            self._engine,
            prompt,
            suffix=suffix,
            max_tokens=max_tokens,
            stop=stop,
            echo=echo,
            logprobs=logprobs,
            n=n,
            best_of=best_of,
            model_name=model,
            suffix_first=self._spm_infill,
            request=request,
            options=sampling,
        )
        if stream:
            text.check_stream()
            return self._engine.stream(text.run, lambda: text.writer.chunks(usage_apart=apart))
        result: responses.Completion = self._engine.whole(text.run, text.result)
        return result

    __call__ = create_completion

    @overload
    def create_chat_completion(
        self, messages: Sequence[Any], *, stream: Literal[False] = False, temperature: float | None = None,
        top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, seed: int | None = None, model: str | None = None,
        stream_options: Mapping[str, Any] | None = None, **options: Unpack[ChatOptions],
    ) -> responses.ChatCompletion: ...  # fmt: skip

    @overload
    def create_chat_completion(
        self, messages: Sequence[Any], *, stream: Literal[True], temperature: float | None = None,
        top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, seed: int | None = None, model: str | None = None,
        stream_options: Mapping[str, Any] | None = None, **options: Unpack[ChatOptions],
    ) -> Iterator[responses.ChatCompletionChunk]: ...  # fmt: skip

    def create_chat_completion(
        self,
        messages: Sequence[Any],
        *,
        stream: bool = False,
        temperature: float | None = None,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        seed: int | None = None,
        model: str | None = None,
        stream_options: Mapping[str, Any] | None = None,
        **options: Unpack[ChatOptions],
    ) -> responses.ChatCompletion | Iterator[responses.ChatCompletionChunk]:
        """Answer a conversation.

        Parameters
        ----------
        messages
            What was said, as OpenAI's API has it: dicts with `role` and `content`, or objects with `model_dump`.
        stream
            Return an iterator of chunks instead of the whole.
        temperature, top_k, top_p, min_p, seed
            As for `SamplingOptions`; the temperature of an answer is 0.2 by default.
        model, stream_options
            As for `create_completion`.
        **options
            Of `ChatArguments` (tools, tool_choice, response_format, chat_template_kwargs, max_tokens, stop, logprobs,
            …), `RequestOptions` (grammar, logits_processor, stopping_criteria, timeout_s, …), and further ones of
            `SamplingOptions`.

        Returns
        -------
        dict, or iterator of dict
            In the shape of OpenAI's chat completion, or of its chunks, with the `seed` and `max_tokens` that were used.
            Thinking is under `reasoning_content`. The finish reason is as for `create_completion`, or ``"tool_calls"``.
            What looks like a call but is none stays in the content.

        Raises
        ------
        ChatTemplateError
            The model has no chat template, or its template can't render this.
        ContextLengthError
            The conversation does not fit the context.
        GrammarError
            A schema can't be used; where it is a tool's, the error names it.
        ConcurrentUseError, TypeError, ValueError
            As for `create_completion`.
        """
        apart = usage_apart(stream_options, stream=stream)
        if temperature is None and options.get("temp") is None:
            temperature = 0.2
        arguments: dict[str, Any] = {
            "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed, **options,
        }  # fmt: skip
        chat = self._chat(arguments, messages, model)
        if stream:
            return self._engine.stream(chat.run, lambda: chat.writer.chunks(usage_apart=apart))
        return self._engine.whole(chat.run, chat.writer.result)

    def create_chat_completion_openai_v1(self, messages: Sequence[Any], **options: Any) -> Any:
        """Do as `create_chat_completion`, and return the types of the package `openai`, as its client does.

        Parameters
        ----------
        messages, **options
            As for `create_chat_completion`.

        Returns
        -------
        openai.types.chat.ChatCompletion, or iterator of openai.types.chat.ChatCompletionChunk
            With the fields of llamacy's own as further attributes.

        Raises
        ------
        ImportError
            The package openai is not installed.
        """
        check_openai()
        return as_openai(self.create_chat_completion(messages, **options))

    def chat_prompt(self, messages: Sequence[Any], **options: Any) -> str:
        """Return the text that the model is given for a conversation, without generating anything.

        Parameters
        ----------
        messages, **options
            As for `create_chat_completion`.

        Raises
        ------
        ChatTemplateError, TypeError, ValueError
            As there.
        """
        return self._chat(options, messages, None).prompt

    @property
    def chat_template(self) -> ChatTemplate:
        """The template that conversations are rendered with.

        Raises
        ------
        ChatTemplateError
            The model has none, or it is broken.
        """
        return self._templates.template()

    # without blocking an event loop

    async def acreate_completion(
        self, prompt: Prompt | Sequence[Prompt], max_tokens: int | None = 16, **options: Any
    ) -> Any:
        """Do as `create_completion` in a thread of its own; with ``stream=True`` the result is an async iterator.

        Requests of several tasks wait for each other. A task that is cancelled aborts its request. An iterator that a
        task leaves before its end is closed when the task makes another request.
        """
        return await self._awaited(lambda: self.create_completion(prompt, max_tokens, **options), options)

    async def acreate_chat_completion(self, messages: Sequence[Any], **options: Any) -> Any:
        """Do as `create_chat_completion` in a thread of its own; with ``stream=True`` the result is an async iterator.

        Requests of several tasks wait for each other. A task that is cancelled aborts its request.
        """
        return await self._awaited(lambda: self.create_chat_completion(messages, **options), options)

    def abort(self) -> None:
        """Stop the request that runs, from any thread; it ends with the finish reason ``"abort"``."""
        self._engine.slots.scheduler.abort()
        self._abort_embeddings()

    # lifetime

    def close(self) -> None:
        """Free the context, and the model unless it was handed in.

        Raises
        ------
        InUseError
            Another thread generates, or a callback of a request called this; `abort` the request first.
        BufferError
            A logits processor or stopping criterion has kept the array that it was given.
        """
        slots = self._engine.slots
        with Attempt(slots.lock) as taken:
            if not taken or slots.scheduler.running:
                raise InUseError("a request runs; abort() it first")
            self._close_embeddings()
            self._context.close()
            slots.close()
        if self._worker is not None:
            self._worker.close()
        self._adapters.close()
        self._close_model()

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        try:
            self.close()
        except BufferError:
            # the traceback of what a callback raised has its array; this must not hide it, and frees the context later
            if exc_type is None:
                raise

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made with: loading it loads the model anew, and adapters that were given then."""
        path = self._model.path
        if not self._owns_model or path is None:
            raise TypeError(
                "a Llama of a model that was handed in can't be pickled; make it with the path of the model"
            )
        return _make, (path, self._arguments)

    def _works(self) -> list[tuple[threading.RLock, Callable[[], bool]]]:
        slots = self._engine.slots
        return [*super()._works(), (slots.lock, lambda: slots.in_use)]

    def _chat(self, arguments: dict[str, Any], messages: Sequence[Any], model_name: str | None) -> ChatRequest:
        arguments = renamed(arguments, CHAT_SPELLINGS)
        names = ChatArguments.__dataclass_fields__
        # None stands for the default, as for options of sampling
        chat = {name: value for name, value in arguments.items() if name in names and value is not None}
        others = {name: value for name, value in arguments.items() if name not in names}
        request, sampling = split_arguments(self._seeded(others), (*names, "model", "stream", "stream_options"))
        return ChatRequest(
            self._engine,
            self._templates,
            messages,
            ChatArguments(**chat),
            model_name=model_name,
            request=request,
            options=sampling,
        )

    async def _awaited(self, request: Callable[[], Any], options: Mapping[str, Any]) -> Any:
        if self._worker is None:
            from llamacy.generate.aio import Worker

            self._worker = Worker()
        if options.get("stream"):
            return self._worker.iterate(request)
        return await self._worker.call(request)

    def _seeded(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**arguments, "seed": self._seed} if arguments.get("seed") is None else arguments


def _make(model_path: str, arguments: dict[str, Any]) -> Llama:
    return Llama(model_path, **arguments)
