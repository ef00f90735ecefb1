"""A chat template: Jinja that turns messages into the prompt that a model was trained on."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

import jinja2
from jinja2 import meta

from llamacy.chat import budget
from llamacy.chat.continuation import cut_after_final_message, mark_final_message
from llamacy.chat.plain import Plain, short
from llamacy.chat.sandbox import Refusal, environment
from llamacy.chat.tool_definitions import KeptTools
from llamacy.chat.traits import TemplateTraits, probe
from llamacy.errors import ChatTemplateError, ChatTemplateLimitError

_RENDER_NAMES = frozenset(["messages", "tools", "documents", "add_generation_prompt"])
# names that a message's reasoning goes under; templates read the first, those of gpt-oss the second
_REASONING = ("reasoning_content", "thinking", "reasoning")


class ChatTemplate:
    """A chat template in Jinja, as models carry it in their metadata.

    It behaves as `apply_chat_template` of Hugging Face's transformers does, in a sandbox with limits: no template can
    run code, and one that is hostile or broken raises after bounded time and memory.

    Parameters
    ----------
    source
        The Jinja source.
    bos_token, eos_token
        Texts of the special tokens, empty for a vocabulary without them.
    special_tokens
        Further variables of that kind, such as `unk_token` and `pad_token`.
    name
        What to call it in errors.
    stop
        Texts that end an answer, where the end-of-generation tokens don't.

    Raises
    ------
    ChatTemplateError
        The source is no template.
    TypeError
        An argument isn't a text.

    Thread safety
    -------------
    May be used by several threads at once.
    """

    __slots__ = ("__dict__", "_compiled", "_name", "_source", "_tokens", "stop")

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        special_tokens: Mapping[str, str] | None = None,
        name: str | None = None,
        stop: Sequence[str] = (),
    ) -> None:
        if not isinstance(source, str):
            raise TypeError(f"a chat template is a text, not {type(source).__name__}")
        if len(source) > budget.MAX_SOURCE:
            raise ChatTemplateLimitError(
                f"the chat template has {len(source)} characters; at most {budget.MAX_SOURCE} are allowed"
            )
        tokens = {**(special_tokens or {}), "bos_token": bos_token, "eos_token": eos_token}
        for key, value in tokens.items():
            if not isinstance(value, str):
                raise TypeError(f"{key} must be a text (empty when the vocabulary has none), not {short(value)}")
            if key in _RENDER_NAMES:
                raise ValueError(f"special_tokens can't hold {key!r}, which the messages come under")
        self._source = source
        self._name = name
        self._tokens = tokens
        self._compiled = _compile(source, name)
        self.stop = tuple(stop)

    @property
    def source(self) -> str:
        """The Jinja source."""
        return self._source

    @property
    def name(self) -> str | None:
        """What it is called in errors."""
        return self._name

    @property
    def special_tokens(self) -> dict[str, str]:
        """The variables with texts of special tokens."""
        return dict(self._tokens)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that the template reads and doesn't set: what `render` may be given."""
        return frozenset(meta.find_undeclared_variables(environment.parse(self._source)))

    @cached_property
    def traits(self) -> TemplateTraits:
        """What the template wants of its messages; found out once, by rendering small chats."""
        return probe(self)

    def __repr__(self) -> str:
        name = f"{self._name!r}, " if self._name else ""
        return f"<ChatTemplate {name}{len(self._source)} characters, bos_token={self._tokens['bos_token']!r}>"

    def render(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        keep_null: bool = False,
        now: Callable[[], datetime.datetime] | None = None,
        **kwargs: Any,
    ) -> str:
        """Return the prompt for messages.

        Parameters
        ----------
        messages
            Dicts, or objects with `model_dump`. A key whose value is None counts as absent. See `normalise_messages`
            for what else a request may hold.
        tools
            Tool definitions of OpenAI's shape.
        documents
            Dicts that a template for retrieval reads.
        add_generation_prompt
            Whether the prompt ends where the assistant begins to write; by default it does, unless
            `continue_final_message` is set.
        continue_final_message
            Leave the last message open, so that the model goes on with it.
        keep_null
            Hand on a key whose value is None. What `normalise_messages` returned has one only where the template asks
            for it.
        now
            The clock that `strftime_now` reads.
        **kwargs
            Further variables of the template, such as `enable_thinking`.

        Raises
        ------
        ChatTemplateError
            The template refuses the messages, fails, or can't continue the last message.
        ChatTemplateLimitError
            It takes too much time or memory.
        TypeError, ValueError
            An argument is wrong, or a keyword would hide a variable that is set otherwise.

        Thread safety
        -------------
        May be called by several threads at once.
        """
        for key in kwargs:
            if key in self._tokens:
                raise ValueError(f"{key} is a special token of this ChatTemplate: give it when you make the template")
        if add_generation_prompt and continue_final_message:
            raise ValueError("add_generation_prompt starts a new message: it can't be used with continue_final_message")
        plain = Plain()
        chat = _chat(messages, plain, keep_null)
        if continue_final_message:
            final = mark_final_message(chat, self._source)
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        variables = {
            **self._tokens,
            **plain.copy(kwargs, "chat_template_kwargs"),
            "messages": chat,
            "tools": _dicts(tools, "tools", plain),
            "documents": _dicts(documents, "documents", plain),
            "add_generation_prompt": bool(add_generation_prompt),
        }
        text = self._run(variables, budget.Budget(plain.n_items, plain.n_bytes, now or datetime.datetime.now))
        return cut_after_final_message(text, final) if continue_final_message else text

    def render_plain(self, messages: list[dict[str, Any]], **variables: Any) -> str:
        """Return the prompt for messages that are plain data, as they are: null stays null.

        Parameters
        ----------
        messages
            Dicts of plain values only; the template may change them.
        **variables
            Further variables, of plain values.

        Raises
        ------
        ChatTemplateError
            The template refuses the messages, or fails.
        ChatTemplateLimitError
            It takes too much time or memory.
        """
        allowed = budget.Budget(0, 0, datetime.datetime.now)
        return self._run({**self._tokens, "messages": messages, "add_generation_prompt": True, **variables}, allowed)

    def _run(self, variables: dict[str, Any], allowed: budget.Budget) -> str:
        token = budget.begin(allowed)
        try:
            context = self._compiled.new_context(variables)
            return environment.concat(list(self._compiled.root_render_func(context)))
        except Exception as error:
            raise self._error(error) from (None if isinstance(error, ChatTemplateError) else error)
        finally:
            budget.end(token)

    def _error(self, error: Exception) -> ChatTemplateError:
        line = _line(error.__traceback__, self._compiled)
        if isinstance(error, Refusal):
            return ChatTemplateError(str(error), line=line, refusal=str(error))
        if isinstance(error, ChatTemplateError):
            return type(error)(_message(self._name, line, str(error)), line=line)
        if isinstance(error, (RecursionError, MemoryError)):
            text = "goes too deep" if isinstance(error, RecursionError) else "takes too much memory"
            return ChatTemplateLimitError(_message(self._name, line, f"the chat template {text}"), line=line)
        return ChatTemplateError(_message(self._name, line, f"{error} ({type(error).__name__})"), line=line)


def _chat(messages: Any, plain: Plain, keep_null: bool) -> list[dict[str, Any]]:
    """Return plain copies of messages."""
    if not isinstance(messages, (list, tuple)):
        raise TypeError(f"messages must be a list, not {type(messages).__name__}")
    if not messages:
        raise ValueError("messages is empty: give at least one")
    chat = []
    for index, message in enumerate(messages):
        copied = plain.copy(message, f"messages[{index}]")
        if not isinstance(copied, dict):
            raise TypeError(f"messages[{index}] must be a dict or a model, not {type(message).__name__}")
        given = copied if keep_null else {key: value for key, value in copied.items() if value is not None}
        reasoning = next((given[key] for key in _REASONING if given.get(key) is not None), None)
        if reasoning is not None:
            given = {"thinking": reasoning, **given, "reasoning_content": reasoning}
        chat.append(given)
    return chat


def _dicts(values: Any, what: str, plain: Plain) -> list[dict[str, Any]] | None:
    if values is None:
        return None
    if isinstance(values, KeptTools):
        return values.copied(plain)
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{what} must be a list, not {type(values).__name__}")
    copied = [plain.copy(value, f"{what}[{index}]") for index, value in enumerate(values)]
    for index, value in enumerate(copied):
        if not isinstance(value, dict):
            raise TypeError(f"{what}[{index}] must be a dict, not {type(values[index]).__name__}")
    return copied


def _compile(source: str, name: str | None) -> jinja2.Template:
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ChatTemplateError(
            _message(name, error.lineno, error.message or "not Jinja"), line=error.lineno
        ) from error
    except ChatTemplateError as error:
        raise type(error)(_message(name, None, str(error))) from None
    except (RecursionError, MemoryError, SyntaxError, OverflowError, ValueError) as error:
        text = f"the chat template can't be compiled: {error} ({type(error).__name__})"
        raise ChatTemplateError(_message(name, None, text)) from error


def _line(traceback: TracebackType | None, template: jinja2.Template) -> int | None:
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


def _message(name: str | None, line: int | None, text: str) -> str:
    where = ", ".join([*([f"template {name!r}"] if name else []), *([f"line {line}"] if line else [])])
    return f"{where}: {text}" if where else text
