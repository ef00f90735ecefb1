"""Files and models that a command isn't for: what it says instead leads to a command that works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from llamacy.cli.common import CommandError
from llamacy.cli.purpose import loaded
from llamacy.errors import ContextCreateError
from tests.helpers import data, models

from .conftest import Run, one_error_line

_COMMANDS = {
    "chat": ["hi", "-n", "2", "-t", "1"],
    "generate": ["hi", "-n", "2", "-t", "1"],
    "embed": ["texts.txt", "-q", "-t", "1"],
    "rerank": ["texts.txt", "-q", "-t", "1", "--query", "hi"],
    "tokenize": ["hi"],
    "info": [],
    "bench": ["-p", "4", "-n", "2", "-r", "1", "-t", "1"],
}
# what works with a model of each kind; embed needs to be told how to pool where the file doesn't say
_WORKS = {
    "encoder": {"embed", "tokenize", "info"},
    "reranker": {"rerank", "tokenize", "info"},
    "encoder and decoder": {"tokenize", "info"},
    "decoder": {"generate", "tokenize", "info", "bench"},
    "draft": {"tokenize", "info"},
    "no vocabulary": {"info", "bench"},
    "adapter": {"info"},
    "control vector": {"info"},
    "importance matrix": {"info"},
    "projector": {"info"},
}


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("one\ntwo\n", encoding="utf-8")


@pytest.fixture
def model_of(
    request: pytest.FixtureRequest,
    bert_path: Path,
    rank_path: Path,
    t5_path: Path,
    vocab_none_path: Path,
    tmp_path: Path,
) -> Callable[[str], Path]:
    """Return a function that returns a file of a kind."""

    def find(kind: str) -> Path:
        known = {
            "encoder": bert_path, "reranker": rank_path, "encoder and decoder": t5_path,
            "no vocabulary": vocab_none_path, "decoder": data("llama.gguf"), "draft": data("eagle3.gguf"),
        }  # fmt: skip
        if kind in known:
            return known[kind]
        if kind in ("adapter", "control vector"):
            path: Path = request.getfixturevalue({"adapter": "lora_path"}.get(kind, "control_vector_path"))
            return path
        path = tmp_path / "file.gguf"
        projector = kind == "projector"
        writer = models.gguf.GGUFWriter(path, "clip" if projector else "imatrix")
        writer.add_string("general.type", "mmproj" if projector else "imatrix")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return find


@pytest.mark.parametrize("kind", _WORKS)
def test_every_command_works_or_says_what_does(
    run: Run, texts: None, model_of: Callable[[str], Path], kind: str
) -> None:
    path = model_of(kind)
    failures = []
    for command, arguments in _COMMANDS.items():
        done = run(command, *arguments, "-m", str(path), check=False)
        assert (done.returncode == 0) == (command in _WORKS[kind]), (command, done.stderr)
        if done.returncode:
            failures.append(one_error_line(done))
    for failure in failures:
        assert "ContextParams" not in failure
        if kind in ("adapter", "control vector", "importance matrix", "projector"):
            assert re.search(f"is an? (LoRA )?{kind}|is the part of a model that sees or hears", failure)
            continue
        # each command that is named does what it is named for, with the options that are named with it
        for command, options in re.findall(r"`llamacy (\w+)((?: [\w-]+)*)`", failure):
            run(command, *_COMMANDS[command], *options.split(), "-m", str(path))
        for option in re.findall(r"give (--pooling)\.", failure):
            run("embed", *_COMMANDS["embed"], option, "mean", "-m", str(path))
        if "--chat-format" in failure:
            run("chat", *_COMMANDS["chat"], "--chat-format", "chatml", "-m", str(path))


@pytest.mark.parametrize(("kind", "option"), [("adapter", "--lora"), ("control vector", "--control-vector")])
def test_what_is_no_model_is_taken_as_the_message_says(
    run: Run, model_of: Callable[[str], Path], kind: str, option: str
) -> None:
    path = model_of(kind)
    failure = one_error_line(run("generate", "hi", "-m", str(path), check=False))
    assert f"give a model with --model, and it with {option}" in failure.replace("its base model", "a model")
    for command in re.findall(r"`llamacy (\w+)`", failure):
        chat = ["--chat-format", "chatml"] if command == "chat" else []
        run(command, *_COMMANDS[command], *chat, "--model", str(data("llama.gguf")), option, str(path))


def test_context_that_cant_be_created_is_told_without_all_parameters() -> None:
    def make(_path: Path) -> None:
        raise ContextCreateError("can't create a context with ContextParams(…)", log=["first", "no memory is left"])

    with pytest.raises(CommandError, match=r"^model\.gguf: llama\.cpp can't create a context: no memory is left$"):
        loaded(make, Path("model.gguf"))
