from collections.abc import Iterable
from typing import final

from typing_extensions import Self

from llamacy.core.context import Context
from llamacy.types import AnyBuffer, StrPath

__all__ = ["ControlVector", "control_vector_get", "control_vector_set"]

@final
class ControlVector:
    def __new__(
        cls,
        data: AnyBuffer | Iterable[Iterable[float]],
        il_start: int = 1,
        il_end: int | None = None,
        *,
        model_hint: str | None = None,
    ) -> Self: ...
    @staticmethod
    def from_gguf(
        path: StrPath, *, scale: float = 1.0, il_start: int = 1, il_end: int | None = None
    ) -> ControlVector: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def n_embd(self) -> int: ...
    @property
    def il_start(self) -> int: ...
    @property
    def il_end(self) -> int: ...
    @property
    def model_hint(self) -> str | None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def control_vector_set(context: Context, vector: ControlVector | None) -> None: ...
def control_vector_get(context: Context) -> ControlVector | None: ...
