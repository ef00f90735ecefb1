"""The grammars that come with the package are what their names say, by the word of others."""

from __future__ import annotations

import ast
import json
import math
import random
import re
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.errors import GrammarError
from llamacy.grammar import Grammar
from llamacy.grammar.builtin import NAMES
from llamacy.grammar.parse import parse
from tests.grammar.native import native_matches
from tests.grammar.writer import random_text


def random_texts(name: str, n: int, budget: int = 80) -> list[str]:
    rules = parse(Grammar.builtin(name).text)
    return [random_text(rules, random.Random(seed), budget) for seed in range(n)]


@pytest.mark.parametrize("name", NAMES)
def test_grammar_is_one(name: str) -> None:
    grammar = Grammar.builtin(name)
    assert grammar == Grammar.from_string(grammar.text)
    for text in random_texts(name, 20):
        assert grammar.matches(text), text


@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_takes_the_grammar(name: str, target_model: Any) -> None:
    text = Grammar.builtin(name).text
    for written in random_texts(name, 5):
        assert native_matches(target_model.vocab, text, written), written
        assert not native_matches(target_model.vocab, text, written + "\v")


def test_unknown_name_lists_those_that_there_are() -> None:
    with pytest.raises(GrammarError, match="no grammar 'JSON'; there are arithmetic, c, chess"):
        Grammar.builtin("JSON")


@pytest.mark.parametrize("name", NAMES)
def test_blanks_and_digits_come_to_an_end(name: str) -> None:
    grammar = Grammar.builtin(name)
    text = max(random_texts(name, 10, 40), key=len)
    for at in range(len(text) + 1):
        for run in (" " * 200, "\n" * 200, "\t" * 200, " \n" * 100):
            # what stands in quotes may say anything, and no one indents for ever after a line break
            if grammar.accepts_prefix(text[:at] + run):
                assert name in ("json", "json_array", "json_object", "c", "list")
                assert in_text(name, text[:at])
        if name not in ("list", "english", "japanese") and grammar.accepts_prefix(text[:at] + "7" * 200):
            assert in_text(name, text[:at]) or (name == "c" and re.search(r"[A-Za-z_][A-Za-z0-9_/]*$", text[:at]))


def in_text(name: str, text: str) -> bool:
    """Say whether a text ends inside of a string, a comment or a line of a list."""
    if name == "list":
        return text.rpartition("\n")[2].startswith("- ")
    if name == "c":
        text = re.sub(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\]|\\.)+\'|/\*.*?\*/|//[^\n]*\n', "", text, flags=re.DOTALL)
        return '"' in text or "//" in text or "/*" in text
    return '"' in re.sub(r'"(?:[^"\\]|\\.)*"', "", text)


# JSON

# json.dumps writes U+007F as it is
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=6)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=150)
@given(values)
def test_json_has_what_others_write(value: Any) -> None:
    spellings = {json.dumps(value), json.dumps(value, separators=(",", ":")), json.dumps(value, indent=2)}
    for text in spellings:
        assert Grammar.json().matches(text), Grammar.json().explain(text)
        assert Grammar.json_object().matches(text) is isinstance(value, dict)
        assert Grammar.builtin("json_array").matches(text) is isinstance(value, list)


@pytest.mark.parametrize("name", ["json", "json_object", "json_array"])
def test_json_is_read_by_others(name: str) -> None:
    kind = {"json": object, "json_object": dict, "json_array": list}[name]
    for text in random_texts(name, 300):
        value = json.loads(text)
        assert isinstance(value, kind)
        json.dumps(value, ensure_ascii=False).encode()  # no half of a surrogate pair
        assert all(math.isfinite(number) for number in numbers(value))


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [float(value)] if isinstance(value, (int, float)) else []


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[1,]", '{"a":1,}', "{'a':1}", "{a:1}", "01", "1.", ".5", "+1", "NaN", "Infinity", "- 1", "0x10",
        "True", '"\t"', '"\x7f"', '"\\x41"', '"\\ud83d"', '"\\ude00"', '"\\ud83d\\u0041"', "[1 2]", '{"a" 1}', "1 ",
        " 1", "1e400", '"a" "b"', '{"a":1}}', "[1]\n", "// x\n1", '"\\u12"',
    ],
)  # fmt: skip
def test_json_has_nothing_else(text: str) -> None:
    assert not Grammar.json().matches(text)


@pytest.mark.parametrize("text", ['"\\ud83d\\ude00"', '"\\u00e9\\/\\b"', '"😀"', '"\\uD7FF\\uE000"', "-0.5E+10"])
def test_json_has_every_way_to_write_a_character(text: str) -> None:
    json.loads(text)
    assert Grammar.json().matches(text)


# others


def test_arithmetic_is_what_python_can_calculate() -> None:
    allowed = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Constant)
    for text in random_texts("arithmetic", 300):
        assert all(isinstance(node, allowed) for node in ast.walk(ast.parse(text, mode="eval"))), text


expressions = st.recursive(
    st.integers(0, 10**6).map(str) | st.decimals(0, 1000, places=3).map(str),
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join)
        | st.tuples(inner, st.sampled_from("+-*/"), inner).map("".join)
        | inner.map("({})".format)
        | inner.map("-({})".format)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=100)
@given(expressions)
def test_arithmetic_has_every_expression(text: str) -> None:
    assert Grammar.builtin("arithmetic").matches(text)
    for wrong in (text + "+", text + " 1", "(" + text, text + ")", "*" + text, text + "//1", text + "**2", "x" + text):
        assert not Grammar.builtin("arithmetic").matches(wrong), wrong


C_SOURCE = """\
#include <stdio.h>
#include "list.h"

/* The greatest
   common divisor. */
int gcd(int a, int b) {
    while (b != 0) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

double table[100];

void fill(double *values, unsigned int n, void *unused) {
    for (int i = 0; i < n; i++) {
        values[i] = i > 0 ? values[i - 1] * 1.5 : -1.0; // grows
        if (values[i] >= 0xFF && !(i & 1)) {
            printf("%d: \\"%f\\"\\n", i, values[i]);
        } else if (i == 3) {
            *values += gcd(i, 12) << 2;
        } else {
            do {
                n--;
            } while (n > 50);
        }
    }
}

int main(void) {
    fill(table, 100, &table);
    char c = '\\n';
    return 0;
}
"""


def syntax_errors(source: str) -> list[str]:
    """Return what a C compiler says of the syntax of a source, not of what its names mean."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc, whose messages are known")
    source = re.sub(r"^#include.*$", "", source, flags=re.MULTILINE)
    command = [compiler, "-fsyntax-only", "-w", "-fmax-errors=0", "-x", "c", "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True, env={"LC_ALL": "C"})
    syntax = re.compile(r"error: (?:expected|stray|missing|unterminated|invalid suffix|empty character|unknown type)")
    return [line for line in result.stderr.splitlines() if syntax.search(line)]


def test_c_has_usual_source() -> None:
    grammar = Grammar.builtin("c")
    assert grammar.matches(C_SOURCE), grammar.explain(C_SOURCE)
    assert syntax_errors(C_SOURCE) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return a;", "return a"),
        ("int rest = a % b;", "int while = a % b;"),
        ("int gcd(int a, int b) {", "int gcd(int a int b) {"),
        ("b = rest;", "b = = rest;"),
        ("'\\n'", "''"),
        ("while (b != 0) {", "while b != 0 {"),
        ("else if (i == 3)", "elseif (i == 3)"),
        ("common divisor. */", "common divisor."),
        ("a = b;", "a = (b;"),
        ("i < n;", "i < ;"),
    ],
)
def test_c_has_no_source_that_a_compiler_cannot_read(before: str, after: str) -> None:
    source = C_SOURCE.replace(before, after, 1)
    assert source != C_SOURCE
    assert not Grammar.builtin("c").matches(source)
    assert syntax_errors(source)


def test_c_is_read_by_a_compiler() -> None:
    for text in random_texts("c", 60, 150):
        assert syntax_errors(text) == [], text


OPERA_GAME = (
    "1. e4 e5 2. Nf3 d6 3. d4 Bg4 4. dxe5 Bxf3 5. Qxf3 dxe5 6. Bc4 Nf6 7. Qb3 Qe7 8. Nc3 c6 9. Bg5 b5 10. Nxb5 cxb5 "
    "11. Bxb5+ Nbd7 12. O-O-O Rd8 13. Rxd7 Rxd7 14. Rd1 Qe6 15. Bxd7+ Nxd7 16. Qb8+ Nxb8 17. Rd8# 1-0"
)


def test_chess_has_a_famous_game_and_each_kind_of_move() -> None:
    chess = Grammar.builtin("chess")
    assert chess.matches(OPERA_GAME)
    moves = OPERA_GAME.split(" ")
    for n in range(1, len(moves)):
        assert chess.matches(" ".join(moves[:n])) is not moves[n - 1].endswith(".")
    for move in ("e8=Q", "exd8=N+", "O-O", "R1a3", "Nbd2", "Qh4xe1", "Kxe2", "a3", "hxg7", "Qe1#"):
        assert chess.matches(f"1. {move} 1/2-1/2"), move
    for move in ("e1=Q", "e4xd5", "axc5", "e9", "i4", "e8", "e1", "e7=Q", "Pe4", "exe5", "K1e2", "o-o", "e4!", "hxi6"):
        assert not chess.matches(f"1. {move} 1-0"), move
    assert chess.matches("1. e4 d1=Q")
    assert not chess.matches("1. e4 d8=Q")
    assert not chess.matches("1. e4 e5 3. d4")
    assert not chess.matches("2. e4")


def test_list_is_one_of_markdown() -> None:
    grammar = Grammar.builtin("list")
    assert grammar.matches("- one")
    assert grammar.matches("- one\n- two ☃\n")
    for wrong in ("", "one", "-one", "- ", "-  one", "- one\ntwo", "- one\n\n- two", "* one", "- one\n-"):
        assert not grammar.matches(wrong), wrong


def test_languages_are_of_their_letters() -> None:
    english, japanese = Grammar.builtin("english"), Grammar.builtin("japanese")
    for text in ("It’s a naïve café – isn't it? (100 %)", "One.\nTwo.\n\nThree: “four”…"):
        assert english.matches(text), english.explain(text)
        assert not japanese.matches(text)
    for text in ("吾輩は猫である。名前はまだ無い。", "「カタカナ」と　ひらがな、２０２６年\n人々ー！", "3月4日〜"):
        assert japanese.matches(text), japanese.explain(text)
        assert not english.matches(text)
    for wrong in ("two  blanks", "привет", " x", "x ", "a\n\n\nb", "a\tb", ""):
        assert not english.matches(wrong)
        assert not japanese.matches(wrong)
