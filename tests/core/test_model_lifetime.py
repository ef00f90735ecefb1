"""Closing and collecting a model, a context, a sampler chain, a vocabulary and a batch in every order.

Freed in a wrong order, these end the process: llama.cpp keeps bare pointers from contexts and samplers to their model.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from llamacy import Sampler, SamplerChain
from llamacy.core._handle import live_handles
from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.errors import ClosedError
from tests.helpers import data

NAMES = ("model", "context", "chain", "vocab", "batch")
TOKENS = [1, 260, 268, 265]
GRAMMAR = "root ::= [a-z ]+"


def build() -> dict[str, Any]:
    """Return one of each, used once."""
    model = Model(data("llama.gguf"))
    objects = {
        "model": model,
        "context": Context(model, n_ctx=64, n_threads=1, n_threads_batch=1),
        # a grammar points to the vocabulary of the model
        "chain": SamplerChain([Sampler.grammar(model.vocab, GRAMMAR), Sampler.greedy()]),
        "vocab": model.vocab,
        "batch": Batch(8),
    }
    assert use(objects) == len(objects) + 1
    return objects


def use(objects: dict[str, Any]) -> int:
    """Use everything that is there, alone and together; return how many uses worked, the others raised ClosedError."""
    uses: dict[str, Callable[[], Any]] = {
        "model": lambda: objects["model"].metadata,
        "context": lambda: objects["context"].memory.clear(),
        "chain": lambda: objects["chain"].reset(),
        "vocab": lambda: objects["vocab"].piece(260),
        "batch": lambda: (objects["batch"].clear(), objects["batch"].extend(TOKENS, 0)),
        "all": lambda: (
            objects["context"].memory.clear(),
            objects["context"].decode(objects["batch"]),
            objects["chain"].sample(objects["context"], -1),
        ),
    }
    n_worked = 0
    for name, work in uses.items():
        if name != "all" and name not in objects:
            continue
        try:
            work()
            n_worked += 1
        except (ClosedError, KeyError):
            pass
    return n_worked


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="-".join)
def test_close_in_any_order_frees_everything_and_crashes_nowhere(order: tuple[str, ...]) -> None:
    before = live_handles()
    objects = build()
    for name in order:
        if name != "vocab":  # belongs to its model
            objects[name].close()
            objects[name].close()
            assert objects[name].closed
        use(objects)
    assert use(objects) == 0
    assert live_handles() == before


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="-".join)
def test_drop_in_any_order_frees_everything_and_crashes_nowhere(order: tuple[str, ...]) -> None:
    before = live_handles()
    objects = build()
    for name in order:
        del objects[name]
        use(objects)
        if name == "chain":
            gc.collect()
    del name
    assert live_handles() == before, "reference counting alone must free everything"


@pytest.mark.parametrize("name", ["context", "chain", "vocab"])
def test_child_alone_keeps_working_when_the_rest_is_dropped(name: str) -> None:
    child = build()[name]
    gc.collect()
    if name == "context":
        child.memory.clear()
        with Batch(4) as batch:
            batch.extend(TOKENS, 0)
            child.decode(batch)
        assert len(child.logits(-1)) == 288
    elif name == "chain":
        child.reset()
    else:
        assert child.piece(261) == b"a"


def test_closing_the_model_closes_what_was_made_from_it() -> None:
    objects = build()
    objects["model"].close()
    assert objects["context"].closed
    assert objects["chain"].closed or use({"chain": objects["chain"]}) in (0, 1)
    with pytest.raises(ClosedError):
        objects["context"].decode(objects["batch"])
    with pytest.raises(ClosedError):
        objects["vocab"].piece(1)
    objects["batch"].close()
    objects["chain"].close()


def test_closing_the_model_with_a_view_of_logits_alive_is_refused_and_changes_nothing() -> None:
    objects = build()
    view = memoryview(objects["context"].logits(-1))
    for name in ("model", "context"):
        with pytest.raises(BufferError):
            objects[name].close()
    assert not objects["model"].closed
    assert not objects["context"].closed
    assert view[0] == view[0]
    view.release()
    objects["model"].close()
    assert objects["context"].closed
    objects["chain"].close()
    objects["batch"].close()


def test_a_view_of_logits_outlives_every_name() -> None:
    context = build()["context"]
    view = memoryview(context.logits(-1))
    copy = view.tolist()
    del context
    gc.collect()
    assert view.tolist() == copy


@pytest.mark.parametrize("cls", ["model", "context", "chain", "batch"])
def test_subclass_in_a_reference_cycle_is_collected_once(cls: str) -> None:
    # without no_gc_clear, the collector would clear the owner that the child's dealloc needs
    class MyModel(Model):
        pass

    class MyContext(Context):
        pass

    class MyChain(SamplerChain):
        pass

    class MyBatch(Batch):
        pass

    before = live_handles()
    model = MyModel(data("llama.gguf"))
    objects: dict[str, Any] = {
        "model": model,
        "context": MyContext(model, n_ctx=64, n_threads=1),
        "chain": MyChain([Sampler.grammar(model.vocab, GRAMMAR), Sampler.greedy()]),
        "batch": MyBatch(4),
    }
    ring = list(objects.values())
    for index, obj in enumerate(ring):
        obj.next = ring[(index + 1) % len(ring)]
        obj.me = obj
        obj.all = ring
    died = weakref.ref(objects[cls])
    del model, objects, ring, obj
    gc.collect()
    assert died() is None
    assert live_handles() == before


def test_subclass_with_finalizer_may_use_itself_and_be_kept() -> None:
    kept: list[Any] = []

    class Phoenix(Model):
        def __del__(self) -> None:
            if len(kept) < 1:
                kept.append(self)

    model = Phoenix(data("llama.gguf"))
    model.me = model  # type: ignore[attr-defined]
    del model
    gc.collect()
    assert kept[0].vocab.piece(261) == b"a"
    kept[0].close()
    kept[0].me = None
    kept.clear()
    gc.collect()


def test_failed_constructors_leave_nothing() -> None:
    before = live_handles()
    with Model(data("llama.gguf")) as model:
        failures: list[Callable[[], Any]] = [
            lambda: Model("/nowhere.gguf"),
            lambda: Model(data("llama.gguf"), no_such_option=1),
            lambda: Model(data("llama.gguf"), progress_callback=lambda _: False),
            lambda: Context(model, n_ctx=-1),
            lambda: Context(model, n_seq_max=1000),
            lambda: Context(None),
            lambda: Batch(0),
            lambda: Batch(-1),
            lambda: SamplerChain([None]),
            lambda: Sampler.grammar(model.vocab, "root ::= ("),
        ]
        for failing in failures:
            with pytest.raises((ValueError, TypeError, OSError)):
                failing()
    gc.collect()
    assert live_handles() == before


def test_exception_inside_with_closes() -> None:
    before = live_handles()
    with pytest.raises(ZeroDivisionError), Model(data("llama.gguf")) as model, Context(model, n_ctx=64) as context:
        raise ZeroDivisionError
    assert context.closed
    assert model.closed
    assert live_handles() == before


def test_close_from_another_thread() -> None:
    from concurrent.futures import ThreadPoolExecutor

    objects = build()
    with ThreadPoolExecutor(1) as pool:
        for name in ("batch", "chain", "context", "model"):
            pool.submit(objects[name].close).result()
    assert objects["model"].closed


def test_model_is_weakly_referenceable_and_hashable(llama_model: Model) -> None:
    assert weakref.ref(llama_model)() is llama_model
    assert llama_model in {llama_model}
    assert llama_model.vocab is llama_model.vocab


@pytest.mark.parametrize("protocol", range(6))
def test_objects_can_not_be_pickled_or_copied(llama_model: Model, protocol: int) -> None:
    import copy
    import pickle

    with Context(llama_model, n_ctx=64, n_threads=1) as context, Batch(2) as batch:
        for obj in (llama_model, llama_model.vocab, context, batch):
            with pytest.raises(TypeError):
                pickle.dumps(obj, protocol)
            with pytest.raises(TypeError):
                copy.copy(obj)
