"""Messages and tools of any shape: a result that renders, or a typed error."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.chat.messages import normalise_messages
from llamacy.chat.template import ChatTemplate
from llamacy.chat.tool_definitions import normalise_tools
from llamacy.errors import ChatTemplateError

KEYS = [
    "role",
    "content",
    "tool_calls",
    "function_call",
    "name",
    "reasoning_content",
    "type",
    "text",
    "function",
    "arguments",
    "parameters",
    "inputSchema",
    "id",
    "image_url",
]
TEXTS = st.sampled_from(
    [
        "user",
        "assistant",
        "system",
        "tool",
        "developer",
        "text",
        "image_url",
        "function",
        "object",
        "{}",
        "",
        '{"a": 1}',
    ]
) | st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.integers(), inner, max_size=5)
    ),
    max_leaves=15,
)
PARTS = st.fixed_dictionaries({"type": TEXTS}, optional={"text": VALUES, "image_url": VALUES})
FUNCTIONS = st.fixed_dictionaries(
    {"name": TEXTS}, optional={"arguments": VALUES, "parameters": VALUES, "description": VALUES, "inputSchema": VALUES}
)
CALLS = st.fixed_dictionaries({"function": FUNCTIONS | VALUES}, optional={"id": VALUES, "type": TEXTS})
MESSAGES = st.fixed_dictionaries(
    {"role": TEXTS},
    optional={
        "content": TEXTS | st.lists(PARTS | VALUES, max_size=3) | VALUES,
        "tool_calls": st.lists(CALLS, max_size=2) | VALUES,
        "reasoning_content": VALUES,
        "name": VALUES,
    },
)

TEMPLATES = [
    None,
    ChatTemplate(
        "{% for m in messages %}{{ m.role + ':' + m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}"
    ),
    ChatTemplate(
        "{% for m in messages %}{{ m.role }}{% for p in m.content %}{{ p.text }}{% endfor %}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}"
    ),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(MESSAGES | VALUES, max_size=4) | VALUES, st.sampled_from(TEMPLATES), st.booleans())
def test_messages_are_made_or_refused(messages: Any, template: ChatTemplate | None, marked: bool) -> None:
    before = copy.deepcopy(messages)
    try:
        made = normalise_messages(messages, template, media_marker="<m>" if marked else None)
    except (TypeError, ValueError):
        assert repr(messages) == repr(before)
        return
    assert repr(messages) == repr(before)
    assert len(made) == len(messages)
    for message in made:
        assert isinstance(message["role"], str)
        assert isinstance(message["content"], (str, list))
        for call in message.get("tool_calls", []):
            assert isinstance(call["function"]["arguments"], (str, dict))
    if template is not None:
        assert isinstance(template.render(made, keep_null=True), str)


@settings(max_examples=200, deadline=None)
@given(st.lists(MESSAGES | VALUES, max_size=4) | VALUES, st.sampled_from(TEMPLATES[1:]))
def test_anything_renders_or_is_refused(messages: Any, template: ChatTemplate) -> None:
    with contextlib.suppress(TypeError, ValueError):
        assert isinstance(template.render(messages), str)


@settings(max_examples=200, deadline=None)
@given(st.lists(FUNCTIONS | CALLS | VALUES, max_size=3) | VALUES)
def test_tools_are_made_or_refused(tools: Any) -> None:
    before = repr(tools)
    try:
        made = normalise_tools(tools)
    except (TypeError, ValueError):
        assert repr(tools) == before
        return
    assert repr(tools) == before
    for tool in made:
        parameters = tool["function"]["parameters"]
        assert parameters["type"] == "object"
    assert repr(normalise_tools(made)) == repr(made), "made once, there is nothing left to do"


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "{%",
                "%}",
                " for ",
                " in ",
                "x",
                " if ",
                "endif",
                "endfor",
                "messages",
                "|",
                "join",
                "(",
                ")",
                "'",
                "[",
                "]",
                "*",
                "9",
                ".",
                "content",
                "~",
                "-",
                "\n",
                "{#",
                "#}",
                "macro f()",
                "endmacro",
                "set x=",
                "namespace",
            ]
        ),
        max_size=25,
    ).map("".join)
)
def test_any_source_is_a_template_or_refused(source: str) -> None:
    try:
        template = ChatTemplate(source)
        assert isinstance(template.render([{"role": "user", "content": "x"}]), str)
        assert isinstance(template.variables, frozenset)
    except ChatTemplateError:
        return
