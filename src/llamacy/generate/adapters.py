"""The LoRA adapters of a model by name, and which of them a prompt is computed with."""

from __future__ import annotations

import os
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

from llamacy._imports import import_whole
from llamacy.core.adapter import LoraAdapter
from llamacy.core.control_vector import ControlVector
from llamacy.errors import AdapterError

if TYPE_CHECKING:
    from llamacy.core.context import Context
    from llamacy.core.model import Model
    from llamacy.types import StrPath

    LoraScales = Mapping[str, float] | Sequence[Mapping[str, Any]]
    Pairs = tuple[tuple[LoraAdapter, float], ...]

# the largest float32: llama.cpp keeps scales as such
_MOST = 3.4028234663852886e38


@dataclass(frozen=True)
class Lora:
    """A LoRA adapter that is loaded.

    Parameters
    ----------
    name
        What requests call it.
    path
        The file that it came from, or None.
    scale
        How strongly requests apply it that don't say which adapters they want; 0 for not at all.
    alora_invocation_tokens
        For an activated LoRA (aLoRA) the tokens that switch it on; otherwise empty.
    adapter
        The `LoraAdapter`.
    """

    name: str
    path: str | None
    scale: float
    alora_invocation_tokens: tuple[int, ...] = ()
    adapter: LoraAdapter = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class Applied:
    """The adapters that one prompt and its completion are computed with.

    Parameters
    ----------
    pairs
        Adapters and their scales.
    before
        Those of the first `n_before` tokens.
    n_before
        Tokens before those that switch an aLoRA on; 0 when all tokens are computed alike.
    """

    pairs: Pairs
    before: Pairs = ()
    n_before: int = 0


class Adapters:
    """LoRA adapters of one model.

    Parameters
    ----------
    model
        The model.
    contexts
        Returns the contexts that apply them; an adapter that is unloaded is taken off these.

    Thread safety: any thread; who reads sees what there was before or after a change.
    """

    def __init__(self, model: Model, contexts: Callable[[], list[Context]]) -> None:
        self._contexts = contexts
        self._model = model
        self._changing = threading.Lock()
        self._loaded: Mapping[str, Lora] = {}  # replaced by another one at every change

    @property
    def loaded(self) -> Mapping[str, Lora]:
        """Those that are loaded now, by name."""
        return MappingProxyType(self._loaded)

    def load(self, source: StrPath | BinaryIO, name: str | None = None, scale: float = 1.0) -> str:
        """Load an adapter and return its name; `Llama.load_lora` says more."""
        name = _name_of(source) if name is None else name
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of an adapter must be a text that is not empty, not {name!r:.80}")
        scale = checked_scale(name, scale)
        with self._changing:
            if name in self._loaded:
                raise AdapterError(f"an adapter {name!r} is loaded already; unload it, or give this one another name")
            adapter = LoraAdapter(self._model, source)
            lora = Lora(name, adapter.path, scale, adapter.alora_invocation_tokens, adapter=adapter)
            self._loaded = {**self._loaded, name: lora}
        return name

    def unload(self, name: str) -> None:
        """Free an adapter after it was taken off the contexts; `Llama.unload_lora` says more."""
        with self._changing:
            adapter = self.find(name).adapter
            for context in self._applying(adapter):
                context.set_adapters_lora([pair for pair in context.adapters_lora if pair[0] is not adapter])
            adapter.close()
            self._loaded = {key: lora for key, lora in self._loaded.items() if key != name}

    def is_applied(self, name: str) -> bool:
        """Return whether a context applies an adapter now."""
        return bool(self._applying(self.find(name).adapter))

    def set_scale(self, name: str, scale: float) -> None:
        """Set how strongly an adapter is applied by default."""
        with self._changing:
            lora = replace(self.find(name), scale=checked_scale(name, scale))
            self._loaded = {**self._loaded, name: lora}

    def close(self) -> None:
        """Free all adapters; the contexts must be closed."""
        with self._changing:
            loaded, self._loaded = self._loaded, {}
            for lora in loaded.values():
                lora.adapter.close()

    def find(self, name: Any) -> Lora:
        """Return the adapter of a name.

        Raises
        ------
        AdapterError
            There is none.
        """
        loaded = self._loaded
        found = loaded.get(name) if isinstance(name, str) else None
        if found is None:
            if not loaded:
                raise AdapterError(f"there is no adapter {name!r}: none is loaded; use load_lora first")
            from difflib import get_close_matches

            near = get_close_matches(str(name), loaded, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"loaded are {', '.join(map(repr, loaded))}"
            raise AdapterError(f"there is no adapter {name!r}; {hint}")
        return found

    def pairs(self, lora: LoraScales | None) -> Pairs:
        """Return the adapters that a request asks for, and their scales, for texts that no aLoRA can be invoked in.

        Raises
        ------
        AdapterError
            There is no adapter of a name, a scale is not finite, or the request asks for an aLoRA.
        TypeError
            It is no mapping.
        """
        chosen = self._chosen(lora)
        for loaded, _ in chosen:
            if loaded.alora_invocation_tokens and lora is not None:
                raise AdapterError(f"{loaded.name!r} is an activated LoRA, which only a prompt can switch on")
        return tuple((loaded.adapter, scale) for loaded, scale in chosen if not loaded.alora_invocation_tokens)

    def of_state(self, lora: LoraScales | None) -> Pairs | None:
        """Return what a state was computed with that a request goes on from; None when nothing is loaded.

        Raises
        ------
        AdapterError, TypeError
            As for `pairs`.
        """
        pairs = self.pairs(lora)
        return pairs if self._loaded else None

    def applied(self, lora: LoraScales | None, prompt: Sequence[int]) -> Applied | None:
        """Return what a prompt is computed with; None when nothing is loaded, so that there is nothing to change.

        Parameters
        ----------
        lora
            The scale of each adapter that the request wants, by name, or as a list of dicts with `name` and `scale`;
            None for those that are applied by default.
        prompt
            Token ids. An aLoRA is applied from the last place on where they are its invocation tokens.

        Raises
        ------
        AdapterError
            There is no adapter of a name, a scale is not finite, an aLoRA that the request asks for is not invoked in
            the prompt, or two are.
        TypeError
            It is no mapping.
        """
        pairs: list[tuple[LoraAdapter, float]] = []
        before: list[tuple[LoraAdapter, float]] = []
        invoked: dict[str, int] = {}
        for loaded, scale in self._chosen(lora):
            if loaded.alora_invocation_tokens:
                start = _last_place(loaded.alora_invocation_tokens, prompt)
                if start is None and lora is None:
                    continue
                if start is None:
                    raise AdapterError(
                        f"{loaded.name!r} is an activated LoRA, but its invocation tokens "
                        f"{list(loaded.alora_invocation_tokens)} are not in the prompt"
                    )
                invoked[loaded.name] = start
            else:
                before.append((loaded.adapter, scale))
            pairs.append((loaded.adapter, scale))
        if len(invoked) > 1:
            raise AdapterError(f"the prompt invokes several activated LoRAs: {', '.join(invoked)}; ask for one")
        if not self._loaded:
            return None
        n_before = max(invoked.values(), default=0)
        return Applied(tuple(pairs), tuple(before), n_before) if n_before else Applied(tuple(pairs))

    def _applying(self, adapter: LoraAdapter) -> list[Context]:
        return [
            context
            for context in self._contexts()
            if not context.closed and any(used is adapter for used, _ in context.adapters_lora)
        ]

    def _chosen(self, lora: LoraScales | None) -> list[tuple[Lora, float]]:
        """Return adapters and scales in the order in which they were loaded, without those of scale 0."""
        all_loaded = self._loaded
        if lora is None:
            scales = {name: loaded.scale for name, loaded in all_loaded.items()}
        else:
            scales = {self.find(name).name: checked_scale(name, scale) for name, scale in _asked(lora).items()}
        return [(loaded, scales[name]) for name, loaded in all_loaded.items() if scales.get(name)]


def checked_scale(name: str, scale: Any) -> float:
    """Return the scale of an adapter.

    Raises
    ------
    AdapterError, TypeError
        It is no finite number.
    """
    if isinstance(scale, bool) or not hasattr(scale, "__float__"):
        raise TypeError(f"the scale of {name!r} must be a number, not {scale!r:.80}")
    # compared as it is, as a whole number may be too large for a float
    if not -_MOST <= scale <= _MOST:
        raise AdapterError(f"the scale of {name!r} must be a finite number, not {scale!r:.80}")
    return float(scale)


def _asked(lora: Any) -> Mapping[str, Any]:
    """Return the scales that a request asks for by name; in a list of dicts each has a name and a scale.

    Raises
    ------
    AdapterError
        A name is in it twice.
    TypeError
        It is something else.
    """
    if isinstance(lora, Mapping):
        return lora
    scales: dict[str, Any] = {}
    for item in lora if isinstance(lora, (list, tuple)) else [lora]:
        named = isinstance(item, Mapping) and {"name"} <= item.keys() <= {"name", "scale"}
        if not named or not isinstance(item["name"], str):
            raise TypeError(
                f"lora must be a mapping of names to scales, or a list of dicts with name and scale, not {lora!r:.80}"
            )
        if item["name"] in scales:
            raise AdapterError(f"the adapter {item['name']!r} is given twice; add up its scales")
        scales[item["name"]] = item.get("scale", 1.0)
    return scales


def several(lora_path: Any, lora_scale: float) -> list[tuple[Any, float]]:
    """Return paths and scales of the adapters that a constructor was given: none, a path, or several of these.

    Raises
    ------
    TypeError
        It is something else.
    """
    if lora_path is None:
        return []
    if isinstance(lora_path, (str, bytes, os.PathLike)):
        return [(lora_path, lora_scale)]
    if not isinstance(lora_path, Sequence):
        raise TypeError(f"lora_path must be a path, or a list of paths or of (path, scale), not {lora_path!r:.80}")
    made = []
    for item in lora_path:
        path, scale = item if isinstance(item, (tuple, list)) and len(item) == 2 else (item, lora_scale)
        if not isinstance(path, (str, bytes, os.PathLike)):
            raise TypeError(f"lora_path must have paths or pairs of a path and a scale, not {item!r:.80}")
        made.append((path, scale))
    return made


def control_vector(source: Any, scale: float, layers: tuple[int, int] | None) -> ControlVector:
    """Return the control vector of a file, or of directions.

    Raises
    ------
    AdapterError, TypeError, ValueError
        As for `ControlVector`.
    """
    most = sys.float_info.max
    if isinstance(scale, bool) or not hasattr(scale, "__float__") or not -most <= scale <= most:
        raise AdapterError(f"the scale of a control vector must be a finite number, not {scale!r:.80}")
    first, last = (1, None) if layers is None else _first_and_last(layers)
    if isinstance(source, ControlVector) and layers is None:
        first, last = source.il_start, source.il_end
    if isinstance(source, (str, bytes, os.PathLike)):
        return ControlVector.from_gguf(os.fsdecode(source), scale=float(scale), il_start=first, il_end=last)
    import_whole("numpy")
    import numpy as np

    # in float64, as a scale may bring what is too large for float32 back into its range
    try:
        rows = np.asarray(source, np.float64) * float(scale)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "a control vector is a GGUF file, a ControlVector, or numbers of shape (n_layers, n_embd), not "
            f"{source!r:.80}: {error}"
        ) from None
    with np.errstate(over="ignore"):  # the infinity that it gives is refused
        return ControlVector(np.ascontiguousarray(rows, np.float32), first, last)


def _first_and_last(layers: Any) -> tuple[int, int | None]:
    pair = tuple(layers) if isinstance(layers, Iterable) and not isinstance(layers, (str, bytes)) else ()
    if len(pair) != 2 or any(isinstance(layer, bool) or not hasattr(layer, "__index__") for layer in pair):
        raise TypeError(f"layers must be the first and the last layer, as (1, 20), not {layers!r:.80}")
    return index(pair[0]), index(pair[1])


def _name_of(source: Any) -> str:
    if not isinstance(source, (str, bytes, os.PathLike)):
        raise TypeError("an adapter that comes from an open file needs a name")
    return Path(os.fsdecode(source)).stem


def _last_place(tokens: Sequence[int], prompt: Sequence[int]) -> int | None:
    """Return where tokens stand in a prompt for the last time, or None."""
    text, wanted = array("i", prompt), array("i", tokens)
    content, needle = text.tobytes(), wanted.tobytes()
    place = content.rfind(needle)
    while place % text.itemsize > 0 and place > 0:  # not where a token begins
        place = content.rfind(needle, 0, place + len(needle) - 1)
    return None if place < 0 else place // text.itemsize
