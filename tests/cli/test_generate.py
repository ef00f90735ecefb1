"""`llamacy generate`, against `Llama` in this process and on real text."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import data

from .conftest import Run, one_error_line

TINY = ("--model", str(data("target.gguf")), "-t", "1")


def completion(prompt: str | bytes, **options: object) -> str:
    """What `Llama` makes of a prompt."""
    from llamacy import Llama

    with Llama(data("target.gguf"), n_threads=1, n_threads_batch=1) as llm:
        text: str = llm.create_completion(prompt, **options)["choices"][0]["text"]  # type: ignore[arg-type, call-overload]
        return text


def test_output_is_the_completion(run: Run) -> None:
    done = run("generate", "hello", "-n", "12", "--seed", "7", *TINY, env={"PYTHONIOENCODING": "utf-8"})
    assert done.stdout.decode() == completion("hello", max_tokens=12, seed=7) + "\n"
    assert done.stderr == b""


def test_greedy_output_with_echo(run: Run) -> None:
    done = run("generate", "hello", "-n", "8", "--temp", "0", "--echo", *TINY, env={"PYTHONIOENCODING": "utf-8"})
    assert done.stdout.decode() == "hello" + completion("hello", max_tokens=8, temperature=0) + "\n"


@pytest.mark.parametrize("text", ["hello", "héllo", "日本語 🦙"])
def test_stdin_file_and_argument_agree(run: Run, text: str, tmp_path: Path) -> None:
    options = ("-n", "4", "--temp", "0", *TINY)
    env = {"PYTHONIOENCODING": "utf-8"}
    (tmp_path / "text").write_text(text + "\n", encoding="utf-8")
    outputs = {
        run("generate", *options, input=text.encode() + b"\n", env=env).stdout,
        run("generate", "-", *options, input=text.encode() + b"\r\n", env=env).stdout,
        run("generate", "-f", str(tmp_path / "text"), *options, env=env).stdout,
        run("generate", text, *options, env=env).stdout,
        run("generate", "--prompt", text, *options, env=env).stdout,
        run("generate", "-p", "-", *options, input=text.encode() + b"\n", env=env).stdout,
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    "text", [b"\xff\xfe\x00\x80", b"caf\xc3", "\ud800".encode("utf-8", "surrogatepass"), b"", b"\n"]
)
def test_undecodable_text_is_taken(run: Run, text: bytes) -> None:
    done = run("generate", "-n", "3", "--echo", "--temp", "0", *TINY, input=text)
    assert done.stderr == b""


def test_output_survives_an_ascii_terminal(run: Run) -> None:
    done = run(
        "generate",
        "hello",
        "-n",
        "40",
        "--seed",
        "1",
        *TINY,
        env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )
    done.stdout.decode("ascii")


def test_stop_ends_the_text(run: Run) -> None:
    env = {"PYTHONIOENCODING": "utf-8"}
    whole = run("generate", "hello", "-n", "30", "--temp", "0", *TINY, env=env).stdout.decode().rstrip("\n")
    stop = whole[len(whole) // 2]
    done = run("generate", "hello", "-n", "30", "--temp", "0", "--stop", stop, *TINY, env=env)
    assert done.stdout.decode() == whole[: whole.index(stop)] + "\n"


def test_verbose_reports_speed_on_stderr(run: Run) -> None:
    done = run("generate", "hello", "-n", "5", "--temp", "0", "--seed", "3", "-v", *TINY)
    lines = done.stderr.decode().splitlines()
    report = [line for line in lines if line.startswith("llamacy: ")]
    assert report[0] == "llamacy: seed 3, finish reason length"
    assert report[1].startswith("llamacy: prompt: 7 tokens in ")
    assert report[2].startswith("llamacy: generation: 4 tokens in ")
    assert len(lines) > len(report), "llama.cpp's log is missing"


def test_prompt_too_long_is_one_line(run: Run) -> None:
    message = one_error_line(run("generate", "a" * 600, "-c", "256", *TINY, check=False))
    assert "256" in message


def test_gpu_layers_without_gpu_warns(run: Run) -> None:
    from llamacy import devices

    if any(device.type.name in {"GPU", "IGPU"} for device in devices()):
        pytest.skip("this machine has a GPU")
    done = run("generate", "a", "-n", "1", "-ngl", "4", *TINY)
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("llamacy: warning: ")
    assert "GPU" in lines[0]


def test_no_text_on_a_terminal_is_one_line(run: Run) -> None:
    pty = pytest.importorskip("pty")
    parent, child = pty.openpty()
    try:
        message = one_error_line(run("generate", *TINY, check=False, stdin=child))
    finally:
        os.close(parent)
        os.close(child)
    assert "there is no text" in message


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent as a terminal of POSIX does")
def test_ctrl_c_while_generating_keeps_what_was_written(micro_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "llamacy",
            "generate",
            "a",
            "-n",
            "-1",
            "-t",
            "1",
            "-c",
            "0",
            "-m",
            str(micro_path),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors == b""
    assert first + rest


@pytest.mark.model
def test_real_model_counts_on(run: Run, smollm2_path: Path) -> None:
    done = run("generate", "1, 2, 3, 4, 5, 6, 7,", "-n", "12", "--temp", "0", "-t", "1", "-m", str(smollm2_path))
    assert done.stdout.decode().startswith(" 8, 9, 10, 1")


@pytest.mark.parametrize("option", ["regex", "schema", "schema file", "grammar file"])
def test_grammar_options_hold_the_text(run: Run, option: str, tmp_path: Path) -> None:
    (tmp_path / "schema").write_text('{"enum": [[1, 2]]}', encoding="utf-8")
    (tmp_path / "grammar").write_text('root ::= "a" "b"{3}\n', encoding="utf-8")
    options, text = {
        "regex": (("--regex", "x{5}"), "xxxxx"),
        "schema": (("--json-schema", '{"const": "ok"}'), '"ok"'),
        "schema file": (("--json-schema-file", str(tmp_path / "schema")), r"\[ ?1, ?2 ?\]"),
        "grammar file": (("--grammar-file", str(tmp_path / "grammar")), "abbb"),
    }[option]
    done = run("generate", "hello", "-n", "40", "--seed", "3", *options, *TINY)
    assert re.fullmatch(text + "\n", done.stdout.decode())
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--regex", "("), "("),
        (("--json-schema", "{"), "--json-schema: the schema is no JSON"),
        (("--json-schema", "x.json"), "; --json-schema-file takes a file."),
        (("--json-schema", "\n" + "x" * 5000), "; --json-schema-file takes a file."),
        (("--json-schema", __file__), f"{__file__} is a file: give it with --json-schema-file."),
        (("--json-schema-file", '{"type": "string"}'), "this is a schema: give it with --json-schema."),
        (("--json-schema", '{"enum": []}'), "enum"),
        (("--grammar-file", "no-such-file"), "no-such-file"),
        (("--json-schema-file", "no-such-file"), "no-such-file"),
    ],
)
def test_wrong_grammar_is_one_line_and_loads_no_model(run: Run, options: tuple[str, ...], said: str) -> None:
    done = run("generate", "hello", *options, "--model", "no-such-model", check=False)
    assert said in one_error_line(done)


def test_grammar_options_exclude_each_other(run: Run) -> None:
    done = run("generate", "hello", "--regex", "a", "--json-schema", "{}", *TINY, check=False)
    assert done.returncode == 2
    assert b"not allowed with" in done.stderr


def test_text_that_is_cut_off_within_its_grammar_is_told(run: Run) -> None:
    done = run("generate", "the", "-n", "2", "--regex", "[a-z]{40}", *TINY)
    assert b"cut off after 2 tokens" in done.stderr
    done = run("generate", "the", "-n", "40", "--regex", "[a-z]", *TINY)
    assert done.stderr == b""
