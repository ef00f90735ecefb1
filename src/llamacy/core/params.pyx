# distutils: language = c++
"""Parameters of models and contexts, checked once and kept with all that they point to."""

from libc.float cimport FLT_MAX
from libc.stddef cimport size_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from llamacy.core.backend cimport Device, buffer_type_find, device_find
from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport ggml_backend as c_backend
from llamacy.native cimport llama as c_llama

import os
import warnings
from collections.abc import Mapping

from llamacy._caller import levels_to_caller
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

# the feed-forward tensors of the experts, which is what "MoE on the CPU" keeps in host memory
_MOE_TENSORS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"

# llama.cpp rounds n_ctx up to 256 for each of at most 256 sequences, which must not overflow
_N_CTX_MAX = 2**31 - 2**17

# K/V cache types that llama.cpp can decode with; it takes others and crashes in the first decode
_CACHE_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "IQ4_NL", "Q5_0", "Q5_1")


cdef class ModelParams:
    """Parameters of `Model`, checked.

    Parameters
    ----------
    n_gpu_layers : int or str, optional
        Layers to keep in GPU memory: a number, ``"auto"`` or ``"all"``. All that fit by default.
    cpu_moe : bool
        Keep all expert tensors in host memory.
    n_cpu_moe : int
        Keep the expert tensors of the first `n_cpu_moe` layers in host memory.
    devices : sequence of Device or str, optional
        Devices to use, in this order; all by default, none when empty.
    tensor_buft_overrides : mapping or sequence of pairs, optional
        ``{regular expression over tensor names: buffer type name}``; the first match counts.
    split_mode : SplitMode
        How to split the model over several GPUs.
    main_gpu : int
        The GPU that is used for everything with ``SplitMode.NONE``.
    tensor_split : sequence of float, optional
        Share of the model for each GPU.
    load_mode : LoadMode
        How the weights get into memory.
    lazy_mode : LazyMode
        Whether rows of marked tensors are read on demand.
    kv_overrides : mapping of str to bool, int, float or str, optional
        Metadata to use instead of what the file says.
    vocab_only : bool
        Load the vocabulary alone.
    check_tensors : bool
        Check that tensor data is valid, which reads all of it.
    use_extra_bufts : bool
        Repack weights into the layout that is fastest for this CPU.
    no_host : bool
        Bypass the host buffer, which allows extra buffer types.
    no_alloc : bool
        Load metadata and lay out memory without allocating it; for sizes only.
    load_mtp : bool
        Load the multi-token-prediction layers.
    progress_callback : callable, optional
        Called with a float from 0 to 1; loading stops when it returns False.

    Raises
    ------
    TypeError, ValueError
        A value is of the wrong type or out of range.
    BackendError
        A device or buffer type of that name does not exist.

    Source: ``llama_model_params``.
    """

    def __cinit__(
        self,
        *,
        n_gpu_layers=None,
        bint cpu_moe=False,
        n_cpu_moe=0,
        devices=None,
        tensor_buft_overrides=None,
        split_mode=SplitMode.LAYER,
        main_gpu=0,
        tensor_split=None,
        load_mode=LoadMode.AUTO,
        lazy_mode=LazyMode.AUTO,
        kv_overrides=None,
        bint vocab_only=False,
        bint check_tensors=False,
        bint use_extra_bufts=True,
        bint no_host=False,
        bint no_alloc=False,
        bint load_mtp=False,
        progress_callback=None,
    ):
        cdef c_llama.llama_model_params* c
        if progress_callback is not None and not callable(progress_callback):
            raise TypeError(f"progress_callback must be callable, not {type(progress_callback).__name__}")
        c = <c_llama.llama_model_params*>_allocate(1, sizeof(c_llama.llama_model_params))
        self._c = c
        c[0] = c_llama.llama_model_default_params()
        c.n_gpu_layers = _gpu_layers(n_gpu_layers)
        c.split_mode = <c_llama.llama_split_mode>enum_value(SplitMode, split_mode, "split_mode")
        c.load_mode = <c_llama.llama_load_mode>enum_value(LoadMode, load_mode, "load_mode")
        c.lazy_mode = <c_llama.llama_lazy_mode>enum_value(LazyMode, lazy_mode, "lazy_mode")
        c.main_gpu = _int_in(main_gpu, 0, 2**31 - 1, "main_gpu")
        c.vocab_only = vocab_only
        c.check_tensors = check_tensors
        c.use_extra_bufts = use_extra_bufts
        c.no_host = no_host
        c.no_alloc = no_alloc
        c.load_mtp = load_mtp
        if no_alloc:
            if c.load_mode not in (c_llama.LLAMA_LOAD_MODE_AUTO, c_llama.LLAMA_LOAD_MODE_NONE):
                raise ValueError(f"no_alloc loads no weights, so load_mode must be NONE, not {load_mode!r}")
            c.load_mode = c_llama.LLAMA_LOAD_MODE_NONE  # llama.cpp asserts that nothing is mapped
        _set_devices(self, devices)
        _set_tensor_split(self, tensor_split)
        _set_buft_overrides(self, tensor_buft_overrides, cpu_moe, _int_in(n_cpu_moe, 0, 4095, "n_cpu_moe"))
        self._overrides = kv_overrides_new(kv_overrides)
        c.kv_overrides = <c_llama.llama_model_kv_override*>self._overrides
        self.progress_callback = progress_callback
        self.values = {
            "n_gpu_layers": n_gpu_layers,
            "cpu_moe": cpu_moe,
            "n_cpu_moe": n_cpu_moe,
            "devices": devices,
            "tensor_buft_overrides": tensor_buft_overrides,
            "split_mode": SplitMode(<int>c.split_mode),
            "main_gpu": main_gpu,
            "tensor_split": tensor_split,
            "load_mode": LoadMode(<int>c.load_mode),
            "lazy_mode": LazyMode(<int>c.lazy_mode),
            "kv_overrides": kv_overrides,
            "vocab_only": vocab_only,
            "check_tensors": check_tensors,
            "use_extra_bufts": use_extra_bufts,
            "no_host": no_host,
            "no_alloc": no_alloc,
            "load_mtp": load_mtp,
            "progress_callback": progress_callback,
        }

    def __dealloc__(self):
        free(self._c)
        free(self._devices)
        free(self._overrides)
        free(self._buft_overrides)
        free(self._tensor_split)

    def __repr__(self):
        return _params_repr("ModelParams", self.values)

cdef class ContextParams:
    """Parameters of `Context`, checked.

    Parameters
    ----------
    n_ctx : int
        Positions for all sequences together; 0 takes the length that the model was trained with.
    n_batch : int
        Most tokens in one decode.
    n_ubatch : int
        Most tokens that are computed at once, a micro-batch.
    n_seq_max : int
        Number of sequences, at most 256.
    n_rs_seq : int
        Snapshots of recurrent state per sequence, for rollback.
    n_outputs_max : int
        Most output rows in one decode; 0 means `n_batch`.
    n_outputs_max_per_seq : int
        Most output rows of one sequence with samplers attached.
    n_threads, n_threads_batch : int, optional
        Threads for one token and for many; half of the CPUs at hand, and all of them.
    ctx_type : ContextType
        Ordinary, or multi-token prediction.
    rope_scaling_type : RopeScalingType
    rope_freq_base, rope_freq_scale : float
        0 takes the model's.
    yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow : float
        Negative takes the model's.
    yarn_orig_ctx : int
    pooling_type : PoolingType
    attention_type : AttentionType
    flash_attn_type : FlashAttnType
    type_k, type_v : GgmlType
        Types of the K and V cache.
    embeddings : bool
        Produce embeddings along with logits.
    offload_kqv, op_offload, swa_full, kv_unified, no_perf : bool
        As in llama.cpp.
    moe_cache_size : int
        Bytes of device memory for experts that are kept in host memory.

    Raises
    ------
    TypeError, ValueError
        A value is of the wrong type or out of range.

    Source: ``llama_context_params``.
    """

    def __cinit__(
        self,
        *,
        n_ctx=512,
        n_batch=2048,
        n_ubatch=512,
        n_seq_max=1,
        n_rs_seq=0,
        n_outputs_max=0,
        n_outputs_max_per_seq=1,
        n_threads=None,
        n_threads_batch=None,
        ctx_type=ContextType.DEFAULT,
        rope_scaling_type=RopeScalingType.UNSPECIFIED,
        rope_freq_base=0.0,
        rope_freq_scale=0.0,
        yarn_ext_factor=-1.0,
        yarn_attn_factor=-1.0,
        yarn_beta_fast=-1.0,
        yarn_beta_slow=-1.0,
        yarn_orig_ctx=0,
        pooling_type=PoolingType.UNSPECIFIED,
        attention_type=AttentionType.UNSPECIFIED,
        flash_attn_type=FlashAttnType.AUTO,
        type_k=GgmlType.F16,
        type_v=GgmlType.F16,
        bint embeddings=False,
        bint offload_kqv=True,
        bint op_offload=True,
        bint swa_full=True,
        bint kv_unified=False,
        bint no_perf=True,
        moe_cache_size=0,
    ):
        cdef c_llama.llama_context_params* c
        c = <c_llama.llama_context_params*>_allocate(1, sizeof(c_llama.llama_context_params))
        self._c = c
        c[0] = c_llama.llama_context_default_params()
        c.n_ctx = _int_in(n_ctx, 0, _N_CTX_MAX, "n_ctx")
        c.n_batch = _int_in(n_batch, 1, 2**31 - 1, "n_batch")
        c.n_ubatch = _int_in(n_ubatch, 0, 2**31 - 1, "n_ubatch") or c.n_batch
        c.n_seq_max = _int_in(n_seq_max, 1, c_llama.llama_max_parallel_sequences(), "n_seq_max")
        c.n_rs_seq = _int_in(n_rs_seq, 0, 2**16, "n_rs_seq")
        if c.n_rs_seq and c.n_ubatch < c.n_rs_seq + 2:
            raise ValueError(f"n_ubatch ({n_ubatch}) must be at least n_rs_seq + 2 ({n_rs_seq + 2})")
        c.n_outputs_max = _int_in(n_outputs_max, 0, 2**31 - 1, "n_outputs_max")
        c.n_outputs_max_per_seq = _int_in(n_outputs_max_per_seq, 0, 2**31 - 1, "n_outputs_max_per_seq")
        n_cpus = _cpus_at_hand()
        c.n_threads = _int_in(max(n_cpus // 2, 1) if n_threads is None else n_threads, 1, 512, "n_threads")
        c.n_threads_batch = _int_in(n_cpus if n_threads_batch is None else n_threads_batch, 1, 512, "n_threads_batch")
        c.ctx_type = <c_llama.llama_context_type>enum_value(ContextType, ctx_type, "ctx_type")
        c.rope_scaling_type = <c_llama.llama_rope_scaling_type>enum_value(
            RopeScalingType, rope_scaling_type, "rope_scaling_type"
        )
        c.rope_freq_base = _float_in(rope_freq_base, 0, "rope_freq_base")
        c.rope_freq_scale = _float_in(rope_freq_scale, 0, "rope_freq_scale")
        c.yarn_ext_factor = _float_in(yarn_ext_factor, None, "yarn_ext_factor")
        c.yarn_attn_factor = _float_in(yarn_attn_factor, None, "yarn_attn_factor")
        c.yarn_beta_fast = _float_in(yarn_beta_fast, None, "yarn_beta_fast")
        c.yarn_beta_slow = _float_in(yarn_beta_slow, None, "yarn_beta_slow")
        c.yarn_orig_ctx = _int_in(yarn_orig_ctx, 0, 2**31 - 1, "yarn_orig_ctx")
        c.pooling_type = <c_llama.llama_pooling_type_enum>enum_value(PoolingType, pooling_type, "pooling_type")
        c.attention_type = <c_llama.llama_attention_type>enum_value(AttentionType, attention_type, "attention_type")
        c.flash_attn_type = <c_llama.llama_flash_attn_type>enum_value(
            FlashAttnType, flash_attn_type, "flash_attn_type"
        )
        c.type_k = <c_ggml.ggml_type>_cache_type(type_k, "type_k")
        c.type_v = <c_ggml.ggml_type>_cache_type(type_v, "type_v")
        c.embeddings = embeddings
        c.offload_kqv = offload_kqv
        c.op_offload = op_offload
        c.swa_full = swa_full
        c.kv_unified = kv_unified
        c.no_perf = no_perf
        c.moe_cache_size = _int_in(moe_cache_size, 0, 2**63 - 1, "moe_cache_size")
        self.values = {
            "n_ctx": n_ctx,
            "n_batch": n_batch,
            "n_ubatch": n_ubatch,
            "n_seq_max": n_seq_max,
            "n_rs_seq": n_rs_seq,
            "n_outputs_max": n_outputs_max,
            "n_outputs_max_per_seq": n_outputs_max_per_seq,
            "n_threads": c.n_threads,
            "n_threads_batch": c.n_threads_batch,
            "ctx_type": ContextType(<int>c.ctx_type),
            "rope_scaling_type": RopeScalingType(<int>c.rope_scaling_type),
            "rope_freq_base": rope_freq_base,
            "rope_freq_scale": rope_freq_scale,
            "yarn_ext_factor": yarn_ext_factor,
            "yarn_attn_factor": yarn_attn_factor,
            "yarn_beta_fast": yarn_beta_fast,
            "yarn_beta_slow": yarn_beta_slow,
            "yarn_orig_ctx": yarn_orig_ctx,
            "pooling_type": PoolingType(<int>c.pooling_type),
            "attention_type": AttentionType(<int>c.attention_type),
            "flash_attn_type": FlashAttnType(<int>c.flash_attn_type),
            "type_k": GgmlType(<int>c.type_k),
            "type_v": GgmlType(<int>c.type_v),
            "embeddings": embeddings,
            "offload_kqv": offload_kqv,
            "op_offload": op_offload,
            "swa_full": swa_full,
            "kv_unified": kv_unified,
            "no_perf": no_perf,
            "moe_cache_size": moe_cache_size,
        }

    def __dealloc__(self):
        free(self._c)

    def __repr__(self):
        return _params_repr("ContextParams", self.values)


cdef object params_make(object cls, dict params, str owner):
    """Return ``cls(**params)`` for the class that took the parameters over, which an error then names."""
    try:
        return cls(**params)
    except TypeError as error:
        raise TypeError(str(error).replace("__cinit__()", f"{owner}()")) from None


cdef int enum_value(object cls, object value, str name) except? -1234567:
    """Return the number of an enum member given as member, number or name."""
    try:
        if isinstance(value, str):
            return cls[value.upper()]
        return cls(value)
    except (KeyError, ValueError):
        names = ", ".join(member.name for member in cls)
        raise ValueError(f"{name} must be one of {names}, not {value!r}") from None


cdef void* kv_overrides_new(object overrides) except? NULL:
    """Return a `llama_model_kv_override` array for a mapping, ended by an empty key; the caller frees it."""
    cdef c_llama.llama_model_kv_override* array
    if not overrides:
        return NULL
    if not isinstance(overrides, Mapping):
        raise TypeError(f"kv_overrides must be a mapping, not {type(overrides).__name__}")
    array = <c_llama.llama_model_kv_override*>_allocate(len(overrides) + 1, sizeof(c_llama.llama_model_kv_override))
    try:
        for index, (key, value) in enumerate(overrides.items()):
            _kv_override_set(&array[index], key, value)
    except BaseException:
        free(array)
        raise
    return array


cdef int _kv_override_set(c_llama.llama_model_kv_override* entry, object key, object value) except -1:
    text = _c_text(key, "kv_overrides key")
    if not 0 < len(text) < sizeof(entry.key):
        raise ValueError(f"kv_overrides key {key!r} must have 1 to {sizeof(entry.key) - 1} bytes")
    memcpy(entry.key, <const char*>(<bytes>text), len(text) + 1)
    if isinstance(value, bool):
        entry.tag = c_llama.LLAMA_KV_OVERRIDE_TYPE_BOOL
        entry.val_bool = value
    elif isinstance(value, int):
        entry.tag = c_llama.LLAMA_KV_OVERRIDE_TYPE_INT
        entry.val_i64 = value
    elif isinstance(value, float):
        entry.tag = c_llama.LLAMA_KV_OVERRIDE_TYPE_FLOAT
        entry.val_f64 = value
    elif isinstance(value, str):
        text = _c_text(value, f"kv_overrides[{key!r}]")
        if len(text) >= sizeof(entry.val_str):
            raise ValueError(
                f"kv_overrides[{key!r}] has {len(text)} bytes; llama.cpp takes at most {sizeof(entry.val_str) - 1}"
            )
        entry.tag = c_llama.LLAMA_KV_OVERRIDE_TYPE_STR
        memcpy(entry.val_str, <const char*>(<bytes>text), len(text) + 1)
    else:
        raise TypeError(f"kv_overrides[{key!r}] must be bool, int, float or str, not {type(value).__name__}")
    return 0


cdef void* _allocate(size_t n, size_t size) except NULL:
    cdef void* memory = calloc(n, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef long long _int_in(object value, object low, object high, str name) except? -1234567:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high}, not {value}")
    return value.__index__()


cdef float _float_in(object value, object low, str name) except? -1234567:
    number = float(value)
    if not abs(number) <= FLT_MAX or (low is not None and number < low):
        raise ValueError(f"{name} must be a finite number{'' if low is None else f' from {low}'}, not {value}")
    return number


cdef int _cache_type(object value, str name) except? -1234567:
    cdef int number = enum_value(GgmlType, value, name)
    if GgmlType(number).name not in _CACHE_TYPES:
        raise ValueError(f"{name} must be one of {', '.join(_CACHE_TYPES)}, not {GgmlType(number).name}")
    return number


cdef int _gpu_layers(object n_gpu_layers) except? -1234567:
    if n_gpu_layers is None or n_gpu_layers == "auto":
        return -1
    if isinstance(n_gpu_layers, str):
        if n_gpu_layers == "all":
            n_gpu_layers = -1
        elif n_gpu_layers.strip().lstrip("+-").isdecimal():
            n_gpu_layers = int(n_gpu_layers)
        else:
            raise ValueError(f'n_gpu_layers must be a number, "auto" or "all", not {n_gpu_layers!r}')
    cdef int number = _int_in(n_gpu_layers, -(2**31), 2**31 - 1, "n_gpu_layers")
    if number != 0 and not c_llama.llama_supports_gpu_offload():
        warnings.warn(
            f"n_gpu_layers={number} has no effect: llamacy sees no GPU here; install it with a GPU backend, for "
            "instance CMAKE_ARGS=-DGGML_CUDA=on, or leave n_gpu_layers out",
            stacklevel=levels_to_caller(),
        )
    return number


cdef bytes _c_text(object text, str name):
    encoded = text.encode() if isinstance(text, str) else os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError(f"{name} must not contain a NUL character: {text!r}")
    return encoded


def _cpus_at_hand():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _params_repr(name, values):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items() if value is not None)})"


cdef int _set_devices(ModelParams self, object devices) except -1:
    cdef c_llama.llama_model_params* c = <c_llama.llama_model_params*>self._c
    cdef c_backend.ggml_backend_dev_t* array
    if devices is None:
        return 0
    if isinstance(devices, (str, Device)):
        devices = [devices]
    found = [device_find(device) for device in devices]
    array = <c_backend.ggml_backend_dev_t*>_allocate(len(found) + 1, sizeof(void*))
    self._devices = array
    for index, device in enumerate(found):
        array[index] = (<Device>device)._ptr
    c.devices = array
    return 0


cdef int _set_tensor_split(ModelParams self, object tensor_split) except -1:
    cdef c_llama.llama_model_params* c = <c_llama.llama_model_params*>self._c
    cdef size_t n_max = c_llama.llama_max_devices()
    if tensor_split is None:
        return 0
    shares = [float(share) for share in tensor_split]
    if len(shares) > n_max:
        raise ValueError(f"tensor_split has {len(shares)} shares, but there are at most {n_max} devices")
    if not all(0 <= share < float("inf") for share in shares):
        raise ValueError(f"tensor_split must be finite numbers from 0, not {shares}")
    self._tensor_split = <float*>_allocate(n_max, sizeof(float))
    for index, share in enumerate(shares):
        self._tensor_split[index] = share
    c.tensor_split = self._tensor_split
    return 0


cdef int _set_buft_overrides(ModelParams self, object overrides, bint cpu_moe, int n_cpu_moe) except -1:
    cdef c_llama.llama_model_params* c = <c_llama.llama_model_params*>self._c
    cdef c_llama.llama_model_tensor_buft_override* array
    cdef size_t n_max = c_llama.llama_max_tensor_buft_overrides()
    pairs = list(overrides.items() if isinstance(overrides, Mapping) else overrides or ())
    if cpu_moe:
        pairs.append((_MOE_TENSORS, "CPU"))
    pairs.extend((rf"blk\.{layer}{_MOE_TENSORS}", "CPU") for layer in range(n_cpu_moe))
    if not pairs:
        return 0
    if len(pairs) >= n_max:
        raise ValueError(f"{len(pairs)} tensor_buft_overrides were given; llama.cpp takes fewer than {n_max}")
    self._patterns = [_c_text(pattern, "tensor_buft_overrides pattern") for pattern, _ in pairs]
    array = <c_llama.llama_model_tensor_buft_override*>_allocate(
        len(pairs) + 1, sizeof(c_llama.llama_model_tensor_buft_override)
    )
    self._buft_overrides = array
    for index, (_, buffer_type) in enumerate(pairs):
        array[index].pattern = <const char*>(<bytes>self._patterns[index])
        array[index].buft = buffer_type_find(buffer_type)
    c.tensor_buft_overrides = array
    return 0
