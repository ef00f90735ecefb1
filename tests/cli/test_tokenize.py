"""`llamacy tokenize` against the toy vocabulary, which is exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers import FIRST_BYTE, data, toy_tokens

from .conftest import Run

MODEL = ("--model", str(data("target.gguf")))


@pytest.mark.parametrize("text", ["hello.", "héllo wörld", "日本語", "🦙", "a\nb", "  two  "])
def test_ids_of_text_are_those_of_the_vocabulary(run: Run, text: str) -> None:
    done = run("tokenize", text, "--ids", *MODEL, env={"PYTHONIOENCODING": "utf-8"})
    assert json.loads(done.stdout) == toy_tokens(text)


def test_stdin_of_any_bytes_is_tokenized(run: Run) -> None:
    done = run("tokenize", "--ids", *MODEL, input=b"a\xff\xfe\x80")
    assert json.loads(done.stdout) == [
        *toy_tokens("a"),
        FIRST_BYTE + 0xFF,
        FIRST_BYTE + 0xFE,
        FIRST_BYTE + 0x80,
    ]


def test_argument_of_any_bytes_is_tokenized(run: Run) -> None:
    done = run("tokenize", b"a\xff", "--ids", *MODEL)
    assert json.loads(done.stdout) == [*toy_tokens("a"), FIRST_BYTE + 0xFF]


def test_file_is_read_as_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a\n")
    done = run("tokenize", "--file", str(tmp_path / "text"), "--ids", *MODEL)
    assert json.loads(done.stdout) == toy_tokens("a\n")


def test_count_and_no_bos(run: Run) -> None:
    assert int(run("tokenize", "abc", "--count", *MODEL).stdout) == len(toy_tokens("abc"))
    assert int(run("tokenize", "abc", "--count", "--no-bos", *MODEL).stdout) == len(toy_tokens("abc")) - 1


def test_table_shows_pieces_and_totals(run: Run) -> None:
    lines = run("tokenize", "a.", *MODEL).stdout.decode().splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [str(token) for token in toy_tokens("a.")]
    assert lines[-1] == "4 tokens, 2 bytes"
    assert lines[2].split() == ["261", "'a'"]


def test_json_has_bytes_of_broken_characters(run: Run) -> None:
    shown = json.loads(run("tokenize", "--json", *MODEL, input="ö".encode()).stdout)
    assert shown["n_tokens"] == len(toy_tokens("ö"))
    assert [entry["bytes"] for entry in shown["tokens"]][-2:] == ["c3", "b6"]
    assert shown["tokens"][-1]["piece"] is None


def test_special_tokens_can_be_taken_as_text(run: Run) -> None:
    assert 2 in json.loads(run("tokenize", "</s>", "--ids", *MODEL).stdout)
    assert 2 not in json.loads(run("tokenize", "</s>", "--ids", "--no-special", *MODEL).stdout)
