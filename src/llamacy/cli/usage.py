"""Wrong usage: one line that says what was wrong, and what may be meant."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import NoReturn

# options of llama.cpp's programs that fetch a model
_FETCHING = ("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all errors of the command line are."""

    def error(self, message: str) -> NoReturn:
        """End the program with status 2."""
        self.exit(2, f"llamacy: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def check_fetching(argv: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Say that no option fetches a model from the web; `-hf` would be read as `-h -f`."""
    for argument in argv:
        if argument == "--":
            return
        if argument.partition("=")[0] in _FETCHING:
            parser.error(
                f"there is no option {argument.partition('=')[0]}: `hf download REPOSITORY FILE.gguf` fetches a file "
                "and prints its path, which is given as the model"
            )


def unknown_arguments(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Return the error of arguments that a command doesn't have."""
    first = unknown[0]
    text = f"unrecognized arguments: {' '.join(unknown)}"
    if first.startswith("--"):
        meant = nearest_option(first, known_options(parser))
        return f"{text}; did you mean {meant}?" if meant else text
    if parser.get_default("takes_text") and not first.startswith("-"):
        return f"{text}; a text of several words stands in quotes"
    return text


def known_options(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long options of a command."""
    return sorted(option for action in parser._actions for option in action.option_strings if option.startswith("--"))


def nearest_option(option: str, known: Iterable[str]) -> str | None:
    """Return the option that is meant by one that there isn't, if one is close: begins alike, or is spelled alike."""
    name = option.partition("=")[0].removeprefix("--")
    names = [known_option.removeprefix("--") for known_option in known]
    if len(name) >= 3:
        alike = [known_name for known_name in names if known_name.startswith(name) or name.startswith(known_name)]
        if alike:
            return "--" + min(alike, key=lambda known_name: abs(len(known_name) - len(name)))
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1, cutoff=0.75)
    return f"--{close[0]}" if close else None
