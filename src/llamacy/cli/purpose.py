"""Which command a file or a model is for, where it isn't for the one that was given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from llamacy.cli.common import CommandError
from llamacy.errors import ContextCreateError, ModelFormatError
from llamacy.types import VocabType

if TYPE_CHECKING:
    from llamacy import Llama, Model

_Model = TypeVar("_Model")

# what is said of a file that is no model, by `file_kind`
_FILES = {
    "adapter": (
        "is a LoRA adapter: give its base model with --model, and it with --lora (`llamacy chat`, `llamacy generate`)"
    ),
    "control vector": (
        "is a control vector: give a model with --model, and it with --control-vector (`llamacy chat`, "
        "`llamacy generate`)"
    ),
    "projector": (
        "is the part of a model that sees or hears, which can't be used yet: give the file of the model itself"
    ),
    "importance matrix": "is an importance matrix: `llamacy quantize --imatrix` takes it",
}

# what is said of a model that makes no text, by `no_text`
_MODELS = {
    "encoder": "makes vectors of texts, and no text: see `llamacy embed`",
    "reranker": "is a reranker or classifier and makes no text: see `llamacy rerank`",
    "encoder and decoder": (
        "is an encoder with a decoder, with which no text can be generated here; `llamacy embed --pooling mean` makes "
        "vectors of texts with its encoder"
    ),
    "draft": "drafts for another model, and there is no speculative decoding yet: give the file of that model",
}


def loaded(make: Callable[..., _Model], path: Path, **params: Any) -> _Model:
    """Return what is made of a model file.

    Raises
    ------
    CommandError
        It is a file of another kind, or no context can be created with it.
    """
    from llamacy.generate.purpose import file_kind, is_draft

    try:
        return make(path, **params)
    except ModelFormatError as error:
        what = _FILES.get(file_kind(path))
        if what is None:
            raise
        raise CommandError(f"{path} {what}.") from error
    except ContextCreateError as error:
        if is_draft(error):
            raise CommandError(f"{path} {_MODELS['draft']}.") from error
        # the message has all parameters; what was wrong is the last that llama.cpp said
        if not error.log:
            raise
        raise CommandError(f"{path}: llama.cpp can't create a context: {error.log[-1]}") from error


def check_generates(llm: Llama, path: Path) -> None:
    """Refuse a model that generates no text.

    Raises
    ------
    CommandError
        It doesn't; the message has the command that it is for.
    """
    from llamacy.generate.purpose import no_text

    kind = no_text(llm.context)
    if kind:
        raise CommandError(f"{path} {_MODELS[kind]}.")


def check_reads(model: Model, path: Path) -> None:
    """Refuse a model that can't read text.

    Raises
    ------
    CommandError
        It has no vocabulary.
    """
    if model.vocab.type == VocabType.NONE:
        raise CommandError(f"{path} has no vocabulary, so it reads and writes no text, but ids of tokens only.")
