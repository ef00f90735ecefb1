"""The samplers in NumPy, float64, written from their papers and from the comments of llama.h; none of it calls llamacy.

Candidates are a pair of arrays, ids and logits. Functions that keep some return them in descending order of the logits
unless they say otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def softmax(logits: Floats) -> Floats:
    p = np.exp(logits - logits.max())
    return p / p.sum()


def descending(ids: Ids, logits: Floats) -> tuple[Ids, Floats]:
    order = np.argsort(-logits, kind="stable")
    return ids[order], logits[order]


def top_k(ids: Ids, logits: Floats, k: int) -> tuple[Ids, Floats]:
    ids, logits = descending(ids, logits)
    return ids[:k], logits[:k]


def top_p(ids: Ids, logits: Floats, p: float, min_keep: int = 1) -> tuple[Ids, Floats]:
    ids, logits = descending(ids, logits)
    reached = np.flatnonzero(np.cumsum(softmax(logits)) >= p)
    n = max(int(reached[0]) + 1 if len(reached) else len(ids), min_keep)
    return ids[:n], logits[:n]


def min_p(ids: Ids, logits: Floats, p: float, min_keep: int = 1) -> tuple[Ids, Floats]:
    ids, logits = descending(ids, logits)
    probs = softmax(logits)
    n = max(int((probs >= p * probs[0]).sum()), min_keep)
    return ids[:n], logits[:n]


def typical(ids: Ids, logits: Floats, p: float, min_keep: int = 1) -> tuple[Ids, Floats]:
    """Return the kept candidates, the most typical first (arXiv:2202.00666)."""
    probs = softmax(logits)
    information = -np.log(probs)
    order = np.argsort(np.abs(information - (probs * information).sum()), kind="stable")
    above = np.flatnonzero(np.cumsum(probs[order]) > p)
    n = max(int(above[0]) + 1 if len(above) else len(ids), min_keep)
    return ids[order][:n], logits[order][:n]


def dynamic_temperature(logits: Floats, t: float, delta: float, exponent: float) -> float:
    probs = softmax(logits)
    entropy = -(probs[probs > 0] * np.log(probs[probs > 0])).sum() / np.log(len(probs))
    low, high = max(0.0, t - delta), t + delta
    return float(low + (high - low) * entropy**exponent)


def xtc(ids: Ids, logits: Floats, threshold: float, min_keep: int = 1) -> tuple[Ids, Floats]:
    """Exclude the top choices, in the case that the dice say so."""
    ids, logits = descending(ids, logits)
    n_above = int((softmax(logits) >= threshold).sum())
    drop = max(n_above - 1, 0)
    return (ids[drop:], logits[drop:]) if len(ids) - drop >= min_keep else (ids, logits)


def top_n_sigma(logits: Floats, n: float) -> Floats:
    """Return the logits, with -inf for those ruled out (arXiv:2411.07641)."""
    finite = logits[np.isfinite(logits)]
    return np.where(logits < finite.max() - n * finite.std(), -np.inf, logits)


def penalties(logits: Floats, history: list[int], last_n: int, repeat: float, freq: float, present: float) -> Floats:
    out = logits.copy()
    tokens, counts = np.unique(history[-last_n:] if last_n else [], return_counts=True)
    for token, count in zip(tokens.astype(int), counts, strict=False):
        out[token] = out[token] * repeat if out[token] <= 0 else out[token] / repeat
        out[token] -= count * freq + present
    return out


def dry(
    logits: Floats, history: list[int], multiplier: float, base: float, allowed: int, last_n: int, breakers: set[int]
) -> Floats:
    """By definition, in quadratic time: the longest end of the text that also stands before an earlier token."""
    recent = history[-last_n:]
    clean = 0
    while clean < len(recent) and recent[-1 - clean] not in breakers:
        clean += 1
    longest: dict[int, int] = {}
    for i, token in enumerate(recent):
        n = 0
        while n < i and n < clean and recent[i - 1 - n] == recent[-1 - n]:
            n += 1
        longest[token] = max(longest.get(token, 0), n)
    out = logits.copy()
    for token, n in longest.items():
        if n >= allowed and token not in breakers:
            out[token] -= multiplier * base ** (n - allowed)
    return out


class MersenneTwister:
    """std::mt19937 with the distributions of the C++ standard library over it."""

    def __init__(self, seed: int) -> None:
        self.bits = np.random.MT19937()
        self.bits._legacy_seeding(seed)

    def double(self) -> float:
        """Return what std::uniform_real_distribution<double>(0, 1) draws."""
        low, high = (int(raw) for raw in self.bits.random_raw(2))
        return (low + high * 2.0**32) / 2.0**64

    def float(self) -> float:
        """Return what std::uniform_real_distribution<float>(0, 1) draws."""
        return float(np.float32(int(self.bits.random_raw())) / np.float32(2.0**32))

    def choice(self, probs: Floats) -> int:
        """Return what std::discrete_distribution draws."""
        cumulative = np.cumsum(probs / probs.sum())
        cumulative[-1] = 1.0
        return int(np.searchsorted(cumulative, self.double(), side="left")) if len(probs) > 1 else 0


class Mirostat:
    """Mirostat 1 (arXiv:2007.14966, algorithm 1)."""

    def __init__(self, n_vocab: int, seed: int, tau: float, eta: float, m: int) -> None:
        self.n_vocab, self.tau, self.eta, self.m = n_vocab, tau, eta, m
        self.mu = 2 * tau
        self.rng = MersenneTwister(seed)

    def sample(self, ids: Ids, logits: Floats) -> int:
        ids, logits = descending(ids, logits)
        probs = softmax(logits)
        m = min(self.m - 1, len(ids) - 1)
        t = np.log((np.arange(m) + 2) / (np.arange(m) + 1))
        b = np.log(probs[:m] / probs[1 : m + 1])
        s = (t * b).sum() / (t * t).sum()
        epsilon = s - 1
        k = (epsilon * 2**self.mu / (1 - self.n_vocab**-epsilon)) ** (1 / s)
        n = min(max(int(k), 1), len(ids))
        return self._choose(ids[:n], logits[:n])

    def _choose(self, ids: Ids, logits: Floats) -> int:
        probs = softmax(logits)
        index = self.rng.choice(probs)
        self.mu -= self.eta * (-np.log2(probs[index]) - self.tau)
        return int(ids[index])


class MirostatV2(Mirostat):
    """Mirostat 2.0: keep what surprises by at most mu."""

    def __init__(self, seed: int, tau: float, eta: float) -> None:
        super().__init__(0, seed, tau, eta, 0)

    def sample(self, ids: Ids, logits: Floats) -> int:
        ids, logits = descending(ids, logits)
        surprising = np.flatnonzero(-np.log2(softmax(logits)) > self.mu)
        n = max(int(surprising[0]) if len(surprising) else len(ids), 1)
        return self._choose(ids[:n], logits[:n])


class AdaptiveP:
    """Adaptive-p, from the description and constants of llama.cpp's pull request 17927."""

    def __init__(self, target: float, decay: float, seed: int) -> None:
        self.target, self.decay = target, decay
        self.weighted, self.weight = target / (1 - decay), 1 / (1 - decay)
        self.rng = MersenneTwister(seed)

    def sample(self, logits: Floats) -> int:
        probs = softmax(logits)
        target = float(np.clip(2 * self.target - self.weighted / self.weight, 0, 1))
        distance = np.abs(probs - target) / 0.3
        index = self.rng.choice(softmax(5 - 10 * distance**2 / (1 + distance)))
        self.weighted = probs[index] + self.decay * self.weighted
        self.weight = 1 + self.decay * self.weight
        return index
