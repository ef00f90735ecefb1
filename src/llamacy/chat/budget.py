"""What one rendering may cost: steps and bytes, counted while the template runs.

Every loop pass, call, filter and operator of a template takes steps from the budget of its rendering, in proportion to
the data that it touches, and every value that it makes takes bytes. So time and memory are bounded without signals or
threads, and equally on every machine.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from llamacy.errors import ChatTemplateLimitError

#: Characters that the source of a template may have; the largest known one has 51,000.
MAX_SOURCE = 256 * 1024
#: Steps of every rendering. A step is some 50 to 200 ns.
MAX_STEPS = 10_000_000
#: Further steps for every item, and for every byte, of what is rendered.
STEPS_PER_ITEM = 10_000
STEPS_PER_BYTE = 4
#: Bytes that a rendering may allocate all in all, and further ones for every byte and item of what is rendered.
MAX_BYTES = 128 * 1024 * 1024
BYTES_PER_BYTE = 100
BYTES_PER_ITEM = 10_000
#: Bytes that are touched in one step.
BYTES_PER_STEP = 64
#: How deep lists and objects may nest, in the messages and in what a template makes.
MAX_NESTING = 100
#: How deep macros and recursive loops may call each other.
MAX_DEPTH = 60
#: Bits of an integer that arithmetic may use.
MAX_INT_BITS = 2048
#: Widths, precisions, indents and counts that text functions take.
MAX_WIDTH = 100_000

_CONTAINERS = (list, tuple, dict)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_ITEM = 8
_ENTRY = 104
_GENERATOR = 1024
_OBJECT = 64
_COUNTED_STEPS = 16
# below these CPython's search is not linear (Objects/stringlib/fastsearch.h)
_SHORT_TEXT, _SHORT_NEEDLE, _TINY_NEEDLE = 30_000, 100, 6
_TOO_LONG = "the chat template takes too many steps; it loops too long, or works on too much data"
_TOO_DEEP = f"the chat template nests data more than {MAX_NESTING} levels deep"


class Budget:
    """What is left for one rendering.

    Parameters
    ----------
    n_items, n_bytes
        How large the data is that is rendered.
    now
        The clock.
    """

    __slots__ = ("_weights", "bytes", "depth", "now", "steps")

    def __init__(self, n_items: int, n_bytes: int, now: Callable[[], datetime.datetime]) -> None:
        self.steps = MAX_STEPS + STEPS_PER_ITEM * n_items + STEPS_PER_BYTE * n_bytes
        self.bytes = MAX_BYTES + BYTES_PER_BYTE * n_bytes + BYTES_PER_ITEM * n_items
        self.depth = 0
        self.now = now
        # the value keeps the container alive, so that its id stays its own
        self._weights: dict[int, tuple[Any, int, int]] = {}

    # these three are called for all that a template does, so none calls another

    def step(self, n: int) -> None:
        """Take `n` steps."""
        self.steps -= n
        if self.steps < 0:
            raise ChatTemplateLimitError(_TOO_LONG)

    def touch(self, n_bytes: int) -> None:
        """Take the steps that it costs to read or write `n_bytes`."""
        self.steps -= 1 + n_bytes // BYTES_PER_STEP
        if self.steps < 0:
            raise ChatTemplateLimitError(_TOO_LONG)

    def allocate(self, n_bytes: int) -> None:
        """Take `n_bytes`, before they are allocated where that is possible."""
        self.bytes -= n_bytes
        if self.bytes < 0:
            raise ChatTemplateLimitError("the chat template makes more text or data than allowed")
        self.steps -= 1 + n_bytes // BYTES_PER_STEP
        if self.steps < 0:
            raise ChatTemplateLimitError(_TOO_LONG)

    def weigh(self, value: Any) -> int:
        """Return about how many bytes all work on a value touches, whatever it is made of.

        What a value holds more than once counts more than once, since comparing or printing goes there again.
        """
        return value.__sizeof__() if isinstance(value, str) else self._measure(value, 0)[0]

    def _measure(self, value: Any, level: int) -> tuple[int, int]:
        """Return the weight of a value, and how deep it nests."""
        if isinstance(value, str):
            return value.__sizeof__(), 0
        if isinstance(value, _CONTAINERS):
            known = self._weights.get(id(value))
            if known is not None:
                return known[1:]
        elif not isinstance(value, _VIEWS):
            if isinstance(value, int):
                # the time to write it as text
                return _OBJECT + (value.bit_length() ** 2 >> 10), 0
            return (len(value) * _OBJECT if isinstance(value, (range, bytes)) else _OBJECT), 0
        if level > MAX_NESTING:
            raise ChatTemplateLimitError(_TOO_DEEP)
        self.step(2 + 2 * len(value))
        total = _OBJECT + _ITEM * len(value)
        # kept until the rendering ends
        self.bytes -= total
        depth = 0
        items = [*value, *value.values()] if isinstance(value, dict) else value
        for item in items:
            weight, below = self._measure(item, level + 1)
            total += weight
            depth = max(depth, below)
        depth += 1
        if depth > MAX_NESTING:
            raise ChatTemplateLimitError(_TOO_DEEP)
        self._weights[id(value)] = (value, total, depth)
        return total, depth

    def changed(self, value: list[Any]) -> None:
        """Take what it costs to change a list, before it changes."""
        self.allocate(_OBJECT + _ITEM * len(value) // 8)
        self._weights.clear()

    def read(self, value: Any) -> None:
        """Take the steps of work that touches all of a value."""
        self.touch(value.__sizeof__() if isinstance(value, str) else self._measure(value, 0)[0])

    def made(self, value: Any) -> None:
        """Take the bytes of a value that was made."""
        if isinstance(value, str):
            self.allocate(value.__sizeof__())
        elif isinstance(value, _CONTAINERS):
            self.allocate(_OBJECT + (_ENTRY if isinstance(value, dict) else _ITEM) * len(value))

    def search(self, n: int, m: int) -> None:
        """Take the steps of a search for `m` characters in `n`, which for short ones can look at `n * m`."""
        self.touch(n * min(m, _SHORT_NEEDLE) if n < _SHORT_TEXT or m < _TINY_NEEDLE else 4 * n)

    def hash_keys(self, keys: Any) -> None:
        """Take the steps of a table with these keys; those of numbers can be made to collide, those of texts can't."""
        n = sum(1 for key in keys if not isinstance(key, str))
        self.step(1 + n * n // 16)


_current: ContextVar[Budget] = ContextVar("llamacy_chat_budget")
current = _current.get
begin = _current.set
end = _current.reset


def counted(items: Iterator[Any]) -> Iterator[Any]:
    """Return an iterator that takes steps for each item of another."""
    budget = current()
    budget.step(_OBJECT)
    budget.allocate(_GENERATOR)
    return _counted(items)


def _counted(items: Iterator[Any]) -> Iterator[Any]:
    budget = current()
    for item in items:
        budget.step(_COUNTED_STEPS)
        yield item
