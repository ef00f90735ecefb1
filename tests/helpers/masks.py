"""What a sampler that masks leaves of a vocabulary."""

from __future__ import annotations

import numpy as np

from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler


def allowed(sampler: Sampler, n_vocab: int) -> set[int]:
    """Return the tokens that a sampler leaves of all."""
    candidates = Candidates(np.zeros(n_vocab, np.float32))
    sampler.apply(candidates)
    view = np.asarray(candidates)
    return set(view["id"][np.isfinite(view["logit"])].tolist())
