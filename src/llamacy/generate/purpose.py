"""What a file or a model is for, where it can't do what was asked of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llamacy.core._architectures import DRAFT_ENCODERS
from llamacy.errors import LlamacyError
from llamacy.types import PoolingType

if TYPE_CHECKING:
    from llamacy.core.context import Context
    from llamacy.types import StrPath

# what is said of a file that is no model, by `file_kind`
FILES = {
    "adapter": "it is a LoRA adapter: load its base model, and give it as lora_path, or to load_lora()",
    "control vector": "it is a control vector: load a model, and give it to set_control_vector()",
    "projector": (
        "it is the part of a model that sees or hears, which can't be used yet; the model itself is another file"
    ),
    "importance matrix": "it is an importance matrix, for llamacy.quantize(…, imatrix=…)",
}

# what is said of a model that makes no text, by `no_text`
MODELS = {
    "encoder": "embed() makes vectors of texts",
    "reranker": "llamacy.Embedding scores pairs and texts with it: rerank() and classify()",
    "encoder and decoder": (
        "embed() makes vectors with the encoder, and Context.encode() and decode() are there for a loop of your own"
    ),
    "draft": "it drafts for another model, and there is no speculative decoding yet; load that model",
}


def file_kind(path: StrPath) -> str:
    """Return what a file is in place of a model (one of `FILES`), or nothing."""
    from llamacy.core.gguf import Gguf

    try:
        with Gguf(path) as file:
            metadata: Any = file.metadata
            kind, architecture = metadata.get("general.type"), metadata.get("general.architecture")
            layers = any(name.startswith("direction.") for name in file.tensors)
    except (LlamacyError, OSError):  # why it is no model was told by the error that led here
        return ""
    if kind == "adapter":
        return "adapter"
    if architecture == "controlvector" or layers:
        return "control vector"
    if kind == "mmproj" or architecture == "clip":
        return "projector"
    return "importance matrix" if kind == "imatrix" else ""


def no_text(context: Context) -> str:
    """Return why a model generates no text (one of `MODELS`), or nothing where it does."""
    model = context.model
    if model.architecture in DRAFT_ENCODERS:
        return "draft"
    if context.memory is None:
        return "reranker" if context.pooling_type == PoolingType.RANK else "encoder"
    return "encoder and decoder" if model.has_encoder and model.has_decoder else ""


def no_text_message(context: Context) -> str:
    """Return what is said of a model that generates no text, or nothing where it does."""
    kind = no_text(context)
    if not kind:
        return ""
    return f"no text can be generated with a model of the architecture {context.model.architecture!r}; {MODELS[kind]}"


def is_draft(error: LlamacyError) -> bool:
    """Return whether a context can't be created because it must be beside that of another model."""
    return any("requires ctx_other" in line for line in error.log)
