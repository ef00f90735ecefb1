from collections.abc import Container

from llamacy.types import StrPath

__all__ = ["VALUE_MAX", "check_values"]

VALUE_MAX: float

def check_values(path: StrPath, names: Container[str]) -> None: ...
