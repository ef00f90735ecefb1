"""Templates that are hostile or broken: a typed error, in bounded time and memory, and never code that runs."""

from __future__ import annotations

import sys
import tracemalloc

import pytest

from llamacy.chat import budget
from llamacy.chat.template import ChatTemplate
from llamacy.errors import ChatTemplateError, ChatTemplateLimitError

CHAT = [{"role": "user", "content": "hello"}]
_GROW = "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = STEP %}{% endfor %}"
_KEEP = (
    "{% set ns = namespace(l=none) %}"
    "{% for i in range(100000) %}{% for j in range(100000) %}STEP{% endfor %}{% endfor %}"
)
# a needle that CPython's search for short texts compares at every place
_SEARCH = "{% set s = 'a' * 29000 %}{% set n = 'a' * 97 ~ 'ba' %}{% for i in range(100000) %}{{ STEP }}{% endfor %}"
_TREE = (
    "{% set ns = namespace(s=(1,), t=(1,)) %}{% for i in range(60) %}{% set ns.s = (ns.s, ns.s) %}"
    "{% set ns.t = (ns.t, ns.t) %}{% endfor %}"
)

#: Too much time or memory.
LIMITS = {
    "loops": "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
    "loops-without-output": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "loops-left-out": "{% for i in range(100000) %}{% for j in range(100000) if false %}{% endfor %}{% endfor %}",
    "loop-over-itself": "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
    "loop-length": "{% for i in range(100000)|map('string') %}{{ loop.length }}"
    "{% for j in range(100000)|map('string') %}{{ loop.length }}{% endfor %}{% endfor %}",
    "large-body": "{% for i in range(100000) %}" + "{% set x = [1, 2, 3, 4, 5, 6] %}" * 200 + "{% endfor %}",
    "text-times": "{{ 'a' * 10**9 }}",
    "times-text": "{{ 10**9 * 'a' }}",
    "list-times": "{{ [0] * 10**10 }}",
    "power": "{{ 10**(10**10) }}",
    "powers": "{{ 10**10**10**10**10 }}",
    "squares": "{% set ns = namespace(i=3) %}{% for i in range(100) %}{% set ns.i = ns.i * ns.i %}{% endfor %}",
    "center": "{{ 'a'|center(10**9) }}",
    "center-of-constants": "{{ 'a'|center(1000000000) }}",
    "center-by-name": "{{ 'a'|center(width=1000000000) }}",
    "center-method": "{{ 'a'.center(1000000000) }}",
    "center-of-markup": "{{ ('a'|safe).center(1000000000) }}",
    "filter-block": "{% filter center(1000000000) %}x{% endfilter %}",
    "set-filter": "{% set x | center(1000000000) %}x{% endset %}",
    "autoescape-constant": "{% autoescape 'a'|center(1000000000) %}x{% endautoescape %}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(1000000000) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent-star": "{{ '%*d' % (1000000000, 1) }}",
    "percent-key": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "percent-precision": "{{ '%.1000000000f' % 1.0 }}",
    "percent-markup": "{{ ('%1000000000d'|safe) % 1 }}",
    "format-filter": "{{ '%1000000000d'|format(1) }}",
    "format": "{{ '{:1000000000d}'.format(1) }}",
    "format-nested": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format-map": "{{ '{a:1000000000d}'.format_map({'a': 1}) }}",
    "format-markup": "{{ ('{:1000000000d}'|safe).format(1) }}",
    "macro": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "macro-tree": "{% macro f(x) %}{% if x > 0 %}{{ f(x-1) }}{{ f(x-1) }}{% endif %}{% endmacro %}{{ f(50) }}",
    "recursive-loop": "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "block": "{% block a %}{{ self.a() }}{% endblock %}",
    "output": "{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
    "output-of-constants": "{% for i in range(100000) %}" + "x" * 10000 + "{% endfor %}",
    "grow-tilde": _GROW.replace("STEP", "ns.s ~ ns.s"),
    "grow-plus": _GROW.replace("STEP", "ns.s + ns.s"),
    "grow-join": _GROW.replace("STEP", "[ns.s, ns.s]|join"),
    "grow-join-method": _GROW.replace("STEP", "''.join([ns.s, ns.s])"),
    "grow-replace": _GROW.replace("STEP", "ns.s|replace('x', 'xx')"),
    "grow-replace-method": _GROW.replace("STEP", "ns.s.replace('x', 'xx')"),
    "grow-percent": _GROW.replace("STEP", "'%s%s' % (ns.s, ns.s)"),
    "grow-percent-key": _GROW.replace("STEP", "'%(a)s%(a)s' % {'a': ns.s}"),
    "grow-format": _GROW.replace("STEP", "'{0}{0}'.format(ns.s)"),
    "grow-list": _GROW.replace("'xxxxxxxx'", "[1]").replace("STEP", "ns.s + ns.s"),
    "grow-escape": "{{ ('<' * 1000000)" + "|forceescape" * 30 + " }}",
    "grow-block-set": "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}"
    "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}{% endfor %}",
    "tree-printed": _TREE + "{{ ns.s }}",
    "tree-json": _TREE + "{{ ns.s|tojson }}",
    "tree-compared": _TREE + "{{ ns.s == ns.t }}",
    "tree-searched": _TREE + "{{ ns.s in [ns.t] }}",
    "tree-as-key": _TREE + "{{ {ns.s: 1} }}",
    "tree-looked-up": _TREE + "{{ {1: 1}[ns.s] }}",
    "tree-got": _TREE + "{{ {1: 1}.get(ns.s) }}",
    "tree-in-dict": _TREE + "{{ ns.s in {1: 1} }}",
    "tree-unique": _TREE + "{{ [ns.s, ns.t]|unique|list }}",
    "deep-key": "{% set ns = namespace(s=(1,)) %}{% for i in range(100000) %}{% set ns.s = (ns.s,) %}{% endfor %}"
    "{{ {1: 1}.get(ns.s) }}",
    "deep-step-by-step": "{% set ns = namespace(s=(1,)) %}{% for i in range(100000) %}{% set ns.s = (ns.s,) %}"
    "{{ {ns.s: 1} }}{% endfor %}",
    "list-in-itself": "{% set l = [1] %}{% set _ = l.append(l) %}{% set _ = l.append(l) %}{{ l }}",
    "join-of-the-same": "{% set ns = namespace(l=['x' * 100000]) %}{% for i in range(20) %}"
    "{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l|join }}",
    "join-of-replaced": "{% set s = 'x' * 1000000 %}{{ range(100000)|map('replace', 1, s)|join }}",
    "join-between": "{{ range(100000)|join('x' * 100000) }}",
    "join-between-method": "{{ ('x' * 1000000).join('y' * 1000) }}",
    "indent": "{{ ('\n' * 100000)|indent(100000) }}",
    "json-indent": "{{ [1]|tojson(indent=10**9) }}",
    "json-separators": "{{ [1, 2]|tojson(separators=('x' * 1000000, ':')) }}",
    "batch": "{{ [1]|batch(10**9, 'x')|list }}",
    "slice": "{{ [1]|slice(10**9)|list }}",
    "round": "{{ 1.5|round(10**9, 'ceil') }}",
    "round-down": "{{ 1|round(-100000, 'ceil') }}",
    "int": "{{ ('9' * 1000000)|int }}",
    "int-base": "{{ ('f' * 1000000)|int(base=16) }}",
    "urlize": "{{ ('http://a.b ' * 100000)|urlize }}",
    "striptags": "{{ ('<!---->' * 100000)|striptags }}",
    "wordwrap": "{{ ('a ' * 1000000)|wordwrap(1) }}",
    "pprint": "{{ range(100000)|list|pprint }}",
    "sum-of-lists": "{{ range(100000)|batch(1)|sum(start=[]) }}",
    "urlencode": "{{ ('é' * 1000000)" + "|urlencode" * 6 + " }}",
    "truncate": "{{ 'abcdef'|truncate(3, true, 'x' * 100000000) }}",
    "date": "{{ strftime_now('%1000000000d') }}",
    "dates": "{{ strftime_now('%Y' * 100000) }}",
    "compare": "{% set s = 'x' * 1000000 %}{% set t = s ~ 'y' %}{% set u = s ~ 'z' %}"
    "{% for i in range(100000) %}{{ t == u }}{% endfor %}",
    "search": "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}",
    "search-range": "{% for i in range(100000) %}{{ 'a' in range(100000) }}{% endfor %}",
    "slices": "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set x = s[1:] %}{% endfor %}",
    "kept-lists": "{% set ns = namespace(l=none) %}{% for i in range(100000) %}"
    "{% set ns.l = [ns.l, 'x' * 10000 ~ i] %}{% endfor %}",
    "kept-namespaces": "{% set ns = namespace(n=none) %}{% for i in range(100000) %}"
    "{% set ns.n = namespace(a=ns.n, b='x' * 10000 ~ i) %}{% endfor %}",
    "arguments": "{% macro f() %}{{ varargs }}{% endmacro %}{% for i in range(100000) %}"
    "{{ f(*range(100000)) }}{% endfor %}",
    "changed": "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ loop.changed(s ~ i) }}{% endfor %}",
    "colliding-keys": "{{ dict.fromkeys(range(0, 100000 * (2**61 - 1), 2**61 - 1))|length }}",
    "colliding-pairs": "{{ dict(range(0, 100000 * (2**61 - 1), 2**61 - 1)|batch(1)) }}",
    "colliding-items": "{{ range(0, 100000 * (2**61 - 1), 2**61 - 1)|unique|list|length }}",
    "strip": "{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a') }}",
    "trim": "{{ ('a' * 1000000)|trim('b' * 1000000 ~ 'a') }}",
    "search-slowly": _SEARCH.replace("STEP", "n in s"),
    "search-slowly-test": _SEARCH.replace("STEP", "n is in(s)"),
    "search-slowly-chain": _SEARCH.replace("STEP", "n in s in [1]"),
    "search-slowly-method": _SEARCH.replace("STEP", "s.find(n)"),
    "search-slowly-replace": _SEARCH.replace("STEP", "s|replace(n, '')|length"),
    "sort": "{% set l = range(100000)|map('string')|list %}{% for i in range(1000) %}{{ l|sort|length }}{% endfor %}",
    "kept-macros": _KEEP.replace("STEP", "{% macro f() %}{% endmacro %}{% set ns.l = [ns.l, f] %}"),
    "kept-methods": _KEEP.replace("STEP", "{% set ns.l = [ns.l, 'x'.upper, 'y'.format] %}"),
    "kept-generators": _KEEP.replace("STEP", "{% set ns.l = [ns.l, [1]|map('upper')] %}"),
    "kept-dicts": "{% set d = dict.fromkeys(range(1000)|map('string')) %}"
    + _KEEP.replace("STEP", "{% set ns.l = [ns.l, dict(d)] %}"),
    "kept-splits": "{% set s = 'a,' * 10000 %}" + _KEEP.replace("STEP", "{% set ns.l = [ns.l, s.split(',')] %}"),
    "long-integers": "{% set a = ('9' * 4000)|from_json %}" + _KEEP.replace("STEP", "{{ a }}"),
    "from-json": "{{ ('[' * 100000)|from_json }}",
}

#: What looks for a way out of the sandbox, or asks for what isn't there.
REFUSED = {
    "range": ("{% for i in range(10**9) %}x{% endfor %}", "Range too big"),
    "class": ("{{ ().__class__.__bases__ }}", "unsafe"),
    "init": ("{{ messages.__init__.__globals__ }}", "unsafe"),
    "global-class": ("{{ cycler.__init__.__globals__ }}", "unsafe"),
    "namespace-class": ("{{ namespace.__init__.__globals__ }}", "unsafe"),
    "function-globals": ("{{ raise_exception.__globals__.x }}", "unsafe"),
    "macro-internals": ("{% macro f() %}{% endmacro %}{{ f._func.x }}", "unsafe"),
    "context": ("{{ self._TemplateReference__context.x }}", "unsafe"),
    "attr-filter": ("{{ (''|attr('__class__')).x }}", "unsafe"),
    "map-attribute": ("{{ ([1]|map(attribute='__class__')|first).x }}", "unsafe"),
    "generator": ("{{ ([1]|map('string')).gi_frame.x }}", "unsafe"),
    "generator-method": ("{{ ([1]|map('string')).send(1) }}", "unsafe"),
    "private-name": ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "underscore"),
    "private-names": ("{{ namespace(_x=1) }}", "underscore"),
    "bytes": ("{{ 'x%1000000000d'.encode() % 1 }}", "bytes"),
    "bytes-times": ("{{ 'x'.encode() * 10**9 }}", "bytes"),
    "to-bytes": ("{{ (5).to_bytes(1000000000) }}", "unsafe"),
    "translate": ("{{ 'a'.translate({97: 'b'}) }}", "unsafe"),
    "encoding": ("{{ 'x'.encode('idna') }}", "utf-8"),
    "update": ("{% set _ = messages[0].update({}) %}", "unsafe"),
    "odd": ("{{ '%1000000000d' is odd }}", "number"),
    "divisible": ("{{ '%1000000000d' is divisibleby(3) }}", "number"),
    "include": ("{% include '/etc/passwd' %}", "no loader"),
    "import": ("{% import '/etc/passwd' as x %}", "no loader"),
    "extends": ("{% extends '/etc/passwd' %}", "no loader"),
    "lipsum": ("{{ lipsum(n=10**9) }}", "undefined"),
    "zero": ("{{ 1 / 0 }}", "division by zero"),
    "undefined": ("{{ a.b }}", "'a' is undefined"),
    "type": ("{{ 'a' + 1 }}", "concatenate"),
}
if sys.version_info < (3, 14):  # from then on strftime gives such a character back
    REFUSED["surrogate"] = ("{{ strftime_now('\ud800') }}", "surrogates")

#: What can't be compiled.
SYNTAX = {
    "if": "{% if %}",
    "for": "{% for x in y %}",
    "filter": "{{ 1|nope }}",
    "test": "{{ 1 is nope }}",
    "tag": "{% nope %}",
    "generation": "{% generation %}",
    "parentheses": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "lists": "{{ " + "[" * 1000 + "]" * 1000 + " }}",
    "nots": "{{ " + "not " * 50_000 + "1 }}",
    "minus": "{{ " + "-" * 50_000 + "1 }}",
    "plus": "{{ 1" + "+1" * 100_000 + " }}",
    "dots": "{{ a" + ".a" * 100_000 + " }}",
    "filters": "{{ a" + "|upper" * 20_000 + " }}",
    "ifs": "{% if 1 %}" * 1000 + "{% endif %}" * 1000,
    "loops": "{% for x in y %}" * 30 + "{% endfor %}" * 30,
    "branches": "{% if a %}" + "{% elif a %}" * 10_000 + "{% endif %}",
    "outputs": "{{ a }}" * 30_000,
    "braces": "{" * 200_000,
    "comment": "{#" * 100_000,
    "digits": "{{ " + "9" * 200_000 + " }}",
    "size": "x" * (budget.MAX_SOURCE + 1),
}


@pytest.mark.parametrize("name", LIMITS)
def test_template_that_takes_too_much_is_stopped(name: str) -> None:
    template = ChatTemplate(LIMITS[name], name="mine")
    with pytest.raises(ChatTemplateLimitError, match=r"^template 'mine'") as raised:
        template.render(CHAT)
    assert "too much memory" not in str(raised.value), "it was the system that stopped it"
    assert raised.value.refusal is None


@pytest.mark.parametrize("name", REFUSED)
def test_template_that_does_what_it_may_not_is_stopped(name: str) -> None:
    source, message = REFUSED[name]
    with pytest.raises(ChatTemplateError, match=message) as raised:
        ChatTemplate(source).render(CHAT)
    assert raised.value.line == 1


@pytest.mark.parametrize("name", SYNTAX)
def test_template_that_cannot_be_compiled_is_refused(name: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"^template 'mine'|characters"):
        ChatTemplate(SYNTAX[name], name="mine")


@pytest.mark.parametrize(
    "name", ["grow-tilde", "grow-list", "output", "kept-lists", "kept-namespaces", "loop-over-itself"]
)
def test_memory_is_bounded(name: str) -> None:
    template = ChatTemplate(LIMITS[name])
    tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateLimitError):
            template.render(CHAT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * budget.MAX_BYTES


def test_limits_grow_with_the_messages() -> None:
    # many times what a template may make of nothing
    chat = [{"role": "user", "content": "x" * 1_000_000}] * 20
    source = "{% for m in messages %}" + "{% set c = m.content ~ '.' %}" * 10 + "{{ c }}{% endfor %}"
    assert len(ChatTemplate(source).render(chat)) == 20 * 1_000_001


def test_long_chat_renders() -> None:
    chat = [{"role": "user" if index % 2 == 0 else "assistant", "content": f"message {index}"} for index in range(5000)]
    source = "{% for m in messages %}" + "{% if m.role == 'x' %}{{ m.content|trim ~ 'x' }}{% endif %}" * 200
    source += "{{ m.content }};{% endfor %}"
    assert ChatTemplate(source).render(chat) == "".join(f"message {index};" for index in range(5000))


def test_template_is_as_good_as_new_after_an_error() -> None:
    template = ChatTemplate("{% if n %}{{ 'a' * n }}{% endif %}ok")
    with pytest.raises(ChatTemplateLimitError):
        template.render(CHAT, n=10**12)
    assert template.render(CHAT, n=3) == "aaaok"


def test_sandbox_sees_only_plain_values() -> None:
    class Open:
        def read(self) -> str:
            raise AssertionError("a template called a method of the caller's object")

    message = {"role": "user", "content": "x", "file": Open()}
    assert ChatTemplate("{{ messages[0].file }}").render([message]) == "<Open>"
    with pytest.raises(ChatTemplateError, match="read"):
        ChatTemplate("{{ messages[0].file.read() }}").render([message])


def test_template_can_not_change_what_the_caller_gave() -> None:
    chat = [{"role": "user", "content": ["a"]}]
    assert (
        ChatTemplate("{% set _ = messages[0].content.append('b') %}{{ messages[0].content }}").render(chat)
        == "['a', 'b']"
    )
    assert chat == [{"role": "user", "content": ["a"]}]
