from typing import Literal

from llamacy.core.batch_ext import ExtendedBatch

__all__ = ["process"]

def process(batch: ExtendedBatch, kind: Literal["decode", "encode"] = "decode") -> None: ...
