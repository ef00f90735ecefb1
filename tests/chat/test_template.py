"""`ChatTemplate`: variables, the environment of Hugging Face, continued messages, errors with their line."""

from __future__ import annotations

import dataclasses
import datetime
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from llamacy.chat.template import ChatTemplate
from llamacy.errors import ChatTemplateError, LlamacyError

USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "Well "}


def render(source: str, *messages: Any, **more: Any) -> str:
    return ChatTemplate(source).render(list(messages) or [USER], **more)


def test_variables_are_those_that_the_template_reads() -> None:
    template = ChatTemplate(
        "{% set x = 1 %}{{ x }}{{ enable_thinking }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    assert template.variables == {"enable_thinking", "messages"}
    assert "42 characters" in repr(ChatTemplate("x" * 42, name="mine"))
    assert "'mine'" in repr(ChatTemplate("x", name="mine"))
    assert template.name is None
    assert template.source.startswith("{% set")


def test_special_tokens_are_always_texts() -> None:
    template = ChatTemplate("{{ bos_token + 'x' }}{{ eos_token }}{{ pad_token }}", special_tokens={"pad_token": "<p>"})
    assert template.render([USER]) == "x<p>"
    assert template.special_tokens == {"pad_token": "<p>", "bos_token": "", "eos_token": ""}
    for wrong in ({"bos_token": None}, {"eos_token": 3}, {"special_tokens": {"pad_token": None}}):
        with pytest.raises(TypeError, match="_token"):
            ChatTemplate("x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="messages"):
        ChatTemplate("x", special_tokens={"messages": "x"})
    with pytest.raises(TypeError):
        ChatTemplate(b"x")  # type: ignore[arg-type]


def test_keyword_reaches_the_template() -> None:
    source = "{{ enable_thinking is defined }}{{ enable_thinking }}{{ x.y[0] }}"
    assert render(source, enable_thinking=False, x={"y": (1,)}) == "TrueFalse1"


@pytest.mark.parametrize("name", ["bos_token", "eos_token", "pad_token"])
def test_keyword_that_would_hide_a_token_is_refused(name: str) -> None:
    template = ChatTemplate("x", special_tokens={"pad_token": ""})
    with pytest.raises(ValueError, match=name):
        template.render([USER], **{name: "<x>"})


def test_environment_is_that_of_hugging_face() -> None:
    assert render("  {% if true %}\nx\n  {% endif %}\ny\n") == "x\ny"
    assert (
        render(
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}"
            "{% endif %}{{ i }}{% endfor %}"
        )
        == "02"
    )
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}!") == "hello!"
    assert (
        render("{% set ns = namespace(a=1) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}")
        == "4"
    )
    assert render("{{ dict(a=1, b=2) }}{{ dict.fromkeys(['x'], 0) }}") == "{'a': 1, 'b': 2}{'x': 0}"
    assert render("{{ tools }}|{{ documents }}|{{ add_generation_prompt }}") == "None|None|True"
    now = datetime.datetime(2024, 2, 29, 13, 4)  # noqa: DTZ001
    assert render("{{ strftime_now('%d %b %Y %H:%M') }}", now=lambda: now) == "29 Feb 2024 13:04"


@pytest.mark.parametrize(
    ("options", "dumps"),
    [
        ("", {"ensure_ascii": False}),
        ("indent=2", {"ensure_ascii": False, "indent": 2}),
        ("indent='  '", {"ensure_ascii": False, "indent": "  "}),
        ("ensure_ascii=true", {}),
        ("sort_keys=true", {"ensure_ascii": False, "sort_keys": True}),
        ("separators=(',', ':')", {"ensure_ascii": False, "separators": (",", ":")}),
    ],
)
def test_tojson_is_json_dumps(options: str, dumps: dict[str, Any]) -> None:
    value = {"z": "<&'\">", "a": [1, 2.5, None, True, {}], "é": "日\n🦙"}
    assert render(f"{{{{ x|tojson({options}) }}}}", x=value) == json.dumps(value, **dumps)


def test_from_json_reads_what_tojson_writes() -> None:
    assert render("{{ (x|tojson|from_json).a[1] }}", x={"a": [1, "b"]}) == "b"
    with pytest.raises(ChatTemplateError, match="JSON"):
        render("{{ '{'|from_json }}")


def test_absent_and_null_keys_are_undefined() -> None:
    message = {**USER, "name": None}
    assert render("{{ messages[0].name is defined }}{{ messages[0].x is defined }}", message) == "FalseFalse"
    assert render("{{ messages[0].name is none }}", message, keep_null=True) == "True"


def test_reasoning_goes_under_the_names_that_templates_read() -> None:
    source = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}"
    for name in ("reasoning_content", "thinking", "reasoning"):
        assert render(source, {**ANSWER, name: "hm"}) == "hm|hm"


def test_models_and_dataclasses_are_messages() -> None:
    @dataclasses.dataclass
    class Message:
        role: str
        content: str

    class Model:
        def model_dump(self) -> dict[str, Any]:
            return {"role": "user", "content": "b"}

    source = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
    assert render(source, Message("user", "a"), Model()) == "user=a;user=b;"


def test_whole_message_is_left_open() -> None:
    source = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    assert render(source, USER, ANSWER) == "<user>hello</><assistant>Well </><assistant>"
    assert render(source, USER, ANSWER, add_generation_prompt=False) == "<user>hello</><assistant>Well </>"
    assert render(source, USER, ANSWER, continue_final_message=True) == "<user>hello</><assistant>Well "
    trimmed = source.replace("m.content", "m.content|trim")
    assert render(trimmed, USER, ANSWER, continue_final_message=True) == "<user>hello</><assistant>Well"
    parts = source.replace("{{ m.content }}", "{{ m.content if m.content is string else m.content[-1].text }}")
    message = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert render(parts, USER, message, continue_final_message=True) == "<user>hello</><assistant>b"
    assert message["content"][-1] == {"type": "text", "text": "b"}


def test_message_that_can_not_be_continued_is_refused() -> None:
    with pytest.raises(ChatTemplateError, match="leaves out"):
        render("{{ messages[0].content }}", USER, ANSWER, continue_final_message=True)
    with pytest.raises(ChatTemplateError, match=r"messages\[1\] has no"):
        render("{{ messages[0].content }}", USER, {"role": "assistant"}, continue_final_message=True)
    with pytest.raises(ChatTemplateError, match="no text"):
        render(
            "{{ messages[0].content }}", {"role": "user", "content": [{"type": "image"}]}, continue_final_message=True
        )
    with pytest.raises(ValueError, match="add_generation_prompt"):
        render("x", USER, ANSWER, continue_final_message=True, add_generation_prompt=True)


def test_message_with_calls_is_not_continued():
    call = {"type": "function", "id": "1", "function": {"name": "f", "arguments": {}}}
    source = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.id }}{% endfor %}{% endfor %}"
    for content in ("", "Well"):
        with pytest.raises(ChatTemplateError, match=r"messages\[1\] has tool calls"):
            render(source, USER, {**ANSWER, "content": content, "tool_calls": [call]}, continue_final_message=True)
    assert render(source, USER, {**ANSWER, "tool_calls": []}, continue_final_message=True).endswith(ANSWER["content"])


def test_refusal_of_the_template_comes_out_with_its_text_and_line() -> None:
    with pytest.raises(ChatTemplateError) as raised:
        render("a\n\n{{ raise_exception('roles must alternate') }}")
    assert str(raised.value) == raised.value.refusal == "roles must alternate"
    assert raised.value.line == 3
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, LlamacyError)


def test_error_names_template_line_and_cause() -> None:
    template = ChatTemplate("a\n{% for m in messages %}\n{{ m.content + 1 }}\n{% endfor %}", name="mine")
    with pytest.raises(ChatTemplateError, match=r"^template 'mine', line 3: .*\(TypeError\)$") as raised:
        template.render([USER])
    assert raised.value.line == 3
    assert raised.value.refusal is None
    assert isinstance(raised.value.__cause__, TypeError)
    with pytest.raises(ChatTemplateError, match="'mine', line 2: ") as raised:
        ChatTemplate("a\n{% for %}", name="mine")
    assert raised.value.line == 2


@pytest.mark.parametrize(
    ("messages", "error", "match"),
    [
        (None, TypeError, "messages must be a list"),
        ("x", TypeError, "messages must be a list"),
        ({"role": "user"}, TypeError, "messages must be a list"),
        ([], ValueError, "empty"),
        ([USER, 3], TypeError, r"messages\[1\]"),
        ([USER, "x"], TypeError, r"messages\[1\]"),
    ],
)
def test_wrong_messages_are_refused(messages: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        ChatTemplate("x").render(messages)


def test_messages_that_hold_themselves_are_refused() -> None:
    message: dict[str, Any] = {"role": "user"}
    message["content"] = [message]
    with pytest.raises(ValueError, match=r"messages\[0\]"):
        render("x", message)


@pytest.mark.parametrize("name", ["tools", "documents"])
def test_wrong_tools_and_documents_are_refused(name: str) -> None:
    for wrong in ("x", {"a": 1}, [3]):
        with pytest.raises(TypeError, match=name):
            render("x", **{name: wrong})


def test_keyword_interrupt_passes() -> None:
    def now() -> datetime.datetime:
        raise KeyboardInterrupt

    template = ChatTemplate("{{ strftime_now('%Y') }}")
    with pytest.raises(KeyboardInterrupt):
        template.render([USER], now=now)
    assert len(template.render([USER])) == 4


def test_clock_may_render_itself() -> None:
    inner = ChatTemplate("{{ 'x' * 3 }}")

    def now() -> datetime.datetime:
        assert inner.render([USER]) == "xxx"
        return datetime.datetime(2025, 1, 1)  # noqa: DTZ001

    assert render("{{ strftime_now('%Y') }}{{ 'y' * 2 }}", now=now) == "2025yy"


def test_threads_render_the_same_template() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content * n }}{% endfor %}")
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda n: template.render([USER], n=n), range(200)))
    assert texts == ["hello" * n for n in range(200)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ [3, 1, 2]|sort|join(',') }}", "1,2,3"),
        ("{{ 'a-b'|replace('-', '+')|upper }}", "A+B"),
        ("{{ ['a', 'b']|map('upper')|list }}", "['A', 'B']"),
        ("{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|sum }}", "3"),
        ("{{ [{'a': 1}, {'a': 2}]|selectattr('a', 'gt', 1)|list }}", "[{'a': 2}]"),
        ("{{ [{'a': 1}, {'a': 2}]|rejectattr('a', 'in', [2])|first }}", "{'a': 1}"),
        ("{{ 'abc'[1:] ~ 'abc'[::-1] ~ 1 ~ none ~ x }}", "bccba1None"),
        ("{{ 1 < 2 < 3 }}{{ 1 in [1] }}{{ 'b' not in 'abc' }}{{ 'a' in {'a': 1} }}", "TrueTrueFalseTrue"),
        ("{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ -3 }}{{ 1 / 4 }}", "331024-30.25"),
        (
            "{{ '%s=%05.1f' % ('a', 2.25) }}{{ '%s-%s'|format('x', 1) }}{{ '{:>4}{a}'.format(7, a='z') }}",
            "a=002.2x-1   7z",
        ),
        ("{{ 'a b  c'.split() }}{{ 'a,b'.split(',', 1) }}{{ 'x'.join(['1', '2']) }}", "['a', 'b', 'c']['a', 'b']1x2"),
        ("{{ {'b': 1, 'a': 2}|dictsort }}{{ {'b': 1}|items|list }}", "[('a', 2), ('b', 1)][('b', 1)]"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{{ loop.index }}{{ loop.last }}{% endfor %}", "a11True"),
        ("{{ ([1, 2] + [3])|length }}{{ ('a', 'b') + ('c',) }}{{ 'ab' * 2 }}", "3('a', 'b', 'c')abab"),
        (
            "{% macro f(a,b=2) %}{{ a }}{{ b }}{{ '!' if caller }}{% endmacro %}{{ f(1) }}{% call f(3) %}{% endcall %}",
            "1232!",
        ),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x|indent(2, true) }}{{ x|length }}", "  a12"),
        ("{% for i in [1, [2, [3]]] recursive %}{{ loop(i) if i is sequence else i }}{% endfor %}", "123"),
        ("{{ ' a '|trim }}{{ ' a '.strip() }}{{ 'A'.lower() }}{{ 'a'.startswith('a') }}", "aaaTrue"),
        (
            "{{ x is defined }}{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ 'a' is string }}{{ [] is iterable }}",
            "FalseTrueTrueTrueTrue",
        ),
        (
            "{{ [1, 2, 3]|batch(2)|list }}{{ 'abc'|list }}{{ 'abc'|last }}{{ 3.7|round|int }}",
            "[[1, 2], [3]]['a', 'b', 'c']c4",
        ),
        (
            "{{ '<'|e }}{{ '<'|safe }}{{ 'a&b'|urlencode }}{{ 'one two'|title }}{{ 'a b'|wordcount }}",
            "&lt;<a%26bOne Two2",
        ),
        (
            "{% for g in [{'r': 1}, {'r': 2}]|groupby('r') %}{{ g.grouper }}{{ g.list }}{% endfor %}",
            "1[{'r': 1}]2[{'r': 2}]",
        ),
        ("{{ cycler('a', 'b').next() }}{% set j = joiner(',') %}{{ j() }}{{ j() }}", "a,"),
    ],
)
def test_language_is_that_of_jinja(source: str, expected: str) -> None:
    assert render(source) == expected


def test_chat_of_many_values_is_refused_in_the_end() -> None:
    nested: Any = ["x"]
    for _ in range(60):
        nested = [nested, nested]
    with pytest.raises(ValueError, match=r"messages\[0\] holds more than"):
        render("x", {"role": "user", "content": nested})
    with pytest.raises(TypeError, match="bos_token"):
        ChatTemplate("x", bos_token=nested)
