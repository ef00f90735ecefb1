"""Enumerations and small value types that several modules share.

The values are those of the C enums of the same name; a test compares them with the headers.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple, Union

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Protocol

    from typing_extensions import Buffer

    class _NumPyArray(Protocol):
        # below Python 3.12 NumPy's own types don't say that an array is a buffer
        @property
        def __array_interface__(self) -> dict[str, Any]: ...

    #: What the buffer protocol can read: bytes, memoryview, array.array, NumPy arrays and others.
    AnyBuffer = Buffer | _NumPyArray

StrPath = Union[str, "PathLike[str]"]


class LoadMode(IntEnum):
    """How the weights get into memory (`enum llama_load_mode`)."""

    AUTO = -1
    NONE = 0
    MMAP = 1
    MLOCK = 2
    MMAP_MLOCK = 3
    DIRECT_IO = 4


class LazyMode(IntEnum):
    """Whether the rows of marked tensors are read on demand (`enum llama_lazy_mode`)."""

    OFF = 0
    AUTO = 1
    ON = 2


class SplitMode(IntEnum):
    """How a model is split over several GPUs (`enum llama_split_mode`)."""

    NONE = 0
    LAYER = 1
    ROW = 2
    TENSOR = 3


class ContextType(IntEnum):
    """What a context computes (`enum llama_context_type`)."""

    DEFAULT = 0
    MTP = 1


class RopeType(IntEnum):
    """Layout of the rotary position embedding (`enum llama_rope_type`)."""

    NONE = -1
    NORM = 0
    NEOX = 2
    MROPE = 8
    IMROPE = 40
    VISION = 24


class RopeScalingType(IntEnum):
    """How positions are scaled beyond the trained length (`enum llama_rope_scaling_type`)."""

    UNSPECIFIED = -1
    NONE = 0
    LINEAR = 1
    YARN = 2
    LONGROPE = 3


class PoolingType(IntEnum):
    """How token embeddings become one embedding of a sequence (`enum llama_pooling_type`)."""

    UNSPECIFIED = -1
    NONE = 0
    MEAN = 1
    CLS = 2
    LAST = 3
    RANK = 4


class AttentionType(IntEnum):
    """Attention used for embeddings (`enum llama_attention_type`)."""

    UNSPECIFIED = -1
    CAUSAL = 0
    NON_CAUSAL = 1


class FlashAttnType(IntEnum):
    """When flash attention is used (`enum llama_flash_attn_type`)."""

    AUTO = -1
    DISABLED = 0
    ENABLED = 1


class VocabType(IntEnum):
    """Kind of tokenizer (`enum llama_vocab_type`)."""

    NONE = 0
    SPM = 1
    BPE = 2
    WPM = 3
    UGM = 4
    RWKV = 5
    PLAMO2 = 6
    TEST = 7
    PLAMO3 = 8


class TokenAttr(IntFlag):
    """Attributes of a token (`enum llama_token_attr`)."""

    UNDEFINED = 0
    UNKNOWN = 1 << 0
    UNUSED = 1 << 1
    NORMAL = 1 << 2
    CONTROL = 1 << 3
    USER_DEFINED = 1 << 4
    BYTE = 1 << 5
    NORMALIZED = 1 << 6
    LSTRIP = 1 << 7
    RSTRIP = 1 << 8
    SINGLE_WORD = 1 << 9


class StateFlags(IntFlag):
    """What a sequence state holds (`LLAMA_STATE_SEQ_FLAGS_*`)."""

    NONE = 0
    PARTIAL_ONLY = 1
    ON_DEVICE = 2


class NumaStrategy(IntEnum):
    """Placement of threads on machines with several memory nodes (`enum ggml_numa_strategy`)."""

    DISABLED = 0
    DISTRIBUTE = 1
    ISOLATE = 2
    NUMACTL = 3
    MIRROR = 4


class DeviceType(IntEnum):
    """Kind of compute device (`enum ggml_backend_dev_type`)."""

    CPU = 0
    GPU = 1
    IGPU = 2
    ACCEL = 3
    META = 4


class GgmlType(IntEnum):
    """Storage type of a tensor (`enum ggml_type`)."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42


class FileType(IntEnum):
    """Quantization of a whole model file (`enum llama_ftype`)."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q8_0 = 7
    Q5_0 = 8
    Q5_1 = 9
    Q2_K = 10
    Q3_K_S = 11
    Q3_K_M = 12
    Q3_K_L = 13
    Q4_K_S = 14
    Q4_K_M = 15
    Q5_K_S = 16
    Q5_K_M = 17
    Q6_K = 18
    IQ2_XXS = 19
    IQ2_XS = 20
    Q2_K_S = 21
    IQ3_XS = 22
    IQ3_XXS = 23
    IQ1_S = 24
    IQ4_NL = 25
    IQ3_S = 26
    IQ3_M = 27
    IQ2_S = 28
    IQ2_M = 29
    IQ4_XS = 30
    IQ1_M = 31
    BF16 = 32
    TQ1_0 = 36
    TQ2_0 = 37
    MXFP4_MOE = 38
    NVFP4 = 39
    Q1_0 = 40
    Q2_0 = 41
    GUESSED = 1024


class GgufType(IntEnum):
    """Type of a metadata value, or of the elements of an array (`enum gguf_type`)."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


class ThreadPriority(IntEnum):
    """Scheduling priority of the threads of a pool (`enum ggml_sched_priority`)."""

    LOW = -1
    NORMAL = 0
    MEDIUM = 1
    HIGH = 2
    REALTIME = 3


class TensorInfo(NamedTuple):
    """What a GGUF says about one tensor."""

    name: str
    type: GgmlType
    #: elements in each dimension, the fastest one last, as NumPy counts them
    shape: tuple[int, ...]
    #: elements in each of ggml's four dimensions, the fastest one first
    ne: tuple[int, int, int, int]
    #: bytes from the begin of the tensor data
    offset: int
    n_bytes: int


class _ReasoningTags(NamedTuple):
    start: tuple[str, ...]
    end: tuple[str, ...]
    is_open: bool
    anywhere: bool


class ReasoningTags(_ReasoningTags):
    """What the reasoning of a model stands between, for a lazy grammar that lets its triggers mean nothing there.

    A tag is found in the text, however it is spelled by tokens. An end tag in quotes or between backticks is spoken of
    and ends nothing: the same mark stands right before and after it, as the first and second of a pair on its line.

    Parameters
    ----------
    start, end
        The tags, each a text or several.
    is_open
        The text begins within reasoning, since the prompt has begun it.
    anywhere
        A start tag counts wherever it stands. By default it counts, white space aside, where the text begins and where
        reasoning ended; elsewhere it is text.

    Raises
    ------
    TypeError, ValueError
        A tag is no text, empty or very long, or there are none or very many.
    """

    __slots__ = ()

    def __new__(
        cls,
        start: str | Iterable[str] = "<think>",
        end: str | Iterable[str] = "</think>",
        *,
        is_open: bool = False,
        anywhere: bool = False,
    ) -> ReasoningTags:
        return super().__new__(cls, _tags(start, "start"), _tags(end, "end"), bool(is_open), bool(anywhere))

    def __getnewargs_ex__(self) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], dict[str, bool]]:
        return (self.start, self.end), {"is_open": self.is_open, "anywhere": self.anywhere}


def _tags(tags: str | Iterable[str], name: str) -> tuple[str, ...]:
    found = (tags,) if isinstance(tags, str) else tuple(tags)
    if not 1 <= len(found) <= _MAX_TAGS:
        raise ValueError(f"{name} must be a tag or 1 to {_MAX_TAGS} of them, not {len(found)}")
    for tag in found:
        if not isinstance(tag, str):
            raise TypeError(f"{name} must hold texts, not {type(tag).__name__}")
        try:
            n_bytes = len(tag.encode())
        except UnicodeEncodeError:
            raise ValueError(f"{name} holds {tag!r:.60} with half of a surrogate pair") from None
        if not tag.strip() or n_bytes > _MAX_TAG_BYTES:
            raise ValueError(f"{name}: a tag has 1 to {_MAX_TAG_BYTES} bytes, not only white space; not {tag!r:.60}")
    return found


_MAX_TAGS, _MAX_TAG_BYTES = 16, 1024
