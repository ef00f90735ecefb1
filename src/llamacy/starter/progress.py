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

    @property
    def is_shown(self) -> bool:
        """Whether anything is shown."""
        return self._show

    def say(self, text: str) -> None:
        """Print one message."""
        if self._show:
            print(f"llamacy: {text}", file=sys.stderr, flush=True)

    def notice(self, text: str) -> None:
        """Print one message that must be seen, also when silent."""
        print(f"llamacy: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def bar(self, label: str, total: int | None, *, unit: str = "B", initial: int = 0) -> Iterator[Bar]:
        """Show a bar for the length of the block.

        Parameters
        ----------
        label
            What is done.
        total
            How much there is to do; None when nobody knows.
        unit
            What is counted; bytes by default.
        initial
            How much was done before.
        """
        if not self._show:
            yield Bar()
            return
        from tqdm import tqdm

        # A log file gets a line every few seconds, a terminal a moving bar.
        interval = 0.1 if sys.stderr.isatty() else 5.0
        with tqdm(
            total=total,
            desc=label or None,
            initial=initial,
            unit=unit,
            unit_scale=unit == "B",
            mininterval=interval,
            dynamic_ncols=True,
            file=sys.stderr,
        ) as bar:
            yield Bar(bar)
