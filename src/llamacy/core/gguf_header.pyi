from typing import Any, final

from typing_extensions import Self

from llamacy.types import AnyBuffer, GgufType

__all__ = ["GgufHeader"]

@final
class GgufHeader:
    def __new__(cls, data: AnyBuffer) -> Self: ...
    @property
    def values(self) -> dict[str, Any]: ...
    @property
    def types(self) -> dict[str, GgufType]: ...
    @property
    def tensors(self) -> dict[str, tuple[int, tuple[int, int, int, int]]]: ...
