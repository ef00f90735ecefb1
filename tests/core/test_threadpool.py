"""Thread pools: what they accept, who may use them, and that they compute the same."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import numpy as np
import pytest

from llamacy.core._handle import live_handles
from llamacy.core.backend import backends
from llamacy.core.batch import Batch
from llamacy.core.threadpool import ThreadPool
from llamacy.errors import BackendError, ClosedError, InUseError
from llamacy.types import ThreadPriority
from tests.helpers import data
from tests.helpers.process import run_python

TOKENS = [1, 270, 265, 272, 272, 275]


def with_openmp() -> bool:
    return "OPENMP" in backends()["CPU"]


def decode(context: Any) -> np.ndarray:
    context.memory.clear()
    with Batch(len(TOKENS)) as batch:
        batch.extend(TOKENS, 0)
        context.decode(batch)
    return np.array(context.logits(-1))


def test_new_pool_says_what_it_is(closing: Any) -> None:
    pool = closing(ThreadPool(2, cpu_mask=[0], strict_cpu=True) if sys.platform == "linux" else ThreadPool(2))
    assert pool.n_threads == 2
    assert pool.priority is ThreadPriority.NORMAL
    assert pool.n_attached == 0
    assert pool.poll == (None if with_openmp() else 50)
    assert not pool.closed
    if sys.platform == "linux":
        assert pool.cpu_mask == frozenset({0})
        assert pool.strict_cpu
    assert "2 threads" in repr(pool)
    pool.close()
    assert "closed" in repr(pool)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n_threads": 0}, ValueError),
        ({"n_threads": -1}, ValueError),
        ({"n_threads": 513}, ValueError),
        ({"n_threads": 2**40}, ValueError),
        ({"n_threads": 2.0}, TypeError),
        ({"n_threads": True}, TypeError),
        ({"n_threads": "2"}, TypeError),
        ({"cpu_mask": []}, ValueError),
        ({"cpu_mask": [-1]}, ValueError),
        ({"cpu_mask": [100_000]}, ValueError),
        ({"cpu_mask": ["0"]}, TypeError),
        ({"cpu_mask": 1}, TypeError),
        ({"strict_cpu": True}, ValueError),
        ({"poll": -1}, ValueError),
        ({"poll": 101}, ValueError),
        ({"poll": 1.5}, TypeError),
        ({"priority": "urgent"}, ValueError),
        ({"priority": 99}, ValueError),
        ({"unknown": 1}, TypeError),
    ],
)
def test_wrong_option_raises_and_makes_no_pool(options: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        ThreadPool(**{"n_threads": 2, **options})


@pytest.mark.parametrize("options", [{"poll": 10}, {"paused": True}])
def test_option_without_effect_raises(options: dict[str, Any], closing: Any) -> None:
    if with_openmp():
        with pytest.raises(BackendError, match="OpenMP"):
            ThreadPool(2, **options)
    else:
        closing(ThreadPool(2, **options))


@pytest.mark.parametrize("options", [{"cpu_mask": [0]}, {"priority": "low"}])
def test_option_without_effect_on_one_thread_raises(options: dict[str, Any]) -> None:
    if not with_openmp() or sys.platform != "linux":
        pytest.skip("it has an effect here")
    with pytest.raises(BackendError, match="one thread"):
        ThreadPool(1, **options)


@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="needs real-time scheduling of Linux")
def test_priority_that_the_system_refuses_raises() -> None:
    code = (
        "import resource\n"
        "from llamacy.core.threadpool import ThreadPool\n"
        "from llamacy.errors import BackendError\n"
        "import os\n"
        "if os.geteuid() == 0:\n"
        "    os.setuid(65534)\n"
        "resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))\n"
        "ThreadPool(2, priority='low').close()\n"
        "try:\n"
        "    ThreadPool(2, priority='high')\n"
        "except BackendError as error:\n"
        "    assert 'HIGH' in str(error)\n"
        "else:\n"
        "    raise SystemExit('no error')\n"
    )
    run_python(code)


def test_largest_pool_can_be_made(closing: Any) -> None:
    assert closing(ThreadPool(512)).n_threads == 512


def test_close_twice_is_fine_and_closed_pool_raises() -> None:
    pool = ThreadPool(1)
    pool.close()
    pool.close()
    assert pool.closed
    with pytest.raises(ClosedError):
        pool.__enter__()


def test_handles_are_counted() -> None:
    before = live_handles()["threadpool"]
    with ThreadPool(1):
        assert live_handles()["threadpool"] == before + 1
    pool = ThreadPool(1)
    del pool
    gc.collect()
    assert live_handles()["threadpool"] == before


def test_attached_pool_computes_the_same(make_model: Any, make_context: Any, closing: Any) -> None:
    model = make_model("target.gguf")
    expected = decode(make_context(model))
    context = make_context(model)
    pool, pool_batch = closing(ThreadPool(1)), closing(ThreadPool(2))
    context.attach_threadpool(pool, pool_batch)
    np.testing.assert_array_equal(decode(context), expected)
    context.detach_threadpool()
    np.testing.assert_array_equal(decode(context), expected)
    context.close()


def test_close_of_attached_pool_raises(make_model: Any, make_context: Any) -> None:
    context = make_context(make_model("target.gguf"))
    pool = ThreadPool(1)
    context.attach_threadpool(pool)
    assert pool.n_attached > 0
    with pytest.raises(InUseError, match="detach"):
        pool.close()
    decode(context)
    context.close()
    assert pool.n_attached == 0
    pool.close()


def test_pool_that_was_detached_is_closed_at_once_and_freed_when_nothing_points_to_it(
    make_model: Any, make_context: Any
) -> None:
    before = live_handles()["threadpool"]
    context = make_context(make_model("target.gguf"))
    expected = decode(context)
    with ThreadPool(1) as pool:
        context.attach_threadpool(pool)
        assert pool.n_attached == 1
        decode(context)
        context.detach_threadpool()
        assert pool.n_attached == 0
    assert pool.closed
    with pytest.raises(ClosedError):
        context.attach_threadpool(pool)
    # llama.cpp pauses it in the next decode
    assert live_handles()["threadpool"] == before + 1
    np.testing.assert_array_equal(decode(context), expected)
    assert live_handles()["threadpool"] == before


def test_pool_that_was_detached_is_freed_with_the_context(make_model: Any, make_context: Any) -> None:
    before = live_handles()["threadpool"]
    context = make_context(make_model("target.gguf"))
    pools = [ThreadPool(1), ThreadPool(1)]
    context.attach_threadpool(*pools)
    decode(context)
    context.attach_threadpool(pools[1])
    pools[0].close()
    with pytest.raises(InUseError, match="1 context;"):
        pools[1].close()
    context.detach_threadpool()
    pools[1].close()
    context.close()
    assert live_handles()["threadpool"] == before


def test_pool_that_is_attached_again_stays_open(make_model: Any, make_context: Any, closing: Any) -> None:
    context = make_context(make_model("target.gguf"))
    pool = closing(ThreadPool(1))
    for _ in range(3):
        context.attach_threadpool(pool)
        context.detach_threadpool()
    context.attach_threadpool(pool)
    decode(context)
    with pytest.raises(InUseError):
        pool.close()
    decode(context)
    context.close()


def test_pool_outlives_its_name_while_attached(make_model: Any, make_context: Any) -> None:
    context = make_context(make_model("target.gguf"))
    context.attach_threadpool(ThreadPool(1))
    gc.collect()
    before = decode(context)
    np.testing.assert_array_equal(decode(context), before)


def test_closed_pool_is_not_attached(make_model: Any, make_context: Any) -> None:
    context = make_context(make_model("target.gguf"))
    pool = ThreadPool(1)
    pool.close()
    with pytest.raises(ClosedError):
        context.attach_threadpool(pool)
    decode(context)


def test_pool_with_fewer_threads_than_the_context_is_not_attached(
    make_model: Any, make_context: Any, closing: Any
) -> None:
    # with OpenMP, ggml would read beyond the pool's workers
    context = make_context(make_model("target.gguf"), n_threads=2, n_threads_batch=2)
    with pytest.raises(ValueError, match="threads"):
        context.attach_threadpool(closing(ThreadPool(1)))


@pytest.mark.skipif(sys.platform != "linux", reason="affinity of Linux")
def test_threads_run_on_the_cpus_of_the_mask() -> None:
    # the thread that decodes keeps the affinity, so this needs a process of its own
    code = (
        "import os, sys\n"
        "from llamacy.core.batch import Batch\n"
        "from llamacy.core.context import Context\n"
        "from llamacy.core.model import Model\n"
        "from llamacy.core.threadpool import ThreadPool\n"
        "cpu = min(os.sched_getaffinity(0))\n"
        "with Model(sys.argv[1]) as model, Context(model, n_ctx=256, n_threads=2, n_threads_batch=2) as context:\n"
        "    context.attach_threadpool(ThreadPool(2, cpu_mask=[cpu]))\n"
        "    with Batch(2) as batch:\n"
        "        batch.extend([1, 270], 0)\n"
        "        context.decode(batch)\n"
        "    assert os.sched_getaffinity(0) == {cpu}, os.sched_getaffinity(0)\n"
    )
    run_python(code, str(data("target.gguf")))
