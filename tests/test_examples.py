"""The examples run: with a tiny model here, and say sensible things with a real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import REPO, data, toy_tokens
from tests.helpers.process import run_python

# those that chat need a model with a chat template, and one that ends its JSON
EXAMPLES = sorted(path for path in (REPO / "examples").glob("*.py") if not path.name.startswith("chat_"))


def run_example(path: Path, model: Path) -> str:
    """Run an example. It uses all cores, on which others may run: waiting threads sleep."""
    code = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    return run_python(code, str(path), str(model), env={"OMP_WAIT_POLICY": "passive"}).stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_with_tiny_model(path: Path) -> None:
    assert run_example(path, data("target.gguf"))


@pytest.mark.model
def test_complete_counts_on(smollm2_path: Path) -> None:
    out = run_example(REPO / "examples" / "complete.py", smollm2_path)
    assert "whole:   8, 9, 10, 1" in out
    assert "k l m n o p" in out.splitlines()[-1]


@pytest.mark.model
def test_two_sequences_don_t_mix(smollm2_path: Path) -> None:
    lines = run_example(REPO / "examples" / "two_sequences.py", smollm2_path).splitlines()
    assert lines[0].endswith("→  8, 9, 10, 1")
    assert "→  k l m n o p" in lines[1]


def run_chat_example(name: str, model: Path, *packages: str) -> list[str]:
    for package in packages:
        pytest.importorskip(package)
    return run_example(REPO / "examples" / f"chat_{name}.py", model).splitlines()


@pytest.mark.model
def test_chat_stream_remembers(smollm2_path: Path) -> None:
    lines = run_chat_example("stream", smollm2_path)
    assert lines[0] == "> What is 2+2?"
    assert [int(line.split(":")[1]) > 0 for line in lines if "from memory:" in line] == [False, True]


@pytest.mark.model
def test_chat_json_says_what_the_forms_allow(smollm2_path: Path) -> None:
    city, salty = run_chat_example("json", smollm2_path)
    assert city.startswith("city: {'name': 'Paris', 'country': ")
    assert salty in ("salty: yes", "salty: no")


@pytest.mark.model
def test_chat_tools_calls_the_function(smollm2_path: Path) -> None:
    call, *answer = run_chat_example("tools", smollm2_path)
    assert call.startswith("call: get_weather {'city': 'Rome'")
    assert "It is sunny in Rome" in call
    assert answer[0].startswith("answer: ")


@pytest.mark.model
def test_chat_instructor_makes_an_object(smollm2_path: Path) -> None:
    assert run_chat_example("instructor", smollm2_path, "openai", "instructor") == ["Person Jason 25"]


@pytest.mark.model
def test_chat_langchain_answers_streams_and_calls(smollm2_path: Path) -> None:
    lines = run_chat_example("langchain", smollm2_path, "langchain_core")
    starts = ["answer: ", "stream: ", "call: get_population {'city': ", "answer: "]
    assert [line for line, start in zip(lines, starts, strict=True) if not line.startswith(start)] == []


@pytest.mark.slow_build
def test_cimport_example_builds_and_agrees_with_numpy(tmp_path: Path) -> None:
    folder = tmp_path / "cimport"
    shutil.copytree(REPO / "examples" / "cimport", folder)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "CFLAGS": "-O0"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    code = """
import sys
from array import array
import numpy as np
import consumer
from llamacy import Batch, Context, Model
tokens = array("i", map(int, sys.argv[2].split(",")))
with Model(sys.argv[1]) as model, Context(model, n_ctx=256, n_threads=1, n_threads_batch=1) as context:
    with Batch(64) as batch:
        print(consumer.sum_logits(context, batch, tokens))
        print(np.asarray(context.logits(), dtype=np.float64).sum())
"""
    prompt = ",".join(map(str, toy_tokens("hello")))
    done = run_python(code, str(data("target.gguf")), prompt, cwd=folder, env={"PYTHONPATH": path_of(folder)})
    first, second = map(float, done.stdout.split())
    np.testing.assert_allclose(first, second, rtol=1e-9)


def path_of(folder: Path) -> str:
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
