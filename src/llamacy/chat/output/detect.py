"""Which format a model writes, found from its template."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches

from llamacy.chat.output.channels import HarmonyCalls, HarmonyLayout, RecipientLayout
from llamacy.chat.output.format import OutputFormat
from llamacy.chat.output.layout import Layout, TagLayout, Thinking
from llamacy.chat.output.syntax import Syntax
from llamacy.chat.output.syntaxes import SYNTAXES, arg_keys

_THINK = Thinking("<think>", "</think>")
# what a template says when the model thinks, and how it does
_THINKING: tuple[tuple[str, Thinking], ...] = (
    ("<seed:think>", Thinking("<seed:think>", "</seed:think>")),
    ("<mm:think>", Thinking("<mm:think>", "</mm:think>")),
    ("<ifm|think>", Thinking("<ifm|think>", "</ifm|think>")),
    ("[THINK]", Thinking("[THINK]", "[/THINK]")),
    ("<|START_THINKING|>", Thinking("<|START_THINKING|>", "<|END_THINKING|>")),
    ("<|inner_prefix|>", Thinking("<|inner_prefix|>", "<|inner_suffix|>", has_calls=True)),
    ("<|channel>thought", Thinking("<|channel>thought\n", "<channel|>")),
    ("◁think▷", Thinking("◁think▷", "◁/think▷")),
    ("Here are my reasoning steps:", Thinking("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")),
    ("<thinking>", Thinking("<thinking>", "</thinking>")),
    ("<|think|>", Thinking("<|think|>", "<|end|>")),
    ("<think>", _THINK),
    ("</think>", _THINK),
)
# words around the answer
_DROPPED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("<|START_RESPONSE|>", ("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    ("<|START_TEXT|>", ("<|START_TEXT|>", "<|END_TEXT|>")),
    ("<response></response>", ("<response>", "</response>")),
    ("</answer>", ("<answer>", "</answer>")),
    ("[BEGIN FINAL RESPONSE]", ("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]")),
    ("<|message_sep|>", ("<|message_sep|>",)),
    (">>>all", (">>>all\n",)),
)
# words that end a turn, where the end token of the model may not
_STOP: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("<|end_of_msg|>", ("<|end_of_msg|>",)),
    ("<|calls|>", ("<|calls|>", "<|flush|>")),
    ("<|eom_id|>", ("<|eom_id|>",)),
    ("</assistant>", ("</assistant>",)),
    ("<end_of_sentence>", ("<end_of_sentence>",)),
    ("<sep>assistant:", ("<sep>",)),
    ("[e~[", ("[e~[",)),
)
# what models write without having ended their thinking
_CALLS_END_THINKING = {"kimi-k2", "apriel"}
_ALL_CALLS = re.compile(r"\bfor \w+ in message\.tool_calls\b")
_NEEDS_TOOLS = re.compile(r"\b(?:tools|functions|available_tools|custom_tools|xml_tools)\b")


def _has(*words: str) -> Callable[[str], bool]:
    return lambda source: all(word in source for word in words)


# in order: the first whose words are all in the template
_RULES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("kimi-k3", _has("<|open|>", "<|sep|>")),
    ("atem", _has("<atem:invoke")),
    ("harmony", _has("<|channel|>", "<|message|>")),
    ("minimax-m3", _has("]<]minimax[>[")),
    ("solar", _has("<|tool_call:begin|>")),
    ("kimi-k2", _has("<|tool_call_argument_begin|>")),
    ("deepseek-v4", _has("DSML", "tool_calls>")),
    ("deepseek-v3.2", _has("DSML")),
    ("deepseek-r1", _has("<｜tool▁call▁begin｜>", "```json")),
    ("deepseek-v3.1", _has("<｜tool▁call▁begin｜>")),
    ("mirothinker", _has("<use_mcp_tool>")),
    ("minimax-m2", _has("<minimax:tool_call>")),
    ("glm", _has("arg_key")),
    ("seed-oss", _has("<seed:tool_call>")),
    ("qwen3-coder", _has("<function=", "<parameter=")),
    ("minicpm", _has('<function name="', '<param name="')),
    ("gemma-4", _has("<|tool_call>call:")),
    ("function-gemma", _has("<start_function_call>")),
    ("apertus", _has("<|tools_prefix|>")),
    ("command-r7b", _has("<|START_ACTION|>")),
    ("command-r", _has("Action:", "```json", "tool_name")),
    ("mistral-id", _has("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")),
    ("mistral", _has("[TOOL_CALLS]", "[ARGS]")),
    ("mistral-json", _has("[TOOL_CALLS]")),
    ("firefunction", _has("functools[")),
    ("functionary-v3.2", _has(">>>all")),
    ("functionary-v3.1", _has("<function=")),
    ("gigachat-3.1", _has("<|function_call|>", "<|role_sep|>")),
    ("gigachat", _has("function call", "<|role_sep|>")),
    ("nemotron", _has("<TOOLCALL>")),
    ("apriel", _has("<tool_calls>[")),
    ("minimax-m1", _has("<tool_calls>")),
    ("phi-4", _has("<|/tool_call|>")),
    ("granite", _has("<|tool_call|>")),
    ("lfm2", _has("<|tool_call_start|>")),
    ("lfm2", _has("<|tool_list_start|>")),
    ("lfm2", _has("List of tools: [")),
    ("hermes", _has("<tool_call>")),
    ("pythonic", _has("[func_name1(")),
    ("llama-json", _has("<|python_tag|>")),
    ("llama-json", _has('{"name": ', '"parameters": ')),
)


def detect(template_source: str, *, name_hint: str | None = None) -> OutputFormat:
    """Find out how a model writes from how its template writes what it wrote before.

    Parameters
    ----------
    template_source
        The template's text.
    name_hint
        Name of a format, for models whose template says nothing of calls; see `format_names`.

    Returns
    -------
    OutputFormat
        ``"generic"`` when nothing is known: JSON, which the model has to be asked for.

    Raises
    ------
    ValueError
        There is no format with that name.
    """
    name = next((name for name, holds in _RULES if holds(template_source)), None)
    if name is None:
        name = name_hint or "generic"
    return named_format(name, template_source)


def format_names() -> tuple[str, ...]:
    """Return the names of all formats."""
    return tuple(sorted(SYNTAXES))


def named_format(name: str, template_source: str = "") -> OutputFormat:
    """Return a format by its name.

    Parameters
    ----------
    name
        See `format_names`.
    template_source
        The model's template, which tells how it thinks.

    Raises
    ------
    ValueError
        There is none with that name.
    """
    if name not in SYNTAXES:
        near = get_close_matches(name, SYNTAXES, 3)
        raise ValueError(
            f"no tool-call format is called {name!r:.60}; "
            + (f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(format_names())}")
        )
    syntax, layout = _syntax_of(name, template_source), _layout_of(name, template_source)
    stop = tuple(word for feature, words in _STOP if feature in template_source for word in words)
    return OutputFormat(name, syntax, layout, stop, _NEEDS_TOOLS.search(template_source) is not None)


def _syntax_of(name: str, source: str) -> Syntax:
    """Return how calls are written, with what differs between models of one family."""
    if name == "harmony":
        return HarmonyCalls(several=_ALL_CALLS.search(source) is not None)
    if name != "glm":
        return SYNTAXES[name]
    if "<ifm|arg_key>" in source:
        return arg_keys("ifm|")
    if "tool_sep" in source:
        return arg_keys(suffix=_suffix(source), separator="tool_sep")
    return arg_keys(lines=re.search(r"</arg_key>(?:\s*\n|['\"]?\\n)", source) is not None)


def _layout_of(name: str, source: str) -> Layout:
    """Return how the turn is laid out."""
    if name == "harmony":
        return HarmonyLayout()
    if name == "atem":
        return RecipientLayout()
    if name == "kimi-k3":
        responses = ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>")
        thoughts = Thinking("<|open|>think<|sep|>", "<|close|>think<|sep|>")
        return TagLayout(thoughts, responses, between="".join(responses[:2]), after=responses[2])
    dropped = [word for feature, words in _DROPPED if feature in source for word in words]
    if name == "solar":
        dropped += ["<|begin|>assistant", "<|content|>", "<|end|>"]
    if name == "pythonic":
        dropped += ["<|python_start|>", "<|python_end|>"]
    if "<think{}>" in source:
        suffix = _suffix(source)
        thinking: Thinking | None = Thinking(f"<think{suffix}>", f"</think{suffix}>")
    else:
        thinking = next((tags for feature, tags in _THINKING if feature in source), None)
    if thinking is not None:
        thinking = replace(thinking, has_calls=thinking.has_calls or name in _CALLS_END_THINKING)
        dropped = [word for word in dropped if word != thinking.start]
    return TagLayout(thinking, tuple(dropped))


def _suffix(source: str) -> str:
    """Return what the names of tags end with, where the template has it in a variable."""
    found = re.search(r"=\s*['\"](:\w+)['\"]", source)
    return found[1] if found else ""
