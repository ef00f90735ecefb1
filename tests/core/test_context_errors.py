"""Everything that would abort or crash in llama.cpp is refused with a typed error (one test for each way)."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.errors import (
    ClosedError,
    ContextCreateError,
    InUseError,
    InvalidBatchError,
    MemorySlotError,
    OutputError,
)
from llamacy.types import GgmlType
from tests.helpers import data, toy_tokens
from tests.helpers.arch import context_params


def decode(context, tokens, pos=0, seq_id=0, logits="last"):
    with Batch(len(tokens)) as batch:
        batch.extend(tokens, pos, seq_id, logits=logits)
        context.decode(batch)


def still_works(context):
    context.memory.clear()
    decode(context, toy_tokens("hello"))
    assert np.isfinite(context.logits(-1)).all()


def test_decode_more_than_n_batch_raises(make_model, make_context):
    context = make_context(make_model(), n_batch=8)
    with pytest.raises(InvalidBatchError, match="n_batch is 8"):
        decode(context, [5] * 9)
    still_works(context)


def test_decode_more_than_n_ubatch_without_causal_attention_raises(make_model, make_context):
    context = make_context(make_model(), n_batch=64, n_ubatch=16)
    context.causal_attn = False
    with pytest.raises(InvalidBatchError, match="n_ubatch is 16"):
        decode(context, [5] * 17)
    context.causal_attn = True
    decode(context, [5] * 17)


def test_encode_more_than_n_ubatch_raises(make_model, make_context, bert_path):
    context = make_context(make_model(bert_path), n_batch=64, n_ubatch=16, embeddings=True)
    with pytest.raises(InvalidBatchError, match="n_ubatch is 16"), Batch(17) as batch:
        batch.extend([5] * 17, 0)
        context.encode(batch)


def test_decode_more_outputs_than_n_outputs_max_raises(make_model, make_context):
    context = make_context(make_model(), n_outputs_max=2)
    with pytest.raises(InvalidBatchError, match="n_outputs_max is 2"):
        decode(context, [5] * 3, logits="all")
    still_works(context)


def test_decode_embeddings_counts_every_token_as_output(make_model, make_context):
    context = make_context(make_model(), n_outputs_max=2, embeddings=True)
    with pytest.raises(InvalidBatchError, match="n_outputs_max is 2"):
        decode(context, [5] * 3)


def test_encode_decoder_only_model_raises(make_model, make_context):
    context = make_context(make_model())
    with pytest.raises(InvalidBatchError, match="no encoder"), Batch(1) as batch:
        batch.add(5, 0)
        context.encode(batch)


def test_decode_position_past_learned_ones_raises(make_model, make_context, bert_path):
    context = make_context(make_model(bert_path), embeddings=True)
    with pytest.raises(InvalidBatchError, match="position 64"), Batch(1) as batch:
        batch.add(5, 64)
        context.encode(batch)
    with pytest.raises(InvalidBatchError, match="position 64"), Batch(1) as batch:
        batch.add(5, 64)
        context.decode(batch)


@pytest.mark.parametrize("token", [-1, 288, 2**31 - 1, -(2**31)])
def test_decode_token_out_of_the_vocabulary_raises(make_model, make_context, token):
    context = make_context(make_model())
    with pytest.raises(InvalidBatchError, match="not in the vocabulary"):
        decode(context, [token])
    still_works(context)


@pytest.mark.parametrize("seq_id", [1, 255, 256, 2**31 - 1])
def test_decode_sequence_beyond_n_seq_max_raises(make_model, make_context, seq_id):
    context = make_context(make_model())
    with pytest.raises(InvalidBatchError, match="n_seq_max"):
        decode(context, [5], seq_id=seq_id)
    still_works(context)


def test_decode_empty_batch_raises(make_model, make_context):
    with pytest.raises(InvalidBatchError, match="empty"), Batch(1) as batch:
        make_context(make_model()).decode(batch)


def test_decode_closed_batch_raises(make_model, make_context):
    batch = Batch(1)
    batch.add(5, 0)
    batch.close()
    with pytest.raises(ClosedError, match="closed"):
        make_context(make_model()).decode(batch)


@pytest.mark.parametrize("positions", [[0, 2], [3, 2]], ids=["gap", "falling"])
def test_decode_positions_out_of_order_raise_and_keep_the_memory(make_model, make_context, positions):
    context = make_context(make_model())
    with pytest.raises(InvalidBatchError) as caught, Batch(2) as batch:
        for pos in positions:
            batch.add(5, pos)
        context.decode(batch)
    assert caught.value.status == -1
    assert caught.value.memory_restored
    assert caught.value.log
    assert context.memory.seq_pos_max(0) == -1


def test_decode_position_that_is_taken_raises(make_model, make_context):
    context = make_context(make_model())
    decode(context, [5, 6, 7])
    with pytest.raises(InvalidBatchError):
        decode(context, [5], pos=1)
    assert context.memory.seq_pos_max(0) == 2


def test_decode_without_room_raises_and_keeps_the_memory(make_model, make_context):
    context = make_context(make_model(), n_ctx=256)
    decode(context, [5] * 250)
    with pytest.raises(MemorySlotError) as caught:
        decode(context, [5] * 20, pos=250)
    assert caught.value.memory_restored
    assert context.memory.seq_pos_max(0) == 249
    decode(context, [5] * 6, pos=250)


def test_decode_embeddings_of_the_wrong_width_raises(make_model, make_context):
    context = make_context(make_model())
    with pytest.raises(InvalidBatchError, match="takes"), Batch(1, n_embd=3) as batch:
        batch.extend_embeddings(np.zeros((1, 3), np.float32), 0)
        context.decode(batch)


def test_decode_mrope_embedding_with_one_position_raises(make_model, make_context):
    model = make_model("qwen35.gguf")
    context = make_context(model)
    with pytest.raises(InvalidBatchError, match="4"), Batch(1, n_embd=model.n_embd_inp) as batch:
        batch.extend_embeddings(np.zeros((1, model.n_embd_inp), np.float32), 0)
        context.decode(batch)


def test_decode_mrope_embeddings_with_four_positions_works(make_model, make_context):
    model = make_model("qwen35.gguf")
    context = make_context(model)
    rows = np.ascontiguousarray(np.asarray(model.token_embeddings())[[5, 6, 7]])
    positions = np.stack([np.arange(3), np.arange(3), np.arange(3), np.zeros(3)]).astype(np.int32)
    with Batch(16, n_embd=model.n_embd_inp, n_pos_per_embd=4) as batch:
        batch.extend_embeddings(rows, positions, logits="last")
        context.decode(batch)
    other = make_context(model)
    decode(other, [5, 6, 7])
    np.testing.assert_allclose(context.logits(-1), other.logits(-1), atol=2e-3)


def test_context_of_vocab_only_model_raises(make_model):
    with pytest.raises(ContextCreateError, match="vocab_only"):
        Context(make_model(vocab_only=True))


def test_context_of_no_alloc_model_raises(make_model):
    with pytest.raises(ContextCreateError, match="no_alloc"):
        Context(make_model(no_alloc=True))


@pytest.mark.parametrize("kind", [GgmlType.F64, GgmlType.Q6_K, GgmlType.I8, GgmlType.Q2_K])
def test_context_cache_type_that_crashes_raises(make_model, kind):
    with pytest.raises(ValueError, match="type_k must be one of"):
        Context(make_model(), type_k=kind)


def test_context_quantized_v_without_flash_attention_says_why(smollm2_model):
    with pytest.raises(ContextCreateError, match="flash_attn"):
        Context(smollm2_model, n_ctx=256, type_v="q8_0", flash_attn_type="disabled")


def test_context_mtp_without_its_layers_raises(make_model):
    with pytest.raises(ContextCreateError, match="load_mtp"):
        Context(make_model("qwen35_mtp.gguf"), ctx_type="mtp")
    with pytest.raises(ContextCreateError):
        Context(make_model("llama.gguf", load_mtp=True), ctx_type="mtp")


@pytest.mark.parametrize(
    "params",
    [
        {"n_seq_max": 0},
        {"n_seq_max": 257},
        {"n_batch": 0},
        {"n_threads": 0},
        {"n_threads": 513},
        {"n_ctx": -1},
        {"n_ctx": 2**31},
        {"n_rs_seq": 4, "n_ubatch": 5},
        {"n_outputs_max": 1, "n_seq_max": 4},
        {"rope_freq_base": float("nan")},
        {"pooling_type": 99},
        {"flash_attn_type": "sometimes"},
    ],
    ids=str,
)
def test_context_parameter_out_of_range_raises(make_model, params):
    with pytest.raises(ValueError, match=next(iter(params))):
        Context(make_model(), **params)


def test_context_unknown_parameter_raises(make_model):
    with pytest.raises(TypeError, match=r"Context\(\) got an unexpected keyword argument 'n_context'"):
        Context(make_model(), n_context=5)


def test_set_embeddings_layer_inp_out_of_range_raises(make_model, make_context):
    model = make_model()
    context = make_context(model)
    with pytest.raises(ValueError, match="layer must be"):
        context.set_embeddings_layer_inp(model.n_layer + 1)
    with pytest.raises(ValueError, match="layer must be"):
        context.set_embeddings_layer_inp(-1)


def test_set_embeddings_layer_inp_of_an_architecture_without_raises(make_model, make_context):
    with pytest.raises(ContextCreateError, match="mamba"):
        make_context(make_model("mamba.gguf")).set_embeddings_layer_inp(0)


def test_set_embeddings_nextn_of_an_architecture_without_raises(make_model, make_context):
    with pytest.raises(ContextCreateError, match="llama"):
        make_context(make_model()).set_embeddings_nextn(True)


def test_layer_inputs_without_switching_on_raises(make_model, make_context):
    context = make_context(make_model())
    decode(context, [5])
    with pytest.raises(OutputError):
        context.outputs.layer_inputs(0)


def test_set_nextn_layer_offset_out_of_range_raises(make_model, make_context):
    context = make_context(make_model("qwen35_mtp.gguf", load_mtp=True), ctx_type="mtp")
    with pytest.raises(ValueError, match="offset"):
        context.set_nextn_layer_offset(1)


@pytest.mark.parametrize("index", [0, 1, 3, 4, -2, 2**31 - 1, -(2**31)])
def test_logits_of_an_entry_without_output_raises(make_model, make_context, index):
    context = make_context(make_model())
    with pytest.raises(OutputError):
        context.logits(-1)  # before any decode
    decode(context, [5, 6, 7])
    with pytest.raises(OutputError):
        context.logits(index)
    assert np.asarray(context.logits(2)).shape == (288,)


def test_embeddings_without_switching_on_raises(make_model, make_context):
    context = make_context(make_model())
    decode(context, [5])
    with pytest.raises(OutputError, match="embeddings"):
        context.embeddings(-1)
    with pytest.raises(OutputError):
        context.seq_embeddings(0)


def test_logits_after_a_failed_decode_raises(make_model, make_context):
    context = make_context(make_model())
    decode(context, [5])
    with pytest.raises(InvalidBatchError):
        decode(context, [5], pos=7)
    with pytest.raises(OutputError):
        context.logits(-1)


def test_warm_up_with_something_in_the_memory_raises(make_model, make_context):
    context = make_context(make_model())
    decode(context, [5])
    with pytest.raises(InUseError):
        context.warm_up()
    assert context.memory.seq_pos_max(0) == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda context: context.logits(-1),
        lambda context: context.memory,
        lambda context: context.outputs,
        lambda context: context.set_n_threads(1),
        lambda context: context.synchronize(),
        lambda context: context.n_threads,
        lambda context: context.pooling_type,
        lambda context: decode(context, [5]),
        lambda context: context.warm_up(),
        lambda context: context.detach_threadpool(),
        lambda context: context.set_embeddings_layer_inp(0),
    ],
)
def test_closed_context_raises(make_model, use):
    context = Context(make_model(), n_threads=1)
    context.close()
    context.close()
    assert context.closed
    assert "closed" in repr(context)
    with pytest.raises(ClosedError, match="context is closed"):
        use(context)


def test_outputs_and_memory_of_a_closed_context_raise(make_model):
    context = Context(make_model(), n_threads=1)
    memory, outputs = context.memory, context.outputs
    decode(context, [5])
    rows = context.logits(-1)
    context.close()
    with pytest.raises(ClosedError):
        memory.seq_pos_max(0)
    with pytest.raises(ClosedError):
        memory.clear()
    with pytest.raises(ClosedError):
        outputs.logits(-1)
    with pytest.raises(BufferError):
        memoryview(rows)
    assert "closed" in repr(memory)


def test_closed_model_closes_its_contexts():
    model = Model(data("llama.gguf"))
    context = Context(model, n_threads=1)
    model.close()
    assert context.closed


def test_context_needs_a_model():
    with pytest.raises(TypeError):
        Context(None)
    with pytest.raises(TypeError):
        Context("model.gguf")


def test_context_params_out_of_memory_says_so(make_model):
    params = context_params("llama")
    with pytest.raises(ContextCreateError):
        Context(make_model(), **{**params, "n_ctx": 2**31 - 2**17})


def test_decode_before_encode_raises(make_model, make_context, t5_path):
    context = make_context(make_model(t5_path))
    with pytest.raises(InvalidBatchError, match="encode first"):
        decode(context, [25])


def test_context_quantized_cache_with_small_heads_raises(make_model):
    with pytest.raises(ContextCreateError, match="multiple of 32"):
        Context(make_model(), type_k="q8_0", flash_attn_type="disabled")


def test_attach_threadpool_with_too_few_threads_raises(make_model, make_context, closing):
    from llamacy.core.threadpool import ThreadPool

    context = make_context(make_model(), n_threads=2, n_threads_batch=2)
    pool = closing(ThreadPool(1))
    with pytest.raises(ValueError, match="2 threads"):
        context.attach_threadpool(pool)
    still_works(context)


def test_shift_of_bf16_keys_raises(make_model, make_context):
    from llamacy.errors import MemoryOperationError

    context = make_context(make_model(), type_k="bf16", type_v="bf16")
    decode(context, [5, 6])
    with pytest.raises(MemoryOperationError, match="BF16"):
        context.memory.seq_add(0, 0, -1, 1)
    still_works(context)


def test_switching_an_output_on_forgets_the_rows(make_model, make_context):
    context = make_context(make_model("target.gguf"))
    decode(context, [5])
    context.set_embeddings_layer_inp(0)
    with pytest.raises(OutputError):
        context.outputs.layer_inputs(0)
