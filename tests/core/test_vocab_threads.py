"""Vocab: one vocabulary, many threads."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from llamacy.core.model import Model
from llamacy.core.vocab import Vocab
from llamacy.errors import ClosedError, InUseError
from tests.helpers import data, toy_tokens, vendor_dir
from tests.helpers.vocabulary import golden_cases


def test_tokenize_from_eight_threads_gives_the_same_ids() -> None:
    path = vendor_dir() / "models" / "ggml-vocab-llama-bpe.gguf"
    cases = golden_cases(path)

    def work(_: int) -> bool:
        return all(
            list(model.vocab.tokenize(case.text, add_special=False)) == case.ids
            and isinstance(model.vocab.detokenize(case.ids), bytes)
            for case in cases
        )

    with Model(path, vocab_only=True) as model, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_tokenize_releases_the_gil(llama_model: Model) -> None:
    # both threads must be inside the call at the same time for the barrier of the second to be reached in time
    text = b"a" * 2**22
    started = threading.Event()
    counted = 0

    def work() -> None:
        started.set()
        llama_model.vocab.tokenize(text)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    while thread.is_alive():
        counted += 1
    thread.join()
    assert counted > 10


def _count_tokens(vocab: Vocab, text: bytes, started: threading.Event) -> int | ClosedError:
    started.set()
    try:
        return len(vocab.tokenize(text))
    except ClosedError as error:
        return error


def test_close_while_another_thread_tokenizes_is_refused_or_comes_first() -> None:
    text = b"abc def." * 2**18
    with ThreadPoolExecutor(1) as pool:
        for _ in range(5):
            model = Model(data("llama.gguf"), vocab_only=True)
            started = threading.Event()
            counting = pool.submit(_count_tokens, model.vocab, text, started)
            started.wait()
            with contextlib.suppress(InUseError):
                model.close()
            result = counting.result()
            model.close()
            assert result == len(text) + 2 or isinstance(result, ClosedError)


def test_vocab_reads_from_threads_while_contexts_come_and_go(llama_model: Model) -> None:
    stop = threading.Event()

    def work() -> bool:
        while not stop.is_set():
            if list(llama_model.vocab.tokenize("hello")) != toy_tokens("hello"):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work) for _ in range(4)]
        for _ in range(20):
            with Model(data("target.gguf"), vocab_only=True) as other:
                assert list(other.vocab.tokenize("hello")) == toy_tokens("hello")
        stop.set()
        assert all(future.result() for future in futures)


@pytest.mark.parametrize("n_threads", [32])
def test_models_created_and_dropped_on_many_threads_leave_nothing(n_threads: int) -> None:
    def work(_: int) -> None:
        for _ in range(5):
            model = Model(data("llama.gguf"), vocab_only=True)
            model.vocab.tokenize("hello")
            del model

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, range(n_threads)))
