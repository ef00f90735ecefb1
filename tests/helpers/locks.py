"""Locks, as another thread finds them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any


def is_free(lock: Any) -> bool:
    """Whether another thread can take it."""

    def take() -> bool:
        taken: bool = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(take).result()
