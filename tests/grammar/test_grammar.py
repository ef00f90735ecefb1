"""Grammars as objects: what they are made of, what is refused at once, and that they are values."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.errors import GrammarError, GrammarSyntaxError, LlamacyError, SchemaError
from llamacy.grammar import Grammar
from tests.grammar.native import native_matches

DIGITS = "root ::= [0-9]+"


def test_text_is_kept_as_it_is() -> None:
    text = '# numbers\nroot ::= n ("," n)*\r\nn ::= [0-9]+  # digits\n'
    grammar = Grammar.from_string(text)
    assert (grammar.text, grammar.root, grammar.lazy) == (text, "root", False)
    assert (grammar.trigger_patterns, grammar.trigger_words, grammar.trigger_tokens) == ((), (), ())
    assert grammar.matches("1,22,3")
    assert not grammar.matches("1,,3")
    assert grammar.accepts_prefix("1,")
    assert not grammar.accepts_prefix(",")
    assert grammar.explain("1,2") is None
    assert (
        str(grammar.explain("1;2"))
        == "line 1, column 2: found ';', expected \",\", [0-9], end of text (in rules root, n)"
    )


def test_other_root() -> None:
    grammar = Grammar.from_string('root ::= a a\na ::= "a"', "a")
    assert grammar.root == "a"
    assert grammar.matches("a")
    assert not grammar.matches("aa")
    with pytest.raises(GrammarError, match="no rule 'main' to begin with; its rules are: a, root"):
        Grammar.from_string('root ::= a a\na ::= "a"', "main")


@pytest.mark.parametrize("text", ["", "root ::= (", 'root ::= "a" x', "root ::= root", "root ::= <"])
def test_wrong_text_is_refused_at_once(text: str) -> None:
    with pytest.raises(GrammarError) as caught:
        Grammar.from_string(text)
    assert isinstance(caught.value, (LlamacyError, ValueError))


@pytest.mark.parametrize("text", [None, b"root ::= [0-9]", {"type": "string"}])
def test_what_is_no_text_is_refused_with_a_hint(text: Any) -> None:
    with pytest.raises(TypeError, match="from_json_schema"):
        Grammar.from_string(text)


def test_schema_as_text_is_refused_with_a_hint() -> None:
    for text in ('{"type": "object"}', '\n {"type": "object"}', "{}"):
        with pytest.raises(GrammarError, match="from_json_schema"):
            Grammar.from_string(text)


@pytest.mark.parametrize("root", [5, None, b"root", ["root"]])
def test_root_is_a_name(root: Any) -> None:
    with pytest.raises(TypeError, match="root is the name of a rule, not "):
        Grammar.from_string(DIGITS, root)


@pytest.mark.parametrize("lazy", ["yes", 1, None])
def test_lazy_is_true_or_false(lazy: Any) -> None:
    with pytest.raises(TypeError, match="lazy must be True or False, not "):
        Grammar.from_string(DIGITS, lazy=lazy, trigger_words=["x"])


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "é.gbnf"
    path.write_bytes(b'\xef\xbb\xbfroot ::= "\xc3\xa9"\r\n')
    assert Grammar.from_file(path).matches("é")
    assert Grammar.from_file(str(path)) == Grammar.from_string('root ::= "é"\n')
    assert Grammar.from_file(path, lazy=True, trigger_words=["x"]).trigger_words == ("x",)
    path.write_text('root ::= "a"\n  x ::= (\n', encoding="utf-8")
    with pytest.raises(
        GrammarSyntaxError, match=r"^line 3, column 1: a \) is expected here \(in .*é\.gbnf\)$"
    ) as caught:
        Grammar.from_file(path)
    assert (caught.value.line, caught.value.column) == (3, 1)
    path.write_bytes(b'root ::= "\xe9"')
    with pytest.raises(GrammarError, match="not UTF-8"):
        Grammar.from_file(path)
    with pytest.raises(FileNotFoundError):
        Grammar.from_file(tmp_path / "missing.gbnf")


# triggers


def test_lazy_grammar_has_triggers() -> None:
    triggers = {"trigger_patterns": ["<x>\\s*(\\{)"], "trigger_words": ["<tool>"], "trigger_tokens": [5, 7]}
    grammar = Grammar.from_string(DIGITS, lazy=True, **triggers)  # type: ignore[arg-type]
    assert grammar.lazy is True
    assert grammar.trigger_patterns == ("<x>\\s*(\\{)",)
    assert grammar.trigger_words == ("<tool>",)
    assert grammar.trigger_tokens == (5, 7)
    assert grammar.matches("12")
    later = Grammar.from_string(DIGITS).with_triggers(**triggers)  # type: ignore[arg-type]
    assert later == grammar
    assert later.matches("12")
    assert grammar.with_triggers(trigger_tokens=[1]).trigger_words == ()
    assert Grammar.from_string(DIGITS).with_triggers(trigger_words=iter(["x"])).lazy


def test_triggers_and_lazy_go_together() -> None:
    with pytest.raises(GrammarError, match="needs trigger_patterns, trigger_words or trigger_tokens"):
        Grammar.from_string(DIGITS, lazy=True)
    with pytest.raises(GrammarError, match="needs trigger"):
        Grammar.from_string(DIGITS).with_triggers()
    for triggers in ({"trigger_patterns": ["a"]}, {"trigger_words": ["a"]}, {"trigger_tokens": [1]}):
        with pytest.raises(GrammarError, match="pass lazy=True"):
            Grammar.from_string(DIGITS, **triggers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("triggers", "error", "message"),
    [
        ({"trigger_words": "abc"}, TypeError, r"sequence of texts, not one; give \['abc'\]"),
        ({"trigger_patterns": "abc"}, TypeError, "sequence of texts"),
        ({"trigger_words": [1]}, TypeError, "holds 1, which is no str"),
        ({"trigger_words": [""]}, GrammarError, "trigger_words holds an empty text"),
        ({"trigger_words": ["a\0"]}, GrammarError, "NUL"),
        ({"trigger_patterns": ["\ud800"]}, GrammarError, "surrogate"),
        ({"trigger_tokens": [-1]}, GrammarError, "holds -1"),
        ({"trigger_tokens": [2**31]}, GrammarError, "holds 2147483648"),
        ({"trigger_tokens": [True]}, TypeError, "no token"),
        ({"trigger_tokens": ["5"]}, TypeError, "integer"),
        ({"trigger_tokens": [1.0]}, TypeError, "integer"),
    ],
)
def test_wrong_triggers_are_refused(triggers: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Grammar.from_string(DIGITS, lazy=True, **triggers)
    with pytest.raises(error, match=message):
        Grammar.from_string(DIGITS).with_triggers(**triggers)


# values


def test_grammar_is_a_value() -> None:
    one = Grammar.from_string(DIGITS)
    same = Grammar.from_string(DIGITS)
    others = [
        Grammar.from_string(DIGITS + "\n"),
        Grammar.from_string(DIGITS + "\nx ::= [0-9]+", "x"),
        one.with_triggers(trigger_words=["x"]),
        one.with_triggers(trigger_patterns=["x"]),
        one.with_triggers(trigger_tokens=[1]),
    ]
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, same, *others}) == 6
    assert one != DIGITS
    one.matches("1")
    assert one == same


def test_grammar_cannot_be_changed() -> None:
    grammar = Grammar.from_string(DIGITS)
    for name in ("text", "root", "lazy", "trigger_words", "other", "_rules"):
        with pytest.raises(AttributeError, match="can't be changed"):
            setattr(grammar, name, "x")
    with pytest.raises(AttributeError):
        del grammar.text
    with pytest.raises(TypeError, match=r"Grammar\.from_string"):
        Grammar()


def test_grammar_is_pickled_and_copied() -> None:
    made = [
        Grammar.from_string(DIGITS).with_triggers(trigger_words=["é"], trigger_tokens=[3]),
        Grammar.from_json_schema({"type": "integer"}),
        Grammar.from_choices(["1", "2"]),
        Grammar.json(),
    ]
    for grammar in made:
        assert grammar.matches("1")
        for again in (pickle.loads(pickle.dumps(grammar)), copy.copy(grammar), copy.deepcopy(grammar)):
            assert again == grammar
            assert again.matches("1")
            assert not again.matches("x")
            assert again.trigger_words == grammar.trigger_words


def test_repr_shows_what_it_is() -> None:
    grammar = Grammar.from_string(DIGITS).with_triggers(trigger_words=["<x>"])
    assert repr(grammar) == "Grammar('root ::= [0-9]+', root='root', lazy=True, trigger_words=('<x>',))"
    assert len(repr(Grammar.json())) < 120


# schemas


def test_equal_schema_is_not_compiled_again() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
    grammar = Grammar.from_json_schema(schema)
    assert Grammar.from_json_schema(copy.deepcopy(schema)) is grammar
    assert Grammar.from_json_schema(schema, whitespace="compact") is not grammar
    turned = {**schema, "properties": dict(reversed(schema["properties"].items()))}  # type: ignore[attr-defined]
    assert Grammar.from_json_schema(turned) is not grammar
    schema["properties"]["a"]["type"] = "string"  # type: ignore[index]
    assert Grammar.from_json_schema(schema).matches('{"a":"x"}')
    assert not grammar.matches('{"a":"x"}')
    for n in range(300):
        Grammar.from_json_schema({"const": n})
    again = Grammar.from_json_schema({"const": 0})
    assert again == Grammar.from_json_schema({"const": 0})


def test_schema_options_are_known_ones() -> None:
    with pytest.raises(TypeError, match="whitespce"):
        Grammar.from_json_schema({}, whitespce="compact")
    with pytest.raises(ValueError, match="whitespace"):
        Grammar.from_json_schema({}, whitespace="none")


def test_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    with pytest.raises(SchemaError):
        Grammar.from_json_schema(schema)


# regular expressions and lists


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-c]+x?",
        "a|bc|",
        "(ab){2,3}",
        "a*b+",
        "^a.c$",
        "(?:a|b)(?=c)c*",
        "a{0}",
        r"\w\d",
        "[^ab]",
        "a{2,}",
        "",
        r"\u0061",
    ],
)
def test_regex_matches_whole_texts(pattern: str) -> None:
    grammar = Grammar.from_regex(pattern)
    expression = re.compile(pattern)
    for text in ("".join(chars) for n in range(5) for chars in itertools.product("abcx1", repeat=n)):
        assert grammar.matches(text) is bool(expression.fullmatch(text)), text


def test_regex_takes_text_as_it_is() -> None:
    grammar = Grammar.from_regex('["\\\\]\\n.')
    assert grammar.matches('"\n☃')
    assert grammar.matches("\\\nx")
    assert not grammar.matches('\\"\nx')


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "never closed"),
        (r"(a)\1", "reference"),
        ("a{2,1}", "2,1"),
        ("[b-a]", "range"),
        ("a(?!.*)", "no text matches"),
        ("(.*a.{40}){2}", "more than"),
    ],
)
def test_wrong_regex_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        Grammar.from_regex(pattern)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text(st.sampled_from('abc"\\\n é☃'), max_size=4), min_size=1, max_size=8), st.text("abc", max_size=4)
)
def test_choices_are_the_texts_and_no_others(texts: list[str], other: str) -> None:
    grammar = Grammar.from_choices(texts)
    assert all(grammar.matches(text) for text in texts)
    beginnings = {text[:length] for text in texts for length in range(len(text) + 1)}
    for text in {other, *beginnings, *(text + "a" for text in texts)}:
        assert grammar.matches(text) is (text in texts)
        assert grammar.accepts_prefix(text) is (text in beginnings)
    assert Grammar.from_choices(reversed(texts * 2)) == grammar


def test_choices_that_are_none_are_refused() -> None:
    with pytest.raises(GrammarError, match="empty"):
        Grammar.from_choices([])
    with pytest.raises(TypeError, match=r"give \['yes'\]"):
        Grammar.from_choices("yes")
    with pytest.raises(TypeError, match="no str"):
        Grammar.from_choices(["yes", 1])  # type: ignore[list-item]
    with pytest.raises(GrammarError, match="NUL"):
        Grammar.from_choices(["yes\0"])
    with pytest.raises(GrammarError, match="surrogate"):
        Grammar.from_choices(["\udc00"])


def test_many_choices_work(target_model: Any) -> None:
    texts = [f"item {number * 7919}" for number in range(4_000)]
    grammar = Grammar.from_choices(texts)
    for text in (texts[0], texts[-1], texts[1234], "item 1", "item", ""):
        assert grammar.matches(text) is (text in set(texts))
        assert native_matches(target_model.vocab, grammar.text, text) is (text in set(texts))


# without the rest


def test_package_works_without_extensions_and_numpy() -> None:
    code = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("llamacy.core", "llamacy.native", "numpy", "pydantic")):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
from llamacy.grammar import Grammar
assert Grammar.from_string('root ::= "a"+').matches("aa")
assert Grammar.from_regex("a+").matches("aa")
assert Grammar.from_choices(["a"]).matches("a")
assert Grammar.from_json_schema({"const": 1}).matches("1")
assert Grammar.json().matches("[]")
try:
    Grammar.from_json_schema(list[int])
except ImportError as error:
    assert "llamacy[pydantic]" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_import_loads_little() -> None:
    code = "import sys; before = set(sys.modules); import llamacy.grammar; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"dataclasses", "inspect", "decimal", "unicodedata", "numpy"} & set(loaded)
    ours = {name for name in loaded if name.startswith("llamacy.grammar")}
    assert not {name for name in ours if "schema" in name or "regex" in name or "automaton" in name}
