"""`llamacy devices`: what this llamacy can compute on."""

from __future__ import annotations

import argparse
import json

from llamacy.cli.common import print_table, show_native_log


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "devices",
        help="list compute devices and backends",
        description="List the compute devices, the backends and the CPU features that this llamacy uses.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import llamacy

    show_native_log(False)
    found = [
        {
            "name": device.name,
            "description": device.description,
            "type": device.type.name,
            "backend": device.backend,
            "memory_free": device.memory[0],
            "memory_total": device.memory[1],
        }
        for device in llamacy.devices()
    ]
    backends = llamacy.backends()
    if arguments.json:
        print(json.dumps({"devices": found, "backends": backends}, indent=2))
        return 0
    print_table(
        [
            (
                str(device["name"]),
                str(device["type"]),
                str(device["backend"]),
                _gib(device["memory_free"]),
                _gib(device["memory_total"]),
                str(device["description"]),
            )
            for device in found
        ],
        ("DEVICE", "TYPE", "BACKEND", "FREE", "MEMORY", "DESCRIPTION"),
    )
    print()
    for name, features in backends.items():
        shown = [key if value == "1" else f"{key}={value}" for key, value in features.items() if value != "0"]
        print(f"{name} backend: {', '.join(shown) or 'no features reported'}")
    return 0


def _gib(size: object) -> str:
    return f"{size / 2**30:.1f} GiB" if isinstance(size, int) and size else "-"
