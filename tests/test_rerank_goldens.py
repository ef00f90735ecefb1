"""Scores of a reranker compared with those of PyTorch (tests/data/make_embedding_goldens.py)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import Embedding
from tests.helpers import data
from tests.helpers.sentences import digest, pairs

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def expected() -> Any:
    with np.load(data("embedding-goldens.npz")) as goldens:
        assert str(goldens["pairs_sha256"]) == digest(pairs(100))
        return goldens["scores"].astype(np.float64)


@pytest.fixture(scope="module")
def scores(minilm_reranker_path: Path) -> Any:
    """What the model gives the pairs, each by itself."""
    with Embedding(minilm_reranker_path, n_threads=1, n_threads_batch=1) as model:
        return np.array([model.rerank(query, [document])[0].score for query, document in pairs(100)])


def test_rerank_equals_pytorch(scores: Any, expected: Any) -> None:
    # The scores of the random head lie about a tenth apart.
    assert 0.05 < expected.std() < 0.5
    np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_rerank_of_many_documents_is_that_of_each(minilm_reranker_path: Path) -> None:
    query = pairs(100)[0][0]
    documents = [document for _, document in pairs(100)]
    with Embedding(minilm_reranker_path, n_threads=1, n_threads_batch=1) as model:
        ranked = model.rerank(query, documents)
        alone = np.array([model.rerank(query, [document])[0].score for document in documents])
    assert sorted(one.index for one in ranked) == list(range(100))
    assert all(one.document == documents[one.index] for one in ranked)
    np.testing.assert_allclose([one.score for one in ranked], alone[[one.index for one in ranked]], atol=1e-3)
    assert all(before.score >= after.score for before, after in itertools.pairwise(ranked))
