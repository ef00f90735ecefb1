"""`llamacy cache`: what a prompt cache on disk holds, whether it is sound, and less of it."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llamacy.cli.common import CommandError, counted, number, print_table
from llamacy.errors import CheckpointError

if TYPE_CHECKING:
    from llamacy.checkpoint.directory import Listed
    from llamacy.checkpoint.format import Head

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class _Examined:
    """A file, and what is in it or why it is of no use."""

    listed: Listed
    head: Head | None
    problem: str | None


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "cache",
        help="list, verify or prune a prompt cache on disk",
        description="List, verify or prune the snapshots of a prompt cache. Programs may use it meanwhile.",
        epilog="prune removes what is damaged or was left by killed programs, then what the options say.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "action",
        choices=("list", "verify", "prune"),
        help="list: what is there; verify: read all of it, status 1 when something is damaged; prune: remove files",
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="the directory")
    parser.add_argument("--json", action="store_true", help="print JSON (list)")
    parser.add_argument(
        "--older-than", type=number(0), metavar="DAYS", help="remove what was not used for so many days (prune)"
    )
    parser.add_argument(
        "--max-size",
        type=_size,
        metavar="SIZE",
        help="remove what was used least recently until no more is left; for instance 500M or 2G (prune)",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing (prune)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    pruning = [arguments.older_than is not None, arguments.max_size is not None, arguments.dry_run]
    if arguments.action != "prune" and any(pruning):
        raise CommandError("--older-than, --max-size and --dry-run are options of prune.")
    if arguments.action != "list" and arguments.json:
        raise CommandError("--json is an option of list.")
    if not arguments.directory.is_dir():
        raise CommandError(f"{arguments.directory}: there is no such directory.")
    return {"list": _list, "verify": _verify, "prune": _prune}[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    examined = _examined(arguments.directory)
    if arguments.json:
        print(json.dumps([_facts(file) for file in examined], indent=2))
        return 0
    rows = [
        (
            file.listed.path.stem[:12],
            _megabytes(file.listed.n_bytes),
            _age(file.listed.used_ns),
            "" if file.head is None else f"{_n_tokens(file.head):,}",
            file.problem or _model(file.head),
        )
        for file in examined
    ]
    print_table(rows, ("SNAPSHOT", "SIZE", "USED", "TOKENS", "MODEL"))
    n_bytes = sum(file.listed.n_bytes for file in examined)
    print(f"{counted(len(examined), 'snapshot')}, {_megabytes(n_bytes)}", file=sys.stderr)
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from llamacy.checkpoint.directory import open_snapshot

    damaged, n = [], 0
    for file in _examined(arguments.directory):
        n += 1
        problem = file.problem
        if problem is None:
            try:
                open_snapshot(file.listed.path)
            except FileNotFoundError:
                continue  # it was removed meanwhile
            except CheckpointError as error:
                problem = str(error)
        if problem is not None:
            damaged.append(file)
            print(problem)
    print(f"{counted(n, 'snapshot')}, {len(damaged)} of no use", file=sys.stderr)
    return 1 if damaged else 0


def _prune(arguments: argparse.Namespace) -> int:
    from llamacy.checkpoint.directory import list_abandoned, remove_file

    examined = _examined(arguments.directory)
    doomed = [file.listed for file in examined if file.problem is not None]
    doomed += list_abandoned(arguments.directory)
    kept = [file.listed for file in examined if file.problem is None]
    if arguments.older_than is not None:
        before_ns = time.time_ns() - int(arguments.older_than * 86_400e9)
        doomed += [listed for listed in kept if listed.used_ns < before_ns]
        kept = [listed for listed in kept if listed.used_ns >= before_ns]
    if arguments.max_size is not None:
        left = sum(listed.n_bytes for listed in kept)
        for listed in kept:  # the least recently used one first
            if left <= arguments.max_size:
                break
            left -= listed.n_bytes
            doomed.append(listed)
    n_bytes = 0
    for listed in doomed:
        if not arguments.dry_run and not remove_file(listed.path):
            raise CommandError(f"{listed.path} can't be removed.")
        n_bytes += listed.n_bytes
        print(listed.path)
    verb = "would go" if arguments.dry_run else "removed"
    print(f"{counted(len(doomed), 'file')} {verb}, {_megabytes(n_bytes)}", file=sys.stderr)
    return 0


def _examined(directory: Path) -> list[_Examined]:
    """Return the files of a directory, the least recently used one first, after a look at their heads."""
    from llamacy.checkpoint.directory import list_snapshots, open_head

    examined = []
    for listed in sorted(list_snapshots(directory), key=lambda listed: listed.used_ns):
        try:
            examined.append(_Examined(listed, open_head(listed.path), None))
        except FileNotFoundError:
            continue  # it was removed meanwhile
        except CheckpointError as error:
            examined.append(_Examined(listed, None, str(error)))
    return examined


def _facts(file: _Examined) -> dict[str, object]:
    facts: dict[str, object] = {
        "path": str(file.listed.path),
        "n_bytes": file.listed.n_bytes,
        "used_s": file.listed.used_ns / 1e9,
        "problem": file.problem,
    }
    if file.head is not None:
        facts |= {
            "n_tokens": _n_tokens(file.head),
            "n_media": len(file.head.prefix.media),
            "has_logits": file.head.n_logits_bytes > 0,
            "fingerprint": dict(file.head.fingerprint),
        }
    return facts


def _n_tokens(head: Head) -> int:
    return head.prefix.cells(len(head.prefix))


def _model(head: Head | None) -> str:
    if head is None:
        return ""
    facts = head.fingerprint
    weights = str(facts.get("weights", ""))
    return f"{facts.get('architecture', '?')} {weights[:12]} {facts.get('type_k', '?')}/{facts.get('type_v', '?')}"


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB"


def _age(used_ns: int) -> str:
    seconds = max(time.time() - used_ns / 1e9, 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})\s*([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a size: write for instance 500M or 2G")
    return int(match[1]) * _UNITS[match[2].upper()]
