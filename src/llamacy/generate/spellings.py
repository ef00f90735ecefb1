"""Names under which other bindings of llama.cpp know the parameters of a model."""

from __future__ import annotations

from typing import Any

from llamacy.types import FlashAttnType, LoadMode

SPELLINGS = ("embedding", "flash_attn", "use_mmap", "use_mlock", "use_direct_io", "logits_all")

# parameters of llama-cpp-python that are not here, with the values beside None that ask for nothing: its defaults
_ASKING_NOTHING: dict[str, tuple[Any, ...]] = {
    "additional_files": ([], ()),
    "chat_handler": (),
    "chat_handler_kwargs": ({},),
    "clip_model_path": (),
    "draft_model": (),
    "last_n_tokens_size": (64,),  # the default of penalty_last_n
    "local_dir_use_symlinks": ("auto",),
    "log_filters": ([], ()),
    "log_filters_case_sensitive": (True,),
    "mmproj_path": (),
    "no_alloc": (False,),
    "numa": (False, 0),
    "speculative": (),
    "tokenizer": (),
    "verbosity": (),
    "vocab_only": (False,),
}
# parameters that are None there by default, and something else here
_NONE_BY_DEFAULT = ("type_k", "type_v", *SPELLINGS)


def translated(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of `Llama` under the names that they have here, and with what they mean.

    Raises
    ------
    TypeError, ValueError
        One is given under both names, or means something that is not there any more.
    """
    params = {name: value for name, value in params.items() if not _asks_nothing(name, value)}
    if "embedding" in params:
        _put(params, "embedding", "embeddings", params.pop("embedding"))
    if "flash_attn" in params:
        wanted = params.pop("flash_attn")
        _put(params, "flash_attn", "flash_attn_type", FlashAttnType.ENABLED if wanted else FlashAttnType.DISABLED)
    _translate_load_mode(params)
    # log-probabilities need no rows of all tokens here
    params.pop("logits_all", None)
    for name in ("lora_base", "rpc_servers", "mul_mat_q"):
        if params.pop(name, None) is not None:
            raise ValueError(f"{name} was taken out of llama.cpp")
    return params


def _asks_nothing(name: str, value: Any) -> bool:
    if value is None:
        return name in _ASKING_NOTHING or name in _NONE_BY_DEFAULT
    # of the same type, as False == 0, and as arrays have no truth
    return any(type(value) is type(nothing) and value == nothing for nothing in _ASKING_NOTHING.get(name, ()))


def _translate_load_mode(params: dict[str, Any]) -> None:
    flags = {name: params.pop(name) for name in ("use_mmap", "use_mlock", "use_direct_io") if name in params}
    if not flags:
        return
    mmap, mlock = flags.get("use_mmap", True), flags.get("use_mlock", False)
    if flags.get("use_direct_io"):
        mode = LoadMode.DIRECT_IO
    elif mmap:
        mode = LoadMode.MMAP_MLOCK if mlock else LoadMode.MMAP
    else:
        mode = LoadMode.MLOCK if mlock else LoadMode.NONE
    _put(params, ", ".join(flags), "load_mode", mode)


def _put(params: dict[str, Any], old: str, new: str, value: Any) -> None:
    if new in params:
        raise TypeError(f"{old} and {new} mean the same; give {new} only")
    params[new] = value
