"""The ways to write calls, by the name of the format."""

from __future__ import annotations

import re

from llamacy.chat.output.channels import HarmonyCalls
from llamacy.chat.output.json_calls import JsonCalls
from llamacy.chat.output.named_calls import NamedCalls
from llamacy.chat.output.python_calls import PythonCalls
from llamacy.chat.output.syntax import Syntax
from llamacy.chat.output.tagged_calls import TaggedCalls
from llamacy.chat.output.values import FUNCTION_GEMMA, GEMMA

_KIMI_HEADER = re.compile(r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.\-]+?)(?::\d+)?)\s*")
_MISTRAL_HEADER = re.compile(r"\s*(?P<name>[^\s\[\]]+)\s*(?:\[CALL_ID\](?P<id>[^\[\]]*))?")
_DEEPSEEK_HEADER = re.compile(r"\s*function<｜tool▁sep｜>\s*(?P<name>\S+)\s*")
_SOLAR_HEADER = re.compile(r"\s*(?P<id>[^<]*)<\|tool_call:name\|>\s*(?P<name>\S+)\s*")
_MCP_HEADER = re.compile(
    r"\s*(?:<server_name>[^<]*</server_name>\s*)?<tool_name>\s*(?P<name>[^\s<]+)\s*</tool_name>\s*"
)
_ARRAY = ("[", ", ", "]")
_DEEPSEEK_SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")


def _mistral(*, has_id: bool) -> NamedCalls:
    return NamedCalls(
        "[TOOL_CALLS]",
        "[ARGS]",
        header=_MISTRAL_HEADER,
        written="{name}[CALL_ID]{id}" if has_id else "{name}",
        id_rule="[a-zA-Z0-9] [a-zA-Z0-9] [a-zA-Z0-9] [a-zA-Z0-9] [a-zA-Z0-9] "
        "[a-zA-Z0-9] [a-zA-Z0-9] [a-zA-Z0-9] [a-zA-Z0-9]",
    )


def _invoke(prefix: str, section: str, *, is_typed: bool = False) -> TaggedCalls:
    """Return calls as ``invoke`` and ``parameter`` tags."""
    return TaggedCalls(
        f'<{prefix}invoke name="',
        '"',
        f"</{prefix}invoke>",
        f'<{prefix}parameter name="',
        '"',
        f"</{prefix}parameter>",
        tag_end=">",
        section=(f"<{section}>", f"</{section}>"),
        is_shared=True,
        attribute=re.compile('string="(?:(?P<string>true)|false)"') if is_typed else None,
        attributes=("", ' string="true"', ' string="false"') if is_typed else ("", "", ""),
        gaps=("\n", "\n", "", "\n", "\n", "\n"),
    )


def _functions(section: str, *, lines: bool) -> TaggedCalls:
    """Return calls as ``<function=…>`` and ``<parameter=…>`` tags."""
    return TaggedCalls(
        "<function=",
        ">",
        "</function>",
        "<parameter=",
        ">",
        "</parameter>",
        section=(f"<{section}>", f"</{section}>"),
        lines=lines,
        gaps=("\n", "\n", "", "\n", "\n", "\n"),
    )


def arg_keys(prefix: str = "", suffix: str = "", *, separator: str = "", lines: bool = True) -> TaggedCalls:
    """Return calls as a name, and pairs of ``arg_key`` and ``arg_value`` tags.

    Parameters
    ----------
    prefix, suffix
        What the names of tags begin and end with.
    separator
        A tag that follows the name.
    lines
        The parts stand on lines of their own.
    """
    line = "\n" if lines else ""
    has_section = bool(prefix or suffix)
    return TaggedCalls(
        f"<{prefix}tool_call{suffix}>",
        f"<{separator}{suffix}>" if separator else "",
        f"</{prefix}tool_call{suffix}>",
        f"<{prefix}arg_key{suffix}>",
        f"</{prefix}arg_key{suffix}>",
        f"</{prefix}arg_value{suffix}>",
        value_open=f"<{prefix}arg_value{suffix}>",
        section=(f"<{prefix}tool_calls{suffix}>", f"</{prefix}tool_calls{suffix}>") if has_section else None,
        is_shared=has_section,
        gaps=("\n" if has_section else "", line, line, line, "\n" if has_section else "", line),
    )


SYNTAXES: dict[str, Syntax] = {
    "generic": JsonCalls(array=_ARRAY, is_bare=True, opens=("<tool_call>",), closes=("</tool_call>",)),
    # JSON objects with name and arguments
    "hermes": JsonCalls(("<tool_call>",), ("</tool_call>",), before="\n", after="\n"),
    "llama-json": JsonCalls(keys=("name", "parameters"), is_bare=True, code="<|python_tag|>", join="; "),
    "mistral-json": JsonCalls(("[TOOL_CALLS]",), array=_ARRAY),
    "granite": JsonCalls(("<|tool_call|>", "<tool_call>"), array=_ARRAY),
    "phi-4": JsonCalls(("<|tool_call|>",), ("<|/tool_call|>",), array=_ARRAY),
    "nemotron": JsonCalls(("<TOOLCALL>",), ("</TOOLCALL>",), array=_ARRAY),
    "apriel": JsonCalls(("<tool_calls>",), ("</tool_calls>",), array=_ARRAY),
    "minimax-m1": JsonCalls(("<tool_calls>",), ("</tool_calls>",), before="\n", after="\n", together=True),
    "firefunction": JsonCalls(("functools",), array=_ARRAY),
    "command-r7b": JsonCalls(
        ("<|START_ACTION|>",),
        ("<|END_ACTION|>",),
        array=("[\n    ", ",\n    ", "\n]"),
        keys=("tool_name", "parameters"),
        first='"tool_call_id": "{id}", ',
    ),
    "command-r": JsonCalls(
        ("Action:\n```json", "Action: ```json", "Action:```json"),
        ("```",),
        before="\n",
        after="\n",
        array=_ARRAY,
        keys=("tool_name", "parameters"),
    ),
    "apertus": JsonCalls(("<|tools_prefix|>",), ("<|tools_suffix|>",), array=_ARRAY, keys=None),
    "gigachat": JsonCalls(("<|message_sep|>\n\nfunction call<|role_sep|>\n", "function call<|role_sep|>")),
    "gigachat-3.1": JsonCalls(("<|function_call|>",)),
    # a name, then arguments
    "mistral": _mistral(has_id=False),
    "mistral-id": _mistral(has_id=True),
    "deepseek-r1": NamedCalls(
        "<｜tool▁call▁begin｜>",
        "```json",
        ("```", "<｜tool▁call▁end｜>"),
        _DEEPSEEK_SECTION,
        header=_DEEPSEEK_HEADER,
        written="function<｜tool▁sep｜>{name}\n",
        gaps=("\n", "\n"),
        join="\n",
    ),
    "deepseek-v3.1": NamedCalls("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", ("<｜tool▁call▁end｜>",), _DEEPSEEK_SECTION),
    "kimi-k2": NamedCalls(
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        ("<|tool_call_end|>",),
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        header=_KIMI_HEADER,
        written="functions.{name}:{id}",
        id_rule="[0-9] [0-9]?",
    ),
    "solar": NamedCalls(
        "<|tool_call:begin|>",
        "<|tool_call:args|>",
        ("<|tool_call:end|>",),
        ("<|tool_calls|>", ""),
        header=_SOLAR_HEADER,
        written="{id}<|tool_call:name|>{name}",
        id_rule="[a-z0-9]{1,24}",
    ),
    "mirothinker": NamedCalls(
        "<use_mcp_tool>",
        "<arguments>",
        ("</arguments>", "</use_mcp_tool>"),
        header=_MCP_HEADER,
        written="\n<server_name>tools</server_name>\n<tool_name>{name}</tool_name>\n",
        gaps=("\n", "\n"),
        join="\n",
    ),
    "functionary-v3.1": NamedCalls("<function=", ">", ("</function>",)),
    "functionary-v3.2": NamedCalls(">>>", "\n"),
    "gemma-4": NamedCalls("<|tool_call>call:", "", ("<tool_call|>",), dialect=GEMMA),
    "function-gemma": NamedCalls("<start_function_call>call:", "", ("<end_function_call>",), dialect=FUNCTION_GEMMA),
    # a tag for each parameter
    "qwen3-coder": _functions("tool_call", lines=True),
    "seed-oss": _functions("seed:tool_call", lines=False),
    "glm": arg_keys(),
    "minimax-m2": _invoke("", "minimax:tool_call"),
    "deepseek-v3.2": _invoke("｜DSML｜", "｜DSML｜function_calls", is_typed=True),
    "deepseek-v4": _invoke("｜DSML｜", "｜DSML｜tool_calls", is_typed=True),
    "atem": _invoke("atem:", "atem:function_calls"),
    "minicpm": TaggedCalls(
        '<function name="', '"', "</function>", '<param name="', '"', "</param>", tag_end=">", cdata=True
    ),
    "kimi-k3": TaggedCalls(
        '<|open|>call tool="',
        '"',
        "<|close|>call<|sep|>",
        '<|open|>argument key="',
        '"',
        "<|close|>argument<|sep|>",
        tag_end="<|sep|>",
        section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
        is_shared=True,
        attribute=re.compile(r'type="(?:(?P<string>string)|\w+)"'),
        attributes=(' index="{number}"', ' type="string"', ' type="{type}"'),
    ),
    "minimax-m3": TaggedCalls(
        ']<]minimax[>[<invoke name="',
        '">',
        "]<]minimax[>[</invoke>",
        "]<]minimax[>[<",
        ">",
        "]<]minimax[>[</{key}>",
        section=("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>"),
        is_shared=True,
        nested="]<]minimax[>[",
        gaps=("\n", "", "", "", "\n", "\n"),
    ),
    # Python
    "lfm2": PythonCalls(("<|tool_call_start|>", "<|tool_call_end|>")),
    "pythonic": PythonCalls(),
    "harmony": HarmonyCalls(),
}
