"""`Attempt`: locks that are taken for a block if they are free."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from llamacy.core.attempt import Attempt
from tests.helpers.locks import is_free


@pytest.fixture(params=[threading.Lock, threading.RLock])
def locks(request):
    return [request.param() for _ in range(3)]


def test_free_locks_are_taken_for_the_block(locks):
    with Attempt(*locks) as taken:
        assert taken is True
        assert not any(map(is_free, locks))
    assert all(map(is_free, locks))


def test_free_locks_are_taken_where_another_one_is_not_free(locks):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(locks[1].acquire).result()
        with Attempt(*locks) as taken:
            assert taken is False
            assert not any(map(is_free, locks))
        assert list(map(is_free, locks)) == [True, False, True]
        pool.submit(locks[1].release).result()
    assert all(map(is_free, locks))


def test_locks_are_free_after_an_exception(locks):
    with pytest.raises(KeyError), Attempt(*locks):
        raise KeyError
    assert all(map(is_free, locks))


def test_lock_that_can_not_be_asked_leaves_the_others_free(locks):
    with pytest.raises(AttributeError), Attempt(*locks, None):
        pytest.fail("the block ran")
    assert all(map(is_free, locks))


def test_attempt_can_be_made_again_after_its_block_but_not_within(locks):
    attempt = Attempt(*locks)
    with attempt as taken:
        assert taken
        with pytest.raises(RuntimeError, match="has its block already"):
            attempt.__enter__()
        assert not any(map(is_free, locks))
    with attempt as taken:
        assert taken
    assert all(map(is_free, locks))


def test_lock_of_this_thread_is_taken_again():
    lock = threading.RLock()
    with lock:
        with Attempt(lock) as taken:
            assert taken
        assert not is_free(lock)
    assert is_free(lock)


def test_no_lock_is_no_obstacle():
    with Attempt() as taken:
        assert taken
