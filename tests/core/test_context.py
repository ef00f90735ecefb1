"""What a context computes, against llama.cpp's own C API (goldens) and a NumPy model."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.types import FlashAttnType, PoolingType
from tests.helpers import data, toy_tokens
from tests.helpers.arch import KINDS, context_params, golden, model_file
from tests.helpers.reference import Reference


def decode(context, tokens, pos=0, seq_id=0, logits="last"):
    with Batch(len(tokens)) as batch:
        batch.extend(tokens, pos, seq_id, logits=logits)
        context.decode(batch)


@pytest.mark.parametrize("name", KINDS)
def test_decode_prompt_gives_the_golden_logits(make_model, make_context, name):
    context = make_context(make_model(model_file(name)), **context_params(name))
    decode(context, golden(name)["prompt"])
    np.testing.assert_allclose(context.logits(-1), golden(name)["logits"], atol=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_decode_token_by_token_gives_the_golden_text(make_model, make_context, name):
    expected = golden(name)["greedy"]
    context = make_context(make_model(model_file(name)), **context_params(name))
    tokens = list(golden(name)["prompt"])
    decode(context, tokens)
    generated = []
    for _ in expected:
        generated.append(int(np.argmax(context.logits(-1))))
        decode(context, generated[-1:], len(tokens))
        tokens.append(generated[-1])
    assert generated == expected


@pytest.mark.parametrize("name", ["llama", "target"])
def test_decode_all_rows_equal_a_float64_forward_pass(make_model, make_context, name):
    tokens = toy_tokens("the quick brown fox.")
    expected = Reference(data(model_file(name))).logits(tokens)
    context = make_context(make_model(model_file(name)), **context_params(name))
    decode(context, tokens, logits="all")
    rows = np.asarray(context.outputs.all_logits())
    np.testing.assert_allclose(rows, expected, rtol=1e-3, atol=2e-4)


def test_decode_several_sequences_in_one_batch_equals_each_alone(make_model, make_context):
    model = make_model("llama.gguf")
    texts = [toy_tokens("hello"), toy_tokens("a cat sat"), toy_tokens("z")]
    alone = []
    for tokens in texts:
        context = make_context(model, **context_params("llama"))
        decode(context, tokens)
        alone.append(np.array(context.logits(-1)))
    together = make_context(model, **{**context_params("llama"), "n_seq_max": 3, "n_ctx": 384})
    with Batch(64) as batch:
        for seq_id, tokens in enumerate(texts):
            batch.extend(tokens, 0, seq_id)
        outputs = batch.outputs
        together.decode(batch)
    for index, expected in zip(outputs, alone, strict=True):
        np.testing.assert_allclose(together.logits(index), expected, atol=1e-4)


def test_decode_embeddings_of_the_tokens_equals_decoding_the_tokens(make_model, make_context):
    model = make_model("llama.gguf")
    tokens = toy_tokens("hello")
    table = np.asarray(model.token_embeddings())
    first = make_context(model, **context_params("llama"))
    decode(first, tokens)
    second = make_context(model, **context_params("llama"))
    with Batch(len(tokens), n_embd=model.n_embd_inp) as batch:
        batch.extend_embeddings(np.ascontiguousarray(table[tokens]), 0, logits="last")
        second.decode(batch)
    np.testing.assert_allclose(second.logits(-1), first.logits(-1), atol=1e-4)


def test_token_embeddings_equal_the_tensor_of_the_file(make_model):
    import gguf

    model = make_model("llama.gguf")
    tensor = next(t for t in gguf.GGUFReader(data("llama.gguf")).tensors if t.name == "token_embd.weight")
    np.testing.assert_allclose(model.token_embeddings(), np.array(tensor.data, dtype=np.float32), atol=0)


def test_embeddings_mean_pooling_is_the_mean_of_the_rows(make_model, make_context, bert_path):
    model = make_model(bert_path)
    tokens = [1, 25, 26, 2]
    rows = make_context(model, embeddings=True, pooling_type=PoolingType.NONE)
    with Batch(8) as batch:
        batch.extend(tokens, 0)
        rows.encode(batch)
        each = np.array(rows.outputs.all_embeddings())
        pooled = make_context(model, embeddings=True, pooling_type=PoolingType.MEAN)
        pooled.encode(batch)
    np.testing.assert_allclose(pooled.seq_embeddings(0), each.mean(axis=0), atol=1e-4)


def test_rank_pooling_gives_one_score(make_model, make_context, rank_path):
    context = make_context(make_model(rank_path), embeddings=True)
    with Batch(8) as batch:
        batch.extend([1, 25, 2], 0)
        context.encode(batch)
    assert context.pooling_type == PoolingType.RANK
    assert np.asarray(context.seq_embeddings(0)).shape == (1,)


def test_encoder_decoder_model_encodes_then_decodes(make_model, make_context, t5_path):
    model = make_model(t5_path)
    context = make_context(model)
    with Batch(8) as batch:
        batch.extend([25, 26, 2], 0)
        context.encode(batch)
        batch.clear()
        batch.add(model.decoder_start_token or 0, 0, logits=True)
        context.decode(batch)
    assert np.isfinite(context.logits(-1)).all()


def test_layer_inputs_of_layer_0_are_the_token_embeddings(make_model, make_context):
    model = make_model("target.gguf")
    context = make_context(model, **context_params("target"))
    context.set_embeddings_layer_inp(0)
    tokens = toy_tokens("hello")
    decode(context, tokens)
    table = np.asarray(model.token_embeddings())
    np.testing.assert_allclose(context.outputs.layer_inputs(0), table[tokens], atol=1e-5)


def test_layer_inputs_equal_the_golden_features(make_model, make_context):
    goldens = np.load(data("dflash.npz"))
    tokens = goldens["prompts.0"][:-1]
    context = make_context(make_model("target.gguf"), **context_params("target"))
    context.set_embeddings_layer_inp(1)
    context.set_embeddings_layer_inp(3)
    decode(context, tokens.astype(np.int32), logits="all")
    features = np.concatenate([context.outputs.layer_inputs(1), context.outputs.layer_inputs(3)], axis=1)
    np.testing.assert_allclose(features, goldens["case0.features"], atol=1e-4)
    np.testing.assert_allclose(context.outputs.all_logits(), goldens["case0.target_logits"], atol=1e-4)


def test_nextn_rows_unmasked_are_one_per_token(make_model, make_context):
    model = make_model("qwen35_mtp.gguf", load_mtp=True)
    context = make_context(model, **context_params("qwen35_mtp"))
    context.set_embeddings_nextn(True, masked=False)
    tokens = golden("qwen35_mtp")["prompt"]
    decode(context, tokens)
    rows = np.array(context.outputs.nextn())
    assert rows.shape == (len(tokens), model.n_embd_out)
    assert np.abs(rows).min(axis=1).max() > 0  # not the zeros of an architecture without them
    np.testing.assert_array_equal(context.outputs.nextn(3), rows[3])


def test_mtp_context_reads_the_target(make_model, make_context):
    model = make_model("qwen35_mtp.gguf", load_mtp=True)
    target = make_context(model, **context_params("qwen35_mtp"))
    draft = make_context(model, **context_params("qwen35_mtp"), ctx_type="mtp", ctx_other=target)
    assert draft.ctx_other is target
    target.close()
    assert draft.closed


def test_set_n_threads_is_read_back(make_model, make_context):
    context = make_context(make_model())
    context.set_n_threads(2, 3)
    assert (context.n_threads, context.n_threads_batch) == (2, 3)


@pytest.mark.parametrize("wrong", [1.5, "2", True, None, 0, -1, 513, 2**40])
def test_set_n_threads_takes_ints_in_range_only(make_model, make_context, wrong):
    context = make_context(make_model())
    for numbers in [(wrong,), (wrong, 1), *([] if wrong is None else [(1, wrong)])]:
        with pytest.raises((TypeError, ValueError), match=r"n_threads(_batch)? must be"):
            context.set_n_threads(*numbers)
    assert (context.n_threads, context.n_threads_batch) == (1, 1)


def test_params_are_rounded_as_llama_cpp_does(make_model, make_context):
    # n_ctx is padded to 256 per sequence (native facts); the effective numbers are what counts
    context = make_context(make_model(), n_ctx=250, n_batch=100, n_ubatch=16)
    assert (context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max) == (256, 100, 16, 1)
    several = make_context(make_model(), n_ctx=512, n_seq_max=3)
    assert (several.n_ctx, several.n_ctx_seq) == (768, 256)


def test_n_ctx_0_takes_the_trained_length(make_model, make_context):
    model = make_model()
    assert make_context(model, n_ctx=0).n_ctx == -(-model.n_ctx_train // 256) * 256


def test_warm_up_leaves_an_empty_memory(make_model, make_context):
    context = make_context(make_model())
    context.warm_up()
    assert context.memory.seq_pos_max(0) == -1


def test_abort_from_another_thread_stops_a_decode(make_model, make_context, smollm2_model):
    from llamacy.errors import DecodeAbortedError

    context = make_context(smollm2_model, n_ctx=4096, n_batch=4096, n_ubatch=64)
    tokens = [1] * 4000
    timer = threading.Timer(0.3, context.abort)
    timer.start()
    try:
        with pytest.raises(DecodeAbortedError) as caught, Batch(4096) as batch:
            batch.extend(tokens, 0)
            context.decode(batch)
    finally:
        timer.join()
    assert not caught.value.memory_restored
    kept = context.memory.seq_pos_max(0) + 1
    assert kept < 4000
    assert kept % 64 == 0  # whole micro-batches
    decode(context, [1], kept)  # and it goes on from there


def test_flash_attention_gives_the_same_logits(make_model, make_context):
    model = make_model("llama.gguf")
    params = context_params("llama")
    off = make_context(model, **params)
    on = make_context(model, **{**params, "flash_attn_type": FlashAttnType.ENABLED})
    decode(off, golden("llama")["prompt"])
    decode(on, golden("llama")["prompt"])
    np.testing.assert_allclose(on.logits(-1), off.logits(-1), atol=1e-2)
