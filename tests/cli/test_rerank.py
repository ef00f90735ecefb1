"""`llamacy rerank` against scores computed one by one."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.vectors import vectors_one_by_one

from .conftest import Run, one_error_line
from .test_embed import interrupted_command

QUERY = "a b"
DOCUMENTS = ["c d e", "a", "", "é é", "z z z z", "a b c", "c d e"]


def pair(model: Path, query: str, document: str) -> list[int]:
    from llamacy.core.model import Model

    with Model(model, vocab_only=True) as loaded:
        vocab = loaded.vocab
        first, second = (vocab.tokenize(text, add_special=False).tolist() for text in (query, document))
        return [vocab.bos, *first, vocab.sep, *second, vocab.sep]


@pytest.fixture(scope="module")
def expected(rank_path: Path) -> Any:
    return vectors_one_by_one(rank_path, [pair(rank_path, QUERY, document) for document in DOCUMENTS])[:, 0]


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    path = tmp_path / "documents.txt"
    path.write_text("".join(f"{document}\n" for document in DOCUMENTS), encoding="utf-8")
    return path


def rerank(run: Run, model: Path, *arguments: str, **options: Any) -> Any:
    return run("rerank", "-m", str(model), "-t", "1", "-q", *arguments, **options)


def records_of(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_documents_are_written_best_first(run: Run, rank_path: Path, expected: Any, documents: Path) -> None:
    rows = records_of(rerank(run, rank_path, str(documents), "--query", QUERY, "--keep", "text").stdout)
    assert [row["index"] for row in rows] == np.argsort(-expected, kind="stable").tolist()
    assert [row["text"] for row in rows] == [DOCUMENTS[row["index"]] for row in rows]
    np.testing.assert_allclose([row["score"] for row in rows], expected[[row["index"] for row in rows]], atol=1e-5)


def test_top_n_and_sigmoid_into_a_file(
    run: Run, rank_path: Path, expected: Any, documents: Path, tmp_path: Path
) -> None:
    target = tmp_path / "best.jsonl"
    rerank(run, rank_path, str(documents), "--query", QUERY, "--top-n", "2", "--sigmoid", "-o", str(target))
    rows = records_of(target.read_bytes())
    best = np.argsort(-expected, kind="stable")[:2]
    assert [row["index"] for row in rows] == best.tolist()
    np.testing.assert_allclose([row["score"] for row in rows], 1 / (1 + np.exp(-expected[best])), atol=1e-5)
    arguments = (str(documents), "--query", QUERY, "-o", str(target))
    assert "--force" in one_error_line(rerank(run, rank_path, *arguments, check=False))
    rerank(run, rank_path, *arguments, "--force")
    assert len(records_of(target.read_bytes())) == len(DOCUMENTS)


@pytest.mark.parametrize("kind", ["npy", "jsonl"])
def test_pairs_are_scored_in_their_order(run: Run, rank_path: Path, tmp_path: Path, kind: str) -> None:
    rows = [{"q": f"{'abc'[number % 3]} b", "body": document} for number, document in enumerate(DOCUMENTS)]
    source, target = tmp_path / "pairs.jsonl", tmp_path / f"out.{kind}"
    source.write_text("\n".join(map(json.dumps, rows)))
    rerank(run, rank_path, str(source), "--query-field", "q", "--field", "body", "-o", str(target))
    wanted = vectors_one_by_one(rank_path, [pair(rank_path, row["q"], row["body"]) for row in rows])[:, 0]
    if kind == "npy":
        found = np.load(target)
        assert (found.shape, found.dtype) == ((len(rows),), np.float32)
    else:
        assert [row["index"] for row in records_of(target.read_bytes())] == list(range(len(rows)))
        found = [row["score"] for row in records_of(target.read_bytes())]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_interrupted_scores_go_on(run: Run, rank_path: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "pairs.jsonl", tmp_path / "out.npy"
    n_rows = 12_000
    rows = [{"q": f"a {'b ' * (number % 5)}", "text": "c d " * (number % 7)} for number in range(n_rows)]
    source.write_text("\n".join(map(json.dumps, rows)))
    command = ["rerank", str(source), "--query-field", "q", "-m", str(rank_path), "-o", str(target), "-t", "1"]
    status, said = interrupted_command(command, target, signal.SIGINT)
    assert status == 130, said
    assert "--resume goes on" in said
    run(*command, "--resume", "-q")
    run(*command[:6], "-o", str(tmp_path / "whole.npy"), "-t", "1", "-q")
    assert np.load(target).shape == (n_rows,)
    whole = np.load(tmp_path / "whole.npy")
    assert np.abs(whole[1:] - whole[:-1]).mean() > 0.05
    np.testing.assert_array_equal(np.load(target), whole)


@pytest.mark.parametrize(
    ("arguments", "text", "expected"),
    [
        (["--query", "a", "--resume", "-o", "x.jsonl"], b"a", "--resume is for pairs"),
        (["--query", "a", "-o", "x.npy"], b"a", "JSON lines"),
        (["--query", "a", "--output-format", "parquet"], b"a", "JSON lines"),
        (["--query", "a", "--keep", "score", "--input-format", "jsonl"], b"", "a field 'score' can't be kept"),
        (["--query-field", "q", "--top-n", "1"], b"", "--top-n is for one query"),
        (["--query-field", "q"], b"", "--input-format jsonl"),
        (["--query", "a"], b"b\n" * 20 + b"c " * 100, "document 20 and the query have 104 tokens, but at most 64"),
        (["--query", "a " * 100, "--truncate"], b"b", "can be computed; shorten it, or use"),
        (["--query", "a", "--label", "x"], b"b", "label0"),
        (["--query", "a", "--template", "{query}"], b"b", "{document}"),
    ],
)
def test_what_cannot_be_is_one_line(
    run: Run, rank_path: Path, tmp_path: Path, arguments: list[str], text: bytes, expected: str
) -> None:
    done = rerank(run, rank_path, *arguments, input=text, check=False, cwd=tmp_path)
    assert expected in one_error_line(done)
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


@pytest.mark.parametrize("mode", [("--query", "a"), ("--query-field", "q")])
@pytest.mark.parametrize(("option", "said"), [("--label", "label0"), ("--template", "{document}")])
def test_wrong_option_is_told_before_rows_are_counted(
    run: Run, rank_path: Path, tmp_path: Path, mode: tuple[str, str], option: str, said: str
) -> None:
    source = tmp_path / "pairs.jsonl"
    source.write_text('{"q": "a", "text": "b"}\n')
    # without -q: a bar would be a line of its own
    done = run("rerank", str(source), "-m", str(rank_path), "-t", "1", *mode, option, "{query}", check=False)
    assert said in one_error_line(done)


def test_resume_of_what_is_whole_says_so(run: Run, rank_path: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "pairs.jsonl", tmp_path / "out.npy"
    source.write_text('{"q": "a", "text": "b"}\n')
    command = (str(source), "--query-field", "q", "-o", str(target), "--resume")
    rerank(run, rank_path, *command)
    message = one_error_line(rerank(run, rank_path, *command, check=False))
    assert message.startswith(f"{target} is there, and no interrupted run to go on with")


@pytest.mark.parametrize("mode", [("--query", "a"), ("--query-field", "q")])
def test_input_is_not_overwritten(run: Run, rank_path: Path, tmp_path: Path, mode: tuple[str, str]) -> None:
    source = tmp_path / "pairs.jsonl"
    source.write_text('{"q": "a", "text": "b"}\n')
    (tmp_path / "link.jsonl").symlink_to(source)
    for target in (source, tmp_path / "link.jsonl"):
        done = rerank(run, rank_path, str(source), *mode, "-o", str(target), "--force", check=False)
        assert "is the input too" in one_error_line(done)
    assert source.read_text() == '{"q": "a", "text": "b"}\n'


@pytest.mark.skipif(sys.platform == "win32", reason="limits are those of POSIX")
def test_ranking_that_can_not_be_written_leaves_nothing(run: Run, rank_path: Path, tmp_path: Path) -> None:
    import resource

    target = tmp_path / "best.jsonl"
    done = rerank(
        run, rank_path, "--query", "a", "-o", str(target), input=b"b\n" * 2000, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )  # fmt: skip
    assert one_error_line(done) == f"{target}: File too large"
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"q": "a", "text": "\udfff"}, "document 1 has a lone surrogate"),
        ({"q": "\ud800", "text": "b"}, "row 1: query has a lone surrogate"),
    ],
)
def test_pair_that_is_no_unicode_is_named(run: Run, rank_path: Path, row: dict[str, str], message: str) -> None:
    rows = "\n".join(map(json.dumps, [{"q": "a", "text": "b"}, row])).encode()
    arguments = ("--input-format", "jsonl", "--query-field", "q")
    assert message in one_error_line(rerank(run, rank_path, *arguments, input=rows, check=False))


def test_model_without_a_head_is_one_line(run: Run, bert_path: Path) -> None:
    done = rerank(run, bert_path, "--query", "a", input=b"a", check=False)
    assert "is no reranker" in one_error_line(done)


def test_query_is_needed(run: Run, rank_path: Path) -> None:
    done = rerank(run, rank_path, input=b"a", check=False)
    assert done.returncode == 2
    assert b"--query" in done.stderr
