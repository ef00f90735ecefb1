from typing_extensions import disjoint_base

__all__ = ["LogitsFunction"]

@disjoint_base
class LogitsFunction:
    def __init__(self, capsule: object) -> None: ...
