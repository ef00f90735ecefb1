"""Adapters of models that make vectors: an Embedding, and the context for vectors beside a Llama's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from llamacy import Embedding, Llama
from llamacy.errors import AdapterError, InUseError
from tests.helpers import data, models
from tests.helpers.compute import EXACT
from tests.helpers.reference import Reference, control_directions, lora_deltas

MODEL = data("llama.gguf")
TEXT = "the quick brown fox"
PARAMS = {name: EXACT[name] for name in EXACT if name != "n_ctx"} | {"pooling_type": "last"}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    return {
        "one": models.write_lora(folder / "one.gguf", MODEL, seed=51),
        "two": models.write_lora(folder / "two.gguf", MODEL, seed=52),
        "alora": models.write_lora(folder / "alora.gguf", MODEL, seed=53, invocation_tokens=[270]),
        "vector": models.write_control_vector(folder / "vector.gguf", MODEL),
    }


@pytest.fixture(params=["embedding", "llama", "llama at once"])
def make(request, closing):
    def make(**params):
        if request.param == "embedding":
            return closing(Embedding(MODEL, **PARAMS | params))
        params = {"n_ctx": 64, "embedding": request.param == "llama at once"} | PARAMS | params
        return closing(Llama(MODEL, **params))

    return make


def expected(model, scales, paths, directions=None):
    deltas = {}
    for name, scale in scales.items():
        for tensor, delta in lora_deltas(paths[name], scale).items():
            deltas[tensor] = deltas.get(tensor, 0) + delta
    return Reference(MODEL, deltas).hidden(model.tokenize(TEXT), directions=directions)[-1]


def vector_of(model, **options):
    return model.embed(TEXT, normalize=False, **options)


def test_vectors_are_computed_with_the_adapters_that_are_on_by_default(make, paths):
    model = make(lora_path=paths["one"], lora_scale=0.5)
    np.testing.assert_allclose(vector_of(model), expected(model, {"one": 0.5}, paths), atol=1e-3)
    model.load_lora(paths["two"], scale=2)
    np.testing.assert_allclose(vector_of(model), expected(model, {"one": 0.5, "two": 2.0}, paths), atol=1e-3)
    model.set_lora_scale("one", 0)
    np.testing.assert_allclose(vector_of(model), expected(model, {"two": 2.0}, paths), atol=1e-3)
    model.unload_lora("two")
    model.unload_lora("one")
    np.testing.assert_allclose(vector_of(model), expected(model, {}, paths), atol=1e-3)


def test_request_says_which_adapters_it_wants(make, paths):
    model = make(lora_path=[paths["one"], paths["two"]])
    for scales in ({"one": 1.0}, {"two": -1.0}, {}, {"one": 0.5, "two": 2.0}, {"one": 0}):
        want = expected(model, scales, paths)
        np.testing.assert_allclose(vector_of(model, lora=scales), want, atol=1e-3)
        response = model.create_embedding(TEXT, normalize=False, lora=scales)
        np.testing.assert_allclose(response["data"][0]["embedding"], want, atol=1e-3)
    np.testing.assert_allclose(vector_of(model), expected(model, {"one": 1.0, "two": 1.0}, paths), atol=1e-3)


def test_batches_and_scores_take_adapters_too(closing, paths, rank_path, tmp_path):
    model = closing(Embedding(MODEL, lora_path=paths["one"], **PARAMS))
    ((start, rows),) = model.embed_batches([TEXT], normalize=False, lora={})
    assert start == 0
    np.testing.assert_allclose(rows[0], expected(model, {}, paths), atol=1e-3)
    path = models.write_lora(tmp_path / "bert.gguf", rank_path, targets=["attn_q", "ffn_up"])
    reranker = closing(Embedding(rank_path, lora_path=path, n_threads=1, n_threads_batch=1))
    plain = closing(Embedding(rank_path, n_threads=1, n_threads_batch=1))
    assert reranker.rerank("q", ["a", "b"], lora={}) == plain.rerank("q", ["a", "b"])
    assert reranker.rerank("q", ["a", "b"]) == reranker.rerank("q", ["a", "b"], lora={"bert": 1.0})
    assert reranker.rerank("q", ["a", "b"]) != plain.rerank("q", ["a", "b"])
    assert reranker.create_rerank("q", ["a"], lora={}) == plain.create_rerank("q", ["a"])
    assert reranker.classify("a", lora={}) == plain.classify("a") != reranker.classify("a")


def test_adapter_that_there_is_not_is_refused_before_anything_is_computed(make, paths):
    model = make(lora_path=paths["one"])
    model.load_lora(paths["alora"])
    engine = model._engine if isinstance(model, Embedding) else model._embeddings()
    epoch = engine.context.epoch
    with pytest.raises(AdapterError, match=r"'on'.*did you mean 'one'"):
        vector_of(model, lora={"on": 1.0})
    with pytest.raises(AdapterError, match="activated"):
        vector_of(model, lora={"alora": 1.0})
    with pytest.raises(TypeError):
        vector_of(model, lora="one")
    assert engine.context.epoch == epoch


def test_adapters_stay_on_a_context_that_grew(make, paths):
    model = make(lora_path=paths["one"], n_ctx=512, n_batch=64)
    long = "the quick brown fox jumps over the lazy dog. " * 8
    assert len(model.tokenize(long)) > 64
    tokens = model.tokenize(long)
    want = Reference(MODEL, lora_deltas(paths["one"])).hidden(tokens)[-1]
    np.testing.assert_allclose(model.embed(long, normalize=False), want, atol=1e-3)
    np.testing.assert_allclose(vector_of(model), expected(model, {"one": 1.0}, paths), atol=1e-3)
    model.unload_lora("one")
    np.testing.assert_allclose(vector_of(model), expected(model, {}, paths), atol=1e-3)


def test_activated_lora_is_not_applied_to_texts(make, paths):
    model = make(lora_path=paths["alora"])
    np.testing.assert_allclose(vector_of(model), expected(model, {}, paths), atol=1e-3)


def test_control_vector_holds_for_vectors(make, paths):
    model = make()
    model.set_control_vector(paths["vector"], 0.5)
    want = expected(model, {}, paths, control_directions(paths["vector"], 0.5))
    assert np.abs(want - expected(model, {}, paths)).max() > 0.05
    np.testing.assert_allclose(vector_of(model), want, atol=1e-3)
    model.clear_control_vector()
    np.testing.assert_allclose(vector_of(model), expected(model, {}, paths), atol=1e-3)


def test_generating_and_embedding_do_not_share_what_a_request_asks_for(closing, paths):
    llama = closing(Llama(MODEL, n_ctx=64, **PARAMS))
    llama.load_lora(paths["one"], scale=0)
    base = llama(TEXT, max_tokens=8, temperature=0)["choices"][0]["text"]
    adapted = llama(TEXT, max_tokens=8, temperature=0, lora={"one": 4.0})["choices"][0]["text"]
    assert base != adapted
    for _ in range(2):
        np.testing.assert_allclose(vector_of(llama), expected(llama, {}, paths), atol=1e-3)
        assert llama(TEXT, max_tokens=8, temperature=0, lora={"one": 4.0})["choices"][0]["text"] == adapted
        np.testing.assert_allclose(vector_of(llama), expected(llama, {}, paths), atol=1e-3)
        assert llama(TEXT, max_tokens=8, temperature=0)["choices"][0]["text"] == base


def test_adapter_is_not_unloaded_while_texts_are_computed(make, paths):
    model = make(lora_path=paths["one"])
    engine = model._engine if isinstance(model, Embedding) else model._embeddings()
    vector_of(model)
    raised = []

    def done(_):
        for change in (lambda: model.unload_lora("one"), model.clear_control_vector):
            try:
                change()
            except InUseError as error:
                raised.append(error)

    engine.run([model._vocab.tokenize(TEXT)], done=done)
    assert len(raised) == 2
    model.unload_lora("one")


def test_no_embedding_begins_with_an_adapter_that_is_being_unloaded(closing, paths, monkeypatch):
    llama = closing(Llama(MODEL, n_ctx=64, **PARAMS))
    llama.load_lora(paths["one"], scale=0)
    vector_of(llama)
    begins = []

    def unload(name):
        # the request of another thread would compute with an adapter that is taken off its context
        with ThreadPoolExecutor(1) as pool:
            begins.append(pool.submit(llama._embeddings().lock.acquire, blocking=False).result())
        unload_now(name)

    unload_now = llama._adapters.unload
    monkeypatch.setattr(llama._adapters, "unload", unload)

    def unload_beside(*_):
        if not begins:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(llama.unload_lora, "one").result()

    llama(TEXT, max_tokens=1, lora={}, logits_processor=unload_beside)
    assert begins == [False]
    assert not llama.loras


def test_adapters_are_freed_with_the_embedding(llama_model, paths):
    with Embedding(llama_model, lora_path=[paths["one"], paths["two"]], **PARAMS) as model:
        vector_of(model)
        adapters = [lora.adapter for lora in model.loras.values()]
    assert all(adapter.closed for adapter in adapters)


@pytest.mark.parametrize("kind", [Embedding, Llama])
def test_constructor_that_fails_leaves_nothing_open(llama_model, paths, kind):
    more = {"embedding": True} if kind is Llama else {}
    with pytest.raises(AdapterError):
        kind(llama_model, n_ctx=64, lora_path=[paths["one"], "missing.gguf"], **more, **PARAMS)
