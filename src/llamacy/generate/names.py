"""What is said of a name that there isn't."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn


def raise_unknown(name: str, known: Iterable[str]) -> NoReturn:
    """Say that there is no such option, and which one may have been meant.

    Raises
    ------
    TypeError
        Always.
    """
    from difflib import get_close_matches

    from llamacy._elsewhere import option_hint

    known = sorted(known)
    close = get_close_matches(name, known, n=1)
    nearest = f"; did you mean {close[0]!r}?" if close else f"; options are {', '.join(known)}"
    hint = option_hint(name, known) or nearest
    raise TypeError(f"there is no option {name!r}{hint}")
