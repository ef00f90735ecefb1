from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from llamacy.types import AnyBuffer, FileType, GgmlType, StrPath

__all__ = ["QuantizeResult", "quantize"]

class QuantizeResult(NamedTuple):
    paths: tuple[str, ...]
    tensor_types: dict[str, GgmlType]
    n_bytes_source: int
    n_bytes: int

def quantize(
    source: StrPath,
    target: StrPath,
    ftype: FileType | int | str,
    *,
    n_threads: int | None = None,
    output_tensor_type: GgmlType | int | str | None = None,
    token_embedding_type: GgmlType | int | str | None = None,
    allow_requantize: bool = False,
    quantize_output_tensor: bool = True,
    only_copy: bool = False,
    pure: bool = False,
    keep_split: bool = False,
    dry_run: bool = False,
    imatrix: Mapping[str, AnyBuffer] | StrPath | None = None,
    kv_overrides: Mapping[str, bool | int | float | str] | None = None,
    tensor_types: Mapping[str, GgmlType | int | str] | None = None,
    prune_layers: Iterable[int] | None = None,
    max_buf_size: int | None = None,
    progress: Callable[[int, int, str], object] | Literal[True] | None = None,
) -> QuantizeResult: ...
