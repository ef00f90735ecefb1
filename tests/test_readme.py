"""The README keeps its word: its example runs, its commands exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from llamacy.cli.main import build_parser
from tests.helpers import REPO, data
from tests.helpers.process import run_python

README = (REPO / "README.md").read_text(encoding="utf-8")
PULL = 'pull("smollm2-135m")'


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language; an empty one stands for plain blocks."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


def example(path: Path, number: int = 0) -> str:
    """Return an example with a model file in the place of the starter model, on one thread."""
    code = blocks("python")[number]
    assert code.count(PULL) == 1
    return code.replace(f"{PULL}, ", f"{str(path)!r}, n_threads=1, n_threads_batch=1, ")


def test_example_is_short() -> None:
    assert all(len([line for line in code.splitlines() if line.strip()]) <= 20 for code in blocks("python"))


def test_example_runs_with_any_model() -> None:
    # A tiny model was trained with fewer positions than the example asks for; that is worth a warning only.
    done = run_python(example(data("llama.gguf")), env={"PYTHONWARNINGS": "default"})
    assert "highest logit: " in done.stdout


@pytest.mark.model
def test_example_writes_real_text(smollm2_path: Path) -> None:
    lines = run_python(example(smollm2_path)).stdout.splitlines()
    assert lines[0].startswith(" 8, 9, 10, 1")
    assert lines[-1].startswith("highest logit: ")


@pytest.mark.model
def test_chat_example_writes_what_the_page_says(smollm2_path: Path) -> None:
    answer, call, planet = run_python(example(smollm2_path, 1)).stdout.splitlines()
    shown = blocks("text")[0].splitlines()
    assert [answer, call] == shown[:2]
    assert planet.startswith('{"planet": "Mars"')
    assert shown[2].startswith('{"planet": "Mars"')


@pytest.mark.model
def test_embedding_example_writes_what_the_page_says(minilm_path: Path) -> None:
    code = blocks("python")[2]
    assert code.count('pull("all-minilm-l6-v2")') == 1
    done = run_python(code.replace('pull("all-minilm-l6-v2")', f"{str(minilm_path)!r}, n_threads=1, n_threads_batch=1"))
    assert done.stdout == blocks("text")[1]


@pytest.mark.model
def test_cache_example_writes_what_the_page_says(smollm2_path: Path) -> None:
    assert run_python(example(smollm2_path, 3)).stdout == blocks("text")[2]


def test_shell_commands_are_those_of_the_parser() -> None:
    parser = build_parser()
    commands = [
        line.split("  #")[0] for block in blocks("") for line in block.splitlines() if line.startswith("llamacy ")
    ]
    assert len(commands) >= 7
    for command in commands:
        words = shlex.split(command)[1:]
        if "<" in words:
            words = words[: words.index("<")]
        parser.parse_args(words)


def test_make_targets_exist() -> None:
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make (\w+)", README, re.MULTILINE)) | set(re.findall(r"`make (\w+)`", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
