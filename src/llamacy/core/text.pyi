from collections.abc import Iterable

from typing_extensions import Self, disjoint_base

from llamacy.core.vocab import Vocab
from llamacy.types import AnyBuffer

__all__ = ["TextAssembler"]

@disjoint_base
class TextAssembler:
    def __new__(
        cls,
        vocab: Vocab,
        stop: str | bytes | Iterable[str | bytes] = (),
        *,
        special: bool = False,
        spelled: Iterable[int] = (),
        matched: Iterable[int] = (),
    ) -> Self: ...
    @property
    def n_in(self) -> int: ...
    @property
    def n_out(self) -> int: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def stop(self) -> str | None: ...
    def feed(self, data: AnyBuffer) -> str: ...
    def feed_token(self, token: int) -> str: ...
    def finish(self) -> str: ...
