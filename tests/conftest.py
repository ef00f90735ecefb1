"""Fixtures that several test modules use.

Tests compute on one thread: with as many threads as cores and anything else running, spin barriers cost 10 to 40 times.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.helpers import data, models, real

# ggml would fork a debugger for a backtrace before it aborts, which takes seconds
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

T = TypeVar("T")
_failed = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: runs long to show that nothing grows")
    config.addinivalue_line("markers", "wheel: builds and installs a wheel")
    # a shell without job control starts what it puts into the background with Ctrl-C ignored, and children inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.stash[_failed] = report.failed
    return report


def _live_handles() -> dict[str, int]:
    # tests that must not load native code are left alone
    handle = sys.modules.get("llamacy.core._handle")
    return handle.live_handles() if handle is not None else {}


@pytest.fixture(autouse=True)
def _handles_are_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves native handles behind."""
    before = _live_handles()
    yield
    if request.node.stash.get(_failed, False):
        return  # the traceback keeps its objects alive
    after = _live_handles()
    if after != (before or dict.fromkeys(after, 0)):
        gc.collect()
        after = _live_handles()
    # fewer than before is what a failed test before this one leaves to its successor
    leaked = {kind: n - before.get(kind, 0) for kind, n in after.items() if n > before.get(kind, 0)}
    assert not leaked, f"native handles left behind: {leaked}"


@pytest.fixture
def closing() -> Iterator[Callable[[T], T]]:
    """Return a function that registers an object and returns it; all are closed after the test, the last one first."""
    with contextlib.ExitStack() as stack:

        def register(obj: T) -> T:
            stack.callback(obj.close)  # type: ignore[attr-defined]
            return obj

        yield register


@pytest.fixture
def make_model(closing: Callable[[T], T]) -> Callable[..., Any]:
    """Return a function that loads a model (``tests/data`` name or path) and closes it after the test."""
    from llamacy.core.model import Model

    def make(path: str | Path = "llama.gguf", **params: Any) -> Model:
        path = data(path) if isinstance(path, str) and os.sep not in path else path
        return closing(Model(path, **params))

    return make


@pytest.fixture
def make_context(closing: Callable[[T], T]) -> Callable[..., Any]:
    """Return a function that creates a context with one thread and closes it after the test."""
    from llamacy.core.context import Context

    def make(model: Any, **params: Any) -> Context:
        params = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1} | params
        return closing(Context(model, **params))

    return make


def _shared_model(path: Path, **params: Any) -> Iterator[Any]:
    from llamacy.core.model import Model

    with Model(path, **params) as model:
        yield model


@pytest.fixture(scope="session")
def llama_model() -> Iterator[Any]:
    """tests/data/llama.gguf, loaded once; don't close it."""
    yield from _shared_model(data("llama.gguf"))


@pytest.fixture(scope="session")
def target_model() -> Iterator[Any]:
    """tests/data/target.gguf (qwen3), loaded once; don't close it."""
    yield from _shared_model(data("target.gguf"))


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the models that tests write."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def micro_path(model_dir: Path) -> Path:
    """One layer, width 64, vocabulary of 49,152."""
    return models.write_llama(model_dir / "micro.gguf")


@pytest.fixture(scope="session")
def micro_model(micro_path: Path) -> Iterator[Any]:
    """The model of `micro_path`, loaded once; don't close it."""
    yield from _shared_model(micro_path)


@pytest.fixture(scope="session")
def bert_path(model_dir: Path) -> Path:
    """A tiny BERT with mean pooling, 64 learned positions and no memory."""
    return models.write_bert(model_dir / "bert.gguf")


@pytest.fixture(scope="session")
def rank_path(model_dir: Path) -> Path:
    """A tiny BERT with a classification head of one label (pooling RANK)."""
    return models.write_bert(model_dir / "rank.gguf", pooling=models.gguf.PoolingType.RANK, n_labels=1)


@pytest.fixture(scope="session")
def t5_path(model_dir: Path) -> Path:
    """A tiny T5, encoder and decoder."""
    return models.write_t5(model_dir / "t5.gguf")


@pytest.fixture(scope="session")
def lora_path(model_dir: Path) -> Path:
    """A LoRA adapter for tests/data/llama.gguf."""
    return models.write_lora(model_dir / "lora.gguf", data("llama.gguf"))


@pytest.fixture(scope="session")
def control_vector_path(model_dir: Path) -> Path:
    """A control vector for tests/data/llama.gguf."""
    return models.write_control_vector(model_dir / "control-vector.gguf", data("llama.gguf"))


@pytest.fixture(scope="session")
def vocab_none_path(model_dir: Path) -> Path:
    """A tiny llama without a tokenizer."""
    return models.write_vocab_none(model_dir / "vocab-none.gguf")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, pulled on first use."""
    return real.smollm2_path()


@pytest.fixture(scope="session")
def smollm2_model(smollm2_path: Path) -> Iterator[Any]:
    """SmolLM2, loaded once; don't close it."""
    yield from _shared_model(smollm2_path)


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """all-MiniLM-L6-v2 (F16), pulled on first use."""
    return real.minilm_path()


@pytest.fixture(scope="session")
def minilm_q8_path(minilm_path: Path, model_dir: Path) -> Path:
    """all-MiniLM-L6-v2 (Q8_0)."""
    from llamacy.core.quantize import quantize

    path = model_dir / "minilm-q8_0.gguf"
    quantize(minilm_path, path, "q8_0", n_threads=1)
    return path


@pytest.fixture(scope="session")
def minilm_mixed_path(minilm_path: Path, model_dir: Path) -> Path:
    """all-MiniLM-L6-v2 (Q8_0, but for the tensors that docs/embeddings.md tells to keep in F16)."""
    from llamacy.core.quantize import quantize

    path = model_dir / "minilm-mixed.gguf"
    quantize(minilm_path, path, "q8_0", tensor_types={"attn_v|ffn": "F16"}, n_threads=1)
    return path


@pytest.fixture(scope="session")
def minilm_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all-MiniLM-L6-v2 is converted from."""
    return real.minilm_checkpoint(tmp_path_factory.mktemp("minilm"))


@pytest.fixture(scope="session")
def minilm_reranker_path(minilm_checkpoint: Path, model_dir: Path) -> Path:
    """A reranker: all-MiniLM-L6-v2 (F16) with the random head of tests/data/embedding-goldens.npz."""
    return _reranker(minilm_checkpoint, model_dir / "minilm-reranker.gguf", "embedding-goldens.npz")


@pytest.fixture(scope="session")
def fitted_reranker_path(minilm_checkpoint: Path, model_dir: Path) -> Path:
    """A reranker: all-MiniLM-L6-v2 (F16) with the fitted head of tests/data/rerank-goldens.npz."""
    return _reranker(minilm_checkpoint, model_dir / "fitted-reranker.gguf", "rerank-goldens.npz")


@pytest.fixture(scope="session")
def fitted_reranker_f32_path(minilm_checkpoint: Path, model_dir: Path) -> Path:
    """The same in F32."""
    return _reranker(minilm_checkpoint, model_dir / "fitted-reranker-f32.gguf", "rerank-goldens.npz", half=False)


def _reranker(checkpoint: Path, path: Path, goldens: str, *, half: bool = True) -> Path:
    import numpy as np

    from llamacy.starter.bert import convert_bert

    with np.load(data(goldens)) as found:
        convert_bert(checkpoint, path, "test", half=half, head=(found["head_weight"], found["head_bias"]))
    return path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M, where it is present."""
    return real.gemma3_path()
