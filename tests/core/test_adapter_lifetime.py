"""Adapters, contexts and models let go of in every order."""

from __future__ import annotations

import gc
import threading
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from llamacy.core._handle import live_handles
from llamacy.core.adapter import LoraAdapter, adapters_get, adapters_set
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.errors import ClosedError
from tests.core.test_adapter import EXACT, logits
from tests.helpers import data

ONE_THREAD = {"n_threads": 1, "n_threads_batch": 1}


def make(lora_path: Path) -> list[object]:
    model = Model(data("llama.gguf"))
    context = Context(model, **EXACT, **ONE_THREAD)
    adapter = LoraAdapter(model, lora_path)
    adapters_set(context, [(adapter, 1.0)])
    return [model, context, adapter]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_objects_dropped_in_any_order_free_everything(lora_path: Path, order: tuple[int, ...]) -> None:
    before = live_handles()
    objects: list[object] = make(lora_path)
    for index in order:
        objects[index] = None
        gc.collect()
    assert live_handles() == before


def test_dropped_adapter_works_while_context_applies_it(lora_path: Path) -> None:
    model, context, adapter = make(lora_path)
    expected = logits(context)
    del adapter
    gc.collect()
    assert live_handles()["lora_adapter"] == 1
    assert np.array_equal(logits(context), expected)
    adapters_set(context, [])
    assert live_handles()["lora_adapter"] == 0
    context.close()
    model.close()


@pytest.mark.parametrize("adapter_first", [False, True])
def test_closing_model_closes_contexts_and_adapters(lora_path: Path, adapter_first: bool) -> None:
    with Model(data("llama.gguf")) as model:
        if adapter_first:
            adapter = LoraAdapter(model, lora_path)
            context = Context(model, **EXACT, **ONE_THREAD)
        else:
            context = Context(model, **EXACT, **ONE_THREAD)
            adapter = LoraAdapter(model, lora_path)
        adapters_set(context, [(adapter, 1.0)])
        logits(context)
        model.close()
        assert (model.closed, context.closed, adapter.closed) == (True, True, True)
    with pytest.raises(ClosedError):
        LoraAdapter(model, lora_path)
    adapter.close()


def test_context_closed_or_dropped_lets_adapter_go(lora_path: Path) -> None:
    model = Model(data("llama.gguf"))
    adapter = LoraAdapter(model, lora_path)
    closed, dropped = (Context(model, **EXACT, **ONE_THREAD) for _ in range(2))
    adapters_set(closed, [(adapter, 1.0)])
    adapters_set(dropped, [(adapter, 1.0)])
    closed.close()
    del dropped
    gc.collect()
    adapter.close()
    model.close()


class Cycle(Context):
    """A context in a reference cycle with the adapter that it applies."""

    keep: object = None


def test_cycle_of_context_and_adapter_is_collected(lora_path: Path) -> None:
    before = live_handles()
    model = Model(data("llama.gguf"))
    context = Cycle(model, **EXACT, **ONE_THREAD)
    adapter = LoraAdapter(model, lora_path)
    adapters_set(context, [(adapter, 1.0)])
    context.keep = [context, adapter, model]
    del model, context, adapter
    gc.collect()
    assert live_handles() == before


def test_failed_load_leaves_nothing_behind(lora_path: Path) -> None:
    before = live_handles()
    with Model(data("llama.gguf")) as model:
        for _ in range(20):
            with pytest.raises(ValueError, match=r"not a GGUF|can't load"):
                LoraAdapter(model, data("llama.gguf"))
    assert live_handles() == before


def test_adapters_loaded_and_freed_in_many_threads(lora_path: Path) -> None:
    failures: list[BaseException] = []

    def work(model: Model) -> None:
        try:
            for _ in range(30):
                with (
                    LoraAdapter(model, lora_path) as adapter,
                    Context(model, **EXACT, **ONE_THREAD) as context,
                ):
                    adapters_set(context, [(adapter, 1.0)])
                    assert adapters_get(context)
                    adapters_set(context, [])
        except BaseException as error:
            failures.append(error)

    with Model(data("llama.gguf")) as model:
        threads = [threading.Thread(target=work, args=(model,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
