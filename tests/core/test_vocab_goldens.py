"""The 15 golden vocabularies of llama.cpp: texts to ids and back, and tokens against an independent reader."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from llamacy.core.model import Model
from llamacy.core.vocab import Vocab
from llamacy.types import TokenAttr, VocabType
from tests.helpers import vendor_dir
from tests.helpers.vocabulary import VocabularyFile, golden_cases

# golden vocabulary -> type of its tokenizer, and whether that cleans up spaces (tokenizer_config.json of the model)
GOLDENS = {
    "bert-bge": (VocabType.WPM, True),
    "command-r": (VocabType.BPE, False),
    "deepseek-coder": (VocabType.BPE, False),
    "deepseek-llm": (VocabType.BPE, False),
    "falcon": (VocabType.BPE, True),
    "gemma-4": (VocabType.BPE, True),
    "gpt-2": (VocabType.BPE, True),
    "llama-bpe": (VocabType.BPE, True),
    "llama-spm": (VocabType.SPM, False),
    "mpt": (VocabType.BPE, True),
    "phi-3": (VocabType.SPM, False),
    "qwen2": (VocabType.BPE, False),
    "qwen35": (VocabType.BPE, False),
    "refact": (VocabType.BPE, True),
    "starcoder": (VocabType.BPE, True),
}


class Golden:
    """One golden vocabulary: the file, what an independent reader says about it, and llamacy's view of it."""

    def __init__(self, name: str, path: Path, model: Model) -> None:
        self.name, self.path, self.model = name, path, model
        self.type, self.clean = GOLDENS[name]
        self.cases = golden_cases(path)
        self.file = VocabularyFile(path)

    @property
    def vocab(self) -> Vocab:
        return self.model.vocab


@pytest.fixture(scope="module", params=GOLDENS)
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    path = vendor_dir() / "models" / f"ggml-vocab-{request.param}.gguf"
    with Model(path, vocab_only=True) as model:
        yield Golden(request.param, path, model)


def test_goldens_are_all_of_the_vendored_tree() -> None:
    folder = vendor_dir() / "models"
    found = {path.name.removeprefix("ggml-vocab-").removesuffix(".gguf.inp") for path in folder.glob("*.inp")}
    assert found == set(GOLDENS)
    assert len(found) == 15


def test_tokenize_golden_text_gives_golden_ids(golden: Golden) -> None:
    for case in golden.cases:
        assert list(golden.vocab.tokenize(case.text, add_special=False)) == case.ids, case.text


def test_tokenize_str_and_bytes_give_the_same_ids(golden: Golden) -> None:
    for case in golden.cases:
        assert list(golden.vocab.tokenize(case.text.decode(), add_special=False)) == case.ids, case.text


def test_tokenize_into_golden_text_gives_golden_ids(golden: Golden) -> None:
    out = np.full(4096, -1, dtype=np.int32)
    for case in golden.cases:
        n = golden.vocab.tokenize_into(case.text, out, add_special=False)
        assert out[:n].tolist() == case.ids, case.text


def test_detokenize_golden_ids_gives_text_of_their_pieces(golden: Golden) -> None:
    for case in golden.cases:
        assert golden.vocab.detokenize(case.ids) == golden.file.detokenize(case.ids, clean=golden.clean), case.text


def test_detokenize_golden_ids_gives_golden_text(golden: Golden) -> None:
    if golden.type == VocabType.WPM:
        pytest.skip("WordPiece drops case, accents and the width of spaces")
    for case in golden.cases:
        # without the cleaning of spaces, which is lossy by design
        assert golden.file.detokenize(case.ids, clean=False) == case.text
        if not golden.clean:
            assert golden.vocab.detokenize(case.ids) == case.text


def test_detokenize_then_tokenize_gives_the_ids_again(golden: Golden) -> None:
    if golden.clean:
        pytest.skip("the tokenizer cleans up spaces, so ids need not come back")
    for case in golden.cases:
        text = golden.vocab.detokenize(case.ids)
        assert list(golden.vocab.tokenize(text, add_special=False)) == case.ids, case.text


def test_pieces_equal_texts_of_file(golden: Golden) -> None:
    tokens = {token for case in golden.cases for token in case.ids}
    tokens |= set(random.Random(1).sample(range(len(golden.vocab)), 2000))
    n_compared = 0
    for token in tokens:
        with contextlib.suppress(KeyError):
            assert golden.vocab.piece(token) == golden.file.piece(token), (token, golden.file.texts[token])
            n_compared += 1
    assert n_compared > 0.9 * len(tokens)


def test_pieces_without_specials_are_empty_for_specials(golden: Golden) -> None:
    for token in range(0, len(golden.vocab), 7):
        with contextlib.suppress(KeyError):
            expected = b"" if _is_special(golden, token) else golden.file.piece(token)
            assert golden.vocab.piece(token, special=False) == expected, token


def _is_special(golden: Golden, token: int) -> bool:
    return bool(golden.vocab.attr(token) & (TokenAttr.CONTROL | TokenAttr.UNKNOWN))


def test_texts_and_scores_equal_arrays_of_file(golden: Golden) -> None:
    assert len(golden.vocab) == golden.vocab.n_tokens == len(golden.file.texts)
    for token in range(0, len(golden.vocab), 11):
        assert golden.vocab.text(token) == golden.file.texts[token].decode("utf-8", "replace")
        assert golden.vocab.score(token) == pytest.approx(golden.file.scores[token])


def test_attributes_equal_token_types_of_file(golden: Golden) -> None:
    attributes = {
        gguf.TokenType.NORMAL: TokenAttr.NORMAL,
        gguf.TokenType.UNKNOWN: TokenAttr.UNKNOWN,
        gguf.TokenType.CONTROL: TokenAttr.CONTROL,
        gguf.TokenType.USER_DEFINED: TokenAttr.USER_DEFINED,
        gguf.TokenType.UNUSED: TokenAttr.UNUSED,
        gguf.TokenType.BYTE: TokenAttr.BYTE,
    }
    kinds = TokenAttr.NORMAL | TokenAttr.UNKNOWN | TokenAttr.CONTROL | TokenAttr.USER_DEFINED
    kinds |= TokenAttr.UNUSED | TokenAttr.BYTE
    different = {
        token
        for token, kind in enumerate(golden.file.types)
        if golden.vocab.attr(token) & kinds != attributes[gguf.TokenType(kind)]
    }
    # llama.cpp makes control tokens of well-known spellings that files have as plain text, "<|im_end|>" and the like
    wrong = [token for token in different if not golden.vocab.is_control(token)]
    assert not wrong, [golden.file.texts[token] for token in wrong]
    assert len(different) < 30


def test_special_tokens_are_those_of_the_types_that_divide_a_text(golden: Golden) -> None:
    kinds = {gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED, gguf.TokenType.UNKNOWN}
    of_file = {token for token, kind in enumerate(golden.file.types) if kind in kinds}
    found = golden.vocab.special_tokens
    assert list(found) == sorted(set(found))
    assert of_file <= set(found)
    # llama.cpp makes control tokens of more, by their spelling
    assert all(golden.vocab.is_control(token) for token in set(found) - of_file)
    assert len(set(found) - of_file) < 30


def test_special_tokens_equal_ids_of_file(golden: Golden) -> None:
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("mask", "mask"), ("sep", "seperator")):
        expected = golden.file.value(f"{key}_token_id")
        if expected is not None:
            assert getattr(golden.vocab, name) == expected
    assert golden.vocab.type == golden.type
    if golden.vocab.eos is not None:
        assert golden.vocab.is_eog(golden.vocab.eos)


def test_add_special_puts_the_tokens_around_that_the_file_asks_for(golden: Golden) -> None:
    if golden.type == VocabType.WPM:
        before, after = [golden.file.value("cls_token_id")], [golden.file.value("seperator_token_id")]
    else:
        add_bos = golden.file.value("add_bos_token", golden.name in ("llama-bpe", "llama-spm", "phi-3"))
        before = [golden.file.value("bos_token_id")] if add_bos else []
        after = [golden.file.value("eos_token_id")] if golden.file.value("add_eos_token", False) else []
    for case in golden.cases:
        assert list(golden.vocab.tokenize(case.text, add_special=True)) == before + case.ids + after
    assert golden.vocab.add_bos == bool(before)


def test_every_byte_string_survives(golden: Golden) -> None:
    if golden.clean or golden.type == VocabType.WPM:
        pytest.skip("the tokenizer changes texts by design")
    rng = random.Random(2)
    for size in (1, 2, 3, 17, 256):
        data = rng.randbytes(size)
        tokens = golden.vocab.tokenize(data, add_special=False)
        text = b"".join(golden.vocab.piece(token) for token in tokens)
        if golden.type == VocabType.SPM:
            text = text.removeprefix(b" ")
        assert text == data or b"\xef\xbf\xbd" in text
