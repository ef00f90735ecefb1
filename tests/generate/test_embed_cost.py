"""The rule for the size of batches of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llamacy.core.model import Model
from llamacy.generate.embed.cost import best_tokens
from llamacy.types import FlashAttnType
from tests.helpers import models


def test_plain_attention_wants_smaller_batches_and_threads_want_larger_ones(bert_path: Path) -> None:
    with Model(bert_path) as model:
        flash = best_tokens(model, 1, FlashAttnType.AUTO)
        assert best_tokens(model, 1, FlashAttnType.DISABLED) < flash / 2
        assert best_tokens(model, 4, FlashAttnType.AUTO) > flash


def test_the_shape_of_minilm_has_the_size_that_was_measured(model_dir: Path) -> None:
    shape: dict[str, Any] = {"n_layer": 6, "n_embd": 384, "n_head": 12, "n_ff": 8}
    with Model(models.write_bert(model_dir / "minilm-shape.gguf", **shape)) as model:
        assert 128 < best_tokens(model, 1, FlashAttnType.AUTO) < 256  # within 1 % of the fastest
        assert 40 < best_tokens(model, 1, FlashAttnType.DISABLED) < 100
