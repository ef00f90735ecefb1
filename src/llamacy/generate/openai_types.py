"""Responses as objects of the package `openai`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from llamacy._imports import import_whole

_MISSING = (
    "create_chat_completion_openai_v1 returns the types of the package openai, which is not installed: "
    "pip install 'llamacy[openai]', or pip install openai; create_chat_completion needs nothing and returns dicts"
)


def check_openai() -> None:
    """Say so when the package is missing.

    Raises
    ------
    ImportError
        It is not installed.
    """
    try:
        import_whole("openai.types.chat")
    except ImportError as error:
        raise ImportError(_MISSING) from error


def as_openai(response: Any) -> Any:
    """Return a chat completion, or the chunks of one, as objects of `openai`.

    They are made as the package makes them of what a server sends: what it doesn't know is kept.

    Parameters
    ----------
    response
        A dict, or an iterator of dicts; what comes of this is a generator that closes it.
    """
    from openai.types.chat import ChatCompletion

    if isinstance(response, dict):
        return ChatCompletion.construct(**response)
    return _chunks(response)


def _chunks(chunks: Iterator[Any]) -> Generator[Any, None, None]:
    from openai.types.chat import ChatCompletionChunk

    try:
        for chunk in chunks:
            yield ChatCompletionChunk.construct(**chunk)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
