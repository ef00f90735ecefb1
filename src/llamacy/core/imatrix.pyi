from collections.abc import Mapping

from llamacy.types import AnyBuffer, StrPath

__all__ = ["read_imatrix"]

def read_imatrix(source: Mapping[str, AnyBuffer] | StrPath) -> dict[str, memoryview]: ...
