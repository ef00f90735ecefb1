"""Scores of rerankers compared with those of PyTorch (tests/data/make_embedding_goldens.py, make_rerank_goldens.py)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import Embedding
from tests.helpers import data
from tests.helpers.sentences import answers, digest, pairs

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


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """What PyTorch says of 200 pairs with logits of the size that rerankers have."""
    with np.load(data("rerank-goldens.npz")) as goldens:
        assert str(goldens["pairs_sha256"]) == digest(answers(200, 2))
        found = {name: goldens[name].astype(np.float64) for name in ("scores", "scores_tanh")}
    assert found["scores"].min() < -5
    assert found["scores"].max() > 4.5
    assert sum(not document.isascii() for _, document in answers(200, 2)) > 20
    return found


def fitted_scores(path: Path, *, sigmoid: bool = False, **options: Any) -> Any:
    with Embedding(path, n_threads=1, n_threads_batch=1, **options) as model:
        return np.array([model.rerank(query, [text], sigmoid=sigmoid)[0].score for query, text in answers(200, 2)])


def sigmoid(logits: Any) -> Any:
    return 1 / (1 + np.exp(-logits))


def test_rerank_with_large_logits_equals_pytorch_with_the_same_gelu(
    fitted_reranker_f32_path: Path, fitted: dict[str, Any]
) -> None:
    # llama.cpp approximates GELU by tanh, and PyTorch can, too
    plain = {"flash_attn": False}
    logits = fitted_scores(fitted_reranker_f32_path, **plain)
    np.testing.assert_allclose(logits, fitted["scores_tanh"], atol=1e-3 * np.abs(fitted["scores_tanh"]).max())
    scores = fitted_scores(fitted_reranker_f32_path, sigmoid=True, **plain)
    np.testing.assert_allclose(scores, sigmoid(fitted["scores_tanh"]), atol=1e-3)


def test_rerank_with_large_logits_is_as_close_to_pytorch_as_its_gelu(
    fitted_reranker_path: Path, fitted: dict[str, Any]
) -> None:
    exact, approximate = fitted["scores"], fitted["scores_tanh"]
    # what the approximation alone costs is more than 1e-3
    assert np.abs(sigmoid(approximate) - sigmoid(exact)).max() > 3e-3
    logits = fitted_scores(fitted_reranker_path)
    np.testing.assert_allclose(logits, exact, atol=8e-3 * np.abs(exact).max())
    np.testing.assert_allclose(sigmoid(logits), sigmoid(exact), atol=8e-3)
    is_clear = np.abs(exact) > 0.05
    assert is_clear.sum() > 180
    np.testing.assert_array_equal(logits[is_clear] > 0, exact[is_clear] > 0)


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
