"""Prints what building needs, one requirement a line: `python -m buildtools.requirements > file`.

For installing the build tools into a virtual environment by hand, so that a build shows its progress there.
"""

from __future__ import annotations

import sys
from typing import Any

from buildtools.paths import ROOT


def build_requirements() -> list[str]:
    """The build requirements of pyproject.toml."""
    data = _parse((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(data["build-system"]["requires"])


def _parse(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        # Nothing is installed yet when this runs, but pip carries a TOML reader.
        from pip._vendor import tomli as tomllib
    return tomllib.loads(text)


if __name__ == "__main__":
    print("\n".join(build_requirements()))
