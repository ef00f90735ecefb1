"""Requests for chat completions: from messages to a run and what writes its response."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llamacy.core.text import TextAssembler
from llamacy.errors import ChatTemplateError, ChatTemplateLimitError
from llamacy.generate.arguments import RequestOptions, checked_choices, checked_flag, checked_name, checked_stop
from llamacy.generate.chat_writer import ChatWriter
from llamacy.generate.complete import checked_logprobs
from llamacy.generate.formats import format_grammar
from llamacy.generate.logprobs import LogprobWriter
from llamacy.generate.prompts import prompt_tokens
from llamacy.generate.sampling_values import plain_bool
from llamacy.generate.tools import OneCall, ToolChoice, answer_grammar, call_grammar

if TYPE_CHECKING:
    from llamacy.chat.output.format import OutputFormat
    from llamacy.chat.output.parser import OutputParser
    from llamacy.chat.template import ChatTemplate
    from llamacy.chat.tool_definitions import KeptTools
    from llamacy.generate.engine import Engine
    from llamacy.generate.options import SamplingOptions
    from llamacy.generate.run import Run
    from llamacy.generate.templates import Templates
    from llamacy.grammar import Grammar

# characters at the end of the prompt that tell whether the model is thinking already
_SUFFIX = 512
_SET_OTHERWISE = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "keep_null", "now")
)


@dataclass(frozen=True)
class ChatArguments:
    """What a chat request asks for, but its messages.

    Parameters
    ----------
    tools, tool_choice, parallel_tool_calls
        Tools in OpenAI's shape or MCP's; ``"none"``, ``"auto"``, ``"required"`` or a function; whether there may be
        several calls.
    functions, function_call
        The same, as OpenAI had it before.
    response_format
        Form of the answer, see `llamacy.generate.formats.format_grammar`.
    reasoning_format
        ``"auto"``: thinking comes apart from the content, as `reasoning_content`. ``"none"``: it stays in it.
    chat_template_kwargs
        Variables for the template, such as ``{"enable_thinking": False}``.
    documents
        For templates that read them.
    add_generation_prompt
        Let the prompt end where the assistant begins.
    continue_final_message
        Go on with the last message, which is the assistant's; the response has what is new.
    max_tokens, stop, n
        As for text completions.
    logprobs, top_logprobs
        Tell the log-probability of each token, and so many of the likeliest ones at its place.
    """

    tools: Sequence[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    functions: Sequence[Any] | None = None
    function_call: Any = None
    response_format: Any = None
    reasoning_format: str = "auto"
    chat_template_kwargs: Mapping[str, Any] | None = None
    documents: Sequence[Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    max_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    n: int = 1
    logprobs: bool = False
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        for name in ("parallel_tool_calls", "add_generation_prompt", "continue_final_message"):
            checked_flag(name, getattr(self, name))
        if self.reasoning_format not in ("auto", "none"):
            raise ValueError(f'reasoning_format must be "auto" or "none", not {self.reasoning_format!r:.50}')


class ChatRequest:
    """A request for chat completions.

    Parameters
    ----------
    engine, templates
        What it runs on, and the templates of the model.
    messages
        What was said.
    arguments, request, options
        What is asked for, and how tokens are picked.
    model_name
        Name that the response shows.

    Raises
    ------
    ChatTemplateError
        The template can't render this.
    GrammarError
        A schema can't be used; where it is a tool's, the error names it.
    TypeError, ValueError
        Something of this is wrong.
    """

    def __init__(
        self,
        engine: Engine,
        templates: Templates,
        messages: Sequence[Any],
        arguments: ChatArguments,
        *,
        model_name: str | None,
        request: RequestOptions,
        options: SamplingOptions,
    ) -> None:
        from llamacy.chat.tool_definitions import kept_tools

        model_name = checked_name("model", model_name)
        n = checked_choices("n", arguments.n)
        n_logprobs = _n_logprobs(arguments)
        legacy = arguments.functions is not None
        if legacy and arguments.tools is not None:
            raise TypeError("tools and functions mean the same; give tools only")
        tools = kept_tools(arguments.functions if legacy else arguments.tools)
        choice = ToolChoice(tools, arguments.function_call if legacy else arguments.tool_choice)
        template = templates.template(for_tools=bool(tools))
        output = _output_format(template)
        self.prompt = _rendered(template, output, messages, tools, choice, arguments)
        suffix = obeyed = self.prompt[-_SUFFIX:]
        if arguments.continue_final_message:
            suffix, obeyed = _continued(messages[-1], output, suffix)
        grammar = _grammar(choice, template, output, arguments, request, obeyed)
        # without tools and thinking there is nothing to tell apart
        parses = choice.enabled or bool(output.layout.words)
        markers = engine.tokens_of(output.markers) if parses else frozenset()
        stops = (*checked_stop(arguments.stop), *template.stop, *output.stop)
        tokens = prompt_tokens(engine.tokenizer, self.prompt)
        kept = engine.prompt(tokens, arguments.max_tokens, request)
        jobs = engine.jobs(
            kept,
            n,
            arguments.max_tokens,
            request if grammar is request.grammar else replace(request, grammar=grammar),
            _with_thinking(options, output, suffix),
            n_logprobs,
            spelled=markers,
        )
        vocab, matched = engine.vocab, engine.tokens_of(stops)
        self.run: Run = engine.run(
            jobs, lambda: TextAssembler(vocab, stops, spelled=markers, matched=matched), request.timeout_s
        )

        def parser() -> OutputParser:
            return output.parser(
                choice.callable,
                parse_tools=choice.enabled,
                reasoning=arguments.reasoning_format,
                prompt_suffix=suffix,
            )

        one_call = choice.enabled and not arguments.parallel_tool_calls
        if one_call and not choice.required:
            # before its trigger a grammar holds nothing back, and a call may begin in other ways
            for one in self.run.choices:
                one.limit = OneCall(parser())
        self.writer = ChatWriter(
            self.run,
            model_name or engine.model_name,
            parsers=[parser() if parses else None for _ in jobs],
            one_call=one_call,
            logprobs=None if n_logprobs is None else LogprobWriter(vocab),
            legacy=legacy,
            n_truncated=len(tokens) - len(kept),
        )


def _rendered(
    template: ChatTemplate,
    output: OutputFormat,
    messages: Sequence[Any],
    tools: KeptTools,
    choice: ToolChoice,
    arguments: ChatArguments,
) -> str:
    from llamacy.chat.messages import normalise_messages
    from llamacy.generate.tool_messages import tool_messages

    variables = arguments.chat_template_kwargs or {}
    if not isinstance(variables, Mapping):
        raise TypeError(f"chat_template_kwargs must be a dict of variables for the template, not {variables!r:.100}")
    taken = sorted(_SET_OTHERWISE.intersection(variables))
    if taken:
        raise ValueError(f"chat_template_kwargs has {taken[0]!r}, which is an argument of the request itself")
    if tools and "functions" in template.variables and "tools" not in template.variables:
        # what firefunction calls them
        variables = {
            "functions": json.dumps(tools, indent=4, ensure_ascii=False),
            "datetime": time.strftime("%b %d %Y %H:%M:%S"),
            **variables,
        }
    shown = tool_messages(messages, template, output, choice.callable if choice.enabled else ())
    normalised = normalise_messages(shown, template, text_only=True)

    def render(tools: Sequence[dict[str, Any]]) -> str:
        return template.render(
            normalised,
            tools=tools or None,
            documents=arguments.documents,
            add_generation_prompt=arguments.add_generation_prompt and not arguments.continue_final_message,
            continue_final_message=arguments.continue_final_message,
            keep_null=True,
            **variables,
        )

    try:
        return render(tools)
    except ChatTemplateLimitError:
        raise
    except ChatTemplateError:
        # some templates need a description of each tool
        described = [{**tool, "function": {"description": "", **tool["function"]}} for tool in tools]
        if described == list(tools):
            raise
        return render(described)


def _continued(message: Any, output: OutputFormat, suffix: str) -> tuple[str, str]:
    """Return what the end of the prompt is to the parser, and to the grammar, when the model goes on with a message.

    Thinking that the message began and didn't end goes on. Where it has begun an answer, the model has thought.
    """
    from llamacy.chat.messages import normalise_messages

    thinking = output.thinking
    content = normalise_messages([message])[0]["content"]
    if thinking is None or not isinstance(content, str):
        return suffix, suffix
    if content.rfind(thinking.start) > content.rfind(thinking.end):
        return thinking.start, thinking.start
    is_answer = content.strip() and not suffix.endswith(output.syntax.openers)
    return suffix, thinking.end if is_answer else suffix


def _output_format(template: ChatTemplate) -> OutputFormat:
    """Return how a model with this template writes; found out once for each."""
    from llamacy.chat.output.detect import detect

    found = _formats.get(template.source)
    if found is None:
        if len(_formats) >= _MAX_FORMATS:
            _formats.clear()
        found = _formats[template.source] = detect(template.source)
    return found


_MAX_FORMATS = 32
_formats: dict[str, OutputFormat] = {}


def _grammar(
    choice: ToolChoice,
    template: ChatTemplate,
    output: OutputFormat,
    arguments: ChatArguments,
    request: RequestOptions,
    suffix: str,
) -> Grammar | None:
    """Return what the text must obey: what was given, the form of the answer, or calls of tools."""
    answer = format_grammar(arguments.response_format)
    if request.grammar is not None:
        if answer is not None or choice.required:
            raise ValueError("grammar, response_format and a required tool each say what the text obeys; give one")
        return request.grammar
    if choice.required and answer is not None:
        raise ValueError("response_format is for an answer, but tool_choice requires a call; give one of them")
    if answer is None and not choice.enabled:
        return None
    # a function that is named is called once
    parallel = arguments.parallel_tool_calls and not choice.named
    # thinking may have begun long before the end of the prompt
    began = output.layout.reasoning(suffix)
    key = (template.source, suffix[-64:], began, answer, (choice.key, parallel) if choice.enabled else None)
    cached = _grammars.get(key)
    if cached is None:
        if answer is not None:
            made: Grammar | None = answer_grammar(answer, choice, output, parallel=parallel, prompt_suffix=suffix)
        else:
            made = call_grammar(choice, output, parallel=parallel, prompt_suffix=suffix)
        cached = (made,)
        if len(_grammars) >= _MAX_FORMATS:
            _grammars.clear()
        _grammars[key] = cached
    return cached[0]


_grammars: dict[tuple[Any, ...], tuple[Grammar | None]] = {}


def _with_thinking(options: SamplingOptions, output: OutputFormat, suffix: str) -> SamplingOptions:
    """Return the options with the tags that thinking has, where it has a budget and the caller named none."""
    default = type(options)
    if options.reasoning_budget < 0 or options.reasoning_start != default.reasoning_start:
        return options
    thinking = output.thinking
    if thinking is None:
        raise ValueError(f"reasoning_budget: the format {output.name!r} has no tags that thinking stands between")
    return replace(
        options,
        reasoning_start=thinking.start,
        reasoning_end=thinking.end,
        reasoning_start_in_prompt=thinking.is_open(suffix),
    )


def _n_logprobs(arguments: ChatArguments) -> int | None:
    given = plain_bool(arguments.logprobs)
    if given is not None and not isinstance(given, bool):
        raise TypeError(
            f"logprobs of a chat is True or False, not {given!r:.80}; "
            "how many alternatives there are is for top_logprobs to say"
        )
    if arguments.top_logprobs is None:
        return 0 if arguments.logprobs else None
    if not arguments.logprobs:
        raise ValueError("top_logprobs needs logprobs=True")
    return checked_logprobs("top_logprobs", arguments.top_logprobs)
