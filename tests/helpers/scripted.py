"""A model that writes what a test says: a tiny llama whose logits leave one token at each place."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers import EOS, N_TOY_VOCAB, models, toy_tokens

TEMPLATES = "models/templates"


def write_model(path: Path, *, controls: Sequence[str] = (), **more: Any) -> Path:
    """Write a model with the toy vocabulary, and control tokens after it."""
    shape = models.LlamaShape(n_vocab=N_TOY_VOCAB + len(controls), n_embd=32, n_ff=48, n_ctx_train=32_768)
    return models.write_llama(path, shape, controls=controls, **more)


def tokens_of(text: str, controls: Sequence[str] = ()) -> list[int]:
    """Tokenize by the toy vocabulary; each control token that is spelled in the text is one token."""
    if not text:
        return []
    ids: list[int] = []
    pattern = "|".join(map(re.escape, sorted(controls, key=len, reverse=True)))
    for piece in re.split(f"({pattern})", text) if controls else [text]:
        if piece in controls:
            ids.append(N_TOY_VOCAB + list(controls).index(piece))
        elif piece:
            ids += toy_tokens(piece, add_special=False)[1:]  # without the space that a text begins with
    return ids


def writing(*texts: str, controls: Sequence[str] = (), end: int | None = EOS) -> Callable[[Any, Any], None]:
    """Return a logits processor for one request that lets the model write a text, and end.

    Parameters
    ----------
    *texts
        Of each choice.
    controls
        Control tokens of the model.
    end
        Token that ends the text; None: the request has to end it.
    """
    scripts = [[*tokens_of(text, controls), *([] if end is None else [end])] for text in texts]
    return writing_tokens(*scripts)


def writing_tokens(*scripts: Sequence[int]) -> Callable[[Any, Any], None]:
    """Return a logits processor for one request that lets the model write tokens."""
    places: dict[str, int] = {}

    def process(input_ids: Any, scores: Any) -> None:
        n_prompt = places.setdefault("prompt", len(input_ids))
        place = len(input_ids) - n_prompt
        number = 0
        if len(scripts) > 1:
            if place == 0:
                number = places["next"] = places.get("next", -1) + 1
            else:
                number = next(
                    index for index, script in enumerate(scripts) if list(input_ids[n_prompt:]) == script[:place]
                )
        scores[:] = -np.inf
        scores[scripts[number][place]] = 0

    return process
