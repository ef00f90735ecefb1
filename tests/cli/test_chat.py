"""`llamacy chat`: one answer, against `Llama` in this process, and talks in a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.helpers import data

from .conftest import Run, one_error_line

TINY = ("--model", str(data("target.gguf")), "-t", "1", "--chat-format", "chatml", "--temp", "0")
UTF8 = {"PYTHONIOENCODING": "utf-8"}
TEMPLATE = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"


def answer(*messages: tuple[str, str], **options: Any) -> str:
    """What `Llama` says to a chat."""
    from llamacy import Llama

    chat = [{"role": role, "content": content} for role, content in messages]
    options = {"temperature": 0, "max_tokens": 8, **options}
    with Llama(data("target.gguf"), n_threads=1, n_threads_batch=1, chat_format="chatml") as llm:
        text: str = llm.create_chat_completion(chat, **options)["choices"][0]["message"]["content"]  # type: ignore[assignment]
        return text


def test_one_answer_is_the_completion(run: Run) -> None:
    expected = answer(("user", "héllo")) + "\n"
    for done in (
        run("chat", "héllo", "-n", "8", *TINY, env=UTF8),
        run("chat", "-n", "8", *TINY, env=UTF8, input="héllo\n".encode()),
        run("chat", "-", "-n", "8", *TINY, env=UTF8, input="héllo\r\n".encode()),
        run("chat", "-p", "héllo", "-n", "8", *TINY, env=UTF8),
    ):
        assert done.stdout.decode() == expected
        assert done.stderr == b""


def test_system_message_and_stop(run: Run) -> None:
    whole = answer(("system", "be brief"), ("user", "hi"))
    done = run("chat", "hi", "--system", "be brief", "-n", "8", *TINY, env=UTF8)
    assert done.stdout.decode() == whole + "\n"
    stop = whole[len(whole) // 2]
    done = run("chat", "hi", "--system", "be brief", "-n", "8", "--stop", stop, *TINY, env=UTF8)
    assert done.stdout.decode() == whole[: whole.index(stop)] + "\n"


def test_json_schema_is_obeyed(run: Run) -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]})
    done = run("chat", "hi", "-j", schema, *TINY)
    assert json.loads(done.stdout)["a"] in (1, 2)
    assert done.stderr == b""
    done = run("chat", "hi", "-j", schema, "-n", "2", *TINY)
    assert b"cut off" in done.stderr


def test_template_is_read_from_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(TEMPLATE, encoding="utf-8")
    model = TINY[:4]
    done = run("chat", "hi", "--chat-template", str(tmp_path / "t.jinja"), "--temp", "0", "-n", "4", *model, env=UTF8)
    from llamacy import Llama

    with Llama(data("target.gguf"), n_threads=1, n_threads_batch=1) as llm:
        text = llm.create_completion("[user: hi]", max_tokens=4, temperature=0)["choices"][0]["text"]
    assert done.stdout.decode() == text + "\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", str(data("target.gguf"))], "has no chat template: give --chat-format"),
        (["--model", str(data("target.gguf")), "--chat-format", "chatlm"], "chatml"),
        (["--model", str(data("target.gguf")), "--chat-template", "nowhere.jinja"], "nowhere.jinja"),
        ([*TINY, "-c", "256", "--system", "a" * 600], "256"),
        ([*TINY, "-j", "{"], "JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_error_is_one_line(run: Run, options: list[str], words: str) -> None:
    assert words in one_error_line(run("chat", "hi", *options, check=False))


class Terminal:
    """A chat in a terminal."""

    def __init__(self, *arguments: str, errors: IO[bytes] | None = None) -> None:
        pty = pytest.importorskip("pty")
        self._master, child = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "llamacy", "chat", *arguments],
            stdin=child,
            stdout=child,
            stderr=errors or child,
            env={**os.environ, "TERM": "dumb", "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
        )
        os.close(child)
        self._seen = b""

    def interrupt_to(self, text: str) -> str:
        """Send Ctrl-C until a text comes, and return what comes up to it.

        Once isn't enough: Python's prompt doesn't see a signal that comes while it handles a key.
        """
        return self.read_to(text, lambda: self.process.send_signal(signal.SIGINT))

    def read_to(self, text: str, do: Callable[[], object] = lambda: None) -> str:
        """Return what comes up to a text, and it; do something about every second until then."""
        end = time.monotonic() + 60
        while text.encode() not in self._seen:
            assert time.monotonic() < end, self._seen
            do()
            while text.encode() not in self._seen and select.select([self._master], [], [], 1)[0]:
                self._seen += os.read(self._master, 1024)
        before, found, self._seen = self._seen.partition(text.encode())
        return (before + found).decode(errors="replace").replace("\r\n", "\n")

    def say(self, text: str) -> str:
        """Enter a line, and return the answer."""
        self.type(text + "\n")
        self.read_to(text)
        return self.read_to("> ").removesuffix("> ").strip("\n")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def terminal(*arguments: str, errors: IO[bytes] | None = None) -> Iterator[Terminal]:
    opened = Terminal(*arguments, errors=errors)
    try:
        yield opened
    finally:
        opened.close()


def test_talk_keeps_its_history_until_reset() -> None:
    first = answer(("user", "one"))
    second = answer(("user", "one"), ("assistant", first), ("user", "two"))
    alone = answer(("user", "two"))
    assert len({first, second, alone}) == 3
    with terminal(*TINY, "-n", "8") as talk:
        begin = talk.read_to("> ")
        assert begin == "llamacy: Ctrl-C stops an answer, /reset begins a new conversation, Ctrl-D ends\n> "
        assert talk.say("one") == first
        assert talk.say("two") == second
        assert talk.say("/reset") == ""
        assert talk.say("two") == alone
        talk.type("\x04")
        assert talk.process.wait(60) == 0


@pytest.mark.parametrize("line", ["/exit", "/bye now", "/?", "/Reset", "/no_think", "/reset-all"])
def test_unknown_command_in_a_talk_is_told_and_not_asked(line: str) -> None:
    with terminal(*TINY, "-n", "8") as talk:
        talk.read_to("> ")
        said = talk.say(line)
        assert said.startswith(f"llamacy: there is no command {line.split()[0]}: /reset begins a new conversation, ")
        assert "Ctrl-D ends" in said
        # nothing of it is in the conversation, and a space makes a message of it
        assert talk.say(f" {line}") == answer(("user", f" {line}"))


@pytest.mark.parametrize("line", ["/etc/passwd: what is it?", "/", "/ a", "/2"])
def test_message_that_is_no_command_is_asked(line: str) -> None:
    with terminal(*TINY, "-n", "8") as talk:
        talk.read_to("> ")
        assert talk.say(line) == answer(("user", line))


def test_hint_at_the_start_goes_to_a_terminal_only(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("wb") as errors, terminal(*TINY, errors=errors) as talk:
        assert talk.read_to("> ") == "> "
        talk.type("\x04")
        assert talk.process.wait(60) == 0
    assert (tmp_path / "errors").read_bytes() == b""


def test_ctrl_c_stops_the_answer_and_the_talk_goes_on(micro_path: Path) -> None:
    options = ("-m", str(micro_path), "-t", "1", "--chat-format", "chatml", "-c", "0", "--temp", "0")
    with terminal(*options) as talk:
        talk.read_to("> ")
        talk.type("go on\n")
        talk.read_to("go on\r\n")
        talk.read_to(" ")
        talk.process.send_signal(signal.SIGINT)
        talk.read_to("> ")
        # at the prompt it drops the line
        talk.type("dropped")
        talk.read_to("dropped")
        talk.interrupt_to("Ctrl-D ends")
        talk.read_to("> ")
        talk.type("\x04")
        assert talk.process.wait(60) == 0


def test_error_in_a_talk_is_told_and_the_talk_goes_on() -> None:
    system = "s" * 140
    with terminal(*TINY, "-n", "4", "-c", "256", "--system", system) as talk:
        talk.read_to("> ")
        assert "the prompt has" in talk.say("a" * 70)
        assert talk.say("two") == answer(("system", system), ("user", "two"), max_tokens=4)


@pytest.mark.model
def test_real_model_answers(run: Run, smollm2_path: Path) -> None:
    done = run("chat", "What is 2+2?", "-m", str(smollm2_path), "-t", "1", "--temp", "0", "-c", "512", "-n", "30")
    assert "4" in done.stdout.decode()
