"""GBNF text as trees: each construct, what is refused and where, and text and trees back and forth."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.errors import GrammarError, GrammarSyntaxError
from llamacy.grammar.charset import ANY, NONE, CharSet
from llamacy.grammar.emit import emit
from llamacy.grammar.parse import parse
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules, Token
from tests.helpers import vendor_dir


def body(text: str) -> Node:
    """Return the tree of what a rule says; it may use the rules a, b and c."""
    return parse(f'a ::= "A"\nb ::= "B"\nc ::= "C"\nroot ::= {text}').rules["root"]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ('"abc"', "abc"),
        ('"abc" "d"', ("abc", "d")),
        ('"\\t\\r\\n\\\\\\"\\[\\]\\-"', '\t\r\n\\"[]-'),
        ('"\\x41\\u00e9\\u2603\\U0001F600"', "A\u00e9\u2603\U0001f600"),
        ('"é☃😀"', "é☃😀"),
        ('"\\x00"', "\0"),
        ('""', ()),
        ('"x" "" "y"', ("x", "y")),
        ("[]", ()),
        ("[^]", ()),
        ("", ()),
        ("()", ()),
        ('"x" () "y"', ("x", (), "y")),
        ("[a-z]", CharSet.of(("a", "z"))),
        ("[a-zA-Z_]", CharSet.of(("a", "z"), ("A", "Z"), "_")),
        ("[-a]", CharSet.of("-a")),
        ("[a-]", CharSet.of("a-")),
        ("[+--]", CharSet.of(("+", "-"))),
        ("[a-c-e]", CharSet.of("abc-e")),
        ("[\\]\\[\\-\\\\^]", CharSet.of("][-\\^")),
        ("[[]", CharSet.of("[")),
        ('["]', CharSet.of('"')),
        ("[^a]", ~CharSet.of("a")),
        ("[^^]", ~CharSet.of("^")),
        ("[\\x41-\\x43]", CharSet.of("ABC")),
        ("[a-z\\n #]", CharSet.of(("a", "z"), "\n #")),
        ("[z-a]", NONE),
        ("[\\uD800-\\uDFFF]", NONE),
        ("[\\x00-\\U7FFFFFFF]", ANY),
        (".", ANY),
        ("a", Ref("a")),
        ("a b", (Ref("a"), Ref("b"))),
        ("a | b", Choice((Ref("a"), Ref("b")))),
        ("a | b c |", Choice((Ref("a"), (Ref("b"), Ref("c")), ()))),
        ("| a", Choice(((), Ref("a")))),
        ("(a)", Ref("a")),
        ("((a))", Ref("a")),
        ("(a b)", (Ref("a"), Ref("b"))),
        ("(a | b) c", (Choice((Ref("a"), Ref("b"))), Ref("c"))),
        ("((a | b) | c)", Choice((Choice((Ref("a"), Ref("b"))), Ref("c")))),
        ("a (b c)", (Ref("a"), (Ref("b"), Ref("c")))),
        ("a*", Repeat(Ref("a"), 0)),
        ("a+", Repeat(Ref("a"), 1)),
        ("a?", Repeat(Ref("a"), 0, 1)),
        ("a{3}", Repeat(Ref("a"), 3, 3)),
        ("a{3,}", Repeat(Ref("a"), 3)),
        ("a{3,5}", Repeat(Ref("a"), 3, 5)),
        ("a { 3 , 5 }", Repeat(Ref("a"), 3, 5)),
        ("a{0003}", Repeat(Ref("a"), 3, 3)),
        ("a{0}", Repeat(Ref("a"), 0, 0)),
        ("a{1}", Ref("a")),
        ("a{1,1}{2}", Repeat(Ref("a"), 2, 2)),
        ("a *", Repeat(Ref("a"), 0)),
        ("a*?", Repeat(Repeat(Ref("a"), 0), 0, 1)),
        ('"ab"+', Repeat("ab", 1)),
        ("(a b)+", Repeat((Ref("a"), Ref("b")), 1)),
        ("a b*", (Ref("a"), Repeat(Ref("b"), 0))),
        ("<think>", Token("<think>")),
        ("!<|end|>", Token("<|end|>", True)),
        ("<[42]>", Token(42)),
        ("!<[42]>", Token(42, True)),
        ("<a b\n>", Token("<a b\n>")),
        ('"#" # comment "x"', "#"),
        ('(\n"x" # comment )\n\n | \r\n "y"\n)', Choice(("x", "y"))),
        ("(a\n{\n2\n,\n3\n}\n)", Repeat(Ref("a"), 2, 3)),
        ('"x" |\n  "y"', Choice(("x", "y"))),
        ('\n# what\n  "x"', "x"),
        ("a\t|\tb", Choice((Ref("a"), Ref("b")))),
    ],
)
def test_construct_becomes_its_tree(text: str, tree: Node) -> None:
    assert body(text) == tree
    assert type(body(text)) is type(tree)


def test_rules_keep_their_order_and_their_names() -> None:
    text = '\n\n# first\nroot ::= z-9 | A\r\n\r\nz-9 ::= "z"\r0A ::= "x"#end\nA ::= 0A'
    rules = parse(text)
    assert list(rules.rules) == ["root", "z-9", "0A", "A"]
    assert parse(text, "z-9").root == "z-9"
    assert {type(name) for name in rules.rules} == {str}


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("root", 1, 5, "::= is expected"),
        ("root :: = a", 1, 6, "::= is expected"),
        ("root ::= [", 1, 11, "ends inside"),
        ("root ::= [a-", 1, 13, "ends inside"),
        ('root ::= "a', 1, 12, "ends inside"),
        ('root ::= "a\n', 2, 1, "ends inside"),
        ('root ::= "\\q"', 1, 11, "unknown escape"),
        ('root ::= "\\', 1, 11, "unknown escape"),
        ("root ::= [\\w]", 1, 11, "unknown escape"),
        ('root ::= "\\x4"', 1, 11, "2 hexadecimal digits"),
        ('root ::= "\\u12g4"', 1, 11, "4 hexadecimal digits"),
        ('root ::= "\\U0000"', 1, 11, "8 hexadecimal digits"),
        ('root ::= "ab\\uD83D\\uDE00"', 1, 13, r"\\uD83D is no character"),
        ('root ::= "\\U00110000"', 1, 11, "is no character"),
        ('root ::= "a"{3,1}', 1, 13, "upper bound 1 is below the lower bound 3"),
        ('root ::= "a"{2001}', 1, 13, "more than 2000 repetitions"),
        ('root ::= "a"{0,2001}', 1, 13, "more than 2000 repetitions"),
        ('root ::= "a"{' + "9" * 10_000 + "}", 1, 13, "more than 2000 repetitions"),
        ('root ::= "a"{', 1, 14, "a number is expected"),
        ('root ::= "a"{2', 1, 15, "a , or } is expected"),
        ('root ::= "a"{2,x}', 1, 16, "a , or } is expected"),
        ('root ::= "a"{,3}', 1, 14, "a number is expected"),
        ("root ::= *", 1, 11, "nothing to repeat"),
        ('root ::= ""+', 1, 13, "nothing to repeat"),
        ('root ::= "a" | *', 1, 17, "nothing to repeat"),
        ('root ::= "a"{0}*', 1, 17, "nothing to repeat"),
        ('root ::= (+ "a")', 1, 13, "nothing to repeat"),
        ('root ::= ("a"', 1, 14, r"a \) is expected"),
        ('root ::= "a")', 1, 13, "a new line or the end"),
        ('root ::= "a" ]', 1, 14, "a new line or the end"),
        ('root ::= "a"\n| "b"', 2, 1, "a rule name"),
        ('root ::= "a"\n  root2 ::= b c\n\tb ::= "é☃" d\nc::="x"', 3, 13, "rule 'd' is not defined"),
        ('root ::= "a"\nroot ::= "b"', 2, 1, "rule 'root' is defined twice"),
        ("root ::= <[x]>", 1, 12, "a number is expected"),
        ("root ::= <[1>", 1, 13, "]> is expected"),
        ("root ::= <[4294967296]>", 1, 10, "no token 4294967296"),
        ("root ::= <nope", 1, 10, "this token has no >"),
        ("root ::= <" + "x" * 5000 + ">", 1, 10, "no text of 5002 bytes"),
        ("root ::= !x", 1, 11, "after !"),
        ('root_1 ::= "a"', 1, 5, "::= is expected"),
        ('root ::= "a" # \0', 1, 16, "NUL"),
        ("\0", 1, 1, "NUL"),
        ('root ::= "\ud800"', 1, 11, "surrogate"),
        ("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000, 1, 266, "more than 256 groups"),
        ("root ::= " + "(" * 257, 1, 266, "more than 256 groups"),
        ('root ::= "a"{50}{50}', 1, 21, "more than 2000"),
        ('root ::= "a"' + "?" * 300, 1, 270, "more than 256 repetitions of one thing"),
        ('root ::= "' + "a" * 2000 + '"{1000} "c"', 1, 2019, "too large"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_wrong_text_is_refused_where_it_is_wrong(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(GrammarSyntaxError, match=message) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_empty_text_is_refused(text: str) -> None:
    with pytest.raises(GrammarError, match="empty"):
        parse(text)


def test_missing_root_names_the_rules_that_there_are() -> None:
    with pytest.raises(GrammarError, match=r"no rule 'root' .* a, b-1"):
        parse('b-1 ::= "b"\na ::= "a"')
    for root in ("", "ro ot", "root\0"):
        with pytest.raises(GrammarError, match="no rule"):
            parse('root ::= "a"', root)


def test_upstream_grammars_are_read() -> None:
    files = sorted((vendor_dir() / "grammars").glob("*.gbnf"))
    assert len(files) > 5
    for file in files:
        rules = parse(file.read_text(encoding="utf-8"))
        assert parse(emit(rules)) == rules


def test_long_text_is_read() -> None:
    text = "root ::= " + " ".join(["(a)*"] * 5_000) + '\na ::= "x"' + "\n# comment" * 50_000
    assert parse(text).rules["root"] == (Repeat(Ref("a"), 0),) * 5_000


# text and trees back and forth

# what random rules often are
USELESS = ("begins with itself", "never ends", "never comes", "inside each other")

names = st.sampled_from(["root", "a", "b-1", "C0"])
characters = st.characters(exclude_categories=["Cs"])
literals = st.text(characters, min_size=1, max_size=4)
ranges = st.tuples(characters, characters).map(lambda pair: (min(pair), max(pair)))
charsets = st.lists(ranges, min_size=1, max_size=4).map(lambda parts: CharSet.of(*parts))
tokens = st.builds(
    Token,
    st.integers(0, 2**31 - 1) | st.text(string.ascii_letters + "|_ /", max_size=8).map(lambda text: f"<{text}>"),
    st.booleans(),
)
bounds = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)).map(
    lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
)


def bigger(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return nodes of nodes in the form that the parser gives them."""
    several = st.lists(nodes, min_size=2, max_size=3)
    repeatable = nodes.filter(lambda node: not (isinstance(node, Repeat) and node.maximum == 0))
    return (
        several.map(tuple)
        | several.map(Choice)
        | st.tuples(repeatable, bounds.filter(lambda pair: pair != (1, 1))).map(lambda it: Repeat(it[0], *it[1]))
    )


trees = st.recursive(literals | charsets | tokens | names.map(Ref) | st.just(()), bigger, max_leaves=12)


@settings(deadline=None, max_examples=300)
@given(st.lists(trees, min_size=4, max_size=4))
def test_tree_comes_back_from_its_text(nodes: list[Node]) -> None:
    rules = Rules("root", dict(zip(["root", "a", "b-1", "C0"], nodes, strict=True)))
    text = emit(rules)
    try:
        back = parse(text)
    except GrammarSyntaxError as error:
        if not any(part in str(error) for part in USELESS):
            raise
        return
    assert back == rules
    assert emit(back) == text


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from('rot:=ab "[]()|*+?{}0123,.\\x<>!^-#\n\r\t\0é'), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, "root ::= " + text):
        try:
            rules = parse(whole)
        except GrammarError:
            continue
        assert parse(emit(rules)) == parse(whole)
