"""Where benchmarks keep what they make."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_dir() -> Path:
    """Return the folder for programs and models of the benchmarks; it exists."""
    own = os.environ.get("LLAMACY_CACHE_DIR")
    base = Path(own).expanduser().absolute() if own else user_cache_path("llamacy", appauthor=False)
    folder = base / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
