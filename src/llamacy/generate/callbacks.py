"""Logits processors and stopping criteria as people write them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from llamacy._imports import import_whole
from llamacy.core.logits_function import LogitsFunction

if TYPE_CHECKING:
    from llamacy.core.outputs import Rows
    from llamacy.core.sequence import Sequence


def processors(given: Any) -> tuple[LogitsFunction | Callable[[Sequence, Rows], None], ...]:
    """Return logits processors in the shape that a sequence wants.

    Parameters
    ----------
    given
        None, a processor, or several. A processor is a `LogitsFunction`, or called as ``processor(input_ids, scores)``
        with NumPy arrays that copy nothing, int32 (n_tokens,) and float32 (n_vocab,). It changes `scores` in place, or
        returns an array of that shape to take its place.

    Raises
    ------
    TypeError
        One of them can't be called.
    """
    return tuple(
        item if isinstance(item, LogitsFunction) else _processor(item) for item in _several(given, "logits_processor")
    )


def criteria(given: Any) -> tuple[LogitsFunction | Callable[[Sequence, Rows], bool], ...]:
    """Return stopping criteria in the shape that a sequence wants.

    Parameters
    ----------
    given
        None, a criterion, or several. A criterion is a `LogitsFunction`, a `threading.Event` that stops once it is set,
        or called after each token as ``criterion(input_ids, scores)``, with arrays as for a processor; `input_ids` has
        the new token. What it returns says whether to stop.

    Raises
    ------
    TypeError
        One of them can't be called.
    """
    return tuple(
        item if isinstance(item, LogitsFunction) else _criterion(item) for item in _several(given, "stopping_criteria")
    )


def _several(given: Any, name: str) -> Iterable[Any]:
    if given is None:
        return ()
    # a list of Hugging Face's kind can be called as well
    items = list(given) if isinstance(given, Iterable) else [given]
    for item in items:
        if not callable(item) and not isinstance(item, (LogitsFunction, threading.Event)):
            raise TypeError(f"{name} must be callable, or several that are, not {item!r:.80}")
    return items


def _processor(function: Callable[[Any, Any], Any]) -> Callable[[Sequence, Rows], None]:
    import_whole("numpy")
    import numpy as np

    def process(sequence: Sequence, rows: Rows) -> None:
        scores = np.asarray(rows)
        changed = function(np.asarray(sequence), scores)
        if changed is None or changed is scores:
            return
        changed = np.asarray(changed)
        if changed.shape != scores.shape:
            raise ValueError(f"a logits processor returned shape {changed.shape}, but scores have {scores.shape}")
        np.copyto(scores, changed, casting="same_kind")

    return process


def _criterion(function: Any) -> Callable[[Sequence, Rows], bool]:
    if isinstance(function, threading.Event):
        event = function
        return lambda *_: event.is_set()
    import_whole("numpy")
    import numpy as np

    return lambda sequence, rows: bool(function(np.asarray(sequence), np.asarray(rows)))
