"""Ways to end the process that a review found: each is refused, and the objects stay usable."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.core.quantize import quantize
from llamacy.core.sampler import SamplerChain
from llamacy.core.samplers import Sampler
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.errors import (
    BackendError,
    ClosedError,
    ConcurrentUseError,
    ContextCreateError,
    DecodeAbortedError,
    InvalidBatchError,
    LlamacyError,
)
from tests.helpers import data


def decode(context, tokens, pos=0):
    with Batch(len(tokens)) as batch:
        batch.extend(tokens, pos)
        context.decode(batch)


def test_save_of_repacked_weights_gives_the_file_again(smollm2_path, tmp_path, closing):
    # weights of this type are laid out anew for the CPU, from where llama.cpp can't read them back
    quantize(smollm2_path, tmp_path / "q4.gguf", "Q4_0", allow_requantize=True)
    model = closing(Model(tmp_path / "q4.gguf"))
    model.save(tmp_path / "again.gguf")
    again = closing(Model(tmp_path / "again.gguf"))
    rows = []
    for each in (model, again):
        context = closing(Context(each, n_ctx=256, n_threads=1, n_threads_batch=1))
        decode(context, [1, 2, 3])
        rows.append(np.array(context.logits(-1)))
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize("file", ["llama.gguf", "qwen35.gguf"])
def test_entry_in_several_sequences_of_their_own_buffers_is_refused(make_model, make_context, file):
    context = make_context(make_model(file), n_seq_max=2, n_ctx=512)
    with Batch(1, n_seq_max=2) as batch:
        batch.add(5, 0, (0, 1))
        with pytest.raises(InvalidBatchError, match="kv_unified"):
            context.decode(batch)
    decode(context, [5])


def test_batch_closed_by_its_own_iterator_raises():
    batch = Batch(2)

    def seq_ids():
        batch.close()
        yield 0

    with pytest.raises(ClosedError):
        batch.add(1, 0, seq_ids())


def test_snapshots_beyond_the_effective_micro_batch_are_refused(make_model):
    with pytest.raises((ContextCreateError, ValueError), match="n_rs_seq"):
        Context(make_model("qwen35.gguf"), n_batch=4, n_rs_seq=8, n_threads=1)


def test_pooling_more_sequences_than_a_micro_batch_is_refused(make_model):
    with pytest.raises(ContextCreateError):
        Context(make_model(), n_seq_max=8, n_ctx=2048, n_ubatch=4, pooling_type="mean", n_threads=1)


def test_weights_in_a_repacking_buffer_are_refused():
    with pytest.raises(BackendError, match="CPU_REPACK"):
        Model(data("llama.gguf"), tensor_buft_overrides={".*": "CPU_REPACK"})


def test_layer_input_of_the_output_head_is_refused(make_model, make_context):
    model = make_model("target.gguf")
    with pytest.raises(ContextCreateError, match="output head"):
        make_context(model).set_embeddings_layer_inp(model.n_layer)


def test_view_during_a_decode_of_another_thread_is_refused_or_right(smollm2_model, closing):
    context = closing(Context(smollm2_model, n_ctx=2048, n_batch=2048, n_threads=1, n_threads_batch=1))
    decode(context, [1])
    rows = context.logits(-1)
    started = threading.Event()

    def run():
        started.set()
        with Batch(512) as batch:
            batch.extend([1] * 512, 1, logits="all")
            while True:
                # the other thread looks at the output for moments, in which the decode is refused
                with contextlib.suppress(BufferError, ConcurrentUseError):
                    return context.decode(batch)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    refused = 0
    while thread.is_alive():
        try:
            memoryview(rows).release()
            context.outputs.logits(-1)
        except (BufferError, LlamacyError):
            refused += 1
    thread.join()
    assert refused
    with pytest.raises(BufferError, match="earlier"):
        memoryview(rows)


def test_abort_of_the_context_ends_a_step_of_the_scheduler(smollm2_model, closing):
    context = closing(Context(smollm2_model, n_ctx=2048, n_batch=2048, n_ubatch=32, n_threads=1, n_threads_batch=1))
    scheduler = closing(Scheduler(context))
    sequence = Sequence(0, 2048)
    sequence.extend(np.full(640, 28, np.int32))
    sequence.sampler = SamplerChain([Sampler.greedy()])
    scheduler.add(sequence)
    timer = threading.Timer(0.2, context.abort)
    timer.start()
    with pytest.raises(DecodeAbortedError):
        scheduler.next_token(sequence)
    timer.join()
    assert sequence.n_past % 32 == 0
    assert sequence.n_past < 640
    assert scheduler.next_token(sequence) >= 0
