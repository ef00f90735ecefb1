"""Ten thousand of everything: handles and memory stay flat."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llamacy import Sampler, SamplerChain
from llamacy.core._handle import live_handles
from llamacy.core.adapter import LoraAdapter
from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.control_vector import ControlVector
from llamacy.core.gguf import Gguf
from llamacy.core.model import Model
from llamacy.core.threadpool import ThreadPool
from tests.helpers import models
from tests.helpers.process import rss_bytes

pytestmark = pytest.mark.soak

N_CYCLES = 10_000
# a leak of one small allocation a cycle is 160 kB and more; what an allocator keeps for itself is less than this
SLACK = 3 * 2**20


@pytest.fixture(scope="module")
def small_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest model that works: a load takes well under a millisecond."""
    shape = models.LlamaShape(n_vocab=288, n_embd=32, n_head=2, n_head_kv=1, n_ff=32, n_ctx_train=256)
    return models.write_llama(tmp_path_factory.mktemp("soak") / "small.gguf", shape)


@pytest.fixture(scope="module")
def small_model(small_path: Path) -> Iterator[Model]:
    with Model(small_path) as model:
        yield model


def assert_flat(cycle: Callable[[], Any], n_cycles: int = N_CYCLES, slack: int = SLACK) -> None:
    """Run `cycle` many times; after the first tenth neither handles nor resident memory may grow."""
    before = live_handles()
    for _ in range(n_cycles // 10):
        cycle()
    start = rss_bytes()
    for _ in range(n_cycles - n_cycles // 10):
        cycle()
    gc.collect()
    assert live_handles() == before
    grown = rss_bytes() - start
    assert grown < slack, f"{grown} bytes more after {n_cycles} cycles"


def test_model_closed(small_path: Path) -> None:
    assert_flat(lambda: Model(small_path, vocab_only=True).close())


def test_model_dropped_with_weights(small_path: Path) -> None:
    assert_flat(lambda: Model(small_path), n_cycles=N_CYCLES // 5)


def test_model_failed(tmp_path: Path, small_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # pytest keeps every record that is logged
    caplog.set_level(logging.CRITICAL, logger="llamacy.native")
    path = tmp_path / "cut.gguf"
    path.write_bytes(small_path.read_bytes()[:-100])

    def cycle() -> None:
        try:
            Model(path)
        except OSError:
            return
        raise AssertionError

    assert_flat(cycle, n_cycles=N_CYCLES // 5)


def test_context_closed(small_model: Model) -> None:
    params = {"n_ctx": 256, "n_batch": 16, "n_ubatch": 16, "n_threads": 1, "n_threads_batch": 1}
    assert_flat(lambda: Context(small_model, **params).close(), n_cycles=N_CYCLES)


def test_context_dropped_after_decode(small_model: Model) -> None:
    params = {"n_ctx": 256, "n_batch": 16, "n_ubatch": 16, "n_threads": 1, "n_threads_batch": 1}
    batch = Batch(4)
    batch.extend([1, 2, 3, 4], 0)

    def cycle() -> None:
        context = Context(small_model, **params)
        context.decode(batch)
        assert context.memory.seq_pos_max(0) == 3
        context.logits(-1)

    assert_flat(cycle, n_cycles=N_CYCLES // 10)
    batch.close()


def test_batch_closed_and_dropped() -> None:
    def cycle() -> None:
        Batch(64).close()
        Batch(64, n_embd=8)

    assert_flat(cycle)


def test_samplers_closed_dropped_added_and_cloned(small_model: Model) -> None:
    def cycle() -> None:
        Sampler.top_k(40).close()
        chain = SamplerChain([Sampler.top_p(0.9), Sampler.temp(0.8), Sampler.dist(1)])
        chain.clone()

    assert_flat(cycle)


def test_grammar_samplers(small_model: Model) -> None:
    def cycle() -> None:
        SamplerChain([Sampler.grammar(small_model.vocab, 'root ::= "a" | "b" root'), Sampler.greedy()]).clone().close()

    assert_flat(cycle)


def test_vocab_and_tokens(small_model: Model) -> None:
    def cycle() -> None:
        vocab = small_model.vocab
        vocab.detokenize(vocab.tokenize("hello world"))
        vocab.piece(5)

    assert_flat(cycle)


def test_views_of_rows(small_model: Model) -> None:
    with Context(small_model, n_ctx=64, n_threads=1, n_threads_batch=1) as context, Batch(4) as batch:
        batch.extend([1, 2, 3, 4], 0, logits="all")
        context.decode(batch)

        def cycle() -> None:
            memoryview(context.logits(1)).release()
            memoryview(context.outputs.all_logits())
            context.memory.seq_pos_max(0)

        assert_flat(cycle)


def test_threadpools() -> None:
    assert_flat(lambda: ThreadPool(1).close(), n_cycles=N_CYCLES // 5)


def test_gguf(small_path: Path) -> None:
    def cycle() -> None:
        with Gguf(small_path) as file:
            file.metadata["general.architecture"]
        Gguf()

    assert_flat(cycle, n_cycles=N_CYCLES // 5)


def test_adapters(tmp_path: Path, small_model: Model, small_path: Path) -> None:
    lora = models.write_lora(tmp_path / "lora.gguf", small_path)
    # an adapter stays with its model as long as the model lives if it can't be freed before
    assert_flat(lambda: LoraAdapter(small_model, lora).close(), n_cycles=N_CYCLES // 5)


def test_control_vectors(tmp_path: Path) -> None:
    path = models.write_llama(tmp_path / "two.gguf", models.LlamaShape(n_vocab=288, n_layer=2))
    vector = models.write_control_vector(tmp_path / "vector.gguf", path)
    assert_flat(lambda: ControlVector.from_gguf(vector), n_cycles=N_CYCLES // 5)


def test_lt_008_ten_thousand_single_token_decodes(small_model: Model) -> None:
    with Context(small_model, n_ctx=256, n_threads=1, n_threads_batch=1) as context, Batch(1) as batch:
        vocab = small_model.vocab
        position = 0

        def cycle() -> None:
            nonlocal position
            batch.clear()
            batch.add(vocab.tokenize("a", add_special=False)[0], position, logits=True)
            context.decode(batch)
            position += 1
            if position == 200:
                context.memory.clear()
                position = 0

        assert_flat(cycle)
