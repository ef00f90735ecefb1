"""Values in the notations that models write, against the readers of Python and JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.chat.output.values import FUNCTION_GEMMA, GEMMA, JSON, MAX_DEPTH, PYTHON, Dialect, convert

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), texts
)
values = st.recursive(scalars, lambda inner: st.one_of(st.lists(inner), st.dictionaries(texts, inner)), max_leaves=12)


def value_of(text: str, dialect: Dialect) -> Any:
    """Return the value of a text in a dialect."""
    converted = convert(text, dialect)
    assert converted is not None
    return json.loads(converted)


@settings(deadline=None)
@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_json_stays_as_it_was_written(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert convert(text, JSON) == text


@settings(deadline=None)
@given(values)
def test_python_literals_become_json(value: Any) -> None:
    assert value_of(repr(value), PYTHON) == value


@settings(deadline=None)
@given(st.text(alphabet="{}[]\",:\\ue10.-+ntfals \n'", max_size=30))
def test_what_comes_out_of_any_text_is_json(text: str) -> None:
    for dialect in (JSON, PYTHON, GEMMA):
        converted = convert(text, dialect)
        if converted is not None:
            json.loads(converted)
    try:
        json.loads(text)
    except ValueError:
        return
    assert convert(text.strip(" \n\t\r"), JSON) is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"don\'t \d \x"', "don't \\d \\x"),
        ('"a\nb\tc\x00"', "a\nb\tc\x00"),
        (r'"\u00e9\ud83d\ude00 \u12"', "é😀 \\u12"),
        ("[1, 2, ]", [1, 2]),
        ('{"a": 1,\n}', {"a": 1}),
    ],
)
def test_slips_in_json_are_mended(text: str, value: Any) -> None:
    assert value_of(text, JSON) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1,,2]", "[,]", '{"a"}', '{"a": }', "{1: 2}", "01", "1.", "+1", "True", "nul", "'a'", '"a', "[1}"),
        *("1 2", "NaN", "Infinity", "{a: 1}", "(1,)", '"a" "b"', "}"),
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    assert convert(text, JSON) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1, 'a')", [1, "a"]),
        ("{'a': (1,), \"b\": None}", {"a": [1], "b": None}),
        (r"'\x41\u00e9\U0001F600\'\n\\ \q'", "Aé😀'\n\\ \\q"),
        ("[true, null, True]", [True, None, True]),
        ("0x1F", 31),
        ("1_000", 1000),
        ("+.5", 0.5),
        ("{1: 2}", {"1": 2}),
    ],
)
def test_python_notation_is_read(text: str, value: Any) -> None:
    assert value_of(text, PYTHON) == value


@pytest.mark.parametrize(
    "text", ["nan", "inf", "f()", "a", "b'x'", "1 + 1", r"'\ud800'[0]", r"'\U00110000'", "'a' 'b'"]
)
def test_python_that_is_no_literal_is_refused(text: str) -> None:
    assert convert(text, PYTHON) is None


def test_gemma_notation_is_read() -> None:
    text = r'{a:<|"|>x "y" \n <| z<|"|>,b:[1,{c:null}],d:true,e:{},f:"q\n\"r"}'
    assert value_of(text, GEMMA) == {
        "a": 'x "y" \\n <| z',
        "b": [1, {"c": None}],
        "d": True,
        "e": {},
        "f": 'q\n"r',
    }
    assert value_of("{a:<escape>x<escape>,b:1}", FUNCTION_GEMMA) == {"a": "x", "b": 1}


@pytest.mark.parametrize("dialect", [JSON, PYTHON, GEMMA])
def test_depth_has_a_limit(dialect: Dialect) -> None:
    assert convert("[" * MAX_DEPTH + "]" * MAX_DEPTH, dialect) == "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert convert("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), dialect) is None


def test_digits_without_end_are_refused() -> None:
    assert convert("9" * 5000, PYTHON) is None
    assert convert("0x" + "f" * 3900, PYTHON) is None
