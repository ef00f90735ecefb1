"""Vocab: what goes in, what comes out, on the toy vocabulary."""

from __future__ import annotations

import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamacy.core.model import Model
from llamacy.types import TokenAttr, VocabType
from tests.helpers import BOS, EOS, FIRST_BYTE, MASK, N_TOY_VOCAB, SPACE, UNK, data, models, toy_tokens


def test_tokenize_text_gives_characters_of_toy_vocabulary(llama_model: Model) -> None:
    vocab = llama_model.vocab
    assert list(vocab.tokenize("hello world.")) == toy_tokens("hello world.")
    assert list(vocab.tokenize("hello", add_special=False)) == toy_tokens("hello", add_special=False)


@given(text=st.text(max_size=60))
def test_tokenize_any_text_gives_expected_ids_and_comes_back(llama_model: Model, text: str) -> None:
    if not text:
        return
    vocab = llama_model.vocab
    # U+2581 is how SPM spells a space, so the two can't be told apart
    text = text.replace("\u2581", " ")
    tokens = vocab.tokenize(text)
    assert list(tokens) == toy_tokens(text)
    assert vocab.detokenize(tokens, remove_special=True).decode() in (text, " " + text)
    assert b"".join(vocab.piece(token) for token in tokens[1:]) == b" " + text.encode()


@given(data=st.binary(min_size=1, max_size=60))
def test_tokenize_any_bytes_does_not_crash(llama_model: Model, data: bytes) -> None:
    tokens = llama_model.vocab.tokenize(data)
    assert tokens[0] == BOS
    assert all(0 <= token < N_TOY_VOCAB for token in tokens)


def test_tokenize_empty_text_gives_specials_only(llama_model: Model) -> None:
    assert list(llama_model.vocab.tokenize("")) == [BOS]
    assert list(llama_model.vocab.tokenize(b"", add_special=False)) == []


def test_tokenize_returns_array_that_numpy_shares(llama_model: Model) -> None:
    tokens = llama_model.vocab.tokenize("hello")
    assert isinstance(tokens, array.array)
    view = np.asarray(tokens)
    assert view.dtype == np.int32
    assert np.shares_memory(view, np.frombuffer(tokens, dtype=np.int32))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: array.array("B", b)])
def test_tokenize_accepts_bytes_like(llama_model: Model, kind: Any) -> None:
    assert list(llama_model.vocab.tokenize(kind(b"hello"))) == toy_tokens("hello")


def test_tokenize_nul_is_a_byte_like_any_other(llama_model: Model) -> None:
    tokens = llama_model.vocab.tokenize("a\0b", add_special=False)
    assert list(tokens) == toy_tokens("a\0b", add_special=False)
    assert llama_model.vocab.detokenize(tokens) == b"a\0b"


def test_tokenize_special_text_is_plain_unless_asked_for(llama_model: Model) -> None:
    vocab = llama_model.vocab
    assert EOS not in vocab.tokenize("a</s>b")
    tokens = vocab.tokenize("a</s>b", parse_special=True)
    assert EOS in tokens
    assert vocab.detokenize(tokens, unparse_special=True).count(b"</s>") == 1
    assert b"</s>" not in vocab.detokenize(tokens)


def test_tokenize_one_megabyte_gives_as_many_tokens_as_characters(llama_model: Model) -> None:
    text = "abc def." * (2**20 // 8)
    tokens = llama_model.vocab.tokenize(text, add_special=False)
    assert len(tokens) == len(text) + 1
    assert llama_model.vocab.detokenize(tokens) == text.encode()


def test_tokenize_into_writes_caller_memory(llama_model: Model) -> None:
    out = np.full(20, -1, dtype=np.int32)
    n = llama_model.vocab.tokenize_into("hello", out)
    expected = toy_tokens("hello")
    assert out[:n].tolist() == expected
    assert out[n:].tolist() == [-1] * (20 - n)


@pytest.mark.parametrize("kind", [list, tuple, lambda t: array.array("i", t), lambda t: np.array(t, dtype=np.int32)])
def test_detokenize_accepts_sequences_and_buffers(llama_model: Model, kind: Any) -> None:
    assert llama_model.vocab.detokenize(kind(toy_tokens("hello")), remove_special=True) == b" hello"


def test_detokenize_accepts_other_integer_types(llama_model: Model) -> None:
    tokens = np.array(toy_tokens("hello", add_special=False), dtype=np.int64)
    assert llama_model.vocab.detokenize(tokens) == b"hello"
    assert llama_model.vocab.detokenize(tokens[::2]) == llama_model.vocab.detokenize(list(tokens[::2]))


def test_detokenize_nothing_gives_nothing(llama_model: Model) -> None:
    assert llama_model.vocab.detokenize([]) == b""


def test_detokenize_cuts_characters_where_tokens_do(llama_model: Model) -> None:
    tokens = [FIRST_BYTE + byte for byte in "é".encode()]
    assert llama_model.vocab.detokenize(tokens[:1]) == "é".encode()[:1]
    assert llama_model.vocab.detokenize(tokens) == "é".encode()


def test_detokenize_long_pieces_fit(tmp_path: Path) -> None:
    # 48 bytes a token on average: more than the first guess of the buffer
    path = models.write_llama(tmp_path / "long.gguf", models.LlamaShape(n_vocab=288))
    vocabulary = models.toy_vocabulary()
    assert len(vocabulary[0]) == 288
    with Model(path, vocab_only=True) as model:
        tokens = [MASK] * 3000
        assert model.vocab.detokenize(tokens, unparse_special=True) == b"<mask>" * 3000


def test_piece_spells_specials_out_or_leaves_them_out(llama_model: Model) -> None:
    vocab = llama_model.vocab
    assert vocab.piece(EOS) == b"</s>"
    assert vocab.piece(EOS, special=False) == b""
    assert vocab.piece(SPACE) == b" "
    assert vocab.piece(FIRST_BYTE + 0xFF) == b"\xff"


def test_attributes_of_toy_tokens(llama_model: Model) -> None:
    vocab = llama_model.vocab
    assert vocab.attr(UNK) & TokenAttr.UNKNOWN
    assert vocab.attr(BOS) & TokenAttr.CONTROL
    assert vocab.attr(FIRST_BYTE) & TokenAttr.BYTE
    assert vocab.attr(SPACE) & TokenAttr.NORMAL
    assert vocab.is_control(EOS)
    assert not vocab.is_control(SPACE)
    assert vocab.is_eog(EOS)
    assert not vocab.is_eog(SPACE)


def test_special_tokens_of_toy_vocabulary(llama_model: Model) -> None:
    vocab = llama_model.vocab
    assert (vocab.bos, vocab.eos) == (BOS, EOS)
    assert vocab.nl == FIRST_BYTE + ord("\n")
    assert [vocab.sep, vocab.pad, vocab.fim_pre, vocab.fim_suf, vocab.fim_mid] == [None] * 5
    assert [vocab.fim_pad, vocab.fim_rep, vocab.fim_sep] == [None] * 3
    assert vocab.add_bos
    assert not vocab.add_eos
    assert not vocab.add_sep
    assert vocab.suppress_tokens == ()
    assert vocab.type == VocabType.SPM


def test_suppress_tokens_are_those_of_the_file(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "suppress.gguf"
    shape = models.LlamaShape(n_vocab=288)
    writer = models._llama_writer(path, shape)
    writer.add_key_value(
        "tokenizer.ggml.suppress_tokens", [7, 9, 200], gguf.GGUFValueType.ARRAY, sub_type=gguf.GGUFValueType.INT32
    )
    models._finish(writer)
    with Model(path, vocab_only=True) as model:
        assert model.vocab.suppress_tokens == (7, 9, 200)
        assert model.suppress_tokens == (7, 9, 200)


def test_fim_tokens_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "fim.gguf"
    writer = models._llama_writer(path, models.LlamaShape(n_vocab=288))
    names = ["pre", "suf", "mid", "pad", "rep", "sep"]
    for index, name in enumerate(names):
        writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", 261 + index)
    models._finish(writer)
    with Model(path, vocab_only=True) as model:
        assert [getattr(model.vocab, f"fim_{name}") for name in names] == [261 + index for index in range(6)]


def test_vocab_has_length_and_repr(llama_model: Model) -> None:
    assert len(llama_model.vocab) == N_TOY_VOCAB
    assert repr(llama_model.vocab) == "<Vocab SPM n_tokens=288>"


def test_vocab_of_wordpiece_adds_cls_and_sep(bert_path: Path) -> None:
    with Model(bert_path, vocab_only=True) as model:
        tokens = list(model.vocab.tokenize("ab"))
        assert tokens[0] == model.vocab.bos == 2
        assert tokens[-1] == model.vocab.sep == 3
        assert model.vocab.detokenize(tokens) == b" ab"


def test_vocab_of_unigram_adds_eos(t5_path: Path) -> None:
    with Model(t5_path, vocab_only=True) as model:
        tokens = list(model.vocab.tokenize("ab c"))
        assert tokens[-1] == model.vocab.eos == 1
        assert model.vocab.detokenize(tokens) == b"ab c"
        assert model.vocab.type == VocabType.UGM


def test_vocab_can_be_compared_across_loads() -> None:
    with Model(data("llama.gguf"), vocab_only=True) as first, Model(data("target.gguf"), vocab_only=True) as second:
        assert [first.vocab.text(i) for i in range(288)] == [second.vocab.text(i) for i in range(288)]
