"""Candidates that are found without writing the whole row: the same tokens as llama.cpp's chain chooses from all.

A chain with ``no_perf=False`` always runs on the whole row. llama.cpp leaves equal logits in the order that its partial
sort happens to make; where there are some, what is compared is its samplers on a row that NumPy has sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.candidates import Candidates
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.core.sampler import Sampler, SamplerChain
from llamacy.errors import SamplerError
from tests.core.written_rows import Row, WrittenRows, random_rows
from tests.helpers import models

INF = float("inf")
Make = Callable[[Any], list[Sampler]]


def end(seed: int = 5) -> list[Sampler]:
    return [Sampler.top_p(0.95), Sampler.min_p(0.05), Sampler.temp(0.8), Sampler.dist(seed)]


def bias(model: Any, biases: dict[int, float]) -> Sampler:
    return Sampler.logit_bias(model.n_vocab, biases)


def penalties(model: Any, *values: Any) -> Sampler:
    return Sampler.penalties(model.n_vocab, *values)


FRONTS: dict[str, Make] = {
    "nothing": lambda _: [],
    "bias": lambda m: [bias(m, {3: 4.0, 5: -INF, 100: -2.5, m.n_vocab - 1: 9.0, 40: 0.0})],
    "only lowering bias": lambda m: [bias(m, dict.fromkeys(range(0, 280, 3), -3.0))],
    "repeat": lambda m: [penalties(m, 64, 1.3)],
    "repeat below 1": lambda m: [penalties(m, 64, 0.7)],
    "frequency": lambda m: [penalties(m, 100, 1.0, 0.4, 0.3)],
    "negative frequency": lambda m: [penalties(m, 100, 1.1, -0.8)],
    "negative presence": lambda m: [penalties(m, 9, 1.0, 0.0, -3.0)],
    "one token": lambda m: [penalties(m, 1, 2.0)],
    "many tokens": lambda m: [penalties(m, 5000, 1.2)],
    "dry": lambda m: [Sampler.dry(m.vocab, 2.0, 1.75, 1, 64, ())],
    "dry from 2": lambda m: [Sampler.dry(m.vocab, 2.0, 1.75, 2, 1000)],
    "dry from 0": lambda m: [Sampler.dry(m.vocab, 2.0, 1.75, 0, 64, ())],
    "all": lambda m: [
        bias(m, {7: 3.0, 9: -INF}),
        penalties(m, 64, 1.1, 0.2, 0.1),
        Sampler.dry(m.vocab, 0.8, 1.75, 2, 256),
        Sampler.top_n_sigma(-1),
    ],
    "another order": lambda m: [
        penalties(m, 0),
        Sampler.dry(m.vocab, 0.8, 1.75, 1, 256),
        Sampler.typical(1),
        penalties(m, 64, 1.1, 0.2, 0.1),
        bias(m, {7: 3.0}),
        bias(m, {7: -2.0, 8: 1.0}),
        Sampler.temp(1),
    ],
}
REST: dict[str, Callable[[], list[Sampler]]] = {
    "top_k 40": lambda: [Sampler.top_k(40), *end()],
    "top_k 1": lambda: [Sampler.top_k(1), *end()],
    "top_k 300": lambda: [Sampler.top_k(300), *end()],
    "greedy": lambda: [Sampler.greedy()],
    "no top_k": lambda: [Sampler.top_k(0), Sampler.greedy()],
    "more after it": lambda: [
        Sampler.top_k(40), Sampler.typical(0.9), Sampler.top_p(0.9), Sampler.min_p(0.02), Sampler.xtc(0.5, 0.1, 1, 7),
        Sampler.temp_ext(0.9, 0.5), Sampler.dist(3),
    ],
    "mirostat": lambda: [Sampler.top_k(100), Sampler.temp(0.9), Sampler.mirostat_v2(4)],
}  # fmt: skip


@pytest.fixture(scope="module")
def wide(model_dir: Path) -> Iterator[WrittenRows]:
    """Rows of a vocabulary of 262,144."""
    shape = models.LlamaShape(n_vocab=262_144, n_embd=32, n_head=2, n_head_kv=1, n_ff=32, tied=True)
    with (
        Model(models.write_llama(model_dir / "wide.gguf", shape, f16=True)) as model,
        Context(model, n_ctx=64, n_threads=1, n_threads_batch=1) as context,
    ):
        yield WrittenRows(context, 2)


@pytest.fixture(scope="module")
def written(micro_model: Any) -> Iterator[WrittenRows]:
    with Context(micro_model, n_ctx=64, n_threads=1, n_threads_batch=1) as context:
        yield WrittenRows(context, 16)


@pytest.fixture(scope="module")
def real_rows(smollm2_model: Any) -> list[Row]:
    """What SmolLM2 says at the tokens of a text."""
    with Context(smollm2_model, n_ctx=128, n_threads=1, n_threads_batch=1) as context:
        tokens = smollm2_model.vocab.tokenize("The cat sat on the mat, and the dog sat on the cat. " * 8)[:96]
        batch = Batch(len(tokens))
        for position, token in enumerate(tokens):
            batch.add(token, position, logits=True)
        context.decode(batch)
        return [np.asarray(context.logits(i)).copy() for i in range(len(tokens))]


def check_same(written: WrittenRows, make: Make, rows: Any) -> int:
    """Compare both ways over rows, and return how many different tokens were chosen."""
    model = written.context.model
    with SamplerChain(make(model)) as fast, SamplerChain(make(model), no_perf=False) as whole:
        chosen = []
        for index in written.each(rows):
            token = fast.sample(written.context, index)
            assert token == whole.sample(written.context, index), f"row {len(chosen)}"
            chosen.append(token)
    return len(set(chosen))


@pytest.mark.parametrize("rest", REST)
@pytest.mark.parametrize("front", FRONTS)
def test_random_rows_give_the_tokens_of_the_whole_row(written: WrittenRows, front: str, rest: str) -> None:
    n = 200 if front == "all" or rest == "top_k 40" else 40
    assert check_same(written, lambda m: [*FRONTS[front](m), *REST[rest]()], random_rows(n, 49_152)) > 20


@pytest.mark.parametrize("front", FRONTS)
def test_real_rows_give_the_tokens_of_the_whole_row(written: WrittenRows, real_rows: list[Row], front: str) -> None:
    # again and again the same few rows: so the same tokens come again, and penalties have much to do
    rows = [real_rows[i % 12] if i % 3 else real_rows[i % len(real_rows)] for i in range(400)]
    n = check_same(written, lambda m: [*FRONTS[front](m), *REST["top_k 40"]()], rows)
    # what raises the tokens that were chosen has them chosen again
    assert n > (2 if front in ("repeat below 1", "negative frequency", "negative presence") else 20)
    check_same(written, lambda m: [*FRONTS[front](m), *REST["greedy"]()], rows[:100])


@pytest.mark.parametrize("rest", ["top_k 40", "greedy"])
@pytest.mark.parametrize("front", ["nothing", "bias", "repeat", "negative frequency", "all"])
def test_rows_of_a_large_vocabulary_give_the_tokens_of_the_whole_row(wide: WrittenRows, front: str, rest: str) -> None:
    assert check_same(wide, lambda m: [*FRONTS[front](m), *REST[rest]()], random_rows(30, 262_144)) > 10


def equal_rows(n_vocab: int) -> dict[str, Row]:
    """Return rows with many equal logits."""
    rng = np.random.default_rng(3)
    normal = rng.normal(0, 3, n_vocab)
    made = {
        "whole numbers": np.round(2 * normal),
        "plateau on top": np.where(rng.random(n_vocab) < 0.3, 5.0, np.minimum(normal, 4.9)),
        "plateau at the edge": np.where(np.arange(n_vocab) % 1500 == 7, 30 + normal, np.maximum(normal, 12.0)),
        "all equal": np.full(n_vocab, -1.5),
        "zeros of both signs": np.where(rng.random(n_vocab) < 0.5, 0.0, -0.0),
        "rising": np.arange(n_vocab) // 3 / 1000,
        "falling": -(np.arange(n_vocab) // 3) / 1000,
        "few": np.where(rng.random(n_vocab) < 0.0004, np.round(normal), -np.inf),
        "one": np.where(np.arange(n_vocab) == n_vocab - 2, 0.5, -np.inf),
        "high": 1e7 + 8 * np.round(normal),
        "low": -1e30 * np.abs(np.round(normal)),
    }
    return {name: row.astype(np.float32) for name, row in made.items()}


def expected_token(front: list[Sampler], rest: list[Sampler], row: Row, k: int) -> int:
    """Return the token that samplers select when NumPy has put the row in order in between."""
    candidates = Candidates(row)
    for sampler in front:
        sampler.apply(candidates)
    data = np.asarray(candidates)
    data = data[np.lexsort((data["id"], -data["logit"].astype(float)))][:k]
    data = data[data["logit"] > -INF]
    left = Candidates(data["logit"].copy(), data["id"].copy())
    for sampler in rest:
        sampler.apply(left)
    assert left.token is not None
    return left.token


@pytest.mark.parametrize("kind", equal_rows(100))
@pytest.mark.parametrize("front", [name for name in FRONTS if name not in ("another order", "many tokens")])
def test_equal_logits_are_taken_by_token_id(written: WrittenRows, front: str, kind: str) -> None:
    model = written.context.model
    row = equal_rows(model.n_vocab)[kind]
    for k, n in ((1, 10), (7, 20), (40, 40), (700, 5)):
        rest = [Sampler.temp(1.7), Sampler.dist(k)]
        alone = FRONTS[front](model)
        chain = SamplerChain([*FRONTS[front](model), Sampler.top_k(k), Sampler.temp(1.7), Sampler.dist(k)])
        for _ in range(n):
            written.write(row)
            token = chain.sample(written.context, 0)
            assert token == expected_token(alone, rest, row, k)
            for sampler in alone:
                sampler.accept(token)
        for sampler in (*alone, *rest, chain):
            sampler.close()


@pytest.mark.parametrize("front", ["nothing", "bias", "repeat", "negative frequency", "all"])
@pytest.mark.parametrize("place", [0, 63, 64, 3000, 49_151])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 2e8])
def test_logit_that_is_no_number_is_refused(written: WrittenRows, front: str, place: int, bad: float) -> None:
    model = written.context.model
    row = np.zeros(model.n_vocab, np.float32)
    row[place] = bad
    with SamplerChain([*FRONTS[front](model), Sampler.top_k(40), *end()]) as chain:
        for _ in range(3):
            chain.accept(place)
        written.write(row)
        with pytest.raises(SamplerError, match="not a number"):
            chain.sample(written.context, 0)
        written.write(np.zeros_like(row))
        chain.sample(written.context, 0)


def test_penalty_that_makes_no_number_is_refused(written: WrittenRows) -> None:
    model = written.context.model
    row = np.zeros(model.n_vocab)
    row[4] = -np.inf
    written.write(row)
    with SamplerChain([penalties(model, 8, 1.0, -3e38), Sampler.top_k(40), *end()]) as chain:
        chain.accept(4)
        chain.accept(4)  # twice that is infinite
        with pytest.raises(SamplerError, match="not a number"):
            chain.sample(written.context, 0)


def test_row_without_any_token_left_is_refused(written: WrittenRows) -> None:
    model = written.context.model
    written.write(np.full(model.n_vocab, -np.inf))
    with SamplerChain([penalties(model, 8, 1.1), Sampler.top_k(40), *end()]) as chain:
        chain.accept(4)
        with pytest.raises(SamplerError, match="ruled out"):
            chain.sample(written.context, 0)


def test_penalised_token_gives_way_to_the_next_one(written: WrittenRows) -> None:
    model = written.context.model
    row = np.full(model.n_vocab, -50.0, np.float32)
    row[[70, 80, 90, 100]] = [9.0, 8.0, 7.0, 6.0]
    written.write(row)
    with SamplerChain([penalties(model, 8, 1.0, 10.0), Sampler.top_k(2), Sampler.temp(0.01), Sampler.dist(1)]) as chain:
        # each that was chosen falls by 10, so the next one is the highest
        assert [chain.sample(written.context, 0) for _ in range(6)] == [70, 80, 90, 100, 70, 80]


def test_raised_token_comes_in_from_below(written: WrittenRows) -> None:
    model = written.context.model
    row = np.linspace(1, 0, model.n_vocab, dtype=np.float32)
    written.write(row)
    with SamplerChain([bias(model, {49_000: 5.0}), Sampler.greedy()]) as chain:
        assert chain.sample(written.context, 0) == 49_000
    with SamplerChain([penalties(model, 8, 1.0, -5.0), Sampler.greedy()]) as chain:
        chain.accept(30_000)
        assert chain.sample(written.context, 0) == 30_000


def test_more_biases_than_are_looked_up_are_applied(written: WrittenRows) -> None:
    model = written.context.model
    biases = dict.fromkeys(range(0, model.n_vocab, 2), -INF)
    assert len(biases) > 4096
    assert check_same(written, lambda m: [bias(m, biases), *REST["top_k 40"]()], random_rows(30, 49_152)) > 20


def test_most_of_a_small_vocabulary_may_be_touched(make_model: Any, make_context: Any) -> None:
    model = make_model()
    rows = WrittenRows(make_context(model), 1)
    for front in FRONTS.values():
        for k in (1, 5, 143, 144, 300):
            check_same(
                rows,
                lambda m, front=front, k=k: [*front(m), Sampler.top_k(k), *end()],  # type: ignore[misc]
                (np.sin(np.arange(model.n_vocab) * (i + 1.3)) * 9 for i in range(40)),
            )


# the accepted tokens that penalties and DRY look at must be known whatever happens to the sampler

WINDOWS: dict[str, Make] = {
    "penalties": lambda m: [penalties(m, 5, 1.0, 3.0, 1.0)],
    "dry": lambda m: [Sampler.dry(m.vocab, 5.0, 1.75, 1, 12, ())],
    "both": lambda m: [Sampler.dry(m.vocab, 5.0, 1.75, 2, 30, ()), penalties(m, 5, 1.2, -0.5)],
}


class Pair:
    """The same chain twice: one that finds candidates, and one that writes whole rows."""

    def __init__(self, fast: SamplerChain, whole: SamplerChain) -> None:
        self.chains = (fast, whole)

    @classmethod
    def make(cls, links: Callable[[], list[Sampler]]) -> Pair:
        return cls(SamplerChain(links()), SamplerChain(links(), no_perf=False))

    def sample(self, rows: WrittenRows) -> int:
        token, other = (chain.sample(rows.context, 0) for chain in self.chains)
        assert token == other
        return token

    def accept(self, token: int) -> None:
        for chain in self.chains:
            chain.accept(token)

    def reset(self) -> None:
        for chain in self.chains:
            chain.reset()

    def clone(self) -> Pair:
        return Pair(*(chain.clone() for chain in self.chains))

    def copy_to(self, other: Pair) -> None:
        for chain, to in zip(self.chains, other.chains, strict=True):
            chain.copy_to(to)

    def close(self) -> None:
        for chain in self.chains:
            chain.close()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(6))
def test_window_follows_whatever_is_done_to_the_chain(written: WrittenRows, window: str, seed: int) -> None:
    model = written.context.model
    rng = np.random.default_rng(seed)
    row = np.full(model.n_vocab, -30.0, np.float32)
    row[10:40] = np.arange(30) / 10  # so near to each other that each penalty counts

    def links() -> list[Sampler]:
        return [*WINDOWS[window](model), Sampler.top_k(4), Sampler.dist(seed)]

    pairs = [Pair.make(links), Pair.make(links)]
    written.write(row)
    seen = set()
    for _ in range(250):
        pair = pairs[rng.integers(len(pairs))]
        match rng.integers(12):
            case 0:
                pair.reset()
            case 1:
                pairs.append(pair.clone())
            case 2:
                pair.copy_to(pairs[rng.integers(len(pairs))])
            case 3 if len(pairs) > 2:
                pairs.pop().close()
            case 4 | 5:
                pair.accept(int(rng.integers(10, 40)))
            case _:
                seen.add(pair.sample(written))
    for pair in pairs:
        pair.close()
    assert len(seen) > 3


@pytest.mark.parametrize("window", ["penalties", "dry"])
def test_window_goes_along_when_a_link_moves(written: WrittenRows, window: str) -> None:
    model = written.context.model
    row = np.full(model.n_vocab, -30.0, np.float32)
    row[10:40] = np.arange(30) / 10
    written.write(row)

    def moved(no_perf: bool) -> list[int]:
        (link,) = WINDOWS[window](model)
        tokens = []
        for token in (39, 38, 39, 38, 39):
            link.accept(token)  # by itself
        with SamplerChain([link, Sampler.top_k(3), Sampler.dist(1)], no_perf=no_perf) as chain:
            tokens += [chain.sample(written.context, 0) for _ in range(20)]
            chain.remove(0)
        link.accept(38)
        inner = SamplerChain([link])
        with SamplerChain([inner, Sampler.top_k(3), Sampler.dist(2)], no_perf=no_perf) as chain:
            tokens += [chain.sample(written.context, 0) for _ in range(20)]
            chain.remove(0)
        inner.remove(0)
        with inner, SamplerChain([link, Sampler.top_k(3), Sampler.dist(3)], no_perf=no_perf) as chain:
            tokens += [chain.sample(written.context, 0) for _ in range(20)]
        return tokens

    found = moved(True)
    assert found == moved(False)
    assert len(set(found)) > 5


def test_custom_sampler_at_the_end_sees_all_candidates(written: WrittenRows) -> None:
    from llamacy.core.custom_sampler import CustomSampler

    sizes = []

    class Watch(CustomSampler):
        def apply(self, candidates: Candidates) -> None:
            sizes.append(len(candidates))

    written.write(np.zeros(written.context.n_vocab))
    with SamplerChain([Sampler.greedy(), Watch()]) as chain:
        chain.sample(written.context, 0)
    with SamplerChain([Sampler.top_k(40), Sampler.dist(1), Watch()]) as chain:
        chain.sample(written.context, 0)
    assert sizes == [written.context.n_vocab, 40]


def test_penalties_on_a_backend_choose_the_same_tokens(micro_model: Any, make_context: Any) -> None:
    def run(attach: bool) -> list[int]:
        context = make_context(micro_model)
        chain = SamplerChain([bias(micro_model, {3: 1.0}), penalties(micro_model, 8, 1.3, 0.5), Sampler.greedy()])
        if attach:
            context.attach_sampler(0, chain)
            assert chain.names == ("+logit-bias", "+penalties", "+greedy")
        tokens = [300]
        for position in range(30):
            batch = Batch(1)
            batch.add(tokens[-1], position, logits=True)
            context.decode(batch)
            tokens.append(chain.sample(context))
        context.close()
        chain.close()
        return tokens

    assert run(True) == run(False)
