"""LoRA adapters on a real model: the base is unchanged, two add up to merged weights, and switching leaks nothing."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from llamacy import Llama
from llamacy.core._handle import live_handles
from tests.helpers import models
from tests.helpers.compute import EXACT
from tests.helpers.process import rss_bytes
from tests.helpers.reference import lora_deltas
from tests.helpers.rewrite import rewrite

TARGETS = ("attn_q", "attn_v", "ffn_down")
TEXT = "The capital of France is"


@pytest.fixture(scope="module")
def paths(tmp_path_factory, smollm2_path):
    folder = tmp_path_factory.mktemp("smollm2-lora")
    return {
        name: models.write_lora(folder / f"{name}.gguf", smollm2_path, seed=seed, rank=rank, targets=TARGETS)
        for name, seed, rank in (("one", 41, 8), ("two", 42, 4))
    }


@pytest.fixture
def llama(closing, smollm2_model, paths):
    llama = closing(Llama(smollm2_model, **EXACT))
    for path in paths.values():
        llama.load_lora(path, scale=0)
    return llama


def row_of(llama, **options):
    rows = []
    llama(
        TEXT, max_tokens=1, temperature=0, cache_prompt=False,
        logits_processor=lambda _, scores: rows.append(scores.copy()), **options,
    )  # fmt: skip
    return rows[0]


def test_scale_of_zero_equals_the_base_exactly_and_one_differs(closing, smollm2_model, llama):
    base = row_of(closing(Llama(smollm2_model, **EXACT)))
    assert np.array_equal(row_of(llama, lora={"one": 0.0}), base)
    assert np.abs(row_of(llama, lora={"one": 1.0}) - base).max() > 0.1
    assert np.array_equal(row_of(llama, lora={"one": 0.0, "two": 0}), base)


def write_merged(path: Path, base: Path, deltas: dict[str, np.ndarray]) -> Path:
    """Write a model with F32 weights and `deltas` added to them."""

    def merged(name, tensor):
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        return (weights.reshape([int(n) for n in reversed(tensor.shape)]) + deltas.get(name, 0)).astype(np.float32)

    return rewrite(path, base, {"general.file_type": None}, merged)


def test_two_at_once_equal_the_merged_weights(closing, smollm2_path, paths, tmp_path):
    base = write_merged(tmp_path / "base.gguf", smollm2_path, {})  # so that both models round their weights alike
    deltas = lora_deltas(paths["one"], 0.5)
    for name, delta in lora_deltas(paths["two"], -1.0).items():
        deltas[name] = deltas.get(name, 0) + delta
    merged = write_merged(tmp_path / "merged.gguf", smollm2_path, deltas)
    expected = row_of(closing(Llama(merged, **EXACT)))
    llama = closing(Llama(base, **EXACT))
    base.unlink()  # half a gigabyte each
    merged.unlink()
    for path in paths.values():
        llama.load_lora(path, scale=0)
    assert np.abs(row_of(llama) - expected).max() > 0.1
    assert np.abs(row_of(llama, lora={"one": 0.5, "two": -1.0}) - expected).max() <= 1e-3


def test_a_thousand_switches_leak_nothing(llama, paths):
    prompt = llama.tokenize(TEXT)[:2]
    mixes = [{"one": 1.0}, {}, {"two": 0.5}, {"one": 0.5, "two": 1.0}]
    expected: dict[int, list[int]] = {}

    def switch(n: int) -> None:
        for i in range(n):
            got = list(llama.generate(prompt, max_tokens=1, temperature=0, lora=mixes[i % 4]))
            assert expected.setdefault(i % 4, got) == got

    switch(100)
    handles, before = live_handles(), rss_bytes()
    switch(1000)
    assert live_handles() == handles
    assert rss_bytes() - before < 4 << 20


def test_a_hundred_loads_leak_nothing(llama, paths):
    def load(n: int) -> None:
        for _ in range(n):
            llama.load_lora(paths["one"], name="again", scale=0)
            next(llama.generate([1, 2], max_tokens=1, temperature=0, lora={"again": 1.0}))
            llama.unload_lora("again")

    load(10)
    handles, before = live_handles(), rss_bytes()
    load(100)
    assert live_handles() == handles
    assert rss_bytes() - before < 8 << 20
