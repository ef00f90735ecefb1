"""Shapes of responses: OpenAI's, with a few fields of llamacy's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

FinishReason = Literal["stop", "length", "tool_calls", "function_call", "content_filter", "abort"]


class PromptTokensDetails(TypedDict):
    """What became of the tokens of the prompt."""

    cached_tokens: int
    truncated_tokens: NotRequired[int]


class Usage(TypedDict):
    """Tokens that a request took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Timings(TypedDict):
    """Where the time went; tokens of the prompt are those that had to be computed."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float


class CompletionLogprobs(TypedDict):
    """Log-probabilities of a text completion."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(TypedDict):
    """One text."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: NotRequired[str | None]


class Completion(TypedDict):
    """A text completion, or a chunk of one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    seed: int
    max_tokens: int
    usage: NotRequired[Usage | None]
    timings: NotRequired[Timings]


class TopLogprob(TypedDict):
    """A token that could have come, and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TopLogprob):
    """A token that came, and what could have come."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    """Log-probabilities of a chat completion."""

    content: list[ChatTokenLogprob] | None
    refusal: None


class FunctionCall(TypedDict):
    """Which function, and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class ChatMessage(TypedDict):
    """What the assistant says."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]
    function_call: NotRequired[FunctionCall]


class ChatChoice(TypedDict):
    """One answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: NotRequired[str | None]


class ChatCompletion(TypedDict):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    seed: int
    max_tokens: int
    usage: Usage
    timings: Timings


class ChatDeltaChoice(TypedDict):
    """What is new in one answer."""

    index: int
    delta: dict[str, Any]
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: NotRequired[str | None]


class ChatCompletionChunk(TypedDict):
    """A chunk of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatDeltaChoice]
    seed: int
    usage: NotRequired[Usage | None]
    timings: NotRequired[Timings]
