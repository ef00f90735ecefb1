"""Ends of generation, and the sampler that rules them out for a while."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.min_tokens import end_tokens
from llamacy.core.sampler import Sampler, SamplerChain


def ruled_out(sampler, vocab, ids=None):
    logits = np.arange(vocab.n_tokens, dtype=np.float32) / vocab.n_tokens
    candidates = Candidates(logits) if ids is None else Candidates(logits[ids], np.asarray(ids, np.int32))
    sampler.apply(candidates)
    return sorted(int(i) for i in np.asarray(candidates.ids)[np.isneginf(np.asarray(candidates.logits))])


def test_end_tokens_are_those_that_the_vocabulary_calls_so(smollm2_model):
    vocab = smollm2_model.vocab
    expected = tuple(token for token in range(vocab.n_tokens) if vocab.is_eog(token))
    assert len(expected) > 1
    assert end_tokens(vocab) == expected
    assert end_tokens(vocab) is end_tokens(vocab)


def test_ends_are_ruled_out_until_so_many_tokens_were_accepted(smollm2_model):
    vocab = smollm2_model.vocab
    ends = sorted(end_tokens(vocab))
    sampler = Sampler.min_tokens(vocab, 2)
    for _ in range(2):
        assert ruled_out(sampler, vocab) == ends
        sampler.accept(100)
    assert ruled_out(sampler, vocab) == []


def test_ends_are_found_among_some_candidates(smollm2_model):
    vocab = smollm2_model.vocab
    end = end_tokens(vocab)[-1]
    assert ruled_out(Sampler.min_tokens(vocab, 1), vocab, [900, end, 3, 700]) == [end]


def test_order_is_not_relied_on_after_ends_are_ruled_out(smollm2_model):
    vocab = smollm2_model.vocab
    end = end_tokens(vocab)[0]
    logits = np.zeros(vocab.n_tokens, np.float32)
    logits[[end, 500]] = 9, 8
    candidates = Candidates(logits)
    chain = SamplerChain([Sampler.top_k(20), Sampler.min_tokens(vocab, 1), Sampler.top_p(0.5), Sampler.greedy()])
    chain.apply(candidates)
    assert candidates.ids[candidates.selected] == 500
    chain.close()


def test_reset_and_clone(smollm2_model):
    vocab = smollm2_model.vocab
    sampler = Sampler.min_tokens(vocab, 1)
    copy = sampler.clone()
    sampler.accept(100)
    assert ruled_out(sampler, vocab) == []
    assert ruled_out(copy, vocab) != []
    sampler.reset()
    assert ruled_out(sampler, vocab) == ruled_out(copy, vocab)


@pytest.mark.parametrize(("n", "error"), [(-1, ValueError), (2**31, ValueError), (1.0, TypeError)])
def test_wrong_number_raises(smollm2_model, n, error):
    with pytest.raises(error):
        Sampler.min_tokens(smollm2_model.vocab, n)
