"""Trees as text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamacy.errors import GrammarError
from llamacy.grammar.charset import ANY, NONE, CharSet
from llamacy.grammar.emit import emit
from llamacy.grammar.parse import parse
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules, Token

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
SETS = st.lists(st.tuples(*[st.characters(exclude_categories=["Cs"])] * 2), min_size=1, max_size=3).map(
    lambda pairs: CharSet.of(*[(min(pair), max(pair)) for pair in pairs])
)
LEAVES: st.SearchStrategy[Node] = st.one_of(
    TEXTS,
    SETS,
    SETS.map(lambda characters: ~characters).filter(bool),
    st.just(ANY),
    st.just(Ref("root")),
    st.builds(Token, st.integers(0, 1000), st.booleans()),
)


def _sequence(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else tuple(parts)


def _nodes(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    # a parser keeps no sequence in a sequence, no choice in a choice, and no repetition that says "once"
    return st.one_of(
        st.lists(inner.filter(lambda node: type(node) is not tuple), min_size=2, max_size=3).map(_sequence),
        st.lists(inner.filter(lambda node: type(node) is not Choice), min_size=2, max_size=3).map(Choice),
        st.tuples(inner, st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3)))
        .filter(lambda parts: parts[2] is None or parts[2] >= max(parts[1], 1))
        .filter(lambda parts: parts[1:] != (1, 1))
        .map(lambda parts: Repeat(*parts)),
    )


@given(st.recursive(LEAVES, _nodes, max_leaves=8))
def test_parsed_text_of_a_tree_is_the_tree(node: Node) -> None:
    rules = Rules("root", {"root": ("x", node) if type(node) is not tuple else ("x", *node)})
    text = emit(rules)
    found = refusal = None
    try:
        found = parse(text)
    except GrammarError as error:
        refusal = str(error)
    # a tree may say what llama.cpp refuses; its text must be readable all the same
    assert refusal is None or "expected" not in refusal
    assert found is None or dict(found.rules) == dict(rules.rules)


def test_empty_text_is_written_so_that_the_next_rule_stays_one() -> None:
    text = emit(Rules("root", {"root": (Ref("a"), "x"), "a": (), "b": Choice(("y", ())), "c": "z"}))
    assert text == 'root ::= a "x"\na ::= ""\nb ::= "y" | ""\nc ::= "z"\n'


def test_empty_set_is_refused() -> None:
    with pytest.raises(ValueError, match="empty set"):
        emit(Rules("root", {"root": NONE}))


def test_negated_set_of_other_characters_is_spelled_out() -> None:
    # llama.cpp refuses all characters that begin with the first byte of one in a negated set
    text = emit(Rules("root", {"root": ~CharSet.of("é")}))
    assert "^" not in text
