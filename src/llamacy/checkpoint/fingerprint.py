"""What a state belongs to: the model, the context and the build of llama.cpp that it was computed with."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from llamacy.errors import CheckpointError, ClosedError
from llamacy.types import FlashAttnType

if TYPE_CHECKING:
    from collections.abc import Callable

    from llamacy.core.adapter import LoraAdapter
    from llamacy.core.context import Context
    from llamacy.core.control_vector import ControlVector
    from llamacy.core.model import Model

Value = str | int | float | bool | None

_Object = TypeVar("_Object")

#: Bytes hashed at the beginning, in the middle and at the end of each tensor.
_BLOCK = 4096

# parameters of a context that decide which numbers are in its memory, and how they lie there
_CONTEXT_PARAMS = (
    "ctx_type",
    "type_k",
    "type_v",
    "flash_attn_type",
    "attention_type",
    "swa_full",
    "rope_scaling_type",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_orig_ctx",
)

_SIZES = ("n_vocab", "n_embd", "n_layer", "n_layer_nextn", "n_head", "n_head_kv", "n_swa", "n_params", "size_bytes")

_lock = threading.Lock()
_models: WeakKeyDictionary[Model, dict[str, Value]] = WeakKeyDictionary()
_contexts: WeakKeyDictionary[Context, dict[str, Value]] = WeakKeyDictionary()
# of contexts without adapters, by whether attention is causal: asked for at each snapshot
_plain: WeakKeyDictionary[Context, dict[bool, Fingerprint]] = WeakKeyDictionary()
_adapters: WeakKeyDictionary[LoraAdapter, str] = WeakKeyDictionary()


class Fingerprint(Mapping[str, Value]):
    """What a state belongs to, as named facts; immutable, hashable and equal when all facts are.

    Parameters
    ----------
    facts
        Their values are what JSON has for scalars.

    Raises
    ------
    TypeError
        A name is no text, or a value no scalar.

    Thread safety: immutable.
    """

    __slots__ = ("_facts", "digest", "json")

    #: The facts as JSON, in one spelling.
    json: str
    #: 16 bytes that stand for the facts.
    digest: bytes

    def __init__(self, facts: Mapping[str, Value]) -> None:
        for name, value in facts.items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | None):
                raise TypeError(f"a fact is a name and a scalar, not {name!r}: {value!r}")
        self._facts = dict(sorted(facts.items()))
        self.json = json.dumps(self._facts, separators=(",", ":"))
        self.digest = blake2b(self.json.encode(), digest_size=16).digest()

    def __getitem__(self, name: str) -> Value:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __eq__(self, other: object) -> bool:
        return self.json == other.json if isinstance(other, Fingerprint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Fingerprint {self.digest.hex()} of a {self._facts.get('architecture', 'model')}>"

    def difference(self, other: Fingerprint) -> str:
        """Return in words how another fingerprint differs from this one; empty when it doesn't.

        For example ``"type_k: F16 here, Q8_0 there"``; what differs is separated by semicolons.
        """
        absent = "nothing"
        return "; ".join(
            f"{name}: {_spelled(self.get(name, absent))} here, {_spelled(other.get(name, absent))} there"
            for name in sorted({*self, *other})
            if name not in self or name not in other or _spelled(self[name]) != _spelled(other[name])
        )


def context_fingerprint(context: Context) -> Fingerprint:
    """Return the fingerprint of the states that a context makes as it is now, with its adapters.

    The weights are told by the header of the file, which has the vocabulary, and by three blocks of 4 KiB of each
    tensor; they are read on first use for each `Model`, from the file as it is then. A model that was not read from a
    file by its name is known to be the same only while it is the same `Model` object; so is a LoRA adapter.

    Raises
    ------
    CheckpointError
        The file of the model or of an adapter can't be read any more. Or the context reads the cache of another one,
        so that its own state isn't all of it.
    ClosedError
        The context is closed.

    Thread safety: may be called in several threads.
    """
    if context.closed:
        raise ClosedError("the context is closed")
    if context.ctx_other is not None:
        raise CheckpointError("this context works with the memory of another one, which its own state does not hold")
    adapters, vector, causal = context.adapters_lora, context.adapter_cvec, context.causal_attn
    plain = _plain.get(context, {}).get(causal) if not adapters and vector is None else None
    if plain is not None:
        return plain
    facts = dict(_remembered(_contexts, context, _context_facts))
    facts["causal_attn"] = causal
    for index, (adapter, scale) in enumerate(adapters):
        facts[f"adapter {index}"] = f"{_remembered(_adapters, adapter, _adapter_identity)} at {float(scale)!r}"
    if vector is not None:
        facts["control vector"] = _control_vector_identity(vector)
    fingerprint = Fingerprint(facts)
    if not adapters and vector is None:
        with _lock:
            _plain.setdefault(context, {})[causal] = fingerprint
    return fingerprint


def _remembered(known: WeakKeyDictionary[Any, Any], thing: _Object, facts: Callable[[_Object], Any]) -> Any:
    with _lock:
        found = known.get(thing)
    if found is None:
        # not under the lock: it reads files; two threads at once find the same
        found = facts(thing)
        with _lock:
            found = known.setdefault(thing, found)
    return found


def _context_facts(context: Context) -> dict[str, Value]:
    model = context.model
    values = context.params.values
    facts = dict(_remembered(_models, model, _model_facts))
    facts["llama_cpp"] = _build()
    for name in _CONTEXT_PARAMS:
        value = values[name]
        facts[name] = value.name if hasattr(value, "name") else value
    if values["flash_attn_type"] == FlashAttnType.AUTO:
        # what it comes to is for the context to know; where a layout differs for it, llama.cpp refuses the state
        facts["flash_attn_type"] = f"AUTO, offload_kqv={values['offload_kqv']}"
    facts["n_streams"] = 1 if values["kv_unified"] else context.n_seq_max
    original = model.metadata.get(f"{model.architecture}.rope.scaling.original_context_length")
    if original is not None:
        # models with two sets of factors take one or the other by the size of the context
        facts["rope_long"] = context.n_ctx_seq > int(values["yarn_orig_ctx"] or original)
    # src/llama-kv-cache.cpp rotates quantized keys and values unless this is set
    facts["attn_rot_disable"] = os.environ.get("LLAMA_ATTN_ROT_DISABLE")
    return facts


def _model_facts(model: Model) -> dict[str, Value]:
    facts: dict[str, Value] = {"architecture": model.architecture}
    for name in _SIZES:
        facts[name] = getattr(model, name)
    overrides = model.params.values["kv_overrides"]
    if overrides:
        facts["kv_overrides"] = json.dumps(dict(sorted(overrides.items())))
    facts["weights"] = _weights_identity(model)
    return facts


def _weights_identity(model: Model) -> str:
    files = files_of(model)
    if not files:
        return f"object {os.urandom(16).hex()}"
    return "-".join(_file_identity(path) for path in files)


def files_of(model: Model) -> list[str]:
    """Return the files of a model, as far as their names are known: llama.cpp's own scheme for those of a split one."""
    if model.path is None:
        return []
    count = int(model.metadata.get("split.count", "0"))
    if count < 2:
        return [model.path]
    first = f"-00001-of-{count:05d}.gguf"
    if not model.path.endswith(first):
        return []
    stem = model.path[: -len(first)]
    return [f"{stem}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def _file_identity(path: str) -> str:
    """Return a hash of the size of a GGUF file, its header, and three blocks of each tensor."""
    from llamacy.core.gguf import Gguf

    digest = blake2b(digest_size=16)
    try:
        with Gguf.open(path) as header, Path(path).open("rb") as file:
            start = header.data_offset
            digest.update(os.fstat(file.fileno()).st_size.to_bytes(8, "little"))
            digest.update(file.read(start))
            for tensor in header.tensors.values():
                for offset in _blocks(tensor.n_bytes):
                    file.seek(start + tensor.offset + offset)
                    digest.update(file.read(min(_BLOCK, tensor.n_bytes - offset)))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"the weights in {path!r} can't be told from others, as the file can't be read: {error}"
        ) from error
    return digest.hexdigest()


def _blocks(n_bytes: int) -> list[int]:
    """Return where the blocks of a tensor begin; they don't overlap, and a small tensor is covered whole."""
    if n_bytes <= 3 * _BLOCK:
        return list(range(0, n_bytes, _BLOCK))
    return [0, (n_bytes - _BLOCK) // 2, n_bytes - _BLOCK]


def _adapter_identity(adapter: LoraAdapter) -> str:
    return f"object {os.urandom(16).hex()}" if adapter.path is None else _file_identity(adapter.path)


def _control_vector_identity(vector: ControlVector) -> str:
    digest = blake2b(memoryview(vector).cast("B"), digest_size=16).hexdigest()
    return f"{digest} in layers {vector.il_start} to {vector.il_end}"


@functools.cache
def _build() -> str:
    """Return the key of the build of llama.cpp: its version, options and compiler."""
    facts = json.loads((Path(__file__).parent.parent / "_lib" / "build.json").read_text(encoding="utf-8"))
    return str(facts["key"])


def _spelled(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)
