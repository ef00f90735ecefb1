"""How a family of models writes: the contract between templates, parsers and grammars."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llamacy.chat.output.events import ParsedMessage
from llamacy.chat.output.grammar import CallGrammar, Rules
from llamacy.chat.output.layout import Layout, Thinking
from llamacy.chat.output.parser import OutputParser, make_call_id, parse
from llamacy.chat.output.syntax import Syntax
from llamacy.chat.output.tools import parameters_of


@dataclass(frozen=True)
class OutputFormat:
    """How a model writes calls, thinking and its answer.

    Attributes
    ----------
    name
        A short name, e.g. ``"hermes"``.
    syntax
        How calls are written.
    layout
        How thinking, answer and calls follow each other.
    stop
        Texts that end a turn, for models whose end token doesn't.
    shows_tools
        The template tells the model which tools there are.

    Thread safety: immutable; any number of threads.
    """

    name: str
    syntax: Syntax
    layout: Layout
    stop: tuple[str, ...] = ()
    shows_tools: bool = True

    @property
    def thinking(self) -> Thinking | None:
        """What thinking stands between; None when the model doesn't think, or says so in another way."""
        return self.layout.thinking

    @property
    def markers(self) -> tuple[str, ...]:
        """Words that must be in the text, also where they are special tokens."""
        return tuple(dict.fromkeys((*self.layout.words, *self.syntax.words)))

    def parser(
        self,
        tools: Iterable[Mapping[str, Any]] | None = None,
        *,
        parse_tools: bool = True,
        reasoning: str = "auto",
        prompt_suffix: str = "",
        make_id: Callable[[], str] = make_call_id,
    ) -> OutputParser:
        """Return a parser for one text; see `OutputParser`."""
        return OutputParser(
            self,
            tools,
            parse_tools=parse_tools,
            reasoning=reasoning,
            prompt_suffix=prompt_suffix,
            make_id=make_id,
        )

    def parse(
        self,
        text: str,
        tools: Iterable[Mapping[str, Any]] | None = None,
        *,
        parse_tools: bool = True,
        reasoning: str = "auto",
        prompt_suffix: str = "",
        make_id: Callable[[], str] = make_call_id,
    ) -> ParsedMessage:
        """Parse a whole text; see `OutputParser`."""
        return parse(
            self,
            text,
            tools,
            parse_tools=parse_tools,
            reasoning=reasoning,
            prompt_suffix=prompt_suffix,
            make_id=make_id,
        )

    def instructions(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Return a text that tells a model which tools there are and how to call them.

        It is for the system message where the template doesn't show tools (`shows_tools`).

        Parameters
        ----------
        tools
            What may be called.
        """
        functions = [tool.get("function", tool) for tool in tools]
        shown = [
            {
                "name": function["name"],
                "description": function.get("description") or "",
                "parameters": parameters_of(function),
            }
            for function in functions
        ]
        definitions = "\n".join(json.dumps(function, ensure_ascii=False) for function in shown)
        return (
            f"You can call these functions, which are described in JSON, with JSON Schema for their parameters:\n\n"
            f"{definitions}\n\nTo call a function, write nothing but the call, in this notation, with the name of the "
            f"function and its arguments in place:\n\n{self.syntax.example('function_name', 'parameter', 'value')}"
        )

    def call_grammar(
        self, tools: Sequence[Mapping[str, Any]], *, parallel: bool, required: bool, prompt_suffix: str = ""
    ) -> CallGrammar:
        """Describe what the model must write to call tools.

        Parameters
        ----------
        tools
            What may be called; one tool when it is prescribed.
        parallel
            There may be several calls.
        required
            The text must have a call: the grammar holds from the beginning, and lets the model think first. Otherwise
            it holds from a trigger on, and parameters may come in any order where that costs little.
        prompt_suffix
            The end of the prompt, which tells whether the model is thinking already.

        Raises
        ------
        ValueError
            There are no tools.
        """
        if not tools:
            raise ValueError("there are no tools, so there is no grammar of calls; leave it out")
        rules = Rules(tools, self._begun(prompt_suffix) if required else "", free=not required)
        root = self.layout.grammar(rules, self.syntax, parallel, required, prompt_suffix)
        if required:
            return CallGrammar(rules.text(root), rules.schemas, rules.patterns)
        return CallGrammar(
            rules.text(root),
            rules.schemas,
            rules.patterns,
            self.syntax.triggers,
            self.syntax.trigger_patterns,
            self.layout.reasoning(prompt_suffix),
            rules.any_order,
        )

    def answer_grammar(
        self, answer: str, tools: Sequence[Mapping[str, Any]] = (), *, parallel: bool = True, prompt_suffix: str = ""
    ) -> CallGrammar:
        """Describe what the model must write when its answer has a form: such an answer, or calls in its place.

        It holds from the beginning of the text, and lets the model think first.

        Parameters
        ----------
        answer
            Name of the rule for the answer, which the caller adds.
        tools
            What may be called instead; none by default.
        parallel, prompt_suffix
            As for `call_grammar`.
        """
        rules = Rules(tools, self._begun(prompt_suffix))
        root = self.layout.answer(rules, answer, prompt_suffix)
        if tools:
            root = f"{self.layout.grammar(rules, self.syntax, parallel, True, prompt_suffix)} | {root}"
        return CallGrammar(rules.text(root), rules.schemas, rules.patterns)

    def _begun(self, prompt_suffix: str) -> str:
        """Return the opener of a call with which the prompt ends."""
        return next((opener for opener in self.syntax.openers if prompt_suffix.endswith(opener)), "")
