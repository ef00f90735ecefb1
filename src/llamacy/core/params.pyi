from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, type_check_only

from typing_extensions import Self, Unpack, disjoint_base

from llamacy.core.backend import Device
from llamacy.types import (
    AttentionType,
    ContextType,
    FlashAttnType,
    GgmlType,
    LazyMode,
    LoadMode,
    PoolingType,
    RopeScalingType,
    SplitMode,
)

__all__ = ["ContextParams", "ModelParams"]

# Keyword arguments, as every function takes them that hands them on. An enum is a member, its number or its name.

@type_check_only
class _ModelKeywords(TypedDict, total=False):
    n_gpu_layers: int | str | None
    cpu_moe: bool
    n_cpu_moe: int
    devices: Device | str | Iterable[Device | str] | None
    tensor_buft_overrides: Mapping[str, str] | Iterable[tuple[str, str]] | None
    split_mode: SplitMode | int | str
    main_gpu: int
    tensor_split: Sequence[float] | None
    load_mode: LoadMode | int | str
    lazy_mode: LazyMode | int | str
    kv_overrides: Mapping[str, bool | int | float | str] | None
    vocab_only: bool
    check_tensors: bool
    use_extra_bufts: bool
    no_host: bool
    no_alloc: bool
    load_mtp: bool
    progress_callback: Callable[[float], object] | None

@type_check_only
class _ContextKeywords(TypedDict, total=False):
    n_ctx: int
    n_batch: int
    n_ubatch: int
    n_seq_max: int
    n_rs_seq: int
    n_outputs_max: int
    n_outputs_max_per_seq: int
    n_threads: int | None
    n_threads_batch: int | None
    ctx_type: ContextType | int | str
    rope_scaling_type: RopeScalingType | int | str
    rope_freq_base: float
    rope_freq_scale: float
    yarn_ext_factor: float
    yarn_attn_factor: float
    yarn_beta_fast: float
    yarn_beta_slow: float
    yarn_orig_ctx: int
    pooling_type: PoolingType | int | str
    attention_type: AttentionType | int | str
    flash_attn_type: FlashAttnType | int | str
    type_k: GgmlType | int | str
    type_v: GgmlType | int | str
    embeddings: bool
    offload_kqv: bool
    op_offload: bool
    swa_full: bool
    kv_unified: bool
    no_perf: bool
    moe_cache_size: int

@disjoint_base
class ModelParams:
    def __new__(cls, **params: Unpack[_ModelKeywords]) -> Self: ...
    @property
    def values(self) -> dict[str, Any]: ...
    @property
    def progress_callback(self) -> Callable[[float], object] | None: ...

@disjoint_base
class ContextParams:
    def __new__(cls, **params: Unpack[_ContextKeywords]) -> Self: ...
    @property
    def values(self) -> dict[str, Any]: ...
