"""Tools of a chat request: which may be called, and the grammar that calls obey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llamacy.errors import GrammarError
from llamacy.generate.names import raise_unknown

if TYPE_CHECKING:
    from llamacy.chat.output.format import OutputFormat
    from llamacy.chat.output.grammar import CallGrammar
    from llamacy.chat.output.parser import OutputParser
    from llamacy.chat.tool_definitions import KeptTools
    from llamacy.grammar import Grammar


# the rule for an answer beside calls
_ANSWER = "answer"


class ToolChoice:
    """What a request says of its tools.

    Parameters
    ----------
    tools
        Definitions as `kept_tools` returns them.
    choice
        ``"none"``, ``"auto"``, ``"required"``, or a function in OpenAI's shape; None is ``"auto"``, and ``"none"``
        without tools.

    Attributes
    ----------
    callable
        The tools that may be called.
    required, named
        One must be called, and which one is said.
    enabled
        Calls are read out of what the model writes.
    key
        What choices with the same grammar have in common.

    Raises
    ------
    TypeError, ValueError
        The choice is none of these, or there is no such tool.
    """

    def __init__(self, tools: KeptTools, choice: Any) -> None:
        self.callable: list[Mapping[str, Any]] = list(tools)
        self.required = self.named = False
        self.enabled = bool(tools)
        self.key: tuple[Any, ...] = (tools.data,)
        if choice is None or choice == "auto":
            return
        if choice == "none":
            self.enabled = False
            return
        if not tools:
            raise ValueError(f"tool_choice is {choice!r:.100}, but there are no tools")
        self.required = True
        self.key = (tools.data, True)
        if choice in ("required", "any"):
            return
        name = _function_name(choice)
        self.named = True
        self.key = (tools.data, name)
        self.callable = [tool for tool in tools if tool["function"]["name"] == name]
        if not self.callable:
            known = ", ".join(tool["function"]["name"] for tool in tools)
            raise ValueError(f"tool_choice names the function {name!r}, but the tools are {known}")

    @property
    def constrained(self) -> list[Mapping[str, Any]]:
        """The tools that may be called, as grammars obey them: one that declares no parameter has none."""
        made = []
        for tool in self.callable:
            function = tool["function"]
            schema = function["parameters"]
            is_empty = not (schema.get("properties") or schema.get("required") or schema.keys() - _SAYS_NOTHING)
            closed = {**function, "parameters": {**schema, "additionalProperties": False}}
            made.append({**tool, "function": closed} if is_empty else tool)
        return made


_SAYS_NOTHING = frozenset(["type", "properties", "required", "title", "description", "$schema"])


class OneCall:
    """Tells when a text has one call and begins another, for texts that no grammar keeps from it.

    Parameters
    ----------
    parser
        Reads the text; it is for this alone.

    Thread safety: one thread at a time.
    """

    def __init__(self, parser: OutputParser) -> None:
        self._parser = parser

    def __call__(self, text: str) -> bool:
        """Take the next piece, and tell whether a second call begins in it or began before."""
        from llamacy.chat.output.events import ToolCallStart

        if self._parser.content_of(text) is not None or self._parser.reasoning_of(text) is not None:
            return False
        return any(isinstance(event, ToolCallStart) and event.index for event in self._parser.feed(text))


def call_grammar(choice: ToolChoice, output: OutputFormat, *, parallel: bool, prompt_suffix: str) -> Grammar | None:
    """Return the grammar of the calls of a request: one that holds from the beginning when a call is required, else a
    lazy one. None when the format has no trigger that tells where a call begins.

    Raises
    ------
    GrammarError
        The schema of a tool can't be used; the error names the tool.
    """
    parts = output.call_grammar(
        choice.constrained, parallel=parallel, required=choice.required, prompt_suffix=prompt_suffix
    )
    if not choice.required and not parts.triggers and not parts.trigger_patterns:
        return None
    grammar = _filled(parts, parts.text, choice)
    if choice.required:
        return grammar
    return grammar.with_triggers(
        trigger_words=parts.triggers, trigger_patterns=parts.trigger_patterns, reasoning=parts.reasoning
    )


def answer_grammar(
    answer: Grammar, choice: ToolChoice, output: OutputFormat, *, parallel: bool, prompt_suffix: str
) -> Grammar:
    """Return the grammar of an answer with what may stand around it: thinking before it, or calls in its place.

    Parameters
    ----------
    answer
        What the answer itself obeys.

    Raises
    ------
    GrammarError
        The schema of a tool can't be used; the error names the tool.
    ValueError
        The grammar of the answer is lazy, but there are tools.
    """
    if answer.lazy:
        # it lets anything come before its trigger
        if choice.enabled:
            raise ValueError("a lazy grammar can't say what an answer is in place of a call; leave its triggers out")
        return answer
    from llamacy.grammar.emit import emit
    from llamacy.grammar.parse import parse
    from llamacy.grammar.template import renamed
    from llamacy.grammar.tree import Ref, Rules

    tools = choice.constrained if choice.enabled else ()
    parts = output.answer_grammar(_ANSWER, tools, parallel=parallel, prompt_suffix=prompt_suffix)
    if parts.text.split() == ["root", "::=", _ANSWER]:
        return answer
    # no rule of the answer may have the name of another one
    rules = parse(answer.text).rules
    names = {name: f"{_ANSWER}-{name}" for name in rules}
    whole = {_ANSWER: Ref(names[answer.root])} | {names[name]: renamed(node, names) for name, node in rules.items()}
    return _filled(parts, f"{parts.text}\n{emit(Rules(_ANSWER, whole))}", choice)


def _filled(parts: CallGrammar, text: str, choice: ToolChoice) -> Grammar:
    """Return a grammar with the rules that it leaves open; it obeys schemas in all they say when a tool is strict."""
    from llamacy.grammar import Grammar

    strict = any(tool["function"].get("strict") is True for tool in choice.callable)
    try:
        return Grammar.from_template(
            text,
            schemas=parts.schemas,
            patterns=parts.patterns,
            strict=strict,
            extra_keys=False,
            property_order="any" if parts.any_order else "declared",
        )
    except GrammarError as error:
        _blame_tool(error, choice)
        raise


def _blame_tool(error: GrammarError, choice: ToolChoice) -> None:
    """Say in an error whose schema it is about."""
    rule = getattr(error, "rule", None)
    if rule is None or not rule.startswith("arg"):
        return
    number = rule.split("-")[1]
    if number.isdecimal() and int(number) < len(choice.callable):
        name = choice.callable[int(number)]["function"]["name"]
        error.args = (f"tool {name!r}: {error}", *error.args[1:])


def _function_name(choice: Any) -> str:
    """Return the name in ``{"type": "function", "function": {"name": …}}``, or a name on its own."""
    if isinstance(choice, str):
        raise_unknown(choice, ["none", "auto", "required"])
    if hasattr(choice, "model_dump"):
        choice = choice.model_dump()
    function = choice.get("function", choice) if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise TypeError(
            'tool_choice must be "none", "auto", "required" or {"type": "function", "function": {"name": …}}, not '
            f"{choice!r:.100}"
        )
    return name
