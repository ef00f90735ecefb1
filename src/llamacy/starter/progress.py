"""Progress bars and messages on standard error, or silence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Bar:
    """Shows how far a task is; without a tqdm bar, shows nothing.

    Parameters
    ----------
    bar
        The tqdm bar, or None.
    """

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar

    def to(self, value: int) -> None:
        """Show that `value` of the whole is done."""
        if self._bar is not None:
            self._bar.update(value - self._bar.n)

    def add(self, amount: int) -> None:
        """Show that `amount` more is done."""
        if self._bar is not None:
            self._bar.update(amount)


class Progress:
    """Says what a long task does.

    Parameters
    ----------
    show
        False keeps it silent.
    """

    def __init__(self, show: bool) -> None:
        self._show = show

    def say(self, text: str) -> None:
        """Print one message."""
        if self._show:
            print(f"llamacy: {text}", file=sys.stderr, flush=True)

    def notice(self, text: str) -> None:
        """Print one message that must be seen, also when silent."""
        print(f"llamacy: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Bar]:
        """Show a bar for the length of the block; counts are bytes."""
        if not self._show:
            yield Bar()
            return
        from tqdm import tqdm

        # A log file gets a line every few seconds, a terminal a moving bar.
        interval = 0.1 if sys.stderr.isatty() else 5.0
        with tqdm(
            total=total,
            desc=label,
            unit="B",
            unit_scale=True,
            mininterval=interval,
            dynamic_ncols=True,
            file=sys.stderr,
        ) as bar:
            yield Bar(bar)
