"""How vectors are normalised."""

from __future__ import annotations

import math
from typing import Literal

Normalization = bool | float | Literal["none", "l2", "l1", "max_abs"] | None

_NAMES = {"none": None, "l2": 2.0, "l1": 1.0, "max_abs": math.inf, "max-abs": math.inf}


def norm_power(normalize: Normalization) -> float | None:
    """Return the p of the p-norm by which vectors are divided, or None to leave them as they are.

    Raises
    ------
    TypeError, ValueError
        There is no such norm.
    """
    if getattr(getattr(normalize, "dtype", None), "kind", None) == "b":
        normalize = bool(normalize)  # NumPy's True is not the number 1
    if normalize is None or normalize is False:
        return None
    if normalize is True:
        return 2.0
    if isinstance(normalize, str):
        if normalize not in _NAMES:
            names = ", ".join(repr(name) for name in _NAMES if name != "max-abs")
            raise ValueError(f"normalize is True, False, a number above 0, or one of {names}, not {normalize!r}")
        return _NAMES[normalize]
    try:
        power = float(normalize)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"normalize is True, False, a number or the name of a norm, not {normalize!r:.80}") from None
    if power == -1:
        return None  # llama.cpp's number for it
    if not power > 0:
        raise ValueError(
            f"normalize={normalize!r} is no norm: give a number above 0 (1 and 2 are the usual ones), or 'max_abs'"
        )
    return power
