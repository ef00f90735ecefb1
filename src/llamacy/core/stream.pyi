from contextlib import AbstractContextManager
from typing import Any

from typing_extensions import Self, disjoint_base

from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.core.text import TextAssembler
from llamacy.core.vocab import Vocab

__all__ = ["TextStream", "TokenStream"]

@disjoint_base
class TextStream:
    def __new__(cls, tokens: TokenStream, assembler: TextAssembler) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> str: ...

@disjoint_base
class TokenStream:
    def __new__(
        cls,
        scheduler: Scheduler,
        sequence: Sequence,
        vocab: Vocab,
        max_tokens: int,
        *,
        lock: AbstractContextManager[Any],
    ) -> Self: ...
    @property
    def n_generated(self) -> int: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def thread(self) -> int: ...
    @property
    def detached(self) -> bool: ...
    def finish(self, reason: str) -> None: ...
    def detach(self) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> int: ...
