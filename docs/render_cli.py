"""Writes docs/cli.md from the parser of the command line: `python docs/render_cli.py`. A test compares the
two."""

from __future__ import annotations

import argparse
from pathlib import Path

from llamacy.cli.main import build_parser

TARGET = Path(__file__).with_name("cli.md")

_INTRODUCTION = """# The command line

`llamacy COMMAND …`, also `python -m llamacy COMMAND …`. This page is written by `docs/render_cli.py` from the
parser.

Results go to standard output; messages, progress bars and errors go to standard error. An error is one line,
`llamacy: error: …`; where a command is used wrongly, the line ends with the command that says how it is used.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | error |
| 2 | wrong usage |
| 130 | stopped by Ctrl-C |
| 141 | nobody reads the output any more (a closed pipe) |
| 143 | stopped by SIGTERM |

| environment variable | meaning |
|---|---|
| `LLAMACY_CACHE_DIR` | where starter models are kept, instead of the user's cache folder |
| `PIP_INDEX_URL`, `PIP_FIND_LINKS`, … | where `pull` takes starter models from: it asks pip |
"""


def render() -> str:
    """Return the page."""
    parser = build_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help for action in commands._choices_actions}
    lines = [_INTRODUCTION, "| command | |", "|---|---|"]
    lines += [f"| [`{name}`](#llamacy-{name}) | {helps[name]} |" for name in commands.choices]
    for name, command in commands.choices.items():
        lines += ["", f"## llamacy {name}", "", str(command.description), ""]
        for group in command._action_groups:
            actions = [action for action in group._group_actions if not isinstance(action, argparse._HelpAction)]
            if actions:
                title = {"positional arguments": "argument", "options": "option"}.get(
                    str(group.title), str(group.title)
                )
                lines += [f"| {title} | |", "|---|---|"]
                lines += [f"| {_spelling(action)} | {_cell(action.help)} |" for action in actions]
                lines += [""]
        del lines[-1]
    return "\n".join(lines) + "\n"


def _spelling(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else str(action.metavar or _choices(action) or action.dest)
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{option} {value}`" if value else f"`{option}`" for option in action.option_strings)


def _choices(action: argparse.Action) -> str:
    return f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("%%", "%")


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
