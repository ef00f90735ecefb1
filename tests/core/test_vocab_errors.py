"""Vocab: what is refused. Without the guards, several of these end the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from llamacy.core.model import Model
from llamacy.core.vocab import Vocab
from llamacy.errors import ClosedError, LlamacyError, ModelLoadError, TokenizeError
from llamacy.types import VocabType
from tests.helpers import N_TOY_VOCAB, data, models

BAD_TOKENS = [-1, -2, N_TOY_VOCAB, N_TOY_VOCAB + 1, 2**31 - 1, -(2**31)]
METHODS = ["piece", "text", "score", "attr", "is_control"]


@pytest.mark.parametrize("token", BAD_TOKENS)
@pytest.mark.parametrize("method", METHODS)
def test_token_outside_vocabulary_raises(llama_model: Model, method: str, token: int) -> None:
    with pytest.raises(TokenizeError, match=str(token)):
        getattr(llama_model.vocab, method)(token)


@pytest.mark.parametrize("token", BAD_TOKENS)
def test_token_outside_vocabulary_does_not_end_a_generation(llama_model: Model, token: int) -> None:
    assert llama_model.vocab.is_eog(token) is False


@pytest.mark.parametrize("token", BAD_TOKENS)
def test_detokenize_token_outside_vocabulary_raises(llama_model: Model, token: int) -> None:
    with pytest.raises(TokenizeError, match=f"{token} at index 1"):
        llama_model.vocab.detokenize([5, token, 6])


@pytest.mark.parametrize("token", [2**31, 2**40, -(2**31) - 1])
@pytest.mark.parametrize("method", METHODS)
def test_token_beyond_32_bits_raises(llama_model: Model, method: str, token: int) -> None:
    with pytest.raises((TokenizeError, OverflowError)):
        getattr(llama_model.vocab, method)(token)
    with pytest.raises((TokenizeError, OverflowError)):
        llama_model.vocab.detokenize([token])


@pytest.mark.parametrize("tokens", [["a"], [None], [1.5], "abc", 5, None, [[1, 2], [3, 4]]])
def test_detokenize_what_are_no_tokens_raises_type_error(llama_model: Model, tokens: Any) -> None:
    with pytest.raises((TypeError, TokenizeError)):
        llama_model.vocab.detokenize(tokens)


def test_detokenize_floats_raises(llama_model: Model) -> None:
    with pytest.raises((TypeError, TokenizeError)):
        llama_model.vocab.detokenize(np.array([1.0, 2.0], dtype=np.float32))


def test_detokenize_two_dimensions_raises(llama_model: Model) -> None:
    with pytest.raises((ValueError, TypeError)):
        llama_model.vocab.detokenize(np.zeros((2, 2), dtype=np.int32))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_tokenize_lone_surrogate_raises_with_its_index(llama_model: Model, text: str) -> None:
    with pytest.raises(TokenizeError, match="surrogate"):
        llama_model.vocab.tokenize(text)


@pytest.mark.parametrize("text", [None, 5, ["a"], 1.5])
def test_tokenize_what_is_no_text_raises_type_error(llama_model: Model, text: Any) -> None:
    with pytest.raises(TypeError):
        llama_model.vocab.tokenize(text)


def test_tokenize_strided_bytes_raises(llama_model: Model) -> None:
    with pytest.raises((BufferError, ValueError)):
        llama_model.vocab.tokenize(memoryview(b"abcdef")[::2])


def test_tokenize_into_too_small_raises_with_both_sizes(llama_model: Model) -> None:
    out = np.full(3, -1, dtype=np.int32)
    with pytest.raises(TokenizeError, match=r"7 tokens.*3"):
        llama_model.vocab.tokenize_into("hello", out)


def test_tokenize_into_empty_buffer_raises(llama_model: Model) -> None:
    with pytest.raises(TokenizeError):
        llama_model.vocab.tokenize_into("hello", np.zeros(0, dtype=np.int32))
    assert llama_model.vocab.tokenize_into("", np.zeros(0, dtype=np.int32), add_special=False) == 0


def test_tokenize_into_read_only_or_wrong_type_raises(llama_model: Model) -> None:
    frozen = np.zeros(20, dtype=np.int32)
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        llama_model.vocab.tokenize_into("hello", frozen)
    with pytest.raises((ValueError, BufferError)):
        llama_model.vocab.tokenize_into("hello", np.zeros(20, dtype=np.int64))


def test_vocab_can_not_be_created() -> None:
    with pytest.raises(TypeError, match=r"Model\.vocab"):
        Vocab()


def test_vocab_made_without_init_is_refused() -> None:
    # `__new__` runs no `__init__`; what it returns must not reach native code
    with pytest.raises((TypeError, LlamacyError)):
        Vocab.__new__(Vocab).tokenize("a")


def test_vocab_of_closed_model_raises_closed_error() -> None:
    model = Model(data("llama.gguf"), vocab_only=True)
    vocab = model.vocab
    model.close()
    for call in (
        lambda: vocab.tokenize("a"),
        lambda: vocab.tokenize_into("a", np.zeros(9, dtype=np.int32)),
        lambda: vocab.detokenize([5]),
        lambda: vocab.detokenize([]),
        lambda: vocab.bos,
        lambda: vocab.type,
        lambda: vocab.suppress_tokens,
        lambda: vocab.is_eog(5),
        lambda: vocab.add_bos,
        *(lambda method=method: getattr(vocab, method)(5) for method in METHODS),
    ):
        with pytest.raises(ClosedError):
            call()
    assert "closed" in repr(vocab)


def test_vocab_keeps_model_alive() -> None:
    vocab = Model(data("llama.gguf"), vocab_only=True).vocab
    assert vocab.piece(260) == b" "


def test_vocab_of_type_none_refuses_text(vocab_none_path: Path) -> None:
    with Model(vocab_none_path) as model:
        vocab = model.vocab
        assert vocab.type == VocabType.NONE
        assert len(vocab) == 288
        for call in (
            lambda: vocab.tokenize("a"),
            lambda: vocab.tokenize("a", add_special=False),
            lambda: vocab.tokenize_into("a", np.zeros(9, dtype=np.int32)),
            lambda: vocab.detokenize([5]),
            *(lambda method=method: getattr(vocab, method)(5) for method in METHODS),
        ):
            with pytest.raises(TokenizeError):
                call()
        assert not vocab.is_eog(5)
        assert vocab.bos is None
        assert vocab.eos is None
        assert vocab.nl is None
        assert repr(vocab) == "<Vocab NONE n_tokens=288>"


def _write_vocabulary(path: Path, texts: list[str], types: list[int], **keys: Any) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    shape = models.LlamaShape(n_vocab=len(texts))
    writer.add_context_length(shape.n_ctx_train)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_layer_norm_rms_eps(shape.rms_eps)
    writer.add_tokenizer_model(keys.pop("model", "llama"))
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text.encode() for text in texts])
    writer.add_token_scores([0.0] * len(texts))
    writer.add_token_types(types)
    for key, value in keys.items():
        if isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"tokenizer.ggml.{key}", value)
        else:
            writer.add_uint32(f"tokenizer.ggml.{key}", value)
    models._finish(writer)
    return path


def test_spm_vocabulary_without_bytes_raises_for_text_it_can_not_spell(tmp_path: Path) -> None:
    # llama.cpp looks the byte up with a throwing accessor
    texts = ["<unk>", "<s>", "</s>", "\u2581", "a", "b"]
    path = _write_vocabulary(tmp_path / "no-bytes.gguf", texts, [2, 3, 3, 1, 1, 1])
    with Model(path, vocab_only=True) as model:
        assert list(model.vocab.tokenize("ab", add_special=False)) == [3, 4, 5]
        with pytest.raises(TokenizeError):
            model.vocab.tokenize("xyz", add_special=False)


def test_vocabulary_that_adds_a_bos_it_does_not_have_raises(tmp_path: Path) -> None:
    # llama.cpp asserts that the token exists
    texts = ["<pad>", "</s>", "<unk>", "\u2581", "a", "b"]
    path = _write_vocabulary(
        tmp_path / "no-bos.gguf", texts, [3, 3, 2, 1, 1, 1], model="t5", add_bos_token=True, add_space_prefix=True
    )
    with Model(path, vocab_only=True) as model:
        with pytest.raises(TokenizeError, match="BOS"):
            model.vocab.tokenize("ab")
        assert list(model.vocab.tokenize("ab", add_special=False)) == [3, 4, 5]


@pytest.mark.parametrize(
    "keys",
    [{"bos_token_id": 999}, {"eos_token_id": 6}, {"unknown_token_id": 2**32 - 1}, {"padding_token_id": 6}],
)
def test_special_token_ids_outside_the_vocabulary_are_ignored_or_refused(tmp_path: Path, keys: Any) -> None:
    texts = ["<unk>", "<s>", "</s>", "\u2581", "a", "b"]
    path = _write_vocabulary(tmp_path / "outside.gguf", texts, [2, 3, 3, 1, 1, 1], **keys)
    try:
        model = Model(path, vocab_only=True)
    except ModelLoadError:
        return
    with model:
        special = [model.vocab.bos, model.vocab.eos, model.vocab.pad]
        assert all(token is None or 0 <= token < 6 for token in special)
        assert list(model.vocab.tokenize("ab", add_special=False)) == [3, 4, 5]


def test_vocabulary_with_a_token_twice_is_refused(tmp_path: Path) -> None:
    # GGML_ASSERT(id_to_token.size() == token_to_id.size()), llama-vocab.cpp
    path = _write_vocabulary(tmp_path / "twice.gguf", ["<unk>", "<s>", "</s>", "\u2581", "a", "a"], [2, 3, 3, 1, 1, 1])
    with pytest.raises(ModelLoadError):
        Model(path, vocab_only=True)


def test_vocabulary_with_too_few_types_or_scores_is_refused(tmp_path: Path) -> None:
    path = _write_vocabulary(tmp_path / "short.gguf", ["<unk>", "<s>", "</s>", "\u2581", "a"], [2, 3])
    with pytest.raises(ModelLoadError):
        Model(path, vocab_only=True)
