"""`llamacy chat`: talk with a model."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamacy.cli.adapters import add_adapter_options, apply_adapters
from llamacy.cli.common import (
    EXIT_INTERRUPTED,
    CommandError,
    add_compute_options,
    add_model_option,
    compute_params,
    integer,
    one_line,
    read_text,
    renamed,
    resolve_model,
    show_native_log,
)
from llamacy.cli.generate import REQUEST_NAMES, report, write_text
from llamacy.cli.purpose import check_generates, check_reads, loaded
from llamacy.cli.sampling import add_grammar_options, add_sampling_options, given_grammar, sampling_params
from llamacy.errors import LlamacyError

if TYPE_CHECKING:
    from llamacy import Llama

_PROMPT = "> "
_END = "Ctrl-Z and Enter ends" if sys.platform == "win32" else "Ctrl-D ends"
_COMMANDS = "/reset begins a new conversation"
_NAMES = {**REQUEST_NAMES, "chat_template": "--chat-template", "chat_format": "--chat-format"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "chat",
        help="talk with a model",
        description=(
            "Talk with a model in the terminal; answers are written as they come, thinking on standard error. Ctrl-C "
            "stops an answer, Ctrl-D ends; a line /reset begins a new conversation. With a message as an argument, or "
            "one on a standard input that is no terminal, there is one answer."
        ),
        allow_abbrev=False,
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument("message", nargs="?", metavar="MESSAGE", help="one message; -: standard input")
    one.add_argument("-p", "--prompt", metavar="TEXT", help="the same as MESSAGE")
    add_model_option(parser)
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument(
        "-n",
        "--max-tokens",
        "--n-predict",
        type=integer(-1),
        default=-1,
        metavar="N",
        help="most tokens of an answer, -1: until the context is full (default: -1)",
    )
    parser.add_argument("--stop", action="append", metavar="TEXT", help="end before this text; may be repeated")
    template = parser.add_argument_group("template (one of these)").add_mutually_exclusive_group()
    template.add_argument("--chat-template", type=Path, metavar="FILE", help="a Jinja template in place of the model's")
    template.add_argument("--chat-format", metavar="NAME", help="a classic format by its name, such as chatml")
    add_sampling_options(parser, temperature=0.2)
    add_grammar_options(parser)
    add_adapter_options(parser)
    add_compute_options(parser)
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="llama.cpp's log, the seed and the speed on standard error",
    )
    parser.set_defaults(run=run, named=_NAMES, takes_text=True)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    argument = arguments.message if arguments.prompt is None else arguments.prompt
    is_talk = argument is None and sys.stdin.isatty()
    message = "" if is_talk else _one_message(argument)
    _check_template(arguments.chat_template)
    options = {
        "max_tokens": arguments.max_tokens,
        "stop": arguments.stop,
        "response_format": given_grammar(arguments),
        **sampling_params(arguments),
    }
    path = resolve_model(arguments.model)
    from llamacy import Llama

    show_native_log(arguments.verbose)
    with loaded(
        Llama,
        path,
        no_perf=not arguments.verbose,
        chat_template=arguments.chat_template,
        chat_format=arguments.chat_format,
        **compute_params(arguments),
    ) as llm:
        check_generates(llm, path)
        check_reads(llm.model, path)
        if arguments.chat_template is None and arguments.chat_format is None and llm.model.chat_template() is None:
            raise CommandError(
                f"{path} has no chat template: give --chat-format or --chat-template if it was trained for chats; "
                "otherwise `llamacy generate` continues a text."
            )
        apply_adapters(llm, arguments)
        conversation = _Conversation(llm, arguments.system, options, verbose=arguments.verbose)
        if is_talk:
            llm.chat_template  # noqa: B018 - a model without a template is told before the first question
            return _talk(conversation)
        return EXIT_INTERRUPTED if conversation.ask(message) == "abort" else 0


def _check_template(path: Path | None) -> None:
    """Refuse the name of a format where a file is wanted, as llama.cpp's programs take either."""
    if path is None or path.exists():
        return
    from llamacy.chat.classic import chat_format_names

    if str(path) in chat_format_names():
        raise CommandError(f"--chat-template takes a file, and there is none {path}: --chat-format {path} is a format.")
    raise CommandError(f"--chat-template {path}: there is no such file.")


class _Conversation:
    """What was said so far."""

    def __init__(self, llm: Llama, system: str | None, options: dict[str, Any], *, verbose: bool) -> None:
        self._llm = llm
        self._options = options
        self._verbose = verbose
        self._first = [{"role": "system", "content": system}] if system is not None else []
        self._messages = list(self._first)

    def reset(self) -> None:
        """Forget all but the system message."""
        self._messages = list(self._first)

    def ask(self, message: str) -> str | None:
        """Write the answer to a message as it comes, and return its finish reason.

        Both are kept, also when the answer was stopped; a message that got no answer isn't.
        """
        asked = [*self._messages, {"role": "user", "content": message}]
        content: list[str] = []
        reason: str | None = "abort"
        seed = None
        with contextlib.closing(_Line()) as line:
            # closed in the end, so that the next request needn't wait for the garbage collector
            chunks = self._llm.create_chat_completion(asked, stream=True, **self._options)
            with contextlib.closing(chunks), contextlib.suppress(KeyboardInterrupt):  # type: ignore[type-var]
                for chunk in chunks:
                    choice = chunk["choices"][0]
                    line.think(choice["delta"].get("reasoning_content") or "")
                    text = choice["delta"].get("content") or ""
                    line.write(text)
                    content.append(text)
                    seed = chunk["seed"]
                    if choice["finish_reason"] is not None:
                        reason = choice["finish_reason"]
        answer = "".join(content)
        if answer or reason != "abort":
            self._messages = [*asked, {"role": "assistant", "content": answer}]
        if self._options["response_format"] is not None and reason == "length":
            print("llamacy: cut off: the text is not a whole one of the grammar", file=sys.stderr)
        if self._verbose:
            report(self._llm, f"seed {seed}, finish reason {reason}")
        return reason


class _Line:
    """Standard output and standard error, of which each begins on a line of its own."""

    def __init__(self) -> None:
        self._thinks = False
        self._written = ""

    def think(self, text: str) -> None:
        """Write thinking."""
        if text:
            self._thinks = True
            print(text, end="", file=sys.stderr, flush=True)

    def write(self, text: str) -> None:
        """Write the answer."""
        if text:
            self._end_thinking()
            self._written = text
            write_text(text)

    def close(self) -> None:
        """End the line."""
        self._end_thinking()
        if not self._written.endswith("\n"):
            write_text("\n")

    def _end_thinking(self) -> None:
        if self._thinks:
            self._thinks = False
            print("\n", file=sys.stderr, flush=True)


def _talk(conversation: _Conversation) -> int:
    """Ask for messages and answer them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - lines can be edited, and come back with the arrow keys
    if sys.stderr.isatty():
        print(f"llamacy: Ctrl-C stops an answer, {_COMMANDS}, {_END}", file=sys.stderr)
    while True:
        try:
            message = input(_PROMPT)
        except EOFError:
            write_text("\n")
            return 0
        except KeyboardInterrupt:
            write_text("\n")
            print(f"llamacy: {_END}", file=sys.stderr)
            continue
        if message.strip() == "/reset":
            conversation.reset()
        elif command := re.match(r"/[A-Za-z?][\w?-]*(?!\S)", message):
            print(
                f"llamacy: there is no command {command[0]}: {_COMMANDS}, {_END}; a message that begins with a slash "
                "has a space before it",
                file=sys.stderr,
            )
        elif message.strip():
            try:
                conversation.ask(message.encode("utf-8", "replace").decode())
            except (LlamacyError, ValueError) as error:
                said = renamed(one_line(error), _NAMES)
                print(f"llamacy: error: {said}; {_COMMANDS}", file=sys.stderr)


def _one_message(argument: str | None) -> str:
    text = read_text(argument)
    if argument in {None, "-"}:
        text = text.removesuffix(b"\n").removesuffix(b"\r")
    return text.decode("utf-8", "replace")
