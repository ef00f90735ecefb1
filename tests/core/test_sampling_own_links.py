"""Chains with samplers of our own choose the same with and without the whole row."""

from __future__ import annotations

import pytest

from llamacy.core.batch import Batch
from llamacy.core.reasoning_budget import closing_tokens, reasoning_state
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import GrammarError

MESSAGE = " Enough."


@pytest.fixture
def context(smollm2_model, make_context):
    return make_context(smollm2_model)


def chain(vocab, *, budget=6, fast=True):
    return SamplerChain(
        [
            Sampler.reasoning_budget(vocab, budget, in_block=True, message=MESSAGE),
            Sampler.logit_bias(vocab.n_tokens, {2: 60.0}),  # an end is likely
            Sampler.min_tokens(vocab, 20),
            Sampler.penalties(vocab.n_tokens, 64, 1.2),
            Sampler.top_k(40),
            Sampler.temp(1.2),
            Sampler.dist(7),
        ],
        no_perf=fast,  # measuring time needs the whole row
    )


def write(context, sampler, n, **options):
    """Return what a sampler chooses after a prompt."""
    context.memory.clear()
    tokens = list(context.model.vocab.tokenize("The capital of France"))
    with Batch(64) as batch:
        batch.extend(tokens, 0, logits="last")
        context.decode(batch)
        for _ in range(n):
            tokens.append(sampler.sample(context, **options))
            batch.clear()
            batch.add(tokens[-1], len(tokens) - 1, logits=True)
            context.decode(batch)
    return tokens[-n:]


def test_chain_chooses_the_same_with_and_without_the_whole_row(context):
    vocab = context.model.vocab
    with chain(vocab) as fast, chain(vocab, fast=False) as slow:
        tokens = write(context, fast, 40)
        assert write(context, slow, 40) == tokens
    end = closing_tokens(vocab, MESSAGE + "</think>")
    assert tokens[6 : 6 + len(end)] == end
    assert not any(vocab.is_eog(token) for token in tokens[:20])
    assert vocab.is_eog(tokens[20])


@pytest.mark.parametrize("grammar_first", [False, True])
def test_grammar_that_refuses_what_is_forced_raises(context, grammar_first):
    vocab = context.model.vocab
    with chain(vocab) as sampler, Sampler.grammar(vocab, "root ::= [a-z ]*") as grammar:
        with pytest.raises(GrammarError):
            write(context, sampler, 40, grammar=grammar, grammar_first=grammar_first)
        assert reasoning_state(sampler) == "forcing"


@pytest.mark.parametrize("grammar_first", [False, True])
def test_grammar_and_budget_go_together(context, grammar_first):
    vocab = context.model.vocab
    end = closing_tokens(vocab, MESSAGE + "</think>")
    with chain(vocab) as sampler, Sampler.grammar(vocab, 'root ::= [a-z ]+ " Enough.</think>" [a-z ]*') as grammar:
        tokens = write(context, sampler, 6 + len(end) + 3, grammar=grammar, grammar_first=grammar_first)
    assert tokens[6 : 6 + len(end)] == end
