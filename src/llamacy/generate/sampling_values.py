"""What values the sampling options may have, alone and together."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from llamacy.generate.options import SamplingOptions

# a seed of this value means "draw one" to llama.cpp (LLAMA_DEFAULT_SEED)
_RANDOM_SEED = 0xFFFFFFFF
_INT_MAX = 2**31 - 1

#: The samplers in llama.cpp's default order.
ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)

_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typical_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
    "a": "adaptive_p",
}

_OTHER_NAMES = {
    "typ_p": "typical_p",
    "typ": "typical_p",
    "typical": "typical_p",
    "nucleus": "top_p",
    "temp": "temperature",
}

# the options that turn each sampler on
_SWITCHES = {
    "penalties": ("repeat_penalty", "frequency_penalty", "presence_penalty"),
    "dry": ("dry_multiplier",),
    "top_n_sigma": ("top_n_sigma",),
    "top_k": ("top_k",),
    "typical_p": ("typical_p",),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "xtc": ("xtc_probability",),
    "temperature": ("temperature", "dynatemp_range"),
}

# whether the value of such an option turns it off; the temperature always does something
_OFF: dict[str, Callable[[float], bool]] = {
    "repeat_penalty": lambda value: value == 1,
    "frequency_penalty": lambda value: value == 0,
    "presence_penalty": lambda value: value == 0,
    "dry_multiplier": lambda value: value == 0,
    "top_n_sigma": lambda value: value <= 0,
    "top_k": lambda value: value <= 0,
    "typical_p": lambda value: value == 1,
    "top_p": lambda value: value == 1,
    "min_p": lambda value: value == 0,
    "xtc_probability": lambda value: value == 0,
    "dynatemp_range": lambda value: value == 0,
    "adaptive_target": lambda value: value < 0,
}

# infill compares each candidate with all others
_MAX_INFILL = 1000


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the form that they are kept in.

    Raises
    ------
    TypeError, ValueError
        One is of the wrong type or out of range.
    """
    return {name: _CHECKS[name](name, value) for name, value in given.items()}


def drawn_seed(seed: int | None) -> int:
    """Return a seed, drawn when it is None."""
    return int.from_bytes(os.urandom(8), "little") % _RANDOM_SEED if seed is None else seed


def check_together(options: SamplingOptions) -> None:
    """Refuse options that others would keep from having any effect."""
    if options.mirostat_mode:
        switches = [switch for names in _SWITCHES.values() for switch in names if switch != "temperature"]
        for name in (*switches, "adaptive_target", "samplers", "use_infill"):
            _refuse(options, name, f"mirostat_mode={options.mirostat_mode} takes the place of it")
        return
    for sampler, names in _SWITCHES.items():
        for name in names if sampler not in options.samplers else ():
            _refuse(options, name, f"samplers leaves {sampler!r} out")
    if options.use_infill or "infill" in options.samplers:
        if not 0 < options.top_k <= _MAX_INFILL:
            raise ValueError(
                f"infill compares the candidates with each other, so top_k must be from 1 to {_MAX_INFILL}, not "
                f"{options.top_k}"
            )
        order = list(options.samplers)
        if "top_k" not in order or ("infill" in order and order.index("infill") < order.index("top_k")):
            raise ValueError(f"infill needs 'top_k' before it, unlike in {tuple(order)}")
        for name in ("ignore_eos", "min_tokens"):
            _refuse(options, name, "infill ends the text when it is not sure of the next token")


def _refuse(options: SamplingOptions, name: str, why: str) -> None:
    value = getattr(options, name)
    if value != options.__dataclass_fields__[name].default and not (name in _OFF and _OFF[name](value)):
        raise ValueError(f"{name}={value!r} would have no effect: {why}; leave one of them out")


def plain_bool(value: Any) -> Any:
    """Return NumPy's True and False as Python's, and anything else as it is."""
    dtype = getattr(value, "dtype", None)
    return bool(value) if getattr(dtype, "kind", None) == "b" and getattr(value, "ndim", None) == 0 else value


def plain_float(value: Any) -> float:
    """Return a number as a float; a whole one that is too large for it is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _number(low: float, high: float, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    number = plain_float(value)
    if not low <= number <= high or not math.isfinite(number):
        raise ValueError(f"{name} must be from {low:g} to {high:g}, not {value!s:.80}")
    return number


def _positive(name: str, value: object) -> float:
    number = _number(0, math.inf, name, value)
    if number < 1e-30:
        raise ValueError(f"{name} must be above 0, not {value}")
    return number


def _temperature(name: str, value: object) -> float:
    number = _number(-math.inf, math.inf, name, value)
    if 0 < number < 1e-30:
        raise ValueError(f"{name}={value} would make logits infinite; use 0 for the most likely token")
    return number


def _whole(low: int, high: int, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    number = int(value)
    if not low <= number <= high:
        raise ValueError(f"{name} must be from {low} to {high}, not {value}")
    return number


def _flag(name: str, value: object) -> bool:
    flag = plain_bool(value)
    if not isinstance(flag, bool):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return flag


def _seed(name: str, value: object) -> int | None:
    if value is None:
        return None
    number = _whole(-1, _RANDOM_SEED, name, value)
    return None if number in (-1, _RANDOM_SEED) else number


def _text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of texts, not {value!r}")
    texts = tuple(value)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{name} must hold texts, not {type(text).__name__}")
    return texts


def _tags(name: str, value: object) -> str | tuple[str, ...]:
    tags = (value,) if isinstance(value, str) else _texts(name, value)
    if not tags or "" in tags:
        raise ValueError(f"{name} must be a text that is not empty, or several, not {value!r}")
    return value if isinstance(value, str) else tags


def _tokens(name: str, value: object) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of token ids, not {value!r}")
    return tuple([_whole(0, _INT_MAX, name, token) for token in value])


def _bias(name: str, value: object) -> dict[int, float] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a mapping of token ids to numbers, not {type(value).__name__}")
    biases: dict[int, float] = {}
    for item in value.items() if isinstance(value, Mapping) else value:
        if isinstance(item, str) or not isinstance(item, Iterable):
            raise TypeError(f"{name} must hold pairs of a token id and a number, not {item!r}")
        pair = tuple(item)
        if len(pair) != 2:
            raise ValueError(f"{name} must hold pairs of a token id and a number, not {item!r}")
        token, bias = pair
        if isinstance(token, str):
            if not (token.isascii() and token.isdigit() and len(token) < 11):
                raise ValueError(f"{name}: {token!r} is not a token id; tokenize the text to find its ids")
            token = int(token)
        token = _whole(0, _INT_MAX, f"{name}: a token id", token)
        biases[token] = biases.get(token, 0.0) + _one_bias(f"{name} of token {token}", bias)
    return biases


def _one_bias(name: str, bias: object) -> float:
    if bias is None or bias is False or bias == -math.inf:
        return -math.inf
    return _number(-math.inf, 1e8, name, bias)


def _samplers(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        names = value.split(";") if ";" in value or _full_name(value) is not None else list(value)
    else:
        names = list(_texts(name, value))
    order: list[str] = []
    for given in names:
        sampler = _LETTERS.get(given) or _full_name(given)
        if sampler is None:
            _raise_unknown_sampler(given)
        if sampler in order:
            raise ValueError(f"{name}: {sampler!r} is there twice")
        order.append(sampler)
    return tuple(order)


def _full_name(name: str) -> str | None:
    name = name.strip().replace("-", "_")
    return name if name in _LETTERS.values() else _OTHER_NAMES.get(name)


def _raise_unknown_sampler(name: str) -> NoReturn:
    from difflib import get_close_matches

    close = get_close_matches(name, list(_LETTERS.values()), n=1)
    known = ", ".join(f"{full} ({letter})" for letter, full in _LETTERS.items())
    raise ValueError(
        f"there is no sampler {name!r}; " + (f"did you mean {close[0]!r}?" if close else f"known: {known}")
    )


_share = partial(_number, 0.0, 1.0)
_count = partial(_whole, 0, _INT_MAX)
_from_minus_1 = partial(_whole, -1, _INT_MAX)
_not_negative = partial(_number, 0.0, math.inf)
_any_number = partial(_number, -math.inf, math.inf)

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "temperature": _temperature,
    "dynatemp_range": _not_negative,
    "dynatemp_exponent": _not_negative,
    "top_k": partial(_whole, -_INT_MAX, _INT_MAX),
    "top_p": _share,
    "min_p": _share,
    "typical_p": _share,
    "top_n_sigma": _any_number,
    "xtc_probability": _share,
    "xtc_threshold": _share,
    "mirostat_mode": partial(_whole, 0, 2),
    "mirostat_tau": _not_negative,
    "mirostat_eta": _not_negative,
    "adaptive_target": partial(_number, -math.inf, 1.0),
    "adaptive_decay": partial(_number, 0.0, 0.99),
    "dry_multiplier": _not_negative,
    "dry_base": partial(_number, 1.0, math.inf),
    "dry_allowed_length": _count,
    "dry_penalty_last_n": _from_minus_1,
    "dry_seq_breakers": _texts,
    "penalty_last_n": _from_minus_1,
    "repeat_penalty": _positive,
    "frequency_penalty": _any_number,
    "presence_penalty": _any_number,
    "logit_bias": _bias,
    "seed": _seed,
    "min_keep": _count,
    "samplers": _samplers,
    "ignore_eos": _flag,
    "min_tokens": _count,
    "suppress_tokens": _tokens,
    "use_infill": _flag,
    "reasoning_budget": _from_minus_1,
    "reasoning_budget_message": _text,
    "reasoning_start": _tags,
    "reasoning_end": _tags,
    "reasoning_start_in_prompt": _flag,
    "reasoning_start_max_tokens": _count,
}
