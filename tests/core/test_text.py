"""The text assembler, against Python's own decoder and string search."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamacy.core.model import Model
from llamacy.core.text import TextAssembler
from llamacy.errors import ClosedError, TokenizeError
from tests.helpers import data, toy_tokens


@pytest.fixture(scope="module")
def vocab():
    with Model(data("llama.gguf"), vocab_only=True) as model:
        yield model.vocab


def assemble(vocab, pieces, stop=()):
    assembler = TextAssembler(vocab, stop)
    parts = [assembler.feed(piece) for piece in pieces]
    return [*parts, assembler.finish()], assembler


def expected_text(data: bytes, stop: list[str]) -> str:
    """Cut at the first of the stop strings in the bytes, then decode as Python does."""
    found = [data.find(text.encode()) for text in stop]
    found = [index for index in found if index >= 0]
    return data[: min(found)].decode("utf-8", "replace") if found else data.decode("utf-8", "replace")


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(borders)]


@given(st.text(), st.lists(st.integers(0, 10**6), max_size=8))
def test_feed_any_split_of_valid_text_gives_the_text(vocab, text, cuts):
    parts, _ = assemble(vocab, split(text.encode("utf-8", "surrogatepass"), cuts))
    assert "".join(parts) == text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


@given(st.binary(), st.lists(st.integers(0, 10**6), max_size=8))
def test_feed_any_split_of_any_bytes_gives_what_python_decodes(vocab, data, cuts):
    parts, _ = assemble(vocab, split(data, cuts))
    assert "".join(parts) == data.decode("utf-8", "replace")


@given(
    st.text(alphabet="ab€\n", max_size=40),
    st.lists(st.text(alphabet="ab€\n", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_feed_byte_by_byte_cuts_at_the_first_stop_string(vocab, text, stop):
    # one byte at a time, the stop string that is complete first wins, which is what a stream can know
    data = text.encode()
    parts, assembler = assemble(vocab, [data[i : i + 1] for i in range(len(data))], stop)
    ends = [data.find(s.encode()) + len(s.encode()) for s in stop if s.encode() in data]
    if not ends:
        assert "".join(parts) == text
        assert not assembler.stopped
        return
    end = min(ends)
    starts = [data[:end].find(s.encode()) for s in stop if s.encode() in data[:end]]
    assert "".join(parts) == data[: min(starts)].decode("utf-8", "replace")
    assert assembler.stopped


@given(st.text(alphabet="abc", max_size=30), st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3))
def test_feed_at_once_cuts_at_the_earliest_start(vocab, text, stop):
    parts, _ = assemble(vocab, [text.encode()], stop)
    assert "".join(parts) == expected_text(text.encode(), stop)


def test_feed_holds_back_no_more_than_a_possible_stop(vocab):
    assembler = TextAssembler(vocab, ["STOP"])
    assert assembler.feed(b"abcS") == "abc"
    assert assembler.feed(b"T") == ""
    assert assembler.feed(b"x") == "STx"
    assert assembler.feed(b"STO") == ""
    assert assembler.feed(b"P and more") == ""
    assert assembler.stop == "STOP"
    assert assembler.feed(b"more") == ""
    assert assembler.finish() == ""


def test_feed_emits_characters_whole(vocab):
    assembler = TextAssembler(vocab)
    assert [assembler.feed(bytes([byte])) for byte in "😀é".encode()] == ["", "", "", "😀", "", "é"]


def test_feed_token_equals_the_bytes_of_the_token(vocab):
    assembler = TextAssembler(vocab)
    tokens = toy_tokens("hé.", add_special=True)
    text = "".join(assembler.feed_token(token) for token in tokens) + assembler.finish()
    assert text == " hé."


def test_feed_token_special_spells_special_tokens(vocab):
    assert TextAssembler(vocab, special=True).feed_token(1) == "<s>"
    assert TextAssembler(vocab).feed_token(1) == ""


def spelled_text(tokens, spelling, stop):
    """Cut a text with special tokens in it when, after a token, a stop string is there; then leave them out.

    A stop string looks at the text with those special tokens that it spells, and has each of them as a whole.
    """
    visible = [(token, at) for token in tokens if token not in SPECIAL for at in range(len(spelling[token]))]
    for n in range(1, len(tokens) + 1):
        starts = []
        for text in stop:
            seen = [
                (number, at)
                for number, token in enumerate(tokens[:n])
                if token not in SPECIAL or spelling[token] in text
                for at in range(len(spelling[token]))
            ]
            view = "".join(spelling[tokens[number]][at] for number, at in seen)
            for start in range(len(view) - len(text) + 1):
                end = start + len(text)
                whole = seen[start][1] == 0 or tokens[seen[start][0]] not in SPECIAL
                whole &= end == len(seen) or seen[end][1] == 0 or tokens[seen[end][0]] not in SPECIAL
                if whole and view[start:end] == text:
                    starts.append(seen[start])
        if starts:
            kept = [
                spelling[token][at]
                for number, token in enumerate(tokens[:n])
                if token not in SPECIAL
                for at in range(len(spelling[token]))
                if (number, at) < min(starts)
            ]
            return "".join(kept), True
    return "".join(spelling[token][at] for token, at in visible), False


SPECIAL = {1: "<s>", 2: "</s>"}
PLAIN = {toy_tokens(letter, add_special=False)[1]: letter for letter in "ab<s>/"}


@given(
    st.lists(st.sampled_from([*SPECIAL, *PLAIN]), max_size=12),
    st.lists(
        st.lists(st.sampled_from(["<s>", "</s>", "a", "b", "s>", ">a", "s"]), min_size=1, max_size=3).map("".join),
        max_size=3,
    ),
)
def test_stop_string_finds_special_tokens_that_leave_no_text(vocab, tokens, stop):
    assembler = TextAssembler(vocab, stop, matched=SPECIAL)
    text = "".join(assembler.feed_token(token) for token in tokens) + assembler.finish()
    assert (text, assembler.stopped) == spelled_text(tokens, SPECIAL | PLAIN, stop)
    assert assembler.n_out == assembler.n_in or assembler.stopped


def test_stop_string_without_special_tokens_finds_the_same_beside_one_with_them(vocab):
    a, b = (toy_tokens(letter, add_special=False)[1] for letter in "ab")
    for stop, tokens, text in [("ab", [b, a, 1, b], "b"), ("s", [a, 1, b], "ab"), (">b", [a, 1, b, b], "abb")]:
        for stops in (stop,), (stop, "<s></s>"), ("<s></s>", stop):
            assembler = TextAssembler(vocab, stops, matched=[1, 2])
            assert "".join(map(assembler.feed_token, tokens)) + assembler.finish() == text
            assert assembler.stop == (stop if stop == "ab" else None)


def test_special_tokens_are_found_only_where_that_is_asked_for(vocab):
    assembler = TextAssembler(vocab, "</s>", matched=[1])
    assert assembler.feed_token(2) == ""
    assert not assembler.stopped


def test_feed_token_out_of_the_vocabulary_raises(vocab):
    for token in (-1, 288, 2**31 - 1):
        with pytest.raises(TokenizeError):
            TextAssembler(vocab).feed_token(token)


def test_feed_token_of_a_closed_model_raises():
    model = Model(data("llama.gguf"), vocab_only=True)
    assembler = TextAssembler(model.vocab)
    model.close()
    with pytest.raises(ClosedError):
        assembler.feed_token(5)


@pytest.mark.parametrize("stop", ["", ["a", ""], [b""]])
def test_empty_stop_string_raises(vocab, stop):
    with pytest.raises(ValueError, match="must not be empty"):
        TextAssembler(vocab, stop)


def test_vocab_is_required():
    with pytest.raises(TypeError):
        TextAssembler(None)


def test_a_long_text_costs_what_its_parts_cost(vocab):
    # a piece that never stops, against a stop string that always almost matches
    assembler = TextAssembler(vocab, ["a" * 50 + "b"])
    text = "".join(assembler.feed(b"a" * 10) for _ in range(5_000)) + assembler.finish()
    assert text == "a" * 50_000


CASES = Path(__file__).parent.parent / "data" / "streaming.json"


@pytest.mark.parametrize("case", json.loads(CASES.read_text()), ids=lambda case: case["id"])
def test_reported_fault_does_not_exist(vocab, case):
    pieces = [bytes.fromhex(piece) for piece in case["pieces_hex"]]
    parts, _ = assemble(vocab, pieces, case["stop"])
    text = "".join(parts)
    assert text in case["accept"]
    assert text not in case["reject"]
