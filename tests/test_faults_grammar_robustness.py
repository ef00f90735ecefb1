"""Public fault cases of the area grammar-robustness that the samplers reach.

GR-011, GR-012 and GR-015, hostile and wrong grammars, are in tests/core/test_sampler_grammar_errors.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from llamacy import Batch, Context, GrammarError, Model, Sampler, SamplerChain, Vocab
from tests.helpers import data, toy_tokens

TOOL_CALL = r"""
root ::= "<tool_call>{\"name\": \"" [a-z]+ "\"}</tool_call>"
"""
PAIR = 'root ::= "{" [a-c] ":" [x-z] "}"'


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(data("target.gguf")) as model:
        yield model


def spelled(text: str) -> list[int]:
    """Return the tokens of the toy vocabulary for a text, without the space that it puts in front."""
    return toy_tokens(text, add_special=False)[1:]


def run(chain: SamplerChain, context: Context, n: int) -> bytes:
    """Sample until the end of generation, at most `n` tokens; the grammar is in the chain."""
    vocab = context.model.vocab
    text = b""
    context.memory.clear()
    chain.reset()
    prompt = toy_tokens("the cat")
    with Batch(len(prompt)) as batch:
        batch.extend(prompt, 0)
        for pos in range(len(prompt), len(prompt) + n):
            context.decode(batch)
            token = chain.sample(context, -1)
            if vocab.is_eog(token):
                break
            text += vocab.piece(token)
            batch.clear()
            batch.add(token, pos, logits=True)
    return text


def test_gr_001_text_before_the_trigger_passes_and_a_dead_end_is_an_error(model: Model) -> None:
    with Sampler.grammar_lazy(model.vocab, TOOL_CALL, trigger_patterns=["<tool_call>"]) as sampler:
        for _ in range(2):
            for token in spelled('```json\n{ "'):
                sampler.accept(token)
            assert sampler.awaiting_trigger
            for token in spelled('<tool_call>{"name": "'):
                sampler.accept(token)
            assert not sampler.awaiting_trigger
            (wrong,) = spelled("1")
            assert not sampler.allows(wrong)
            with pytest.raises(GrammarError, match="does not allow"):
                sampler.accept(wrong)
            # as good as before
            for token in spelled('look"}</tool_call>'):
                sampler.accept(token)
            sampler.reset()


def test_gr_009_one_grammar_serves_many_runs_also_after_one_that_was_cut_short(model: Model) -> None:
    chain = SamplerChain([Sampler.grammar(model.vocab, PAIR), Sampler.greedy()])
    with chain, Context(model, n_ctx=256, n_threads=1, n_threads_batch=1) as context:
        first = run(chain, context, 20)
        assert len(first) == 5
        assert (first[:1], first[2:3], first[4:]) == (b"{", b":", b"}")
        assert run(chain, context, 20) == first
        assert run(chain, context, 3) == first[:3]
        assert run(chain, context, 20) == first


def test_gr_009_one_grammar_serves_many_threads(model: Model) -> None:
    with SamplerChain([Sampler.grammar(model.vocab, PAIR), Sampler.greedy()]) as chain:

        def work(_: int) -> set[bytes]:
            own = chain.clone()
            with own, Context(model, n_ctx=256, n_threads=1, n_threads_batch=1) as context:
                return {run(own, context, 20) for _ in range(5)}

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(work, range(8)))
        with Context(model, n_ctx=256, n_threads=1, n_threads_batch=1) as context:
            expected = run(chain, context, 20)
    assert results == [{expected}] * 8


def test_gr_009_state_belongs_to_the_run(model: Model) -> None:
    vocab: Vocab = model.vocab
    opening, other = spelled("{"), spelled("a")
    with Sampler.grammar(vocab, PAIR) as first, first.clone() as second:
        first.accept(opening[0])
        assert first.allows(other[0])
        assert not second.allows(other[0])
        assert second.allows(opening[0])
