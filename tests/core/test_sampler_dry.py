"""Dry samplers of the same arguments have nothing but these in common."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler


def lowered(sampler, vocab):
    """Return the logits that the sampler changes, by token."""
    candidates = Candidates(np.zeros(vocab.n_tokens, np.float32))
    sampler.apply(candidates)
    return {token: logit for token, logit, _ in candidates if logit}


def repeat(sampler):
    for token in (100, 101, 102, 103, 100, 101, 102):
        sampler.accept(token)


def test_samplers_made_alike_remember_apart(llama_model):
    vocab = llama_model.vocab
    samplers = [Sampler.dry(vocab, 1.0, 2.0, 2, 64, ()) for _ in range(3)]
    repeat(samplers[1])
    assert [lowered(sampler, vocab) for sampler in samplers] == [{}, {103: -2.0}, {}]
    samplers[1].close()
    repeat(samplers[2])
    assert lowered(samplers[2], vocab) == {103: -2.0}
    assert lowered(Sampler.dry(vocab, 1.0, 2.0, 2, 64, ()), vocab) == {}


def test_many_kinds_of_samplers_stay_right(llama_model):
    vocab = llama_model.vocab
    for _ in range(3):
        for multiplier in range(1, 13):
            with Sampler.dry(vocab, multiplier, 2.0, 2, 64, ()) as sampler:
                repeat(sampler)
                assert lowered(sampler, vocab) == {103: -2.0 * multiplier}


def test_breakers_are_those_of_the_vocabulary(llama_model, smollm2_model):
    for model in (llama_model, smollm2_model, llama_model):
        vocab = model.vocab
        a, b, c, d = (vocab.tokenize(text, add_special=False)[-1] for text in (" a", " b", " c", " d"))
        for breakers, expected in (((), {d: -2.0}), (("b",), {}), (("d",), {})):
            with Sampler.dry(vocab, 1.0, 2.0, 2, 64, breakers) as sampler:
                for token in (a, b, c, d, a, b, c):
                    sampler.accept(token)
                assert lowered(sampler, vocab) == expected, breakers


def test_memory_of_any_length_may_be_asked_for(llama_model):
    vocab = llama_model.vocab
    with Sampler.dry(vocab, 1.0, 2.0, 2, 1 << 18, ()) as sampler:
        repeat(sampler)
        assert lowered(sampler, vocab) == {103: -2.0}


def test_closed_model_raises(make_model):
    from llamacy.errors import ClosedError

    model = make_model("llama.gguf", vocab_only=True)
    vocab = model.vocab
    Sampler.dry(vocab, 1.0).close()
    model.close()
    with pytest.raises(ClosedError):
        Sampler.dry(vocab, 1.0)
