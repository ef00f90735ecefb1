from array import array

from llamacy.types import AnyBuffer

__all__ = ["plan_packs"]

def plan_packs(
    lengths: AnyBuffer, *, max_tokens: int, max_texts: int, best_tokens: float
) -> tuple[array[int], array[int]]: ...
