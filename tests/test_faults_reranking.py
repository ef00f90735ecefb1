"""Public fault cases of the area embeddings-rerank that are about reranking; test_rerank.py has the numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llamacy import Embedding
from llamacy.errors import PoolingError
from llamacy.generate.rank.head import Head
from llamacy.generate.rank.pairs import PairTokens
from llamacy.types import PoolingType
from tests.helpers import BOS, MASK, data, models, toy_tokens
from tests.helpers.reference import Reference
from tests.helpers.rewrite import boolean, number, rewrite, string, strings

ONE = {"n_threads": 1, "n_threads_batch": 1}
DOCUMENTS = ["jumps over the lazy dog", "zq zq zq", "the quick brown fox"]


@pytest.fixture
def yes_or_no(closing, tmp_path):
    """A generative reranker whose head says yes to what ends as one of the documents does."""
    hidden = Reference(data("target.gguf")).hidden
    template = "<s>{query} {document}<mask>"
    ends = [hidden([BOS, *toy_tokens(f"fox {text}", add_special=False), MASK])[-1] for text in DOCUMENTS]
    yes = ends[0] - ends[1]
    path = rewrite(
        tmp_path / "reranker.gguf",
        data("target.gguf"),
        {
            "qwen3.pooling_type": number(4),
            "qwen3.classifier.output_labels": strings("yes", "no"),
            "tokenizer.chat_template.rerank": string(template),
        },
        more={"cls.output.weight": np.array([yes, -yes], np.float32) / np.float32(yes @ yes)},
    )
    return closing(Embedding(path, **ONE))


def test_er_014_generative_reranker_gives_finite_scores_in_the_right_order(yes_or_no):
    ranked = yes_or_no.rerank("fox", DOCUMENTS[:2])
    assert [one.index for one in ranked] == [0, 1]
    assert all(math.isfinite(one.score) and 0 < one.score < 1 for one in ranked)
    assert ranked[0].score > 0.5 > ranked[1].score


def test_er_014_models_that_are_no_rerankers_are_refused(closing, bert_path):
    for path in (bert_path, data("llama.gguf")):
        with pytest.raises(PoolingError):
            closing(Embedding(path, **ONE)).rerank("q", ["d"])


def test_er_016_separators_are_tokens_of_the_vocabulary(make_model, rank_path):
    model = make_model(rank_path)
    vocab = model.vocab
    query, document = (vocab.tokenize(text, add_special=False).tolist() for text in ("the cat", "a dog"))
    tokens = PairTokens(model, "the cat", 64).tokens("a dog", 0).tolist()
    assert tokens == [vocab.bos, *query, vocab.sep, *document, vocab.sep]


def test_er_016_layout_is_begin_query_end_separator_document_end(make_model, rank_path, tmp_path):
    # a vocabulary that says of each of the four whether it wants it
    spm = models.write_llama(tmp_path / "llama.gguf", models.LlamaShape(n_vocab=288))
    path = rewrite(
        tmp_path / "flags.gguf",
        spm,
        {
            "tokenizer.ggml.add_eos_token": boolean(True),
            "tokenizer.ggml.add_sep_token": boolean(True),
            "tokenizer.ggml.seperator_token_id": number(MASK),
        },
    )
    model = make_model(path)
    vocab = model.vocab
    tokens = PairTokens(model, "the cat", 64).tokens("a dog", 0).tolist()
    query, document = (toy_tokens(text, add_special=False) for text in ("the cat", "a dog"))
    assert tokens == [BOS, *query, vocab.eos, MASK, *document, vocab.eos]
    # no separator is spelled out and converted as characters
    assert b"</s>" not in vocab.detokenize(tokens)


def test_er_017_probabilities_are_not_squeezed_a_second_time(yes_or_no):
    raw, made = (yes_or_no.rerank("fox", DOCUMENTS, sigmoid=sigmoid) for sigmoid in (False, True))
    assert raw == made
    assert yes_or_no.classify("fox") == yes_or_no.classify("fox", softmax=False)
    assert min(one.score for one in raw) < 0.5  # which no sigmoid of a probability is


def test_er_017_head_output_of_the_case_is_returned_unchanged(yes_or_no):
    head = Head(yes_or_no.model, PoolingType.RANK, 2, "reranking")
    output = np.array([[0.9971, 0.0029], [0.0072, 0.9928], [0.0, 1.0]], np.float32)
    assert head.probabilities(output)[:, head.column(None)].tolist() == output[:, 0].astype(float).tolist()


def test_er_017_order_and_indexes_are_stable(closing, rank_path):
    reranker = closing(Embedding(rank_path, **ONE))
    documents = ["cat", "dog", "cat", "", "dog"]
    raw, made = (reranker.rerank("q", documents, sigmoid=sigmoid) for sigmoid in (False, True))
    assert [one.index for one in raw] == [one.index for one in made]
    assert all(one.document == documents[one.index] for one in raw)
    assert all(0 < one.score < 1 for one in made)
