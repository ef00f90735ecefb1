"""Random grammars: what a vocabulary is masked by against llama.cpp's word on each token."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamacy.core.sampler import Sampler
from llamacy.errors import GrammarError, SamplerError
from tests.helpers.masks import allowed

CHARS = ["a", "b", "ab", "é", "☃", "😀", " ", "\\n"]
CLASSES = ["[ab]", "[^a]", "[à-ü]", "[^é]", "[^\\x00-\\x80]", "[☀-☃]", "[^☃]", "[😀-😂a]", "."]


def items(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.builds(str.__add__, inner, st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,3}", "{1,}"]))
    sequence = st.lists(repeated, min_size=1, max_size=3).map(" ".join)
    return st.lists(sequence, min_size=1, max_size=3).map(lambda found: f"({' | '.join(found)})")


TERMINALS = st.sampled_from([f'"{char}"' for char in CHARS] + CLASSES + ['""'])
EXPRESSIONS = st.recursive(TERMINALS | st.sampled_from(["one", "two"]), items, max_leaves=6)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, st.integers(0, 2**32))
def test_mask_agrees_with_llama_cpp_on_each_token(target_model: Any, root: str, one: str, two: str, seed: int) -> None:
    vocab = target_model.vocab
    rng = random.Random(seed)
    try:
        sampler = Sampler.grammar(vocab, f"root ::= {root}\none ::= {one}\ntwo ::= {two}\n")
    except GrammarError:
        return  # left recursion and the like
    with sampler:
        for _ in range(4):
            try:
                found = allowed(sampler, vocab.n_tokens)
            except SamplerError as error:
                if "too ambiguous" not in str(error):
                    raise
                return
            assert found == {token for token in range(vocab.n_tokens) if sampler.allows(token)}
            ends = {token for token in found if vocab.is_eog(token)}
            if sampler.complete:
                assert found == ends != set()
            if found == ends:
                break
            sampler.accept(rng.choice(sorted(found - ends)))
        with sampler.clone() as clone:
            assert allowed(clone, vocab.n_tokens) == allowed(sampler, vocab.n_tokens)
