# distutils: language = c++
"""Write a model with smaller weights."""

from libc.stdint cimport int32_t
from libc.stdlib cimport free
from libcpp.vector cimport vector

from llamacy.core.backend cimport backend_initialize
from llamacy.core.params cimport enum_value, kv_overrides_new
from llamacy.core.quantize_run cimport QuantizeRun, quantize_run
from llamacy.native cimport ggml as c_ggml
from llamacy.native cimport llama as c_llama
from llamacy.native cimport llama_ext as c_ext

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from llamacy._paths import file_name
from llamacy.core import model_checks
from llamacy.core._replace import replacing
from llamacy.core.gguf import Gguf
from llamacy.core.imatrix import read_imatrix
from llamacy.core.quantize_data import check_values
from llamacy.errors import ModelNotFoundError, QuantizeError
from llamacy.types import FileType, GgmlType

__all__ = ["QuantizeResult", "quantize"]

# what ggml_quantize_chunk() can write; anything else ends in an assertion on a worker thread
cdef frozenset _TARGETS = frozenset(GgmlType) - {
    GgmlType.Q8_1, GgmlType.Q8_K, GgmlType.F64, GgmlType.I8, GgmlType.I16, GgmlType.I32, GgmlType.I64
}

# tensor_requires_imatrix() of llama-quant.cpp
cdef frozenset _LOW_BIT = frozenset({
    GgmlType.IQ3_XXS, GgmlType.IQ2_XXS, GgmlType.IQ2_XS, GgmlType.IQ2_S, GgmlType.IQ1_M, GgmlType.IQ1_S
})
# quantizers that search a grid
cdef frozenset _GRIDS = _LOW_BIT | {GgmlType.IQ3_S}
cdef frozenset _EMBEDDINGS = frozenset({"token_embd.weight", "per_layer_token_embd.weight"})
cdef frozenset _INTEGERS = frozenset({GgmlType.I8, GgmlType.I16, GgmlType.I32, GgmlType.I64})


class QuantizeResult(NamedTuple):
    """What `quantize` did, or would do."""

    #: files that were written; none after a dry run
    paths: tuple
    #: type of each tensor in the new file
    tensor_types: dict
    #: bytes of all tensors before and after
    n_bytes_source: int
    n_bytes: int


def quantize(
    source,
    target,
    ftype,
    *,
    n_threads=None,
    output_tensor_type=None,
    token_embedding_type=None,
    bint allow_requantize=False,
    bint quantize_output_tensor=True,
    bint only_copy=False,
    bint pure=False,
    bint keep_split=False,
    bint dry_run=False,
    imatrix=None,
    kv_overrides=None,
    tensor_types=None,
    prune_layers=None,
    max_buf_size=None,
    progress=None,
):
    """Quantize a model file.

    Everything that can be known to fail is refused before any work, and the new file appears whole or not at all.

    Parameters
    ----------
    source : str or PathLike
        Model to read; of a split model, its first part.
    target : str or PathLike
        File to write; one that is there is replaced.
    ftype : FileType or str
        Mixture of types to write, for instance ``"Q4_K_M"``.
    n_threads : int, optional
        Threads, all CPUs by default.
    output_tensor_type, token_embedding_type : GgmlType or str, optional
        Type of these tensors, instead of what the mixture says.
    allow_requantize : bool
        Quantize tensors that are quantized already, at a loss.
    quantize_output_tensor : bool
        Quantize ``output.weight``, too.
    only_copy : bool
        Keep all types, and copy.
    pure : bool
        Give all tensors the main type of the mixture.
    keep_split : bool
        Write as many parts as were read, named ``target-00001-of-…``.
    dry_run : bool
        Only say what would be done.
    imatrix : mapping of str to buffer, or path, optional
        Importance matrix: float32 values by tensor name, or a GGUF that llama.cpp's tool wrote. The smallest types need
        one.
    kv_overrides : mapping of str to bool, int, float or str, optional
        Metadata to set in the new file.
    tensor_types : mapping of str to GgmlType or str, optional
        Type for tensors whose name matches a regular expression (ECMAScript); the first match counts.
    prune_layers : iterable of int, optional
        Layers to leave out.
    max_buf_size : int, optional
        Most bytes of one tensor to hold in memory, 8 GiB by default.
    progress : callable or True, optional
        Called as ``progress(done, total, tensor_name)`` before each tensor, and at the end with an empty name. If it
        returns False, the work stops. True shows a bar (needs tqdm).

    Returns
    -------
    QuantizeResult

    Raises
    ------
    ValueError, TypeError
        An option is wrong, or has no effect together with another one.
    ModelNotFoundError, ModelFormatError, GgufError
        The source is missing, or not a model.
    QuantizeError
        The model can't be quantized so.
    QuantizeCancelledError
        `progress` returned False.
    OSError
        The target can't be written.

    Thread safety: runs without the GIL; several calls may run at a time. Ctrl-C, and an exception of `progress`, stop
    the work before the next tensor.

    Source: ``llama_model_quantize``.
    """
    cdef c_llama.llama_model_quantize_params params = c_llama.llama_model_quantize_default_params()
    cdef vector[c_llama.llama_model_imatrix_data] c_imatrix
    cdef vector[c_llama.llama_model_tensor_override] c_types
    cdef vector[int32_t] c_prune
    cdef c_llama.llama_model_kv_override* c_overrides = NULL
    source = _source_path(source)
    target = file_name(target)
    if not dry_run and not keep_split and os.path.exists(target) and os.path.samefile(source, target):
        raise ValueError(f"source and target are the same file {target!r}")
    params.ftype = <c_llama.llama_ftype>enum_value(FileType, ftype, "ftype")
    ftype = FileType(<int>params.ftype)
    kind = <int>c_ext.llama_ftype_get_default_type(params.ftype)
    if kind == c_ggml.GGML_TYPE_COUNT:
        raise ValueError(f"llama.cpp can't write files of type {ftype.name}")
    params.nthread = _int_in(min(os.cpu_count() or 1, 512) if n_threads is None else n_threads, 1, 512, "n_threads")
    if max_buf_size is not None:
        params.max_buf_size = _int_in(max_buf_size, 1, 2**63 - 1, "max_buf_size")
    params.allow_requantize = allow_requantize
    params.quantize_output_tensor = quantize_output_tensor
    params.only_copy = only_copy
    params.pure = pure
    params.keep_split = keep_split
    overrides = dict(kv_overrides or {})
    _check_overrides(overrides)
    patterns = _patterns(tensor_types)
    given = [output_tensor_type, token_embedding_type, imatrix, tensor_types]
    if only_copy and (pure or any(value is not None for value in given)):
        raise ValueError("only_copy keeps all types: it goes without pure, imatrix and types of tensors")
    if patterns and not c_ggml.ggml_is_quantized(<c_ggml.ggml_type><int>kind):
        raise ValueError(f"tensor_types has no effect on a file of type {ftype.name}, which is not quantized")
    if output_tensor_type is not None:
        if not quantize_output_tensor:
            raise ValueError("output_tensor_type has no effect without quantize_output_tensor")
        params.output_tensor_type = <c_ggml.ggml_type>_target_type(output_tensor_type, "output_tensor_type")
    if token_embedding_type is not None:
        params.token_embedding_type = <c_ggml.ggml_type>_target_type(token_embedding_type, "token_embedding_type")
    entries = None if imatrix is None else read_imatrix(imatrix)
    backend_initialize()
    model_checks.check(source, kv_overrides=overrides)
    pruned = _examine(source, prune_layers, overrides, params.output_tensor_type, params.token_embedding_type)
    for layer in pruned:
        c_prune.push_back(layer)
    if pruned:
        c_prune.push_back(-1)
        params.prune_layers = c_prune.data()
    for pattern, number in patterns:
        c_types.push_back(
            c_llama.llama_model_tensor_override(<const char*>(<bytes>pattern), <c_ggml.ggml_type><int>number)
        )
    if patterns:
        c_types.push_back(c_llama.llama_model_tensor_override(NULL, c_ggml.GGML_TYPE_COUNT))
        params.tt_overrides = c_types.data()
    names = [name.encode() for name in entries or ()]
    for name, data in zip(names, (entries or {}).values()):
        _append_imatrix(c_imatrix, name, data)
    if names:
        c_imatrix.push_back(c_llama.llama_model_imatrix_data(NULL, NULL, 0))
        params.imatrix = c_imatrix.data()
    c_overrides = <c_llama.llama_model_kv_override*>kv_overrides_new(overrides)
    params.kv_overrides = c_overrides
    paths = ()
    bar = None
    try:
        bar, progress = _progress(progress)
        plan = _dry_run(source, &params)
        if not dry_run:
            _check_plan(plan, ftype, allow_requantize, entries, pruned)
            _check_weights(source, plan, pruned)
            paths = _write(source, target, &params, plan, progress)
    finally:
        free(c_overrides)
        if bar is not None:
            bar.close()
    return _result(paths, plan)


cdef str _source_path(object source):
    path = os.fsdecode(source)
    if not os.path.isfile(path):
        raise ModelNotFoundError(f"there is no model file {path!r}")
    return path


cdef long long _int_in(object value, object low, object high, str name) except -1:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high}, not {value}")
    return value.__index__()


cdef int _target_type(object value, str name) except -1:
    cdef int number = enum_value(GgmlType, value, name)
    if GgmlType(number) not in _TARGETS:
        raise ValueError(f"{name}: llama.cpp can't quantize to {GgmlType(number).name}")
    return number


cdef list _patterns(object tensor_types):
    if tensor_types is None:
        return []
    if not isinstance(tensor_types, Mapping):
        raise TypeError(f"tensor_types must be a mapping, not {type(tensor_types).__name__}")
    patterns = []
    for pattern, kind in tensor_types.items():
        # the regular expressions of the C++ library recurse for every character
        if not isinstance(pattern, str) or "\0" in pattern or not 0 < len(pattern) <= 1024:
            raise ValueError(f"a pattern of tensor_types must be a str of 1 to 1024 characters, unlike {pattern!r}")
        patterns.append((pattern.encode(), _target_type(kind, f"tensor_types[{pattern!r}]")))
    return patterns


cdef int _check_overrides(dict overrides) except -1:
    for key, value in overrides.items():
        if key == "general.alignment":
            raise ValueError("general.alignment can't be set: llama.cpp writes every model with an alignment of 32")
        if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value < 2**32:
            raise ValueError(f"kv_overrides[{key!r}] must be from 0 to {2**32 - 1}: it is written as UINT32")
    return 0


cdef tuple _progress(object progress):
    """Return a bar to close, if any, and the callable."""
    if progress is None or progress is False:
        return None, None
    if progress is not True:
        if not callable(progress):
            raise TypeError(f"progress must be callable or True, not {type(progress).__name__}")
        return None, progress
    try:
        from tqdm import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm; install it, or give a callable") from None
    bar = tqdm(unit="tensor")

    def show(done, total, name):
        bar.total = total
        bar.set_postfix_str(name, refresh=False)
        bar.update(done - bar.n)

    return bar, show


cdef void _append_imatrix(vector[c_llama.llama_model_imatrix_data]& entries, bytes name, const float[::1] data):
    entries.push_back(c_llama.llama_model_imatrix_data(<const char*>name, &data[0], data.shape[0]))


cdef list _examine(object source, object prune_layers, dict overrides, int output_type, int embedding_type):
    """Look at the source for what native code gets wrong, and return the layers to leave out, in order."""
    with Gguf(source) as gguf:
        if gguf.alignment != 32:
            # llama_model_quantize() copies the key, but pads to 32 whatever it says
            overrides["general.alignment"] = 32
        for name, info in gguf.tensors.items():
            kind = c_ggml.GGML_TYPE_COUNT
            if name in _EMBEDDINGS:
                kind = embedding_type
            elif name == "output.weight":
                kind = output_type
            if kind != c_ggml.GGML_TYPE_COUNT and info.ne[0] % c_ggml.ggml_blck_size(<c_ggml.ggml_type><int>kind):
                raise QuantizeError(
                    f"{name!r} can't be of type {GgmlType(kind).name}: its rows have {info.ne[0]} elements, which is "
                    f"not a multiple of {c_ggml.ggml_blck_size(<c_ggml.ggml_type><int>kind)}"
                )
        return [] if prune_layers is None else _prune(gguf, prune_layers)


cdef list _prune(object gguf, object prune_layers):
    arch = gguf.metadata.get("general.architecture")
    n_layer = gguf.metadata.get(f"{arch}.block_count", 0)
    layers = sorted({_int_in(layer, 0, n_layer - 1, "a layer of prune_layers") for layer in prune_layers})
    if len(layers) >= n_layer:
        raise ValueError(f"prune_layers leaves none of the {n_layer} layers")
    if layers:
        for key, value in gguf.metadata.items():
            if key.startswith(f"{arch}.") and isinstance(value, (list, memoryview)) and len(value) == n_layer:
                raise QuantizeError(f"layers of this model can't be left out: {key!r} has a value for each")
        for name in gguf.tensors:
            # remap_layer() takes the layers in the order of the names, which is wrong for these
            if re.search(r".blk\.\d+\.", name):
                raise QuantizeError(f"layers of this model can't be left out: it has more than one stack ({name!r})")
    return layers


cdef list _dry_run(object source, c_llama.llama_model_quantize_params* params):
    cdef c_llama.llama_model_quantize_params dry = params[0]
    run = QuantizeRun(dry=True)
    dry.dry_run = True
    quantize_run(source, "", &dry, run)
    return run.tensors


cdef int _check_plan(list plan, object ftype, bint allow_requantize, dict entries, list pruned) except -1:
    """Refuse what native code would refuse, or abort on, in the middle of its work."""
    kept = _kept(plan, pruned)
    for name, ne, before, after in plan:
        if before == after:
            continue
        if before in _INTEGERS or before == GgmlType.F64:
            raise QuantizeError(f"{name!r} can't be quantized: it is of type {before.name}")
        if c_ggml.ggml_is_quantized(<c_ggml.ggml_type><int>before) and not allow_requantize:
            raise QuantizeError(
                f"{name!r} is quantized already ({before.name}); quantize the original model, or allow_requantize"
            )
        if not _needs_imatrix(name, after, ftype):
            continue
        data = (entries or {}).get(_name_before(name, kept))
        if data is None or len(data) != ne[0] * ne[2]:
            found = "which is not given" if data is None else f"but {len(data)} are given"
            raise QuantizeError(
                f"{name!r} of type {after.name} needs an importance matrix with {ne[0] * ne[2]} values, {found}"
            )
    return 0


cdef int _check_weights(object source, list plan, list pruned) except -1:
    kept = _kept(plan, pruned)
    names = {_name_before(name, kept) for name, _, before, after in plan if after in _GRIDS and before != after}
    if names:
        for part in model_checks.parts(source):
            check_values(part, names)
    return 0


cdef list _kept(list plan, list pruned):
    """Return the old number of each new layer, or None when they are the same."""
    return [layer for layer in range(len(plan) + len(pruned)) if layer not in pruned] if pruned else None


cdef bint _needs_imatrix(object name, object kind, object ftype):
    if name in _EMBEDDINGS or name == "output.weight":
        # the mixtures ask for none, but ggml_quantize_chunk() aborts without
        return c_ggml.ggml_quantize_requires_imatrix(<c_ggml.ggml_type><int>kind)
    return kind in _LOW_BIT or (kind == GgmlType.Q2_K and ftype == FileType.Q2_K_S)


cdef object _name_before(object name, list kept):
    """Return the name of a tensor before layers were left out."""
    if kept is None:
        return name
    return re.sub(r"^blk\.(\d+)\.", lambda match: f"blk.{kept[int(match[1])]}.", name)


cdef tuple _write(
    object source, object target, c_llama.llama_model_quantize_params* params, list plan, object progress
):
    run = QuantizeRun(progress=progress, total=len(plan))
    if params.keep_split:
        paths = _write_parts(source, target, params, run)
    else:
        with replacing(target) as temporary:
            quantize_run(source, temporary, params, run)
            _sync(temporary)
        paths = (target,)
    if progress is not None:
        progress(run.total, run.total, "")
    return paths


cdef tuple _write_parts(object source, object target, c_llama.llama_model_quantize_params* params, QuantizeRun run):
    folder, name = os.path.split(os.path.abspath(target))
    prefix = name[: len(name) - 5] if name.endswith(".gguf") else name
    temporary = tempfile.mkdtemp(prefix=f".{prefix[:200]}.", suffix=".tmp", dir=folder)
    try:
        quantize_run(source, os.path.join(temporary, prefix), params, run)
        parts = sorted(os.listdir(temporary))
        for part in parts:
            _sync(os.path.join(temporary, part))
            if os.path.exists(os.path.join(folder, part)) and os.path.samefile(os.path.join(folder, part), source):
                raise ValueError(f"source and target are the same file {source!r}")
        for part in parts:
            os.replace(os.path.join(temporary, part), os.path.join(folder, part))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return tuple([os.path.join(os.path.dirname(target), part) for part in parts])


cdef int _sync(object path) except -1:
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
    return 0


cdef object _result(tuple paths, list plan):
    return QuantizeResult(
        paths=paths,
        tensor_types={name: after for name, _, _, after in plan},
        n_bytes_source=sum(_n_bytes(ne, before) for _, ne, before, _ in plan),
        n_bytes=sum(_n_bytes(ne, after) for _, ne, _, after in plan),
    )


cdef size_t _n_bytes(object ne, object kind):
    cdef c_ggml.ggml_type number = <c_ggml.ggml_type><int>kind
    rows = 1
    for n in ne[1:]:
        rows *= n
    return rows * c_ggml.ggml_row_size(number, ne[0])
