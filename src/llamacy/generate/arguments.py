"""Keyword arguments of requests: which there are, and what is said of one that there isn't."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypedDict

from llamacy.generate.names import raise_unknown
from llamacy.generate.options import SamplingOptions
from llamacy.generate.sampling_values import plain_bool, plain_float

if TYPE_CHECKING:
    from llamacy.core.logits_function import LogitsFunction
    from llamacy.generate.adapters import LoraScales
    from llamacy.generate.sampling_arguments import FurtherSamplingArguments, SamplingArguments
    from llamacy.grammar import Grammar

    Processor = LogitsFunction | Callable[[Any, Any], Any]
    Criterion = LogitsFunction | threading.Event | Callable[[Any, Any], Any]

    class _RequestArguments(TypedDict, total=False):
        grammar: Grammar | None
        grammar_first: bool
        logits_processor: Processor | Iterable[Processor] | None
        stopping_criteria: Criterion | Iterable[Criterion] | None
        timeout_s: float | None
        cache_prompt: bool
        truncate_prompt: bool
        lora: LoraScales | None

    class RequestArguments(_RequestArguments, FurtherSamplingArguments, total=False):
        """Keyword arguments that every completion takes beside those in its signature."""

    class ChatOptions(RequestArguments, total=False):
        """Keyword arguments that every chat completion takes beside those in its signature (`ChatArguments`)."""

        tools: Sequence[Any] | None
        tool_choice: Any
        parallel_tool_calls: bool
        functions: Sequence[Any] | None
        function_call: Any
        response_format: Any
        reasoning_format: str
        chat_template_kwargs: Mapping[str, Any] | None
        documents: Sequence[Any] | None
        add_generation_prompt: bool
        continue_final_message: bool
        assistant_prefill: bool
        max_tokens: int | None
        max_completion_tokens: int | None
        stop: str | Sequence[str] | None
        n: int
        logprobs: bool
        top_logprobs: int | None

    class TokenArguments(_RequestArguments, SamplingArguments, total=False):
        """Keyword arguments that a request for tokens takes."""


@dataclass(frozen=True)
class RequestOptions:
    """What a request asks for beside its prompt and how tokens are picked.

    Parameters
    ----------
    grammar
        A `llamacy.grammar.Grammar` that the text obeys: it is the beginning of a text of the grammar, and a whole one
        when the finish reason is ``"stop"`` and no stop string cut it. Cut off by `max_tokens`, it may end in U+FFFD,
        for a character of which only some bytes came. A lazy grammar holds from its trigger.
    grammar_first
        Choose among the tokens that the grammar allows at once. By default it is asked about the token that was chosen,
        and only when it refuses that one the choice is made again among those that it allows.
    logits_processor, stopping_criteria
        One or several, see `llamacy.generate.callbacks`.
    timeout_s
        Seconds after which the request is aborted.
    cache_prompt
        Use what is known of the prompt from requests before (in the memory, as a checkpoint, or in the cache), and keep
        what comes of this one. Its logits may then be rounded otherwise than those of a prompt that is computed as a
        whole, which False asks for; nothing of the request is stored then.
    truncate_prompt
        Leave out the middle of a prompt that is too long.
    lora
        The LoRA adapters to apply, by name, with their scales; no other one is applied. None for those that are applied
        by default. Also a list of dicts with `name` and `scale` (1 by default).
    """

    grammar: Grammar | None = None
    grammar_first: bool = False
    logits_processor: Any = None
    stopping_criteria: Any = None
    timeout_s: float | None = None
    cache_prompt: bool = True
    truncate_prompt: bool = False
    lora: LoraScales | None = None

    def __post_init__(self) -> None:
        for name in ("grammar_first", "cache_prompt", "truncate_prompt"):
            checked_flag(name, getattr(self, name))
        if self.grammar_first and self.grammar is None:
            raise ValueError("grammar_first says how a grammar is applied, but there is no grammar")
        timeout_s: Any = self.timeout_s
        if timeout_s is not None:
            if isinstance(timeout_s, bool) or not isinstance(timeout_s, Real):
                raise TypeError(f"timeout_s must be a number of seconds, not {timeout_s!r:.80}")
            if not 0 <= plain_float(timeout_s) < math.inf and timeout_s != math.inf:
                raise ValueError(f"timeout_s must be from 0, or None for no limit, not {timeout_s!s:.80}")


# most choices of a prompt: each takes memory from the beginning
MAX_CHOICES = 65_536
_REQUEST = frozenset(field.name for field in fields(RequestOptions))
_SAMPLING = frozenset(SamplingOptions.names())
# as forks of llama-cpp-python spell them
_SPELLINGS = {"active_loras": "lora"}
# other names of what a chat takes, OpenAI's among them
CHAT_SPELLINGS = {"max_completion_tokens": "max_tokens", "assistant_prefill": "continue_final_message"}


def split_arguments(arguments: Mapping[str, Any], known: Iterable[str] = ()) -> tuple[RequestOptions, SamplingOptions]:
    """Return the options of a request, and those of its sampling.

    Parameters
    ----------
    arguments
        By name.
    known
        Further names that the caller takes, for the error.

    Raises
    ------
    TypeError
        There is no such option, or it is given under two names.
    """
    arguments = renamed(arguments, _SPELLINGS)
    # None stands for the default, as for options of sampling
    request = {name: value for name, value in arguments.items() if name in _REQUEST and value is not None}
    sampling = {name: value for name, value in arguments.items() if name not in _REQUEST}
    for name in sampling:
        if name not in _SAMPLING:
            raise_unknown(name, [*SamplingOptions.names(), *_REQUEST, *known])
    return RequestOptions(**request), SamplingOptions.from_arguments(sampling)


def renamed(arguments: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments under the first of two names that mean the same; the value of one may be None.

    Raises
    ------
    TypeError
        One is given under both.
    """
    made: dict[str, Any] = {}
    for name, value in arguments.items():
        new = names.get(name, name)
        # None stands for the default: it is what a signature passes on of what was not given
        if made.get(new) is None:
            made[new] = value
        elif value is not None:
            raise TypeError(f"{new} is given twice, also as {name if name != new else 'another spelling'}")
    return made


def check_second(max_tokens: Any) -> None:
    """Refuse text where a completion takes `max_tokens`: llama-cpp-python takes the suffix there.

    Raises
    ------
    TypeError
        It is text.
    """
    if isinstance(max_tokens, (str, bytes)):
        raise TypeError(
            f"max_tokens must be an int or None, not {type(max_tokens).__name__} {max_tokens!r:.80}; text that comes "
            "after what is generated is given by name, suffix=…"
        )


def checked_stop(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return stop strings as a tuple.

    Raises
    ------
    TypeError, ValueError
        One of them is no text, or is empty.
    """
    if isinstance(stop, (bytes, bytearray)) or not isinstance(stop, (str, Iterable, type(None))):
        raise TypeError(f"stop must be a text or several, not {stop!r:.80}")
    stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    for text in stops:
        if not isinstance(text, str):
            raise TypeError(f"stop must be a text or several, not {text!r:.80}")
        if not text:
            raise ValueError("a text in stop is empty, and would end every generation at once")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"stop string {text!r:.80} has a lone surrogate, which no model writes") from error
    return tuple(dict.fromkeys(stops))


def checked_flag(name: str, value: Any) -> bool:
    """Return what a switch says; None turns it off.

    Raises
    ------
    TypeError
        It is no bool: most other values, "false" among them, would turn it on.
    """
    value = plain_bool(value)
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r:.80}")
    return bool(value)


def checked_name(name: str, value: Any) -> str | None:
    """Return a text, or None.

    Raises
    ------
    TypeError
        It is no text.
    """
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {value!r:.80}")
    return value


def checked_choices(name: str, value: Any) -> int:
    """Return a number of choices.

    Raises
    ------
    TypeError, ValueError
        It is no int, or out of range.
    """
    n = checked_count(name, value)
    if n > MAX_CHOICES:
        raise ValueError(f"{name} must be at most {MAX_CHOICES}, not {n}")
    return n


def checked_max_tokens(max_tokens: Any) -> int | None:
    """Return the most tokens to generate, or None for up to the end of the context.

    Raises
    ------
    TypeError, ValueError
        It is no such number.
    """
    if max_tokens is None:
        return None
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, Integral):
        raise TypeError(f"max_tokens must be an int or None, not {type(max_tokens).__name__}")
    if max_tokens < -1:
        raise ValueError(f"max_tokens must be from 0, or None or -1 for up to the end of the context, not {max_tokens}")
    return None if max_tokens == -1 else int(max_tokens)


def checked_count(name: str, value: Any, least: int = 1) -> int:
    """Return a count.

    Raises
    ------
    TypeError, ValueError
        It is no int, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be from {least}, not {value}")
    return int(value)
