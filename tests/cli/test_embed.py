"""`llamacy embed` against vectors computed one by one, with interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import data
from tests.helpers.vectors import unit, vectors_one_by_one

from .conftest import Run, one_error_line

TEXTS = ["a b c", "", "d", "é a b", "a b c d e f g", "z " * 40, "a b c", "x y\u2028z"]
N_EMBD = 32
# between a text alone and in company, with flash attention and random weights
ROUNDING = 5e-4


@pytest.fixture(scope="session")
def expected(bert_path: Path) -> Any:
    return unit(vectors_one_by_one(bert_path, TEXTS))


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_bytes("".join(f"{text}\n" for text in TEXTS).encode())
    return path


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    rows = [{"id": number, "text": text, "more": {"k": [number, None]}} for number, text in enumerate(TEXTS)]
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path


def embed(run: Run, model: Path, *arguments: str | bytes, **options: Any) -> Any:
    return run("embed", "-m", str(model), "-t", "1", *arguments, **options)


def test_lines_on_standard_input_give_json_lines(run: Run, bert_path: Path, expected: Any, lines: Path) -> None:
    done = embed(run, bert_path, "-q", input=lines.read_bytes())
    assert done.stderr == b""
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["index"] for row in rows] == list(range(len(TEXTS)))
    assert all(set(row) == {"index", "embedding"} for row in rows)
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=ROUNDING)


def test_lines_of_windows_and_without_an_end(run: Run, bert_path: Path, expected: Any) -> None:
    done = embed(run, bert_path, "-q", "-", input=b"\xef\xbb\xbfa b c\r\n\r\nd")
    rows = [json.loads(line)["embedding"] for line in done.stdout.splitlines()]
    np.testing.assert_allclose(rows, expected[:3], atol=ROUNDING)


def test_numpy_file_holds_all_vectors(run: Run, bert_path: Path, expected: Any, lines: Path, tmp_path: Path) -> None:
    done = embed(run, bert_path, str(lines), "-o", str(tmp_path / "out.npy"))
    assert b"8/8" in done.stderr
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=ROUNDING)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("out", ".out"))) == ["out.npy"]


def test_json_fields_are_kept(run: Run, bert_path: Path, expected: Any, records: Path, tmp_path: Path) -> None:
    embed(run, bert_path, str(records), "-o", str(tmp_path / "out.jsonl"), "--keep", "id", "--keep", "more", "-q")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [row["id"] for row in rows] == list(range(len(TEXTS)))
    assert rows[3]["more"] == {"k": [3, None]}
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=ROUNDING)


def test_fields_that_are_no_numbers_are_null_in_json(run: Run, bert_path: Path, tmp_path: Path) -> None:
    rows = b'{"text": "a", "k": NaN}\n{"text": "b", "k": {"x": [1.5, -Infinity, 1e999, "NaN"]}}\n'
    done = embed(run, bert_path, "--input-format", "jsonl", "--keep", "k", "-q", input=rows)
    kept = [json.loads(line, parse_constant=pytest.fail)["k"] for line in done.stdout.splitlines()]
    assert kept == [None, {"x": [1.5, None, None, "NaN"]}]


def test_json_strings_and_blank_lines_are_read(run: Run, bert_path: Path, expected: Any) -> None:
    done = embed(run, bert_path, "-q", "--input-format", "jsonl", input=b'"a b c"\n\n{"text": ""}\n')
    rows = [json.loads(line)["embedding"] for line in done.stdout.splitlines()]
    np.testing.assert_allclose(rows, expected[:2], atol=ROUNDING)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_arrow_is_read_and_written(run: Run, bert_path: Path, expected: Any, tmp_path: Path, suffix: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import datetime

    import pyarrow.parquet as pq

    days = [datetime.date(2024, 1, 1 + number) for number in range(len(TEXTS))]
    table = pa.table({"body": TEXTS, "day": days, "n": pa.array(range(len(TEXTS)), pa.int16())})
    source, target = tmp_path / f"in.{suffix}", tmp_path / "out.parquet"
    if suffix == "parquet":
        pq.write_table(table, source, row_group_size=3)
    else:
        new = pa.ipc.new_file if suffix == "arrow" else pa.ipc.new_stream
        with new(source, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    arguments = ("--field", "body", "--keep", "day", "--keep", "n", "-q")
    embed(run, bert_path, str(source), "-o", str(target), *arguments)
    found = pq.read_table(target)
    assert found.column_names == ["day", "n", "embedding"]
    assert found.schema.field("n").type == pa.int16()
    assert found.schema.field("embedding").type == pa.list_(pa.float32(), N_EMBD)
    assert found["day"].to_pylist() == days
    np.testing.assert_allclose(found["embedding"].to_pylist(), expected, atol=ROUNDING)
    done = embed(run, bert_path, str(source), *arguments)
    assert json.loads(done.stdout.splitlines()[1])["day"] == "2024-01-02"


def test_json_fields_become_parquet_columns(run: Run, bert_path: Path, records: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    embed(run, bert_path, str(records), "-o", str(tmp_path / "out.parquet"), "--keep", "id", "--keep", "text", "-q")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found["text"].to_pylist() == TEXTS
    assert found["id"].to_pylist() == list(range(len(TEXTS)))


@pytest.mark.parametrize("kind", ["npy", "jsonl", "parquet"])
def test_empty_input_gives_empty_output(run: Run, bert_path: Path, tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    embed(run, bert_path, "-o", str(tmp_path / f"out.{kind}"), "-q", input=b"")
    if kind == "npy":
        assert np.load(tmp_path / "out.npy").shape == (0, N_EMBD)
    elif kind == "jsonl":
        assert (tmp_path / "out.jsonl").read_bytes() == b""
    else:
        import pyarrow.parquet as pq

        assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


@pytest.mark.parametrize(("norm", "order"), [("none", None), ("l1", 1), ("l2", 2), ("max_abs", np.inf), ("3", 3)])
def test_normalize_and_dimensions(run: Run, bert_path: Path, norm: str, order: float | None) -> None:
    done = embed(run, bert_path, "-q", "--normalize", norm, "--dimensions", "5", input=b"a b c\n")
    plain = vectors_one_by_one(bert_path, ["a b c"])[0, :5]
    wanted = plain if order is None else plain / np.linalg.norm(plain, order)
    np.testing.assert_allclose(json.loads(done.stdout)["embedding"], wanted, rtol=1e-4, atol=1e-5)


def test_pooling_and_prefix(run: Run, bert_path: Path) -> None:
    arguments = ("--pooling", "cls", "--prompt", "query", "--query-prefix", "a b ", "--normalize", "none")
    done = embed(run, bert_path, "-q", *arguments, input=b"c\n")
    wanted = vectors_one_by_one(bert_path, ["a b c"], pooling_type="cls")[0]
    np.testing.assert_allclose(json.loads(done.stdout)["embedding"], wanted, atol=1e-4)


def test_text_that_is_too_long_is_named_by_its_number(run: Run, bert_path: Path, tmp_path: Path) -> None:
    long = b"a\n" * 4000 + b"b " * 100 + b"\n"
    target = str(tmp_path / "out.npy")
    done = embed(run, bert_path, "-q", "-o", target, input=long, check=False)
    message = one_error_line(done)
    assert message.startswith("text 4000 has 102 tokens, but at most 64")
    assert "--truncate" in message
    # What was computed before is not lost: it goes on with the option that the message names.
    assert (tmp_path / "out.npy.part").exists()
    embed(run, bert_path, "-q", "-o", target, "--resume", "--truncate", input=long)
    assert np.load(target).shape == (4001, N_EMBD)


@pytest.mark.parametrize(
    ("arguments", "text", "expected"),
    [
        (["--input-format", "jsonl"], b'{"x": 1}', "standard input, line 1: there is no field 'text'; there are 'x'"),
        (["--input-format", "jsonl"], b'{"text": 1}', "field 'text' is no text but 1"),
        (["--input-format", "jsonl"], b'{"text": "a"}\n{', "standard input, line 2: this is no JSON"),
        (["--input-format", "jsonl"], b"[1]", "a JSON object is wanted, not '[1]'"),
        (["--input-format", "jsonl"], b"[" * 100_000, "this is no JSON"),
        (["--input-format", "jsonl", "--keep", "index"], b"{}", "a field 'index' can't be kept"),
        (["--input-format", "parquet"], b"", "Parquet can't be read from standard input"),
        (["--keep", "id"], b"a", "--input-format jsonl"),
        ([], b"a\n\xff\n", "standard input, line 2: byte 0 isn't UTF-8"),
        (["no-such-file"], b"", "no-such-file: there is no such file"),
        (["."], b"", "is a folder"),
        ([str(data("llama.gguf"))], b"", "is a model, not a file of texts: give it with --model"),
        (["--output-format", "npy"], b"", "npy can't be written to standard output"),
        (["-o", "out.txt"], b"", "or give --output-format"),
        (["-o", "no/such/out.npy"], b"", "there is no such folder"),
        (["-o", "out.npy", "--keep", "text"], b"", "no room for fields"),
        (["--resume"], b"", "name it with -o"),
        (["--dimensions", "33"], b"a", "more than the 32"),
        (["--prompt", "query"], b"a", "--query-prefix"),
    ],
)
def test_what_cannot_be_is_one_line(
    run: Run, bert_path: Path, tmp_path: Path, arguments: list[str], text: bytes, expected: str
) -> None:
    done = embed(run, bert_path, "-q", *arguments, input=text, check=False, cwd=tmp_path)
    assert expected in one_error_line(done)
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


def test_reranker_makes_no_vectors(run: Run, rank_path: Path) -> None:
    assert "llamacy rerank" in one_error_line(embed(run, rank_path, "-q", input=b"a", check=False))


def test_input_is_not_overwritten(run: Run, bert_path: Path, records: Path) -> None:
    before = records.read_bytes()
    done = embed(run, bert_path, str(records), "-o", str(records), "--force", "-q", check=False)
    assert "is the input too" in one_error_line(done)
    assert records.read_bytes() == before


def test_file_that_is_there_needs_force(run: Run, bert_path: Path, lines: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.npy"
    target.write_bytes(b"mine")
    assert "--force" in one_error_line(embed(run, bert_path, str(lines), "-o", str(target), "-q", check=False))
    assert target.read_bytes() == b"mine"
    embed(run, bert_path, str(lines), "-o", str(target), "-q", "--force")
    assert np.load(target).shape == (len(TEXTS), N_EMBD)


@pytest.mark.parametrize("kind", ["npy", "jsonl", "parquet"])
def test_resume_of_what_is_whole_says_so(run: Run, bert_path: Path, lines: Path, tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    target = tmp_path / f"out.{kind}"
    command = (str(lines), "-o", str(target), "-q")
    embed(run, bert_path, *command, "--resume")
    whole = target.read_bytes()
    message = one_error_line(embed(run, bert_path, *command, "--resume", check=False))
    assert message.startswith(f"{target} is there, and no interrupted run to go on with")
    assert "has its name only when it has all rows" in message
    assert "--force in place of --resume" in message
    assert target.read_bytes() == whole
    embed(run, bert_path, *command, "--force")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prompt", "query"], "--query-prefix"),
        (["--prompt", "quary"], "did you mean 'query'?"),
        (["--dimensions", "33"], "more than the 32"),
    ],
)
def test_wrong_option_is_told_before_rows_are_counted(
    run: Run, bert_path: Path, lines: Path, arguments: list[str], said: str
) -> None:
    # without -q: a bar would be a line of its own
    assert said in one_error_line(embed(run, bert_path, str(lines), *arguments, check=False))


@pytest.mark.parametrize("name", ["query", "document"])
@pytest.mark.parametrize("prompt", [[], ["--prompt", "a "], ["--prompt", "query: "]])
def test_prefix_without_its_prompt_is_wrong_usage(run: Run, bert_path: Path, name: str, prompt: list[str]) -> None:
    done = embed(run, bert_path, f"--{name}-prefix", "x", *prompt, input=b"a", check=False)
    assert f"--{name}-prefix has no effect without --prompt {name}" in one_error_line(done, 2)
    # a script may give both prefixes always
    embed(run, bert_path, "-q", "--query-prefix=x ", "--document-prefix=y ", "--prompt=document", input=b"a")


def test_missing_pyarrow_is_one_line(run: Run, bert_path: Path, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "pyarrow.py").write_text("raise ImportError('hidden')")
    paths = [str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = embed(
        run,
        bert_path,
        *("-o", str(tmp_path / "out.parquet"), "-q"),
        input=b"a",
        check=False,
        env={"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert "pip install" in one_error_line(done)


# interruptions

N_ROWS = 10_000
# they come again every 70 rows
MANY = ["a b c d e"[: number % 10] + " é" * (number % 7) for number in range(70)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "many.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(N_ROWS):
            file.write(json.dumps({"id": number, "text": MANY[number % 70]}) + "\n")
    return path


@pytest.fixture(scope="module")
def vectors_of_many(bert_path: Path) -> Any:
    return unit(vectors_one_by_one(bert_path, MANY))[np.arange(N_ROWS) % 70]


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "llamacy", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def interrupted_command(arguments: list[str], target: Path, number: int) -> tuple[int, str]:
    """Start a run, stop it by a signal as soon as rows are safe, and return its status and what it said."""
    process = start(*arguments)
    record = target.with_name(target.name + ".part.json")
    limit = time.monotonic() + 60
    while not record.exists():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1].decode()
    return process.returncode, said


def interrupted(model: Path, source: Path, target: Path, number: int, *arguments: str) -> tuple[int, str]:
    command = ["embed", str(source), "-o", str(target), "-m", str(model), "-t", "1", *arguments]
    return interrupted_command(command, target, number)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)])
@pytest.mark.parametrize("kind", ["npy", "jsonl", "parquet"])
def test_interrupted_run_goes_on_where_it_stopped(
    run: Run, bert_path: Path, many: Path, vectors_of_many: Any, tmp_path: Path, kind: str, name: str, status: int
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    keep = () if kind == "npy" else ("--keep", "id")
    target = tmp_path / f"out.{kind}"
    part = tmp_path / f"out.{kind}.part"
    code, said = interrupted(bert_path, many, target, getattr(signal, name), *keep)
    assert code == status, said
    assert not target.exists()
    n_safe = json.loads((tmp_path / f"out.{kind}.part.json").read_text())["n_rows"]
    assert 0 < n_safe < N_ROWS
    if name != "SIGKILL":
        assert f"{n_safe} rows are safe" in said
        assert "Traceback" not in said
    with part.open("ab") as file:
        file.write(b'{"torn')
    assert "--resume goes on with it" in one_error_line(
        embed(run, bert_path, str(many), "-o", str(target), "-q", *keep, check=False)
    )
    done = embed(run, bert_path, str(many), "-o", str(target), "--resume", *keep)
    assert f"going on after {n_safe} rows" in done.stderr.decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name]
    np.testing.assert_allclose(read_vectors(target, kind), vectors_of_many, atol=ROUNDING)


def read_vectors(path: Path, kind: str) -> Any:
    if kind == "npy":
        return np.load(path)
    if kind == "jsonl":
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert [(row["index"], row["id"]) for row in rows] == [(number, number) for number in range(N_ROWS)]
        return [row["embedding"] for row in rows]
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    assert table["id"].to_pylist() == list(range(N_ROWS))
    return np.array(table["embedding"].to_pylist())


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.parametrize("kind", ["npy", "jsonl"])
def test_interrupted_run_ends_with_the_bytes_of_one_that_was_not(
    run: Run, bert_path: Path, tmp_path: Path, kind: str
) -> None:
    # all texts differ, so that the digits of each depend on which are computed beside it
    rows = (" ".join(" abcdefghij"[int(digit) + 1] for digit in str(number)) for number in range(1, N_ROWS))
    source = tmp_path / "distinct.txt"
    source.write_text("\n".join(rows), encoding="utf-8")
    whole, target = tmp_path / f"whole.{kind}", tmp_path / f"out.{kind}"
    embed(run, bert_path, str(source), "-o", str(whole), "-q", "-t", "1")
    interrupted(bert_path, source, target, signal.SIGINT)
    assert not target.exists()
    embed(run, bert_path, str(source), "-o", str(target), "--resume", "-q", "-t", "1")
    assert target.read_bytes() == whole.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
def test_resume_refuses_what_is_not_the_same(
    run: Run, bert_path: Path, micro_path: Path, many: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.npy"
    interrupted(bert_path, many, target, signal.SIGKILL)
    record, part = tmp_path / "out.npy.part.json", tmp_path / "out.npy.part"
    n_safe = json.loads(record.read_text())["n_rows"]

    def refused(model: Path, source: Path, *arguments: str) -> str:
        before = record.read_bytes()
        call = ("-o", str(target), "--resume", "-q", *arguments)
        message = one_error_line(embed(run, model, str(source), *call, check=False))
        assert record.read_bytes() == before
        return message

    assert "--normalize l2, not l1" in refused(bert_path, many, "--normalize", "l1")
    assert "--dimensions none, not 3" in refused(bert_path, many, "--dimensions", "3")
    assert "begun with model" in refused(micro_path, many)
    changed = tmp_path / "changed.jsonl"
    rows = many.read_text(encoding="utf-8").splitlines(keepends=True)
    changed.write_text("".join([*rows[: n_safe - 1], '{"text": "other"}\n', *rows[n_safe:]]), encoding="utf-8")
    assert f"doesn't begin with the {n_safe} rows" in refused(bert_path, changed)
    changed.write_text("".join(rows[: n_safe - 1]), encoding="utf-8")
    assert f"doesn't begin with the {n_safe} rows" in refused(bert_path, changed)
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    assert "is shorter than" in refused(bert_path, many)
    part.write_bytes(content)
    # Rows that came since are computed too.
    changed.write_text("".join([*rows[: n_safe + 2]]), encoding="utf-8")
    embed(run, bert_path, str(changed), "-o", str(target), "--resume", "-q")
    assert np.load(target).shape == (n_safe + 2, N_EMBD)


def test_resume_damaged_record_is_one_line(run: Run, bert_path: Path, lines: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.npy"
    (tmp_path / "out.npy.part").write_bytes(b"")
    good = {"version": 1, "n_rows": 0, "n_bytes": 0, "texts": "", "facts": {}}
    wrong = [("n_rows", None), ("n_rows", -1), ("n_bytes", True), ("texts", [1]), ("facts", None), ("facts", [])]
    contents = [json.dumps({**good, name: value}).encode() for name, value in wrong]
    for content in (b"{", b"[]", b'{"version": 99}', b"\xff", b"[" * 100_000, *contents):
        (tmp_path / "out.npy.part.json").write_bytes(content)
        done = embed(run, bert_path, str(lines), "-o", str(target), "--resume", "-q", check=False)
        assert "is damaged or of another version" in one_error_line(done)
    embed(run, bert_path, str(lines), "-o", str(target), "--force", "-q")
    assert np.load(target).shape == (len(TEXTS), N_EMBD)


@pytest.mark.parametrize("kind", ["npy", "jsonl", "parquet"])
@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_part_file_of_somebody_else_is_left_alone(
    run: Run, bert_path: Path, lines: Path, tmp_path: Path, kind: str, resume: tuple[str, ...]
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    target, part = tmp_path / f"out.{kind}", tmp_path / f"out.{kind}.part"
    part.write_bytes(b"precious")
    command = (str(lines), "-o", str(target), "-q", *resume)
    assert "nothing says that llamacy wrote it" in one_error_line(embed(run, bert_path, *command, check=False))
    assert part.read_bytes() == b"precious"
    # one of a run that was killed at once has the lock of that run beside it
    (tmp_path / f".out.{kind}.lock").touch()
    embed(run, bert_path, *command)
    assert target.exists()
    assert not part.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="limits are those of POSIX")
@pytest.mark.parametrize("kind", ["npy", "jsonl"])
def test_file_that_can_not_grow_keeps_the_rows_that_are_safe(
    run: Run, bert_path: Path, many: Path, vectors_of_many: Any, tmp_path: Path, kind: str
) -> None:
    import resource

    target, part = tmp_path / f"out.{kind}", tmp_path / f"out.{kind}.part"
    most = 6000 * (4 * N_EMBD if kind == "npy" else 500)
    command = (str(many), "-o", str(target), *(() if kind == "npy" else ("--keep", "id")))
    done = embed(
        run, bert_path, *command, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )  # fmt: skip
    assert done.returncode == 1
    n_safe = json.loads((tmp_path / f"out.{kind}.part.json").read_text())["n_rows"]
    said = done.stderr.decode().splitlines()
    assert said[-1] == f"llamacy: error: {part}: File too large"
    assert said[-2].startswith(f"llamacy: {n_safe} rows are safe in {part}")
    assert n_safe > 0
    embed(run, bert_path, *command, "-q", "--resume")
    np.testing.assert_allclose(read_vectors(target, kind), vectors_of_many, atol=ROUNDING)


def test_resume_of_nothing_begins(run: Run, bert_path: Path, lines: Path, tmp_path: Path) -> None:
    embed(run, bert_path, str(lines), "-o", str(tmp_path / "out.npy"), "--resume", "-q")
    assert np.load(tmp_path / "out.npy").shape == (len(TEXTS), N_EMBD)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.skipif(sys.platform == "win32", reason="no process can be halted there")
def test_two_runs_do_not_write_one_file(run: Run, bert_path: Path, many: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.npy"
    process = start("embed", str(many), "-o", str(target), "-m", str(bert_path), "-t", "1")
    try:
        while not (tmp_path / "out.npy.part").exists():
            assert process.poll() is None
            time.sleep(0.01)
        # it might be done before the other one is ready
        process.send_signal(signal.SIGSTOP)
        done = embed(run, bert_path, str(many), "-o", str(target), "--resume", "-q", check=False)
        assert "another process writes" in one_error_line(done)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no disk that is always full")
def test_full_disk_is_one_line(run: Run, bert_path: Path, many: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "llamacy", "embed", str(many), "-m", str(bert_path), "-t", "1", "-q"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=120)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["llamacy: error: No space left on device"]


def test_output_that_nobody_reads_ends_the_run(bert_path: Path, many: Path) -> None:
    command = [sys.executable, "-m", "llamacy", "embed", str(many), "-m", str(bert_path), "-t", "1", "-q"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b'{"index": 0')
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 141
