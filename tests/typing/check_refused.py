"""Mistakes that a type checker must find: each line names the error that mypy gives."""

from __future__ import annotations

from llamacy import Batch, Context, Device, Gguf, Llama, Model, Vocab
from llamacy.core.memory import Memory
from llamacy.core.outputs import Rows
from llamacy.core.text import TextAssembler
from tests.typing.check_public_api import set_tensor


def model(metadata: Gguf) -> None:
    Model("model.gguf", n_gpu_layer=1)  # type: ignore[call-overload]
    Model("model.gguf", vocab_only="yes")  # type: ignore[call-overload]
    Model("model.gguf", set_tensor=set_tensor)  # type: ignore[call-overload]
    Model(metadata)  # type: ignore[call-overload]
    Model("model.gguf", None)  # type: ignore[call-overload]


def read_only(model: Model, context: Context, batch: Batch) -> None:
    model.path = "other"  # type: ignore[misc]
    context.n_ctx = 1  # type: ignore[misc]
    batch.capacity = 1  # type: ignore[misc]
    model.metadata["key"] = "value"  # type: ignore[index]


def context(model: Model, other: Batch) -> None:
    Context("model.gguf")  # type: ignore[arg-type]
    Context(model, None)  # type: ignore[call-arg]
    Context(model, n_ctx="512")  # type: ignore[arg-type]
    Context(model, logits_all=True)  # type: ignore[call-arg]
    Context(model, ctx_other=other)  # type: ignore[arg-type]
    Context(model).memory.clear()  # type: ignore[union-attr]


def batch(batch: Batch) -> None:
    batch.add(1, 0, 0, True)  # type: ignore[call-arg]
    batch.add("a", 0)  # type: ignore[arg-type]
    batch.extend([1], 0, logits="first")  # type: ignore[arg-type]
    batch.extend_embeddings([[1.0]], 0)  # type: ignore[arg-type]


def text(vocab: Vocab) -> None:
    vocab.tokenize("text", False)  # type: ignore[call-arg]
    vocab.tokenize(["text"])  # type: ignore[arg-type]
    vocab.tokenize_into("text", [1])  # type: ignore[arg-type]
    TextAssembler(vocab).feed("text")  # type: ignore[arg-type]


class SealedVocab(Vocab): ...  # type: ignore[misc]


class SealedRows(Rows): ...  # type: ignore[misc]


class SealedMemory(Memory): ...  # type: ignore[misc]


class BothAtOnce(Model, Device): ...  # type: ignore[misc]


def llama(llm: Llama) -> None:
    llm.create_completion(prompt=1)  # type: ignore[call-overload]
    llm.create_completion("text", maximum=1)  # type: ignore[call-overload]
    llm.create_completion("text", "suffix")  # type: ignore[call-overload]
    llm.create_completion("text", 5, 0.2)  # type: ignore[call-overload]
