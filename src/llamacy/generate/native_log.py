"""llama.cpp's log on standard error."""

from __future__ import annotations

import logging


def log_to_stderr() -> None:
    """Show the log, unless `logging` is set up to do something else with it."""
    logger = logging.getLogger("llamacy")
    if not logger.handlers and not logging.getLogger().handlers:
        logger.addHandler(logging.StreamHandler())
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
