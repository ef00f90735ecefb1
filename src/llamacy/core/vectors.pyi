from llamacy.types import AnyBuffer

__all__ = ["normalize_rows"]

def normalize_rows(rows: AnyBuffer, p: float = 2.0) -> None: ...
