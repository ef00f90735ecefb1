from typing import final

from typing_extensions import Self

__all__ = ["QuantizeRun"]

@final
class QuantizeRun:
    def __new__(cls, *, dry: bool = False, progress: object = None, total: int = 0) -> Self: ...
