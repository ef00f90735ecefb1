from typing import NoReturn, final

__all__ = ["ArrayExport", "ExportCount"]

@final
class ExportCount: ...

@final
class ArrayExport:
    def __init__(self, *args: object, **kwargs: object) -> NoReturn: ...
