"""Hold a thread inside native code, so that another one can meet it there."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def held_in_process(batch: Any, line: str = "overriding", raises: type[Exception] | None = None) -> Iterator[None]:
    """Run the block while another thread is inside `process`, where llama.cpp logs a line.

    The default one comes for a context with embeddings, when a token of the batch is no output. `raises` is the error
    that `process` ends with.
    """
    from llamacy.core.process import process

    inside, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    class Hold(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if threading.current_thread() is thread and line in record.getMessage():
                inside.set()
                go_on.wait(60)

    def run() -> None:
        try:
            process(batch)
        except BaseException as error:
            errors.append(error)

    handler = Hold()
    logger = logging.getLogger("llamacy.native")
    thread = threading.Thread(target=run)
    logger.addHandler(handler)
    try:
        thread.start()
        assert inside.wait(60), errors
        yield
    finally:
        go_on.set()
        thread.join()
        logger.removeHandler(handler)
    assert [type(error) for error in errors] == ([raises] if raises else []), errors
