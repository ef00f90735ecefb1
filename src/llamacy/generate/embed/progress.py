"""A bar that shows how many texts are done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def texts_bar(show: bool, total: int | None) -> Iterator[Callable[[int], object] | None]:
    """Show a bar on standard error for the length of the block, and yield what counts texts; None without a bar."""
    if not show:
        yield None
        return
    from tqdm import tqdm

    # a log file gets a line every few seconds, a terminal a moving bar
    interval = 0.1 if sys.stderr.isatty() else 5.0
    with tqdm(total=total, desc="embedding", unit=" texts", mininterval=interval, dynamic_ncols=True) as bar:
        yield bar.update
