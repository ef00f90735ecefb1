"""Types that a user's code sees."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Generator, Iterator
from pathlib import Path
from types import MappingProxyType

import numpy as np
from typing_extensions import assert_type

import llamacy
from llamacy import (
    Batch,
    Candidates,
    Context,
    ControlVector,
    CustomSampler,
    Device,
    Llama,
    LoraAdapter,
    Memory,
    Model,
    Sampler,
    SamplerChain,
    Vocab,
)
from llamacy.core.outputs import Outputs, Rows
from llamacy.core.params import ContextParams, ModelParams
from llamacy.core.perf import MemoryUse, PerfContext, PerfSampler, perf_sampler
from llamacy.core.scheduler import Scheduler
from llamacy.core.sequence import Sequence
from llamacy.core.stream import TextStream, TokenStream
from llamacy.core.text import TextAssembler
from llamacy.generate.responses import ChatCompletion, ChatCompletionChunk, Completion
from llamacy.types import FileType, GgmlType, PoolingType, RopeType, SplitMode, StateFlags, TokenAttr, VocabType


def package() -> None:
    assert_type(llamacy.__version__, str)
    assert_type(llamacy.get_include(), str)
    assert_type(llamacy.live_handles(), dict[str, int])
    assert_type(llamacy.devices(), list[Device])
    assert_type(llamacy.backends(), dict[str, dict[str, str]])
    assert_type(llamacy.devices()[0].memory, tuple[int, int])
    assert_type(llamacy.devices()[0].capabilities["async"], bool)


def set_tensor(name: str, kind: GgmlType, shape: tuple[int, ...]) -> bytes:
    return bytes(len(name) + kind + len(shape))


def model(path: Path, metadata: llamacy.Gguf) -> None:
    Model("model.gguf", n_gpu_layers="all", split_mode="row", load_mode=1, kv_overrides={"a": 1, "b": "c"})
    Model([path, path], split_mode=SplitMode.NONE, progress_callback=lambda done: done < 0.5)
    Model(metadata, set_tensor=set_tensor)
    with path.open("rb") as file, Model(file, devices=["CPU"], tensor_buft_overrides=[("a", "CPU")]) as model:
        assert_type(model, Model)
        assert_type(model.vocab, Vocab)
        assert_type(model.params, ModelParams)
        assert_type(model.path, str | None)
        assert_type(model.metadata, MappingProxyType[str, str])
        assert_type(model.chat_template(), str | None)
        assert_type(model.ftype, FileType | None)
        assert_type(model.rope_type, RopeType)
        assert_type(model.n_embd, int)
        assert_type(model.cls_labels, tuple[str | None, ...])
        assert_type(model.token_embeddings(), memoryview[float])
        np.asarray(model.token_embeddings())


def vocab(vocab: Vocab) -> None:
    assert_type(vocab.tokenize("text", add_special=False), array[int])
    assert_type(vocab.tokenize_into(b"text", np.empty(8, np.int32)), int)
    assert_type(vocab.detokenize([1, 2]), bytes)
    assert_type(vocab.detokenize(np.array([1, 2], np.int32), unparse_special=True), bytes)
    assert_type(vocab.piece(1), bytes)
    assert_type(vocab.attr(1), TokenAttr)
    assert_type(vocab.type, VocabType)
    assert_type(vocab.bos, int | None)
    assert_type(len(vocab), int)


def batch() -> None:
    with Batch(8, n_seq_max=2) as batch:
        assert_type(batch.add(1, 0, 1, logits=True), int)
        batch.extend(array("i", [1, 2]), 1, (0, 1), logits="all")
        batch.extend([1, 2], 3, logits=np.ones(2, np.int8))
        assert_type(batch.tokens, array[int])
        assert_type(batch.seq_ids, list[tuple[int, ...]])
    Batch(8, n_embd=4, n_pos_per_embd=4).extend_embeddings(np.zeros((2, 4), np.float32), np.zeros((4, 2), np.int32))


def context(model: Model, batch: Batch, chain: SamplerChain) -> None:
    with Context(model, n_ctx=256, type_k="q8_0", type_v=GgmlType.F16, pooling_type=PoolingType.MEAN) as ctx:
        assert_type(ctx.params, ContextParams)
        assert_type(ctx.memory, Memory | None)
        ctx.decode(batch)
        assert_type(ctx.logits(), Rows)
        assert_type(ctx.outputs, Outputs)
        assert_type(ctx.outputs.sampled_candidates(), array[int] | None)
        assert_type(ctx.seq_embeddings(), memoryview[float])
        assert_type(ctx.logits().copy(), memoryview[float])
        np.asarray(ctx.logits())
        memoryview(ctx.logits())
        ctx.embeddings_enabled = True
        assert_type(ctx.embeddings_enabled, bool)
        assert_type(Context(model, ctx_other=ctx).ctx_other, Context | None)
        ctx.attach_sampler(0, chain)
        if ctx.memory is not None:
            assert_type(ctx.memory.seq_pos_max(0), int)


def sequences(ctx: Context, vocab: Vocab, chain: SamplerChain) -> None:
    scheduler = Scheduler(ctx)
    sequence = Sequence(0, ctx.n_ctx)
    sequence.extend(vocab.tokenize("text"))
    sequence.sampler = chain
    sequence.sampler = None
    scheduler.add(sequence)
    assert_type(scheduler.step(), list[tuple[Sequence, int]])
    assert_type(scheduler.next_token(sequence), int)
    text = TextAssembler(vocab, ("\n", b"stop"))
    assert_type(text.feed_token(1) + text.feed(b"a") + text.finish(), str)
    assert_type(text.stop, str | None)
    tokens = TokenStream(scheduler, sequence, vocab, 4, lock=threading.RLock())
    assert_type(list(tokens), list[int])
    assert_type(tokens.finish_reason, str | None)
    assert_type(list(TextStream(tokens, text)), list[str])


def samplers(vocab: Vocab, ctx: Context) -> None:
    with SamplerChain([Sampler.top_k(40), Sampler.temp(0.8), Sampler.dist(1)], no_perf=False) as chain:
        chain.add(Sampler.grammar(vocab, "root ::= [a-z]+"))
        assert_type(chain[0], Sampler)
        assert_type(chain[1:], list[Sampler])
        assert_type(chain.clone(), SamplerChain)
        assert_type(chain.sample(ctx, grammar=Sampler.infill(vocab)), int)
        assert_type(perf_sampler(chain), PerfSampler)
        candidates = Candidates(np.zeros(8, np.float32))
        chain.apply(candidates)
        assert_type(candidates.token, int | None)
        assert_type(candidates[0], tuple[int, float, float])
        np.asarray(candidates)


class EveryOther(CustomSampler):
    def apply(self, candidates: Candidates) -> None:
        candidates.selected = 0


def states(ctx: Context, path: Path) -> None:
    assert_type(ctx.state.get(), bytes)
    assert_type(ctx.state.seq_get(0, StateFlags.PARTIAL_ONLY), bytes)
    ctx.state.seq_set(0, np.zeros(8, np.uint8))
    assert_type(ctx.state.load_file(path), array[int])


def adapters(ctx: Context, model: Model, path: Path) -> None:
    with LoraAdapter(model, path) as adapter:
        ctx.set_adapters_lora([(adapter, 0.5)])
        assert_type(ctx.adapters_lora, tuple[tuple[LoraAdapter, float], ...])
    ctx.set_adapter_cvec(ControlVector(np.zeros((2, 8), np.float32)))
    assert_type(ctx.adapter_cvec, ControlVector | None)
    assert_type(ctx.perf(), PerfContext)
    assert_type(ctx.memory_breakdown(), dict[str, MemoryUse])


def llama(path: Path) -> None:
    with Llama(path, n_ctx=512, seed=1, n_gpu_layers=0) as llm:
        assert_type(llm, Llama)
        assert_type(llm.tokenize("text"), list[int])
        assert_type(llm.detokenize([1]), bytes)
        assert_type(llm.generate([1, 2], max_tokens=4, temperature=0.0), Generator[int, None, None])
        assert_type(llm.create_completion("text", penalty_last_n=8), Completion)
        assert_type(llm.create_completion("text", 8, temp=0), Completion)
        assert_type(llm.create_completion("text", stream=True), Iterator[Completion])
        assert_type(llm("text", max_tokens=4, stop=["\n"]), Completion)
        messages = [{"role": "user", "content": "Hi"}]
        assert_type(llm.create_chat_completion(messages, tools=[], max_tokens=4), ChatCompletion)
        assert_type(llm.create_chat_completion(messages, stream=True), Iterator[ChatCompletionChunk])


def errors(batch: Batch) -> None:
    try:
        batch.add(1, 0)
    except llamacy.DecodeError as error:
        assert_type(error.status, int)
        assert_type(error.memory_restored, bool)
        assert_type(error.log, tuple[str, ...])
