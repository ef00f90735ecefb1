"""Tools of a chat request: which may be called, and the grammar that calls obey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamacy.errors import GrammarError
from llamacy.generate.arguments import raise_unknown

if TYPE_CHECKING:
    from llamacy.chat.output.format import OutputFormat
    from llamacy.grammar import Grammar


class ToolChoice:
    """What a request says of its tools.

    Parameters
    ----------
    tools
        Definitions as `normalise_tools` returns them.
    choice
        ``"none"``, ``"auto"``, ``"required"``, or a function in OpenAI's shape; None is ``"auto"``, and ``"none"``
        without tools.

    Attributes
    ----------
    callable
        The tools that may be called.
    required
        One must be called.
    enabled
        Calls are read out of what the model writes.

    Raises
    ------
    TypeError, ValueError
        The choice is none of these, or there is no such tool.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], choice: Any) -> None:
        self.callable: list[Mapping[str, Any]] = list(tools)
        self.required = False
        self.enabled = bool(tools)
        if choice is None or choice == "auto":
            return
        if choice == "none":
            self.enabled = False
            return
        if not tools:
            raise ValueError(f"tool_choice is {choice!r:.100}, but there are no tools")
        self.required = True
        if choice in ("required", "any"):
            return
        name = _function_name(choice)
        self.callable = [tool for tool in tools if tool["function"]["name"] == name]
        if not self.callable:
            known = ", ".join(tool["function"]["name"] for tool in tools)
            raise ValueError(f"tool_choice names the function {name!r}, but the tools are {known}")


def call_grammar(
    choice: ToolChoice, output: OutputFormat, *, parallel: bool, prompt_suffix: str, strict: bool
) -> Grammar | None:
    """Return the grammar of the calls of a request: one that holds from the beginning when a call is required, else a
    lazy one. None when the format has no trigger that tells where a call begins.

    Raises
    ------
    GrammarError
        The schema of a tool can't be used; the error names the tool.
    """
    from llamacy.grammar import Grammar

    parts = output.call_grammar(
        choice.callable, parallel=parallel, required=choice.required, prompt_suffix=prompt_suffix
    )
    if not choice.required and not parts.triggers and not parts.trigger_patterns:
        return None
    try:
        grammar = Grammar.from_template(
            parts.text, schemas=parts.schemas, patterns=parts.patterns, strict=strict, extra_keys=False
        )
    except GrammarError as error:
        _blame_tool(error, choice)
        raise
    if choice.required:
        return grammar
    return grammar.with_triggers(trigger_words=parts.triggers, trigger_patterns=parts.trigger_patterns)


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
