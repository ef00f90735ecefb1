"""Any options either are refused or choose a token that they allow."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.core.candidates import Candidates
from llamacy.errors import SamplerError
from llamacy.generate.options import SamplingOptions

share = st.floats(0, 1)
number = st.floats(-1e6, 1e6)
last_n = st.integers(-1, 300)
tokens = st.integers(0, 287)
tags = st.sampled_from(["<think>", "a", "\n", "é", ("a", "b")])

VALUES: dict[str, st.SearchStrategy[object]] = {
    "temperature": st.floats(-5, 1e6),
    "dynatemp_range": st.floats(0, 10),
    "dynatemp_exponent": st.floats(0, 10),
    "top_k": st.integers(-5, 400),
    "top_p": share,
    "min_p": share,
    "typical_p": share,
    "top_n_sigma": st.floats(-1, 10),
    "xtc_probability": share,
    "xtc_threshold": share,
    "mirostat_mode": st.integers(0, 2),
    "mirostat_tau": st.floats(0, 100),
    "mirostat_eta": st.floats(0, 100),
    "adaptive_target": st.floats(-1, 1),
    "adaptive_decay": st.floats(0, 0.99),
    "dry_multiplier": st.floats(0, 1e6),
    "dry_base": st.floats(1, 1e6),
    "dry_allowed_length": st.integers(0, 10),
    "dry_penalty_last_n": last_n,
    "dry_seq_breakers": st.lists(st.text("ab\n:é", min_size=1, max_size=5), max_size=3),
    "penalty_last_n": last_n,
    "repeat_penalty": st.floats(1e-6, 1e6),
    "frequency_penalty": number,
    "presence_penalty": number,
    "logit_bias": st.dictionaries(tokens, st.sampled_from([False, None, -math.inf, -5, 3.5, 1e8, -1e30])),
    "seed": st.integers(-1, 2**32 - 2),
    "min_keep": st.integers(0, 400),
    "samplers": st.permutations("edskypmxtia").flatmap(lambda p: st.integers(0, 11).map(lambda n: "".join(p[:n]))),
    "ignore_eos": st.booleans(),
    "min_tokens": st.integers(0, 5),
    "suppress_tokens": st.lists(tokens, max_size=5),
    "use_infill": st.booleans(),
    "reasoning_budget": st.integers(-1, 3),
    "reasoning_budget_message": st.sampled_from(["", "ab", "é\n", "<s>"]),
    "reasoning_start": tags,
    "reasoning_end": tags,
    "reasoning_start_in_prompt": st.booleans(),
    "reasoning_start_max_tokens": st.integers(0, 3),
}

# few at a time, or some of them would always exclude each other
OPTIONS = st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=5).flatmap(
    lambda names: st.fixed_dictionaries({name: VALUES[name] for name in names})
)

LOGITS = st.sampled_from([0.0, 1.0, 1.5, -3.0, 30.0, -200.0, 1e8, -1e30, -math.inf])


@settings(deadline=None, max_examples=300)
@given(OPTIONS, st.lists(tokens, max_size=30), st.lists(LOGITS, min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_options_are_refused_or_choose_an_allowed_token(llama_model, arguments, prompt, some, seed):
    vocab = llama_model.vocab
    try:
        options = SamplingOptions(**arguments)
        chain = options.chain(vocab, prompt, n_ctx=256)
    except ValueError:
        return
    banned = {*options.suppress_tokens, *(t for t, bias in (options.logit_bias or {}).items() if bias == -math.inf)}
    rng = np.random.default_rng(seed)
    with chain:
        for n_accepted in range(4):
            logits = rng.normal(0, 3, vocab.n_tokens).astype(np.float32)
            logits[rng.permutation(vocab.n_tokens)[: len(some)]] = some
            candidates = Candidates(logits)
            try:
                chain.apply(candidates)
            except SamplerError:
                continue
            token = candidates.token
            assert 0 <= token < vocab.n_tokens
            assert token not in banned
            assert not (vocab.is_eog(token) and (options.ignore_eos or n_accepted < options.min_tokens))
            chain.accept(token)
