from collections.abc import Iterable
from typing import final

from typing_extensions import Self

from llamacy.types import ThreadPriority

__all__ = ["ThreadPool"]

@final
class ThreadPool:
    def __new__(
        cls,
        n_threads: int,
        *,
        cpu_mask: Iterable[int] | None = None,
        priority: ThreadPriority | int | str = ...,
        poll: int | None = None,
        strict_cpu: bool = False,
        paused: bool = False,
    ) -> Self: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...
    @property
    def n_threads(self) -> int: ...
    @property
    def cpu_mask(self) -> frozenset[int] | None: ...
    @property
    def priority(self) -> ThreadPriority: ...
    @property
    def poll(self) -> int | None: ...
    @property
    def strict_cpu(self) -> bool: ...
    @property
    def n_attached(self) -> int: ...
