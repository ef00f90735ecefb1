"""Sampling options of a request."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from llamacy.core.sampler import Sampler, SamplerChain

# a seed of this value means "draw one" to llama.cpp (LLAMA_DEFAULT_SEED)
_RANDOM_SEED = 0xFFFFFFFF


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is picked.

    Parameters
    ----------
    temperature
        Divides the logits; 0 picks the most likely token.
    top_k
        Keep the `top_k` most likely tokens; 0 keeps all.
    top_p
        Keep the most likely tokens that have this probability together; 1 keeps all.
    min_p
        Keep the tokens that have at least this share of the probability of the most likely one; 0 keeps all.
    seed
        Seed of the random numbers; None and -1 draw one, which `drawn_seed` then tells.

    Raises
    ------
    TypeError, ValueError
        An option is of the wrong type or out of range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, 0.0, math.inf)
        _check_number("top_p", self.top_p, 0.0, 1.0)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int):
            raise TypeError(f"top_k must be an int, not {type(self.top_k).__name__}")
        object.__setattr__(self, "seed", _drawn(self.seed))

    @property
    def drawn_seed(self) -> int:
        """The seed in use; the same one gives the same text again."""
        assert self.seed is not None
        return self.seed

    def chain(self) -> SamplerChain:
        """Return a new sampler chain, in llama.cpp's default order."""
        if self.temperature == 0:
            return SamplerChain([Sampler.greedy()])
        samplers = [Sampler.top_k(self.top_k)] if self.top_k > 0 else []
        if self.top_p < 1:
            samplers.append(Sampler.top_p(self.top_p))
        if self.min_p > 0:
            samplers.append(Sampler.min_p(self.min_p))
        samplers.append(Sampler.temp(self.temperature))
        samplers.append(Sampler.dist(self.drawn_seed))
        return SamplerChain(samplers)

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> SamplingOptions:
        """Return the options for keyword arguments, `temp` meaning `temperature`.

        Raises
        ------
        TypeError
            There is no such option.
        """
        options = {"temperature" if name == "temp" else name: value for name, value in arguments.items()}
        for name in options:
            if name not in cls.__dataclass_fields__:
                _raise_unknown(name, [field.name for field in fields(cls)])
        return cls(**options)


def _raise_unknown(name: str, known: list[str]) -> NoReturn:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; options are {', '.join(known)}"
    raise TypeError(f"there is no sampling option {name!r}{hint}")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not low <= value <= high or not math.isfinite(value):
        raise ValueError(f"{name} must be from {low:g} to {high:g}, not {value}")


def _drawn(seed: object) -> int:
    if seed is None or seed == -1:
        return int.from_bytes(os.urandom(8), "little") % _RANDOM_SEED
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an int, not {type(seed).__name__}")
    if not 0 <= seed < _RANDOM_SEED:
        raise ValueError(f"seed must be from 0 to {_RANDOM_SEED - 1}, or -1 to draw one, not {seed}")
    return seed
