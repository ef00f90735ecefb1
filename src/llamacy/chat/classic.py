"""Chat formats by name, for models that carry no template."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Sequence

from llamacy.chat.classic_sources import FORMATS, ClassicFormat
from llamacy.chat.plain import short
from llamacy.chat.template import ChatTemplate

_formats = dict(FORMATS)
_lock = threading.Lock()


def chat_format_names() -> list[str]:
    """Return the names of all chat formats, sorted.

    Thread safety
    -------------
    May be called by several threads at once.
    """
    with _lock:
        return sorted(_formats)


def classic_template(name: str, *, bos_token: str = "", eos_token: str = "") -> ChatTemplate:
    """Return the template of a chat format, with the texts that end an answer in `stop`.

    Parameters
    ----------
    name
        Such as ``"chatml"``; see `chat_format_names`.
    bos_token, eos_token
        Texts of the special tokens.

    Raises
    ------
    ValueError
        There is no such format; the error names those that look like it.

    Thread safety
    -------------
    May be called by several threads at once.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a chat format is a text, not {type(name).__name__}")
    with _lock:
        found = _formats.get(name)
        names = sorted(_formats)
    if found is None:
        near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known are {', '.join(names)}"
        raise ValueError(f"there is no chat format {short(name)}; {hint}")
    return ChatTemplate(found.jinja(), bos_token=bos_token, eos_token=eos_token, name=name, stop=found.stop)


def register_chat_format(name: str, source: str, stop: Sequence[str] = ()) -> None:
    """Add a chat format.

    Parameters
    ----------
    name
        A new name.
    source
        The Jinja source.
    stop
        Texts that end an answer.

    Raises
    ------
    ChatTemplateError
        The source is no template.
    TypeError, ValueError
        The name is taken, or an argument is wrong.

    Thread safety
    -------------
    May be called by several threads at once.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a chat format is a text that isn't empty, not {short(name)}")
    if isinstance(stop, str) or not all(isinstance(text, str) and text for text in stop):
        raise TypeError(f"stop must be texts that aren't empty, not {short(stop)}")
    ChatTemplate(source, name=name)
    with _lock:
        if name in _formats:
            raise ValueError(f"there is a chat format {short(name)} already; choose another name")
        _formats[name] = ClassicFormat(source=source, stop=tuple(stop))
